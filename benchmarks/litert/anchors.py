"""What do anchors and sparse rows cost in a LiteRT file?

Exports an `ANTEmbedding` with random non-zeros, and the same table as a
`keras.layers.Embedding`, and prints the size of each file and the time of a
look-up of ids drawn uniformly. Files take turns in one process, on one thread;
the figures are medians. `CSR bytes` are those of offsets of 32 bits, columns,
values and anchors, of the types that the file has.

    python -m benchmarks litert.anchors
"""

import dataclasses
import functools
import pathlib
import tempfile

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.common import litert
from benchmarks.common import tables
from benchmarks.common import timing
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from keras_compembed.transforms.sparse_transform import SparseTransform
from keras_compembed.transforms.sparse_transform import column_dtype


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: a file.

    Args:
        name: String.
        number_bytes: Integer, bytes of a number in sparse rows, or None for
            the table.
        quantize: String, of `export_litert`.
        static: Boolean, whether the length is known.
    """

    name: str
    number_bytes: int | None = None
    quantize: str | None = None
    static: bool = False


class Anchors(Benchmark):
    settings = {
        "input_dim": 50_000,
        "output_dim": 64,
        "num_anchors": 50,
        "nonzeros": Flag(2.0, "a row's, on average"),
        "length": Flag(128, "ids at once"),
        "rounds": 500,
    }
    quick = {"input_dim": 2000, "length": 16, "rounds": 3}
    columns = {
        "file": tables.field("name"),
        "bytes": tables.figure("file_bytes", "{:,.0f}"),
        "CSR bytes": tables.figure("csr_bytes", "{:,.0f}"),
        "microseconds": tables.figure("microseconds"),
        "to a table": tables.figure("latency_ratio", "{:.2f}"),
    }

    def rows(self):
        return [
            Row("table, float32"),
            Row("rows, float32", 4),
            Row("rows, float32, static", 4, static=True),
            Row("rows, float16", 2, "float16"),
            Row("rows, int8", 1, "int8"),
        ]

    def together(self, row):
        return None

    def measure_together(self, rows, seed):
        args = self.args
        # All are compared with the table.
        first = Row("table, float32")
        files = [first, *(row for row in rows if row != first)]
        layer = make_layer(args, seed)
        table = keras.layers.Embedding(*layer.embeddings.shape)
        table.build()
        table.set_weights([layer.embeddings])
        exports, runs = {}, {}
        with tempfile.TemporaryDirectory() as folder:
            for place, row in enumerate(files):
                ids = keras.Input(
                    (args.length if row.static else None,),
                    batch_size=1 if row.static else None,
                    dtype="int32",
                )
                source = layer if row.number_bytes else table
                exports[row] = kc.export.export_litert(
                    keras.Model(ids, source(ids)),
                    pathlib.Path(folder) / f"{place}.tflite",
                    quantize=row.quantize,
                    verbose=0,
                )
                runs[row] = litert.load(exports[row].path, [1, args.length])
            rng = np.random.default_rng(seed + 1)
            ids = (
                rng.integers(args.input_dim, size=(1, args.length))
                for _ in range(args.rounds)
            )
            times = timing.take_turns(
                runs, (row.astype("int32") for row in ids)
            )
        microseconds = {
            row: float(np.median(taken[:, 0])) * 1e6
            for row, taken in times.items()
        }
        for row in rows:
            export, time = exports[row], microseconds[row]
            yield {
                "file_bytes": export.file_bytes,
                "csr_bytes": csr_bytes(layer, row.number_bytes),
                "max_error": export.max_error,
                "ops": len(export.ops),
                "min_runtime": export.min_runtime,
                "nonzeros": layer.nnz,
                "microseconds": round(time, 1),
                "latency_ratio": round(time / microseconds[first], 2),
            }


def make_layer(args, seed):
    rng = np.random.default_rng(seed)
    shape = args.input_dim, args.num_anchors
    lengths = np.minimum(rng.poisson(args.nonzeros, shape[0]), shape[1])
    columns = [
        np.sort(rng.choice(shape[1], length, replace=False))
        for length in lengths
    ]
    transform = SparseTransform(
        np.append(0, np.cumsum(lengths)),
        np.concatenate(columns).astype(column_dtype(shape[1])),
        rng.uniform(0.1, 1, lengths.sum()).astype("float32"),
        shape[1],
    )
    layer = kc.ANTEmbedding(
        args.input_dim,
        args.output_dim,
        args.num_anchors,
        storage="dense",
        seed=seed,
    )
    layer.build()
    layer.anchors.assign(rng.normal(size=layer.anchors.shape))
    layer.assign_transform(transform)
    return layer


def csr_bytes(layer, size):
    if size is None:
        return None
    column = column_dtype(layer.num_anchors).itemsize
    rows = 4 * (layer.input_dim + 1) + layer.nnz * (column + size)
    return rows + layer.num_anchors * layer.output_dim * size


main = functools.partial(run, Anchors)
