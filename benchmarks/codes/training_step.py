"""What does a training step cost as the table of queries grows?

A classifier whose `CodeEmbedding` learns its codes from a table of queries, by
`fit`, with and without `SparseRowOptimizer`. Both take turns in one process;
figures are medians over rounds. The ids of a batch are uniform.
"""

import dataclasses
import functools

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from benchmarks.common import timing
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run

OPTIMIZERS = {
    "SparseRowOptimizer(Adam)": lambda: kc.optimizers.SparseRowOptimizer(
        "adam"
    ),
    "Adam": keras.optimizers.Adam,
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: the name of an optimizer, and the ids."""

    name: str
    input_dim: int


class TrainingStep(Benchmark):
    settings = {
        "output_dim": 64,
        "batch_size": 128,
        "length": 32,
        "steps": Flag(10, "of a round"),
        "rounds": 9,
    }
    choices = {"input_dims": (10_000, 100_000, 1_000_000)}
    quick = {
        "input_dims": (1000,),
        "output_dim": 32,
        "batch_size": 8,
        "length": 4,
        "steps": 2,
        "rounds": 2,
    }

    def rows(self):
        return [
            Row(name, input_dim)
            for input_dim in self.args.input_dims
            for name in OPTIMIZERS
        ]

    def together(self, row):
        return row.input_dim

    def measure_together(self, rows, seed):
        fits = {row: timing.timed(self.prepare(row, seed)) for row in rows}
        rounds = timing.take_turns(fits, range(self.args.rounds))
        for row in rows:
            yield timing.summarize(rounds[row] / self.args.steps)
        keras.backend.clear_session()

    def prepare(self, row, seed):
        """Fits a model once, which traces it, and gives what does so again."""
        args = self.args
        keras.utils.set_random_seed(seed)
        model = keras.Sequential(
            [
                keras.Input((args.length,), dtype="int32"),
                kc.CodeEmbedding(
                    row.input_dim,
                    args.output_dim,
                    composition="concat",
                    codes="softmax",
                ),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(2),
            ]
        )
        rng = np.random.default_rng(seed)
        shape = args.batch_size * args.steps, args.length
        ids = rng.integers(row.input_dim, size=shape)
        return fit_again(
            model, OPTIMIZERS[row.name](), ids, rng, args.batch_size
        )


def fit_again(model, optimizer, ids, rng, batch_size):
    """Fits a model of two classes once; returns a function that does so."""
    model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    data = tf.data.Dataset.from_tensor_slices(
        (ids, rng.integers(2, size=len(ids)))
    ).batch(batch_size)

    def fit(_=None):
        model.fit(data, shuffle=False, verbose=0)

    fit()
    return fit


main = functools.partial(run, TrainingStep)
