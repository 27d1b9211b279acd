"""Which sampled classes train a language model best in the same time?

    TF_NUM_INTRAOP_THREADS=1 taskset -c 0 python -m benchmarks \\
        classes.language_model --seconds 180 --learning-rates 2e-3,5e-3

Figure 3 of the paper on Penn Treebank: an LSTM, by `CANESoftmax` in the setting
of section 5 of the paper and in others, and by its rivals, with 40 sampled
words. Each row has the same seconds of steps by the clock, without tracing and
evaluation; the full softmax is also trained until it converges.

Paper: https://arxiv.org/abs/1711.00658
"""

import dataclasses
import functools
import math

import keras

import keras_compembed as kc
from benchmarks import baselines
from benchmarks.common import tables
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.common.timing import TimedTraining
from benchmarks.data import words


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    loss: str = "cane"
    selector: str = "frequent"
    candidates: int = 10
    noises: int = 30
    noise: str = "unigram"
    power: float = 0.75
    shared: str = "sequence"
    estimate: str = "joint"
    converged: bool = False


class WordsInTime(Benchmark):
    settings = {
        "seconds": 300.0,
        "epochs": Flag(6, "of rows that converge"),
        "sampled": 40,
        "batch_size": 64,
        "steps": 20,
        "width": Flag(128, "of embeddings"),
        "units": 128,
        "dropout": 0.0,
        "evaluations": 6,
        "evaluation_steps": Flag(
            30, "batches of the validation part evaluated on the way"
        ),
        "test_steps": Flag(64, "batches evaluated in the end"),
    }
    # Not a setting: rows may have had different ones.
    choices = {"learning_rates": (2e-3,)}
    quick = {
        "seconds": 0.5,
        "epochs": 2,
        "sampled": 8,
        "batch_size": 4,
        "steps": 3,
        "width": 8,
        "units": 8,
        "evaluations": 2,
    }
    columns = {
        "row": tables.field("name"),
        "candidates": lambda row: sizes(row)[0],
        "noises": lambda row: sizes(row)[1],
        "valid": tables.figure("valid"),
        "test": tables.figure("test"),
        "seconds": tables.figure("seconds", "{:.0f}"),
        "epochs": tables.figure("epochs"),
        "steps a second": tables.figure("steps_per_second"),
        "learning rate": tables.figure("learning_rate", "{:g}"),
    }

    def rows(self):
        """The full softmax, rivals, the paper's rows, others."""
        sampled = self.args.sampled
        quarter = sampled // 4

        def cane(name, candidates=quarter, **kwargs):
            noises = kwargs.pop("noises", sampled - candidates)
            return Row(name, candidates=candidates, noises=noises, **kwargs)

        def full(name, **kwargs):
            return Row(name, "full", candidates=1, noises=1, **kwargs)

        def rival(name, loss, power):
            return cane(name, loss=loss, power=power, shared="batch")

        def one_noise(name, selector, **kwargs):
            settings = {"noises": 1, "estimate": "separate", "shared": "no"}
            return cane(name, sampled, selector=selector, **(settings | kwargs))

        return [
            full("full softmax"),
            rival("sampled softmax", "sampled", 0.75),
            rival("NCE", "nce", 1.0),
            rival("BlackOut", "blackout", 0.4),
            one_noise("paper: subsets", "subsets", noise="uniform"),
            cane("frequent"),
            cane("bigrams", selector="bigrams"),
            full("full softmax, converged", converged=True),
            cane("frequent, noises of an example", shared="no"),
            cane("frequent, noises of a batch", shared="batch"),
            cane("frequent, separate", estimate="separate"),
            cane("subsets, many noises", selector="subsets"),
        ]

    @functools.cached_property
    def text(self):
        return words.Text(self.folder / "ptb")

    def measure(self, row, seed):
        return Training(row, self.text, seed, self).measure()


def sizes(row):
    """Candidates and noises, as far as a row has them."""
    candidates, noises = row["row"]["candidates"], row["row"]["noises"]
    return {
        "full": ("", ""),
        "cane": (candidates, noises),
    }.get(row["row"]["loss"], ("", candidates + noises))


class Training:
    """Trains and measures one row."""

    def __init__(self, row, text, seed, benchmark):
        self.row, self.text, self.seed = row, text, seed
        self.args = args = benchmark.args
        self.jit_compile = benchmark.jit_compile
        self.parts = {
            part: text.segments(part, args.batch_size, args.steps)
            for part in ("train", "valid", "test")
        }
        for part in ("valid", "test"):
            size = args.test_steps * args.batch_size
            self.parts[part] = [array[:size] for array in self.parts[part]]

    def measure(self):
        tried = {}
        for rate in self.args.learning_rates:
            model, clock = self.train(rate)
            valid = round(perplexity(model, *self.parts["valid"]), 2)
            print(f"  learning rate {rate:g}: valid {valid}", flush=True)
            if valid <= min(tried.values(), default=valid):
                best = rate, model, clock
            tried[rate] = valid
        rate, model, clock = best
        steps_an_epoch = len(self.parts["train"][0]) // self.args.batch_size
        return {
            "valid": tried[rate],
            "test": round(perplexity(model, *self.parts["test"]), 2),
            "learning_rate": rate,
            "valid_by_learning_rate": {
                f"{rate:g}": value for rate, value in tried.items()
            },
            "seconds": round(clock.seconds, 3),
            "steps": clock.steps,
            "epochs": round(clock.steps / steps_an_epoch, 2),
            "steps_per_second": round(clock.steps / clock.seconds, 2),
            "curve": clock.curve,
        }

    def train(self, rate):
        """A model, and the `TimedTraining` of it."""
        args = self.args
        keras.backend.clear_session()
        keras.utils.set_random_seed(self.seed)
        model = self.make_model()
        inputs, targets = self.parts["train"]
        steps = None
        if self.row.converged:
            steps = args.epochs * (len(inputs) // args.batch_size)
        size = args.evaluation_steps * args.batch_size
        valid = [array[:size] for array in self.parts["valid"]]
        clock = TimedTraining(
            rate,
            args.seconds,
            [
                (place + 1) / (args.evaluations + 1)
                for place in range(args.evaluations)
            ],
            lambda: {"valid": round(perplexity(model, *valid), 2)},
            max_steps=steps,
        )
        model.fit(
            inputs,
            targets,
            batch_size=args.batch_size,
            # The clock stops it.
            epochs=1_000_000,
            shuffle=False,
            verbose=0,
            callbacks=[clock, state_reset(model)],
        )
        return model, clock

    def make_model(self):
        row, args = self.row, self.args
        ids, features = word_features(len(self.text.counts), args)
        head = self.make_head()
        if row.selector == "bigrams":
            # Candidates depend on the word before.
            outputs = head(features, context=ids)
        else:
            outputs = head(features)
        model = keras.Model(ids, outputs)
        model.compile(
            keras.optimizers.Adam(args.learning_rates[0], global_clipnorm=1.0),
            loss=_LOSSES[row.loss](),
            jit_compile=self.jit_compile,
        )
        return model

    def make_head(self):
        row, counts = self.row, self.text.counts
        shared = {"no": False, "sequence": self.args.steps, "batch": True}
        return kc.CANESoftmax(
            len(counts),
            selector=_SELECTORS[row.selector](self),
            num_candidates=row.candidates,
            num_noises=row.noises,
            noise=_NOISES[row.noise](row, counts),
            share_noises=shared[row.shared],
            estimate=row.estimate,
            class_counts=counts,
            seed=self.seed,
        )

    def frequent(self):
        return kc.candidates.FrequentClasses(self.text.counts)

    def subsets(self):
        return kc.candidates.FrequencySubsets(
            self.text.counts, num_subsets=6, seed=self.seed
        )

    def bigrams(self):
        return kc.candidates.NGram.from_text(
            self.text.ids["train"],
            len(self.text.counts),
            num_best=self.row.candidates,
        )


_SELECTORS = {
    "frequent": Training.frequent,
    "subsets": Training.subsets,
    "bigrams": Training.bigrams,
}
_NOISES = {
    "uniform": lambda row, counts: kc.noises.UniformNoise(),
    "unigram": lambda row, counts: kc.noises.UnigramNoise(counts, row.power),
}
_LOSSES = {
    "cane": kc.CANELoss,
    "full": baselines.FullSoftmaxLoss,
    "sampled": kc.SampledSoftmaxLoss,
    "nce": kc.NCELoss,
    "blackout": baselines.BlackOutLoss,
}


def word_features(num_words, args):
    """Ids of words, and features of a stateful LSTM."""
    ids = keras.Input(batch_shape=(args.batch_size, args.steps), dtype="int32")
    features = keras.layers.Embedding(num_words, args.width)(ids)
    if args.dropout:
        features = keras.layers.Dropout(args.dropout)(features)
    features = keras.layers.LSTM(
        args.units, return_sequences=True, stateful=True, unroll=True
    )(features)
    if args.dropout:
        features = keras.layers.Dropout(args.dropout)(features)
    return ids, features


def states_of(model):
    return [
        state
        for layer in model.layers
        if isinstance(layer, keras.layers.LSTM)
        for state in layer.states
    ]


def reset_states(model):
    for layer in model.layers:
        if isinstance(layer, keras.layers.LSTM):
            layer.reset_states()


def state_reset(model):
    """A callback: an epoch begins where the text does."""
    return keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: reset_states(model)
    )


def perplexity(model, inputs, targets):
    """Over all words. Training may go on from the states that it has."""
    states = [state.numpy() for state in states_of(model)]
    reset_states(model)
    loss = model.evaluate(
        inputs, targets, batch_size=model.inputs[0].shape[0], verbose=0
    )
    for state, value in zip(states_of(model), states, strict=True):
        state.assign(value)
    return math.exp(loss)


main = functools.partial(run, WordsInTime)
