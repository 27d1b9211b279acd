"""What do codes cost in perplexity? Table 1 and Figure 2 of Chen, Min & Sun.

The paper's small LSTM on Penn Treebank with a table, then with codes learned
from that table and fixed, or learned with the model. All rows are trained for a
few epochs of Adam with a sampled softmax (https://arxiv.org/abs/1711.03067).
"""

import dataclasses
import functools
import pathlib
import sys
import time

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.baselines import RandomCodeLearner
from benchmarks.common import word_lstm
from benchmarks.common.arguments import Flag
from benchmarks.common.arguments import code_shape
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.data.words import Text
from keras_compembed.utils.files import replacing

# Test perplexity of the paper's small model.
PAPER = {
    "conventional": 114.53,
    "random+linear": 144.32,
    "random+lstm": 147.13,
    "linear+linear": 118.40,
    "linear+lstm": 111.13,
    "lstm+linear": 117.21,
    "lstm+lstm": 111.31,
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    num_codebooks: int | None = None
    codebook_size: int | None = None
    composition: str | None = None
    learner: str | None = None
    learn_codes: str | None = None
    swept: bool = False

    @property
    def codes(self):
        return f"{self.num_codebooks}x{self.codebook_size}"


class LanguageModel(Benchmark):
    settings = word_lstm.recipe_flags()
    choices = {
        "codes": Flag("16x16", "MxK"),
        "concat_codes": Flag("50x16", "MxK"),
        "sweep": Flag(
            ("4x16", "8x16", "32x16", "16x4", "16x8", "16x32"),
            "MxK,MxK,..., or nothing",
        ),
        "learner_steps": 5000,
        "cache": Flag(
            pathlib.Path("build", "language_model"),
            "folder of the conventional table and of codes",
        ),
    }
    quick = {
        **word_lstm.QUICK,
        "codes": "4x4",
        "concat_codes": "4x4",
        "sweep": (),
        "learner_steps": 20,
    }

    def rows(self):
        args = self.args
        small = code_shape(args.codes)
        narrow = code_shape(args.concat_codes)

        def learned(learner, composition):
            name = f"{learner}+{composition}"
            return Row(name, *small, composition, learner)

        def joint(learn_codes, composition, codes):
            name = f"end to end, {learn_codes}+{composition}"
            return Row(name, *codes, composition, learn_codes=learn_codes)

        return [
            Row("conventional"),
            learned("additive", "sum"),
            learned("linear", "linear"),
            joint("softmax", "concat", narrow),
            joint("nearest", "concat", narrow),
            joint("softmax", "sum", small),
            learned("linear", "lstm"),
            learned("lstm", "lstm"),
            Row("concat+concat", *narrow, "concat", "concat"),
            learned("weighted", "sum"),
            learned("random", "linear"),
            learned("lstm", "linear"),
            learned("random", "lstm"),
            *(
                Row(
                    "linear+linear",
                    *code_shape(codes),
                    "linear",
                    "linear",
                    swept=True,
                )
                for codes in args.sweep
            ),
        ]

    @functools.cached_property
    def text(self):
        return Text(self.folder / "ptb")

    def measure(self, row, seed):
        recipe = word_lstm.Recipe.of(self.args, seed)
        cache = self.args.cache / recipe.digest()
        keras.utils.set_random_seed(seed)
        embedding, seconds = self.embedding(row, seed, cache)
        model = word_lstm.make_model(
            embedding, self.text, recipe, self.jit_compile
        )
        epochs, taken = word_lstm.train(model, self.text)
        if row.learn_codes:
            model = kc.strip(model)
            embedding = model.get_layer(embedding.name)
            model.compile(jit_compile=self.jit_compile)
        figures = {
            "valid": word_lstm.perplexity(model, self.text, "valid"),
            "test": word_lstm.perplexity(model, self.text, "test"),
            "valid_by_epoch": [round(valid, 2) for valid in epochs],
            "parameters": count_parameters(embedding),
            "bytes": count_bytes(embedding),
            "seconds": taken,
            "seconds_codes": round(seconds),
        }
        if row.name == "conventional":
            save(cache / "conventional.npz", table=embedding.get_weights()[0])
        other = self.figures_of(Row("conventional"), seed) or figures
        return figures | ratios(row, figures, other)

    def embedding(self, row, seed, cache):
        """The row's embedding, and the seconds its codes took to learn."""
        size = len(self.text.vocabulary), self.args.units
        if row.name == "conventional":
            return keras.layers.Embedding(
                *size, embeddings_initializer=random_normal()
            ), 0
        codes, seconds = {}, 0
        if row.learner:
            codes = self.codes(row, seed, cache)
            seconds = float(codes.pop("seconds"))
        # Vectors start at the length of the conventional ones.
        sums = row.composition in ("sum", "linear")
        options = {
            "codes": row.learn_codes,
            "codebooks": random_normal(row.num_codebooks if sums else 1),
            **codes,
        }
        return kc.CodeEmbedding(
            *size,
            num_codebooks=row.num_codebooks,
            codebook_size=row.codebook_size,
            composition=row.composition,
            **options,
        ), seconds

    def codes(self, row, seed, cache):
        """Dict of codes, codebooks and seconds, learned once a learner."""
        path = cache / f"codes-{row.learner}-{row.codes}.npz"
        if not path.exists():
            table = conventional_table(cache)
            weights = None
            if row.learner == "weighted":
                weights = self.text.counts**0.5
            start = time.time()
            learner = self.learner(row, seed)
            learner.train(table, sample_weight=weights)
            seconds = time.time() - start
            save(path, codes=learner.codes, seconds=seconds)
        with np.load(path) as file:
            return dict(file)

    def learner(self, row, seed):
        shape = row.num_codebooks, row.codebook_size
        if row.learner == "random":
            return RandomCodeLearner(*shape, seed=seed)
        if row.learner in ("additive", "weighted"):
            return kc.learners.AdditiveQuantizer(*shape, seed=seed, verbose=0)
        return kc.learners.KDCodeLearner(
            *shape,
            composition=row.learner,
            training=kc.learners.Training(self.args.learner_steps),
            seed=seed,
            verbose=0,
        )


def random_normal(num_terms=1):
    # Keras's 0.03 is so short that LSTMs need half an epoch to hear it.
    return keras.initializers.RandomNormal(stddev=0.3 * num_terms**-0.5)


def save(path, **arrays):
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, overwrite=True) as beside:
        np.savez(beside, **arrays)


def conventional_table(cache):
    path = cache / "conventional.npz"
    if not path.exists():
        sys.exit("Run the conventional row first: its table is needed.")
    with np.load(path) as file:
        return file["table"]


def ratios(row, figures, other):
    """Figures to those of the conventional row and of the paper."""
    return {
        "parameters_ratio": figures["parameters"] / other["parameters"],
        "bytes_ratio": figures["bytes"] / other["bytes"],
        "ratio": figures["test"] / other["test"],
        "paper": None if row.swept else PAPER.get(row.name),
    }


def count_parameters(embedding):
    """As the paper counts: codewords and what composes them, no codes."""
    return sum(int(np.prod(weight.shape)) for weight in embedding.weights) - (
        codes_size(embedding)
    )


def codes_size(embedding):
    codes = getattr(embedding, "packed_codes", None)
    return 0 if codes is None else int(np.prod(codes.shape))


def count_bytes(embedding):
    """Codes as packed, and float32 codewords as in an exported file."""
    numbers = count_parameters(embedding)
    composition = getattr(embedding, "composition", None)
    if composition is not None:
        folded = composition.fold(embedding.codebooks.value)
        if folded is not None:
            numbers = min(numbers, int(np.prod(folded.shape)))
    return codes_size(embedding) + 4 * numbers


main = functools.partial(run, LanguageModel)
