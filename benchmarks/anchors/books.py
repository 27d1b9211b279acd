"""Can anchors hold 53,721 words of books, in and out? Liang et al., Table 3.

An LSTM reads and predicts words with one matrix, by
`CANESoftmax(class_embedding=...)`. Rows train for the same processor time.
"""

import dataclasses
import functools
import time

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.anchors.k_svd import learn_by_k_svd
from benchmarks.anchors.language_model import count_numbers
from benchmarks.classes.head_to_head import Training
from benchmarks.classes.head_to_head import row_of
from benchmarks.classes.tasks import QUICK
from benchmarks.classes.tasks import Words
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.common.timing import TimedTraining
from keras_compembed.anchors.sparse_coding import sparse_code
from keras_compembed.anchors.sparse_transform import SparseTransform

# Words that k-SVD learns anchors of.
_FREQUENT = 10_000
TASK = Words("gutenberg", batches=16)


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    num_anchors: int = 0
    most: int | None = None
    words: int = 0
    by: str = "training"
    rate: float = 1.25e-2


ROWS = [
    Row("table"),
    Row("1,000 anchors by k-SVD, after", 1000, 6, by="k-svd"),
    Row("500 anchors by k-SVD, after", 500, 6, by="k-svd"),
    Row("1,000 anchors", 1000, 6),
    Row("500 anchors", 500, 6),
    Row("2,500 words, 1,000 buckets", 3500, 1, 2500),
]
QUICK_ROWS = [Row("k-SVD", 6, 2, by="k-svd"), Row("words", 6, 1, 4)]


class TiedBooks(Benchmark):
    settings = {"seconds": 90}
    choices = {"rates": Flag((1.25e-2,), "learning rates")}
    quick = {"seconds": 1}

    def rows(self):
        rows = QUICK_ROWS if self.args.quick else ROWS
        return [
            dataclasses.replace(row, rate=rate)
            for rate in self.args.rates
            for row in rows
        ]

    @functools.cached_property
    def task(self):
        return (
            QUICK[0].load(None) if self.args.quick else TASK.load(self.folder)
        )

    def measure(self, row, seed):
        after = row.by == "k-svd"
        table = dataclasses.replace(ROWS[0], rate=row.rate)
        model = self.train(table if after else row, seed)
        if after:
            model = self.by_k_svd(row, model, seed)
        layer = model.layers[1]
        numbers = count_numbers(layer)
        if row.words:
            numbers = layer.num_anchors * layer.output_dim
        return {
            "valid": self.task.figures(model, "valid")["perplexity"],
            "test": self.task.figures(model, "test")["perplexity"],
            "numbers": numbers,
            "times_fewer": layer.input_dim * layer.output_dim / numbers,
            "steps": int(model.optimizer.iterations),
        }

    def training(self, embedding, seed):
        self.task.class_embedding = embedding
        row = row_of(self.task.settings, "CANE in one group")
        return Training(row, self.task, seed, (), self.jit_compile)

    @functools.lru_cache(maxsize=1)  # noqa: B019
    def train(self, row, seed):
        keras.utils.set_random_seed(seed)
        training = self.training(self.embedding(row), seed)
        clock = TimedTraining(
            row.rate, self.args.seconds, now=time.process_time
        )
        training.fit(seed, clock, epochs=1000)
        return training.model

    def embedding(self, row):
        size = len(self.task.counts), self.task.settings.width
        if not row.num_anchors:
            return keras.layers.Embedding(*size)
        storage = kc.anchors.Transform("sparse", max_nonzeros=row.most)
        l1 = kc.anchors.L1(1e-6, non_negative=row.by == "training")
        layer = kc.ANTEmbedding(
            *size, row.num_anchors, transform=storage, l1=l1
        )
        layer.build()
        if not row.words:
            return layer
        # Words are sorted by count; the others share buckets.
        layer.anchors.assign(layer.anchors * 0.03)
        own = np.arange(size[0])
        buckets = row.num_anchors - row.words
        own[row.words :] = row.words + own[row.words :] % buckets
        ones = np.ones(size[0], "float32")
        layer.assign_transform(
            SparseTransform(np.arange(size[0] + 1), own, ones, row.num_anchors)
        )
        return kc.strip(layer)

    def by_k_svd(self, row, model, seed):
        """The model with anchors and a T that are fitted to its table."""
        (table,) = model.layers[1].get_weights()
        # Frequent words come first.
        _, anchors = learn_by_k_svd(
            table[:_FREQUENT], row.num_anchors, row.most, 3, seed
        )
        layer = self.embedding(row)
        layer.anchors.assign(anchors)
        layer.assign_transform(sparse_code(table, anchors, row.most, False))
        other = self.training(layer, seed).model
        other.layers[2].set_weights(model.layers[2].get_weights())
        other.layers[-1].bias.assign(model.layers[-1].bias)
        return other


main = functools.partial(run, TiedBooks)
