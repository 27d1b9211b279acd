"""Which is nearer to a table in as many bytes: rounded or pruned numbers?

Stores vectors of words by rounding them, by pruning the smallest numbers, by
keeping some rows, and by codes, with no training after. Bytes are those of a
LiteRT file with nothing but the look-up, of numbers in int8.

    python -m benchmarks codes.rounding_and_pruning

Needs the folders `vectors_googlenews_8k_300d` and `vectors_reviews_75k_300d`
of the data folder.
"""

import dataclasses
import functools
import pathlib
import tempfile
import time

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.common import tables
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.data import vectors
from keras_compembed.methods import Codes
from keras_compembed.methods import Pruned
from keras_compembed.methods import Rounded
from keras_compembed.methods import Vocabulary

FOLDERS = {
    "googlenews": vectors.GOOGLE_NEWS,
    "reviews": vectors.REVIEWS,
}
ROWS = {"googlenews": 8000, "reviews": 75_102, "generated": 500}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: String, of the method.
        table: String, key of `FOLDERS`, or `"generated"`.
    """

    name: str
    table: str


class RoundingAndPruning(Benchmark):
    choices = {"tables": ("googlenews", "reviews")}
    quick = {"tables": ("generated",)}
    columns = {
        "table": tables.field("row.table"),
        "": tables.field("name"),
        "bytes": tables.figure("bytes", "{:,.0f}"),
        "of float32": tables.figure("share", "{:.1%}"),
        "relative error": tables.figure("relative_error", "{:.3f}"),
        "s": tables.figure("seconds", "{:.1f}"),
    }

    def rows(self):
        return [
            Row(method.name, table)
            for table in self.args.tables
            for method in self.methods(table)
        ]

    @functools.cached_property
    def read(self):
        """Dict of tables by their names."""
        return {name: load(name, self) for name in self.args.tables}

    def methods(self, table):
        rows = ROWS[table]
        return [
            *(Rounded(bits) for bits in (8, 4, 2)),
            *(Pruned(share) for share in (0.8, 0.9, 0.95, 0.98)),
            *(Vocabulary(round(share * rows)) for share in (0.2, 0.1)),
            *(Codes(number, 16, effort=0.2) for number in (64, 32, 16)),
        ]

    def measure(self, row, seed):
        table = self.read[row.table]
        (method,) = (x for x in self.methods(row.table) if x.name == row.name)
        start = time.perf_counter()
        layer = method.start(seed).from_table(table)
        seconds = time.perf_counter() - start
        inputs = keras.Input((None,), dtype="int32")
        model = keras.Model(inputs, layer(inputs))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.tflite"
            kc.export.export_litert(model, path, quantize="int8", verbose=0)
            size = path.stat().st_size
            error = relative_error(table, kc.export.LiteRTModel(path))
        return {
            "bytes": size,
            "share": size / (4 * table.size),
            "relative_error": error,
            "seconds": seconds,
        }


def load(name, benchmark):
    if name == "generated":
        return vectors.generated()
    return vectors.load_table(benchmark.folder / FOLDERS[name])


def relative_error(table, read, chunk=2048):
    """The squared error of what a file gives, over the squares of a table."""
    error = 0.0
    for start in range(0, len(table), chunk):
        rows = table[start : start + chunk]
        ids = np.arange(start, start + len(rows), dtype="int32")
        error += np.square(read(ids[None])[0] - rows).sum(dtype="float64")
    return float(error / np.square(table).sum(dtype="float64"))


main = functools.partial(run, RoundingAndPruning)
