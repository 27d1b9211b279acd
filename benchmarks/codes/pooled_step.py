"""What does a training step cost where vectors are pooled from codes?

A classifier that averages words, in a table, codes or anchors, trained by `fit`
with `SparseRowOptimizer(Adam)`. All take turns in one process; figures are
medians over rounds. Words are drawn uniformly or by Zipf's law.
"""

import dataclasses
import functools

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.codes.training_step import fit_again
from benchmarks.common import timing
from benchmarks.common.arguments import Flag
from benchmarks.common.arguments import code_shape
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run

TABLE = "table"
WORDS = ("uniform", "zipf")


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: how words become the vector of a text."""

    name: str
    words: str


class PooledStep(Benchmark):
    settings = {
        "input_dim": 30_000,
        "output_dim": 200,
        "code_shape": Flag("32x16", "codebooks x codewords"),
        "num_anchors": 100,
        "classes": 50,
        "batch_size": 256,
        "length": 48,
        "steps": Flag(10, "of a round"),
        "rounds": 9,
    }
    choices = {"words": Flag(WORDS, "how words are drawn")}
    quick = {
        "input_dim": 500,
        "output_dim": 16,
        "num_anchors": 10,
        "batch_size": 8,
        "length": 4,
        "steps": 2,
        "rounds": 2,
    }

    def rows(self):
        return [
            Row(name, words) for words in self.args.words for name in MAKERS
        ]

    def together(self, row):
        return row.words

    def measure_together(self, rows, seed):
        fits = {row: timing.timed(self.prepare(row, seed)) for row in rows}
        rounds = timing.take_turns(fits, range(self.args.rounds))
        table = next((row for row in rows if row.name == TABLE), None)
        for row in rows:
            figures = timing.summarize(rounds[row] / self.args.steps)
            if table is not None:
                # Of a round: what else the machine does slows both alike.
                ratios = rounds[row][:, 0] / rounds[table][:, 0]
                figures["ratio"] = round(float(np.median(ratios)), 3)
            yield figures
        keras.backend.clear_session()

    def prepare(self, row, seed):
        """Fits a model once, which traces it, and gives what does so again."""
        args = self.args
        keras.utils.set_random_seed(seed)
        model = keras.Sequential(
            [
                keras.Input((args.length,), dtype="int32"),
                *MAKERS[row.name](args),
                keras.layers.Dense(args.classes),
            ]
        )
        rng = np.random.default_rng(seed)
        shape = args.batch_size * args.steps, args.length
        odds = np.ones(args.input_dim)
        if row.words == "zipf":
            odds /= np.arange(1, args.input_dim + 1)
        ids = rng.choice(args.input_dim, size=shape, p=odds / odds.sum())
        optimizer = kc.optimizers.SparseRowOptimizer("adam")
        return fit_again(
            model, optimizer, ids.astype("int32"), rng, args.batch_size
        )


def sizes(args):
    return args.input_dim, args.output_dim


MEAN = keras.layers.GlobalAveragePooling1D
MAKERS = {
    TABLE: lambda args: (keras.layers.Embedding(*sizes(args)), MEAN()),
    "codes, rows": lambda args: (
        kc.CodeEmbedding(*sizes(args), *code_shape(args.code_shape)),
        MEAN(),
    ),
    "codes, pooled": lambda args: (
        kc.CodeEmbedding(
            *sizes(args), *code_shape(args.code_shape), combiner="mean"
        ),
    ),
    "anchors, rows": lambda args: (
        kc.ANTEmbedding(*sizes(args), args.num_anchors, transform="lazy"),
        MEAN(),
    ),
    "anchors, pooled": lambda args: (
        kc.ANTEmbedding(
            *sizes(args), args.num_anchors, transform="lazy", combiner="mean"
        ),
    ),
}


main = functools.partial(run, PooledStep)
