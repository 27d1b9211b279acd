"""How long do codes of a table take that stays in its file, and what memory?

    python -m benchmarks codes.large_tables

Codes of memory-mapped tables are learned by one process and by two (`joblib`).
Each row has a process of its own; memory is without pages of the file.
"""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import pathlib
import tempfile
import time

import joblib
import numpy as np
from joblib.externals import loky

from benchmarks.common import tables
from benchmarks.common.arguments import Flag
from benchmarks.common.arguments import code_shape
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.common.peak_memory import counting_own
from keras_compembed.learners import AdditiveQuantizer
from keras_compembed.learners.row_blocks import in_order

_DRAWN, _CENTRES = 50_000, 200


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    num_rows: int
    jobs: int


class LargeTables(Benchmark):
    settings = {
        "width": 128,
        "code_shape": Flag("16x16", "codebooks x codewords"),
        "encoded": Flag(100_000, "rows encoded, at most"),
    }
    choices = {
        "num_rows": (100_000, 1_000_000, 5_000_000),
        "jobs": Flag((1, 2), "processes"),
    }
    quick = {
        "num_rows": (600,),
        "jobs": (1,),
        "width": 8,
        "code_shape": "2x4",
        "encoded": 100,
    }
    columns = {
        "rows": tables.field("row.num_rows", "{:,}"),
        "processes": tables.field("row.jobs"),
        "s to learn": tables.figure("seconds"),
        "rows a s": tables.figure("rows_per_second", "{:,.0f}"),
        "encoded a s": tables.figure("encoded_per_second", "{:,.0f}"),
        "MB of memory": tables.figure("bytes", "{:,.0f}", 1e-6),
        "MB of the table": tables.figure("table_bytes", "{:,.0f}", 1e-6),
        "loss": tables.figure("loss", "{:.3f}"),
    }

    def rows(self):
        return [
            Row(f"{number} rows, {jobs}", number, jobs)
            for number in self.args.num_rows
            for jobs in self.args.jobs
        ]

    def measure(self, row, seed):
        # Workers of a `Pool` may have no processes of their own.
        with concurrent.futures.ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn")
        ) as executor:
            return executor.submit(figures_of, row, self.args, seed).result()


def figures_of(row, args, seed):
    """Learns codes in this process."""
    with tempfile.TemporaryDirectory() as folder:
        table = drawn(folder, row.num_rows, args.width, seed)
        learner = AdditiveQuantizer(
            *code_shape(args.code_shape), seed=seed, verbose=0
        )
        with joblib.parallel_config("loky", n_jobs=row.jobs):
            # Processes start once, whatever they do then.
            list(in_order(imported, [()] * 8))
            with counting_own() as count:
                start = time.perf_counter()
                learner.train(table)
                seconds = time.perf_counter() - start
                start = time.perf_counter()
                encoded = len(learner.encode(table[: args.encoded]))
                encoding = time.perf_counter() - start
        # They would be waited for where this process ends.
        loky.get_reusable_executor().shutdown()
        return {
            "seconds": round(seconds, 2),
            "rows_per_second": row.num_rows / seconds,
            "encoded_per_second": encoded / encoding,
            "bytes": count(),
            "table_bytes": table.nbytes,
            "loss": learner.history["loss"][-1],
        }


def imported():
    """Waits until a process has the package, and a moment for the others."""
    time.sleep(0.5)
    return AdditiveQuantizer.__name__


def drawn(folder, num_rows, width, seed):
    """A memory-mapped table `(num_rows, width)` of float32 numbers."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((_CENTRES, width), "float32")
    path = pathlib.Path(folder, "table.npy")
    table = np.lib.format.open_memmap(path, "w+", "float32", (num_rows, width))
    for start in range(0, num_rows, _DRAWN):
        part = table[start : start + _DRAWN]
        part[:] = 0.5 * rng.standard_normal(part.shape, "float32")
        part += centres[rng.integers(_CENTRES, size=len(part))]
    table.flush()
    return np.load(path, mmap_mode="r")


main = functools.partial(run, LargeTables)
