"""How fast are the graphs that sum codewords, and are the right ones chosen?

Measures each graph of rows of random codes for several sizes of codes and
numbers of ids, next to a GATHER from a float32 table, and what the cost model
of export expects. Files take turns in one process, on one thread; the figures
are medians. `chosen` is the graph that `optimize_for="latency"` takes, `to
best` its time over that of the fastest. The numbers in
`keras_compembed/export/row_costs.py` are fitted to this table.

    python -m benchmarks litert.row_graphs
"""

import dataclasses
import functools
import pathlib
import tempfile

import numpy as np
import tensorflow as tf

from benchmarks.common import litert
from benchmarks.common import tables
from benchmarks.common import timing
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from keras_compembed.export import flatbuffer
from keras_compembed.export.export_options import DEFAULTS
from keras_compembed.export.export_options import ExportOptions
from keras_compembed.export.one_hot_rows import unpack_once
from keras_compembed.export.row_costs import estimate
from keras_compembed.export.row_sums import RowSums
from keras_compembed.export.stored_codes import StoredCodes
from keras_compembed.layers.code_embedding import CodeEmbedding

SHAPES = (
    (8, 256, 256),
    (16, 16, 64),
    (16, 16, 256),
    (32, 16, 256),
    (16, 32, 256),
    (16, 64, 128),
    (16, 256, 256),
    (64, 4, 256),
    (64, 2, 128),
)
COUNTS = (1, 16, 128, 512)


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: a size of codes.

    Args:
        name: String.
        num_codebooks: Integer.
        codebook_size: Integer.
        output_dim: Integer.
        num_ids: Integer, ids at once.
        quantize: Optional string, of `export_litert`.
    """

    name: str
    num_codebooks: int
    codebook_size: int
    output_dim: int
    num_ids: int
    quantize: str | None = None


class RowGraphs(Benchmark):
    settings = {
        "input_dim": 100_000,
        "rounds": Flag(30, "look-ups of each file"),
    }
    quick = {"input_dim": 500, "rounds": 2}
    columns = {
        "": tables.field("name"),
        "microseconds of a table": tables.figure("table", "{:.1f}"),
        "fastest": tables.figure("fastest.microseconds", "{:.1f}"),
        "to a table": tables.figure("fastest.to_table", "{:.2f}"),
        "chosen": tables.figure("chosen.microseconds", "{:.1f}"),
        "to fastest": tables.figure("chosen.to_fastest", "{:.2f}"),
    }

    def rows(self):
        if self.args.quick:
            return [make_row((3, 16, 8), 5), make_row((3, 64, 8), 5, "int8")]
        return [
            make_row(shape, num_ids, quantize)
            for shape in SHAPES
            for quantize in (None, "int8")
            for num_ids in COUNTS
        ]

    def together(self, row):
        return dataclasses.replace(row, name="", num_ids=0)

    def measure_together(self, rows, seed):
        args, (first, *_) = self.args, rows
        rng = np.random.default_rng(seed)
        shape = (first.num_codebooks, first.codebook_size, first.output_dim)
        layer = CodeEmbedding(
            args.input_dim, first.output_dim, *shape[:2], seed=seed
        )
        layer.build()
        codes = StoredCodes(layer)
        codewords = rng.normal(size=shape).astype("float32")
        options = ExportOptions(first.quantize, optimize_for="latency")
        sums = RowSums(codewords, options, codes)
        table = rng.random((args.input_dim, first.output_dim), "float32")
        contents = {None: convert(lambda ids: tf.gather(table, ids))}
        for graph in sums.candidates():
            contents[graph] = write(
                graph, codewords, codes, ExportOptions(first.quantize)
            )
        for row in rows:
            microseconds = self.time(contents, row.num_ids, rng)
            yield figures_of(sums, row, microseconds, contents)

    def time(self, contents, num_ids, rng):
        """Median microseconds of each file."""
        runs = {}
        with tempfile.TemporaryDirectory() as folder:
            for place, (graph, content) in enumerate(contents.items()):
                path = pathlib.Path(folder) / f"{place}.tflite"
                path.write_bytes(content)
                runs[graph] = litert.load(path, [num_ids])
        ids = (
            rng.integers(self.args.input_dim, size=num_ids).astype("int32")
            for _ in range(self.args.rounds)
        )
        times = timing.take_turns(runs, ids)
        return {
            graph: round(float(np.median(taken[:, 0])) * 1e6, 2)
            for graph, taken in times.items()
        }


def figures_of(sums, row, microseconds, contents):
    of_table = microseconds.pop(None)
    fastest = min(microseconds, key=microseconds.get)
    chosen = sums.choose(row.num_ids)
    graphs = {}
    for graph, time in microseconds.items():
        costs = estimate(graph, sums.codewords.shape, row.num_ids, row.quantize)
        graphs[str(graph)] = {
            "microseconds": time,
            "expected": round(costs.nanoseconds / 1000, 2),
            "file_bytes": len(contents[graph]),
            "arena_bytes": costs.arena_bytes,
        }
    return {
        "table": of_table,
        "graphs": graphs,
        "fastest": {
            "graph": str(fastest),
            "microseconds": microseconds[fastest],
            "to_table": round(microseconds[fastest] / of_table, 3),
        },
        "chosen": {
            "graph": str(chosen),
            "microseconds": microseconds[chosen],
            "to_fastest": round(
                microseconds[chosen] / microseconds[fastest], 3
            ),
        },
    }


def make_row(shape, num_ids, quantize=None):
    num_codebooks, codebook_size, width = shape
    name = f"{num_codebooks} x {codebook_size} of {width}, {num_ids} ids"
    if quantize is not None:
        name += f", {quantize}"
    return Row(name, *shape, num_ids, quantize)


def write(graph, codewords, codes, options):
    """A LiteRT file of a graph, as bytes."""

    def look_up(ids):
        return graph(codewords, codes.read(ids, graph.together), options)

    return convert(look_up, options)


def convert(look_up, options=DEFAULTS):
    """A LiteRT file of a function of ids, as bytes, as export writes it."""
    signature = [tf.TensorSpec((None,), "int32")]
    module = tf.Module()
    module.function = tf.function(
        look_up, input_signature=signature, autograph=False
    )
    concrete = module.function.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [concrete], module
    )
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if options.quantize is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    content = converter.convert()
    if not options.unpacked:
        return content
    model = flatbuffer.read_model(content)
    unpack_once(model, options.unpacked)
    return flatbuffer.write_model(model)


main = functools.partial(run, RowGraphs)
