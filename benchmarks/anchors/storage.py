"""What do the ways to hold the transform of an `ANTEmbedding` cost?

The time of a training step as the table grows, for each `storage`, with Adam
and in `SparseRowOptimizer`, in turns; and the most memory that a process takes
to train 1,000,000 rows of 1,000 anchors.
"""

import dataclasses
import functools
import multiprocessing
import pathlib
import re

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.codes.training_step import OPTIMIZERS
from benchmarks.codes.training_step import fit_again
from benchmarks.common import timing
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run

VARIANTS = (
    ("dense", "Adam"),
    ("lazy", "Adam"),
    ("lazy", "SparseRowOptimizer(Adam)"),
    ("sparse", "SparseRowOptimizer(Adam)"),
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    storage: str
    optimizer: str
    input_dim: int
    num_anchors: int
    memory: bool = False


class Storage(Benchmark):
    settings = {
        "output_dim": 256,
        "batch_size": 256,
        "length": 100,
        "steps": Flag(5, "of a round"),
        "rounds": 7,
    }
    choices = {
        "input_dims": (10_000, 100_000, 1_000_000),
        "num_anchors": 100,
        "memory": Flag(
            (1_000_000, 1000),
            "rows and anchors of the table whose memory is measured",
        ),
    }
    quick = {
        "input_dims": (100, 1000),
        "num_anchors": 5,
        "output_dim": 8,
        "batch_size": 8,
        "length": 4,
        "steps": 2,
        "rounds": 2,
        "memory": (2000, 20),
    }

    def rows(self):
        args = self.args
        rows = [
            Row(f"{storage}, {name}", storage, name, size, args.num_anchors)
            for size in args.input_dims
            for storage, name in VARIANTS
        ]
        storage, name = VARIANTS[-1]
        largest = Row(
            f"{storage}, {name}, memory", storage, name, *args.memory, True
        )
        return [*rows, largest]

    def together(self, row):
        return row.input_dim, row.memory

    def measure_together(self, rows, seed):
        if rows[0].memory:
            # In a process of its own, which has had no other table.
            context = multiprocessing.get_context("spawn")
            with context.Pool(1) as pool:
                arguments = rows[0], self.args, seed
                yield {"peak_bytes": pool.apply(peak_of, arguments)}
            return
        smallest = min(self.args.input_dims)
        fits = {
            row: timing.timed(prepare(row, self.args, seed, smallest))
            for row in rows
        }
        rounds = timing.take_turns(fits, range(self.args.rounds))
        keras.backend.clear_session()
        for row in rows:
            yield timing.summarize(rounds[row] / self.args.steps)


def prepare(row, args, seed, num_ids):
    """Fits a model once, which traces it, and gives what does so again."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input((args.length,), dtype="int32"),
            kc.ANTEmbedding(
                row.input_dim,
                args.output_dim,
                num_anchors=row.num_anchors,
                transform=row.storage,
            ),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(2),
        ]
    )
    rng = np.random.default_rng(seed)
    shape = args.batch_size * args.steps, args.length
    ids = rng.integers(num_ids, size=shape) * (row.input_dim // num_ids)
    return fit_again(
        model, OPTIMIZERS[row.optimizer](), ids, rng, args.batch_size
    )


def peak_of(row, args, seed):
    """Bytes that this process takes at most to train a table."""
    prepare(row, args, seed, row.input_dim)()
    # Not `ru_maxrss`, which a process on Linux inherits from its parent.
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])


main = functools.partial(run, Storage)
