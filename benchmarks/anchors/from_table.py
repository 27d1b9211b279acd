"""What do anchors lose that begin from a table half way? Liang et al.

An LSTM on Penn Treebank with one matrix in and out, and the paper's CNN on 20
Newsgroups, train for half of the epochs with a table. Then anchors and sparse
rows are fitted to it, or words are selected, and all trains on. Rows train for
equally long. First halves are kept in `--cache`.
Paper: https://arxiv.org/abs/2003.08197.
"""

import dataclasses
import functools
import hashlib
import math
import pathlib

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from benchmarks.anchors import classification
from benchmarks.anchors.k_svd import learn_by_k_svd
from benchmarks.anchors.language_model import TiedLanguageModel
from benchmarks.anchors.language_model import count_numbers
from benchmarks.common import word_lstm
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.data import text_ids
from benchmarks.data.words import Text
from keras_compembed.anchors.sparse_coding import sparse_code

# Of the rate at the end of training.
_LAST_RATE = 0.02
_WARMUP = 50
# Of the fit of anchors and sparse rows.
_ITERATIONS = 4
_GROUP_LASSO = 1e-5


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    task: str
    rate: float
    numbers: int | None = None
    num_anchors: int | None = None
    most: int | None = None
    power: float = 0.5
    fit: str = "own"
    length: float = 1.0
    words: str | None = None


class FromTable(Benchmark):
    settings = {
        "ptb_epochs": 4,
        "dropout": 0.2,
        "newsgroups_epochs": 6,
    }
    choices = {
        "tasks": ("ptb", "newsgroups cnn"),
        "cache": Flag(
            pathlib.Path("build", "from_table"),
            "folder of first halves",
        ),
    }
    quick = {"ptb_epochs": 2, "newsgroups_epochs": 2}

    def rows(self):
        rows = ptb_rows() + newsgroups_rows()
        if self.args.quick:
            rows = quick_rows()
        return [row for row in rows if row.task in self.args.tasks]

    @functools.cached_property
    def makers(self):
        return {"ptb": PennTreebank(self), "newsgroups cnn": Newsgroups(self)}

    def measure(self, row, seed):
        return self.makers[row.task].measure(row, seed)


def ptb_rows():
    def row(name, rate=3e-3, **kwargs):
        return Row(f"{name}, rate {rate:g}", "ptb", rate, **kwargs)

    def anchors(name="500 anchors", numbers=270_000, num_anchors=500, **kwargs):
        kwargs = {"most": 60, "length": 4.0, **kwargs}
        return row(name, numbers=numbers, num_anchors=num_anchors, **kwargs)

    return [
        *(row("table", rate) for rate in (3e-3, 1.5e-3, 6e-3)),
        *(anchors(rate=rate) for rate in (3e-3, 1.5e-3, 6e-3)),
        anchors("500 anchors, 0.41 million", 410_000),
        anchors("250 anchors, 0.13 million", 130_000, 250),
        anchors("100 anchors, 0.05 million", 50_000, 100),
    ]


def newsgroups_rows():
    def row(name, rate=2e-3, **kwargs):
        return Row(f"{name}, rate {rate:g}", "newsgroups cnn", rate, **kwargs)

    def anchors(name="128 anchors", numbers=256_400, num_anchors=128, **kwargs):
        kwargs = {"most": 32, "power": 1.0, **kwargs}
        return row(name, numbers=numbers, num_anchors=num_anchors, **kwargs)

    def words(by):
        return row(f"2,000 words by {by}", numbers=256_400, words=by)

    return [
        *(row("table", rate) for rate in (2e-3, 1e-3, 4e-3)),
        *(anchors(rate=rate) for rate in (2e-3, 1e-3, 4e-3)),
        words("frequency"),
        words("group lasso"),
        anchors("128 anchors, after group lasso", words="group lasso"),
        anchors("128 anchors, as many in each row", most=None),
        anchors("128 anchors, by K-SVD", most=None, fit="k-svd"),
        anchors("128 anchors, 0.13 million", 130_000),
        anchors("128 anchors, 0.52 million", 520_000),
        anchors("256 anchors", num_anchors=256),
        anchors("128 anchors by fit_compressed", most=None, fit="one call"),
    ]


def quick_rows():
    def sizes(numbers, **kwargs):
        return {"numbers": numbers, "num_anchors": 6, **kwargs}

    words = "newsgroups cnn"
    return [
        Row("table", "ptb", 1e-2),
        Row("anchors", "ptb", 1e-2, **sizes(130, most=5)),
        Row("anchors", words, 1e-2, **sizes(400, most=5)),
        Row("K-SVD", words, 1e-2, **sizes(400, fit="k-svd")),
        Row("one call", words, 1e-2, **sizes(400, fit="one call")),
        Row("group lasso", words, 1e-2, 400, words="group lasso"),
    ]


class Task:
    """What the tasks have in common."""

    def __init__(self, benchmark):
        self.benchmark, self.args = benchmark, benchmark.args

    def start(self, row, seed):
        """Arrays of the first half, from the cache once they are there."""
        kind = row.words if row.words != "frequency" else None
        text = repr(sorted(self.benchmark.recorded.items()))
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        name = f"{row.task} {kind or 'table'} {seed} {digest}.npz"
        path = self.args.cache / name.replace(" ", "_")
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            arrays = self.first_half(kind, seed)
            with kc.utils.files.replacing(path, overwrite=True) as beside:
                np.savez(beside, **arrays)
        with np.load(path) as arrays:
            return dict(arrays)


def fit_anchors(row, table, counts, seed, **kwargs):
    """An `ANTEmbedding` of a table, with a T that is trained in its places."""
    numbers = row.numbers - row.num_anchors * table.shape[1]
    shared = row.most is not None
    most = row.most if shared else numbers // len(table)
    layer = kc.ANTEmbedding.from_table(
        table,
        num_anchors=row.num_anchors,
        max_nonzeros=most,
        total_nonzeros=numbers if shared else None,
        l1=kc.anchors.L1(0.0, non_negative=False),
        transform="sparse",
        iterations=_ITERATIONS,
        sample_weight=counts**row.power,
        seed=seed,
        verbose=0,
        **kwargs,
    )
    transform, anchors = layer.get_transform(), layer.anchors
    if row.fit == "k-svd":
        transform, anchors = by_k_svd(row, table, counts, seed, most)
    layer.anchors.assign(anchors * row.length)
    values = transform.values / np.float32(row.length)
    layer.assign_transform(dataclasses.replace(transform, values=values))
    return kc.strip(layer, trainable=True)


def by_k_svd(row, table, counts, seed, most):
    """A row counts by its weight when it is scaled by the root of that."""
    weighted = table * np.sqrt(counts**row.power)[:, None].astype("float32")
    _, anchors = learn_by_k_svd(
        weighted[counts > 0], row.num_anchors, most, _ITERATIONS, seed
    )
    return sparse_code(table, anchors, most, False), anchors


def falling(rate, steps):
    warmup = min(_WARMUP, steps // 4)
    return keras.optimizers.schedules.CosineDecay(
        0.0,
        steps - warmup,
        alpha=_LAST_RATE,
        warmup_target=rate,
        warmup_steps=warmup,
    )


class PennTreebank(Task):
    @functools.cached_property
    def text(self):
        return Text(self.benchmark.folder / "ptb")

    def recipe(self, seed):
        quick = word_lstm.QUICK if self.args.quick else {}
        settings = {**quick, "epochs": self.args.ptb_epochs // 2}
        return word_lstm.Recipe(
            seed=seed, dropout=self.args.dropout, **settings
        )

    def model(self, embedding, seed, rate, falls):
        keras.utils.set_random_seed(seed)
        recipe = self.recipe(seed)
        tokens = len(self.text.ids["train"]) - 1
        steps = recipe.epochs * (tokens // (recipe.batch_size * recipe.steps))
        model = TiedLanguageModel(
            embedding,
            self.text.counts,
            recipe,
            steps,
            self.benchmark.jit_compile,
        )
        model.build((recipe.batch_size, recipe.steps))
        inner = keras.optimizers.Adam(
            falling(rate, steps) if falls else rate,
            global_clipnorm=recipe.clipnorm,
        )
        keras.Model.compile(
            model,
            kc.optimizers.SparseRowOptimizer(inner),
            jit_compile=self.benchmark.jit_compile,
        )
        return model

    def first_half(self, kind, seed):
        assert kind is None
        recipe = self.recipe(seed)
        table = keras.layers.ReversibleEmbedding(
            len(self.text.vocabulary),
            recipe.units,
            embeddings_initializer=keras.initializers.RandomNormal(
                stddev=0.1, seed=seed
            ),
        )
        model = self.model(table, seed, recipe.learning_rate, falls=False)
        word_lstm.train(model, self.text)
        arrays = [weight.numpy() for weight in _others(model)]
        return {
            "table": table.get_weights()[0],
            **{f"other_{i}": array for i, array in enumerate(arrays)},
        }

    def measure(self, row, seed):
        start = self.start(row, seed)
        embedding = self.embedding(row, start["table"], seed)
        model = self.model(embedding, seed, row.rate, falls=True)
        for index, weight in enumerate(_others(model)):
            weight.assign(start[f"other_{index}"])
        before = word_lstm.perplexity(model, self.text, "valid")
        _, seconds = word_lstm.train(model, self.text)
        numbers = count_numbers(embedding)
        return {
            "valid_before": before,
            "valid": word_lstm.perplexity(model, self.text, "valid"),
            "test": word_lstm.perplexity(model, self.text, "test"),
            "numbers": numbers,
            "times_fewer": start["table"].size / numbers,
            "seconds": seconds,
        }

    def embedding(self, row, table, seed):
        if row.num_anchors:
            return fit_anchors(row, table, self.text.counts, seed)
        layer = keras.layers.ReversibleEmbedding(*table.shape)
        layer.build()
        layer.set_weights([table])
        return layer


def _others(model):
    """Weights of a language model but those of its embedding."""
    return [
        weight for lstm in model.lstms for weight in lstm.trainable_weights
    ] + [model.bias]


class Newsgroups(Task):
    @functools.cached_property
    def task(self):
        if self.args.quick:
            return classification.Task(
                "words", "generated", "cnn", 12, 8, 2, 32, 1e-2, 0.1, 4
            )
        return classification.NEWSGROUPS_CNN

    @functools.cached_property
    def texts(self):
        folder = None if self.args.quick else self.benchmark.folder
        return text_ids.read(self.task.data, folder, self.task.length)

    @functools.cached_property
    def counts(self):
        """How often words are read in training; padding does not count."""
        ids = self.texts.train[0].ravel()
        counts = np.bincount(ids, minlength=len(self.texts.words))
        counts[text_ids.PAD] = 0
        return counts.astype("float64")

    @property
    def epochs(self):
        return self.args.newsgroups_epochs // 2

    def model(self, embedding, seed, rate):
        keras.utils.set_random_seed(seed)
        model = classification.build(
            embedding, self.task, self.texts.num_classes
        )
        model.compile(
            keras.optimizers.Adam(rate),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            jit_compile=self.benchmark.jit_compile,
        )
        return model

    def train(self, model, texts):
        log = model.fit(
            *texts.train,
            batch_size=self.task.batch_size,
            epochs=self.epochs,
            verbose=0,
        )
        return log.history["loss"]

    def first_half(self, kind, seed):
        shape = len(self.texts.words), self.task.width
        arguments = {"name": "words"}
        keras.utils.set_random_seed(seed)
        if kind == "group lasso":
            arguments["embeddings_regularizer"] = GroupLasso(_GROUP_LASSO)
        table = keras.layers.Embedding(*shape, **arguments)
        model = self.model(table, seed, self.task.learning_rate)
        before = table.get_weights()[0]
        self.train(model, self.texts)
        after = table.get_weights()[0]
        others = [w for layer in model.layers[2:] for w in layer.get_weights()]
        # Group lasso leaves nothing of the start.
        learned = after if kind == "group lasso" else after - before
        return {
            "table": after,
            # What training made of the random start.
            "learned": np.where(self.counts[:, None] > 0, learned, 0),
            "scores": np.linalg.norm(after, axis=1),
            **{f"other_{i}": array for i, array in enumerate(others)},
        }

    def in_one_call(self, row, seed):
        """Figures of all epochs by `fit_compressed`, at one schedule."""
        task, texts = self.task, self.texts
        shape = len(texts.words), task.width
        keras.utils.set_random_seed(seed)
        table = keras.layers.Embedding(*shape, name="words")
        epochs = 2 * self.epochs
        steps = epochs * -(-len(texts.train[0]) // task.batch_size)
        model = self.model(table, seed, falling(row.rate, steps))
        numbers = row.numbers - row.num_anchors * task.width
        method = kc.methods.Anchors(row.num_anchors, numbers / len(texts.words))
        small = kc.compression.fit_compressed(
            model,
            {"words": method.for_table(self.counts**row.power)},
            *texts.train,
            epochs=epochs,
            seed=seed,
            batch_size=task.batch_size,
            verbose=0,
        )
        numbers = count_numbers(small.get_layer("words"))
        return {
            "valid": 100 * classification.accuracy(small, texts.valid),
            "test": 100 * classification.accuracy(small, texts.test),
            "numbers": numbers,
            "times_fewer": math.prod(shape) / numbers,
            "losses": small.history.history["loss"],
        }

    def measure(self, row, seed):
        if row.fit == "one call":
            return self.in_one_call(row, seed)
        start = self.start(row, seed)
        embedding, texts = self.embedding(row, start, seed)
        steps = self.epochs * -(-len(texts.train[0]) // self.task.batch_size)
        model = self.model(embedding, seed, falling(row.rate, steps))
        weights = [w for layer in model.layers[2:] for w in layer.weights]
        others = [w for w in weights if "seed" not in w.name]
        for index, weight in enumerate(others):
            weight.assign(start[f"other_{index}"])
        before = 100 * classification.accuracy(model, texts.valid)
        losses = self.train(model, texts)
        numbers = count_numbers(embedding)
        return {
            "valid_before": before,
            "valid": 100 * classification.accuracy(model, texts.valid),
            "test": 100 * classification.accuracy(model, texts.test),
            "numbers": numbers,
            "times_fewer": start["table"].size / numbers,
            "losses": losses,
        }

    def embedding(self, row, start, seed):
        """The layer, and the texts for it."""
        if row.num_anchors:
            layer = fit_anchors(
                row, start["learned"], self.counts, seed, name="words"
            )
            return layer, self.texts
        table, texts = start["table"], self.texts
        if row.words:
            scores = start["scores"] if row.words != "frequency" else None
            table, texts = self.chosen_words(row, table, scores)
        layer = keras.layers.Embedding(*table.shape, name="words")
        layer.build()
        layer.set_weights([table])
        return layer, texts

    def chosen_words(self, row, table, scores):
        """Rows of the words with the highest scores, and texts of these."""
        scores = np.where(
            self.counts > 0, self.counts if scores is None else scores, -np.inf
        )
        scores[[text_ids.PAD, text_ids.UNKNOWN]] = np.inf
        kept = row.numbers // table.shape[1]
        order = np.argsort(-scores, kind="stable")[:kept]
        places = np.full(len(scores), text_ids.UNKNOWN)
        places[order] = np.arange(kept)
        parts = {
            name: (places[ids].astype("int32"), labels)
            for name in ("train", "valid", "test")
            for ids, labels in [getattr(self.texts, name)]
        }
        return table[order], dataclasses.replace(self.texts, **parts)


class GroupLasso(keras.regularizers.Regularizer):
    """The sum of the lengths of rows."""

    def __init__(self, weight):
        self.weight = weight

    def __call__(self, table):
        squares = tf.reduce_sum(tf.square(table), axis=1)
        return self.weight * tf.reduce_sum(tf.sqrt(squares + 1e-12))


main = functools.partial(run, FromTable)
