"""What do anchors lose that begin from a table half way? Liang et al.

An LSTM on Penn Treebank with one matrix in and out, and the paper's CNN on 20
Newsgroups, train for half of the epochs with a table. Then anchors and sparse
rows are fitted to it, or words are selected, and all trains on. Rows train for
equally long.
Paper: https://arxiv.org/abs/2003.08197.
"""

import dataclasses
import functools
import math

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from benchmarks.anchors import classification
from benchmarks.anchors.k_svd import learn_by_k_svd
from benchmarks.anchors.language_model import TiedLanguageModel
from benchmarks.anchors.language_model import count_numbers
from benchmarks.anchors.language_model import plain_table
from benchmarks.common import word_lstm
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
    choices = {"tasks": ("ptb", "newsgroups cnn")}
    quick = {"ptb_epochs": 2, "newsgroups_epochs": 2}

    def rows(self):
        rows = ptb_rows() + newsgroups_rows()
        if self.args.quick:
            rows = quick_rows()
        return [row for row in rows if row.task in self.args.tasks]

    @functools.lru_cache  # noqa: B019
    def task(self, name):
        return (PennTreebank if name == "ptb" else Newsgroups)(self)

    def measure(self, row, seed):
        return self.task(row.task).measure(row, seed)


def ptb_rows():
    def row(name, rate, *sizes):
        # Rows of words have up to 60 anchors.
        fit = {"most": 60, "length": 4.0} if sizes else {}
        return Row(f"{name}, rate {rate:g}", "ptb", rate, *sizes, **fit)

    rates = 6e-3, 3e-3, 1.5e-3
    return [
        *(row("table", rate) for rate in rates),
        *(row("500 anchors", rate, 270_000, 500) for rate in rates),
        row("100 anchors, 0.05 million", 6e-3, 50_000, 100),
    ]


def newsgroups_rows():
    def row(name, rate=2e-3, numbers=256_400, num_anchors=None, **kwargs):
        if num_anchors:
            kwargs = {"most": 32, "power": 1.0, **kwargs}
        name = f"{name}, rate {rate:g}"
        task = "newsgroups cnn"
        return Row(name, task, rate, numbers, num_anchors, **kwargs)

    def anchors(more="", rate=2e-3, numbers=256_400, **kwargs):
        return row(f"128 anchors{more}", rate, numbers, 128, **kwargs)

    rates = 2e-3, 1e-3, 4e-3
    return [
        *(row("table", rate, None) for rate in rates),
        *(anchors(rate=rate) for rate in rates),
        row("2,000 words by frequency", words="frequency"),
        row("2,000 words by group lasso", words="group lasso"),
        anchors(", after group lasso", words="group lasso"),
        anchors(", as many in each row", most=None),
        anchors(", by K-SVD", most=None, fit="k-svd"),
        anchors(", 0.13 million", numbers=130_000),
        anchors(", 0.52 million", numbers=520_000),
        row("256 anchors", num_anchors=256),
    ]


def quick_rows():
    words = "newsgroups cnn"
    return [
        Row("table", "ptb", 1e-2),
        Row("anchors", "ptb", 1e-2, 130, 6, 5),
        Row("anchors", words, 1e-2, 400, 6, 5),
        Row("K-SVD", words, 1e-2, 400, 6, fit="k-svd"),
        Row("group lasso", words, 1e-2, 400, words="group lasso"),
    ]


class Task:
    """What the tasks have in common."""

    def __init__(self, benchmark):
        self.benchmark, self.args = benchmark, benchmark.args

    def measure(self, row, seed):
        kind = row.words if row.words != "frequency" else None
        start = self.first_half(kind, seed)
        embedding, data = self.embedding(row, start, seed)
        model = self.model(embedding, seed, falling(row.rate, self.steps))
        for weight, value in zip(
            self.others(model), start["others"], strict=True
        ):
            weight.assign(value)
        before = self.score(model, data, "valid")
        more = self.train(model, data)
        numbers = count_numbers(embedding)
        return {
            "valid_before": before,
            "valid": self.score(model, data, "valid"),
            "test": self.score(model, data, "test"),
            "numbers": numbers,
            "times_fewer": start["table"].size / numbers,
            **more,
        }


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
    def __init__(self, benchmark):
        super().__init__(benchmark)
        self.text = Text(benchmark.folder / "ptb")
        quick = word_lstm.QUICK if self.args.quick else {}
        settings = {**quick, "epochs": self.args.ptb_epochs // 2}
        self.recipe = word_lstm.Recipe(dropout=self.args.dropout, **settings)
        tokens = len(self.text.ids["train"]) - 1
        self.shape = self.recipe.batch_size, self.recipe.steps
        self.steps = self.recipe.epochs * (tokens // math.prod(self.shape))

    def model(self, embedding, seed, rate):
        keras.utils.set_random_seed(seed)
        recipe = dataclasses.replace(self.recipe, seed=seed)
        sizes = self.text.counts, recipe, self.steps
        jit = self.benchmark.jit_compile
        model = TiedLanguageModel(embedding, *sizes, jit, rate)
        model.build(self.shape)
        return model

    @functools.lru_cache  # noqa: B019
    def first_half(self, kind, seed):
        assert kind is None
        table = plain_table(len(self.text.vocabulary), self.recipe.units, seed)
        model = self.model(table, seed, self.recipe.learning_rate)
        self.train(model, self.text)
        others = [weight.numpy() for weight in self.others(model)]
        return {"table": table.get_weights()[0], "others": others}

    def others(self, model):
        """Weights of a language model but those of its embedding."""
        lstms = [w for lstm in model.lstms for w in lstm.trainable_weights]
        return [*lstms, model.bias]

    def score(self, model, text, part):
        return word_lstm.perplexity(model, text, part)

    def train(self, model, text):
        return {"seconds": word_lstm.train(model, text)[1]}

    def embedding(self, row, start, seed):
        table = start["table"]
        if row.num_anchors:
            layer = fit_anchors(row, table, self.text.counts, seed)
        else:
            layer = keras.layers.ReversibleEmbedding(*table.shape)
            layer.build()
            layer.set_weights([table])
        return layer, self.text


class Newsgroups(Task):
    def __init__(self, benchmark):
        super().__init__(benchmark)
        self.task, folder = classification.NEWSGROUPS_CNN, None
        if self.args.quick:
            self.task = classification.QUICK_CNN
        else:
            folder = benchmark.folder
        self.texts = text_ids.read(self.task.data, folder, self.task.length)
        # How often words are read in training; padding does not count.
        ids = self.texts.train[0].ravel()
        counts = np.bincount(ids, minlength=len(self.texts.words))
        counts[text_ids.PAD] = 0
        self.counts = counts.astype("float64")
        self.epochs = self.args.newsgroups_epochs // 2
        batches = -(-len(self.texts.train[0]) // self.task.batch_size)
        self.steps = self.epochs * batches

    def model(self, embedding, seed, rate):
        keras.utils.set_random_seed(seed)
        model = classification.build(
            embedding, self.task, self.texts.num_classes
        )
        classification.compile_model(model, rate, self.benchmark.jit_compile)
        return model

    def others(self, model):
        return [w for layer in model.layers[2:] for w in layer.weights]

    def score(self, model, texts, part):
        return 100 * classification.accuracy(model, getattr(texts, part))

    def train(self, model, texts):
        log = model.fit(
            *texts.train,
            batch_size=self.task.batch_size,
            epochs=self.epochs,
            verbose=0,
        )
        return {"losses": log.history["loss"]}

    @functools.lru_cache  # noqa: B019
    def first_half(self, kind, seed):
        shape = len(self.texts.words), self.task.width
        keras.utils.set_random_seed(seed)
        table = keras.layers.Embedding(
            *shape, embeddings_regularizer=kind and group_lasso, name="words"
        )
        model = self.model(table, seed, self.task.learning_rate)
        before = table.get_weights()[0]
        self.train(model, self.texts)
        after = table.get_weights()[0]
        # Group lasso leaves nothing of the start.
        learned = after if kind else after - before
        return {
            "table": after,
            "others": [weight.numpy() for weight in self.others(model)],
            # What training made of the random start.
            "learned": np.where(self.counts[:, None] > 0, learned, 0),
            "scores": np.linalg.norm(after, axis=1),
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


def group_lasso(table):
    """The sum of the lengths of rows, weighted."""
    squares = tf.reduce_sum(tf.square(table), axis=1)
    return _GROUP_LASSO * tf.reduce_sum(tf.sqrt(squares + 1e-12))


main = functools.partial(run, FromTable)
