"""Time and bytes of LiteRT lookups: tables, quantized tables, and codes.

Files of one look-up, of rows and of their mean, for several lengths. Tables and
codes are random; quantized tables have a scale for each row. Each file takes
turns with the float32 table's on one thread; ratios are of medians.
"""

import dataclasses
import functools
import itertools
import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from benchmarks.common import litert
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from keras_compembed.litert import flatbuffer

# Rows of tables; more of them are these again, at other places. No other
# tensor has so many.
DIFFERENT_ROWS = 4099
# As `quantize` has the converter store them.
TABLES = {
    "table, float32": None,
    "table, float16": "float16",
    "table, int8": "int8",
}
# Bits and rank.
QUANTIZED = {
    "quantized, int8": (8, None),
    "quantized, int4": (4, None),
    "quantized, int2": (2, None),
    "quantized, int4 rank 16": (4, 16),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: a file."""

    name: str
    input_dim: int
    pooled: bool
    codes: str | None = None
    composition: str = "sum"
    quantize: str | None = None


class Lookups(Benchmark):
    settings = {
        "output_dim": 256,
        "lengths": Flag((1, 16, 128, 512), "ids at once"),
        "seconds": Flag(0.15, "of the rounds of a file at a length"),
    }
    choices = {
        "input_dims": (16_000, 100_000, 1_000_000),
        "codes": ("16x16", "32x16", "8x256", "32x16 concat"),
        "quantize": ("float32", "float16", "int8", "int8_codebooks"),
        "full_dim": Flag(100_000, "rows of tables with all of --quantize"),
    }
    quick = {
        "output_dim": 32,
        "lengths": (1, 8),
        "seconds": 0.0,
        "input_dims": (2000,),
        "codes": ("8x16",),
        "quantize": ("float32", "int8"),
    }

    def rows(self):
        rows = []
        for input_dim, pooled in itertools.product(
            self.args.input_dims, (False, True)
        ):
            names = itertools.chain(TABLES, QUANTIZED)
            rows += [Row(name, input_dim, pooled) for name in names]
            for codes, quantize in itertools.product(
                self.args.codes, self.args.quantize
            ):
                is_full = input_dim == self.args.full_dim
                if is_full or quantize in ("float32", "int8"):
                    rows.append(row_of(input_dim, pooled, codes, quantize))
        return rows

    def together(self, row):
        return row.input_dim, row.pooled

    def measure_together(self, rows, seed):
        args, rng = self.args, np.random.default_rng(seed)
        first = Row("table, float32", rows[0].input_dim, rows[0].pooled)
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            base = folder / "table.tflite"
            write(first, base, args.output_dim, seed)
            base_content = base.read_bytes()
            for row in rows:
                path, content = base, base_content
                if row != first:
                    path = folder / "other.tflite"
                    write(row, path, args.output_dim, seed)
                    content = path.read_bytes()
                found = {}
                for length in args.lengths:
                    found[length] = compare(
                        content,
                        base_content,
                        row.input_dim,
                        length,
                        args.seconds,
                        rng,
                    )
                yield {"file_bytes": len(content), "lengths": found}


def row_of(input_dim, pooled, codes, quantize):
    shape, _, composition = codes.partition(" ")
    return Row(
        f"codes {codes}, {quantize}",
        input_dim,
        pooled,
        shape,
        composition or "sum",
        None if quantize == "float32" else quantize,
    )


def compare(content, base, input_dim, length, seconds, rng):
    """Microseconds of a file, and their ratio to another's."""
    file, other = (
        litert.File(each, {None: (1, length)}) for each in (content, base)
    )

    def draw():
        while True:
            ids = rng.integers(input_dim, size=(1, length))
            yield ids.astype("int32")

    taken, of_other = litert.in_turns(file.run, other.run, draw(), seconds)
    return {
        "microseconds": round(taken * 1e6, 1),
        "latency_ratio": round(taken / of_other, 3),
    }


def write(row, path, width, seed):
    """Writes the file of a row, and returns its path."""
    if row.codes is None:
        write_table(row, path, width, seed)
    else:
        write_codes(row, path, width, seed)
    keras.backend.clear_session()
    return path


def write_codes(row, path, width, seed):
    shape = map(int, row.codes.split("x"))
    keras.utils.set_random_seed(seed)
    layer = kc.CodeEmbedding(
        row.input_dim, width, *shape, composition=row.composition
    )
    layer.build()
    rng = np.random.default_rng(seed)
    layer.codebooks.assign(rng.normal(size=layer.codebooks.shape))
    export(layer, row, path, row.quantize)


def export(layer, row, path, quantize):
    """Writes the file of a look-up."""
    ids = keras.Input((None,), batch_size=1, dtype="int32")
    rows = layer(ids)
    if row.pooled:
        rows = keras.layers.GlobalAveragePooling1D()(rows)
    model = keras.Model(ids, rows)
    kc.export_litert(
        model,
        path,
        quantize=quantize,
        target=kc.export.Target(min_runtime=None),
        overwrite=True,
        verbose=0,
    )


class TableLookup(keras.layers.Layer):
    """A table whose look-up is one GATHER; that of Keras takes more ops."""

    def __init__(self, num_rows, width, **kwargs):
        super().__init__(**kwargs)
        self.num_rows, self.width = num_rows, width

    def build(self, input_shape):
        self.table = self.add_weight(shape=(self.num_rows, self.width))

    def call(self, ids):
        return tf.gather(self.table.value, ids)

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.width)


def write_table(row, path, width, seed):
    """Writes a table."""
    table, quantize = random_rows(width, seed), None
    if row.name in QUANTIZED:
        bits, rank = QUANTIZED[row.name]
        layer = kc.QuantizedEmbedding.from_table(
            table, bits, rank=rank, seed=seed, verbose=0
        )
    else:
        quantize = TABLES[row.name]
        layer = TableLookup(*table.shape)
        layer.build((None,))
        layer.set_weights([table])
    export(layer, row, path, quantize)
    model = flatbuffer.read_model(path.read_bytes())
    repeat_rows(model, row.input_dim)
    path.write_bytes(flatbuffer.write_model(model))


def random_rows(width, seed):
    """Rows that differ."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(DIFFERENT_ROWS, width)).astype("float32")


def repeat_rows(model, input_dim):
    """Makes tables of `DIFFERENT_ROWS` rows tables of `input_dim` of them."""
    grown = {}
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if len(tensor.shape) != 2 or tensor.shape[0] != DIFFERENT_ROWS:
                continue
            tensor.shape = np.array([input_dim, tensor.shape[1]], "int32")
            grown[tensor.buffer] = model.buffers[tensor.buffer]
    for buffer in grown.values():
        if buffer.data is not None:
            rows = np.asarray(buffer.data, "uint8")
            rows = rows.reshape(DIFFERENT_ROWS, -1)
            buffer.data = np.resize(rows, (input_dim, rows.shape[1])).reshape(
                -1
            )


main = functools.partial(run, Lookups)
