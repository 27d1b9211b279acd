"""What does it cost to find the best of very many ids?

A query of one vector is answered with the `top_k` ids whose vectors have the
largest products with it. LiteRT files score ids from their codes, or multiply
by a table of int8 (FULLY_CONNECTED); in Keras, `top_k` of `CodeEmbedding` is
compared with a product with a float32 table. Codes and tables are random: no
way's time depends on them. All run on one core. Times are medians; files take
turns in one process, ways in Keras have a process each. Memory is the peak of
a process less what it had before the file or table was there.

    python -m benchmarks litert.scoring
"""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from benchmarks.common import litert
from benchmarks.common import peak_memory
from benchmarks.common import tables
from benchmarks.common import timing
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: String.
        output_dim: Integer.
        shape: Tuple `(num_codebooks, codebook_size)`, or None for a table.
        in_keras: Boolean. In Keras, not in LiteRT.
    """

    name: str
    output_dim: int
    shape: tuple | None
    in_keras: bool


class Scoring(Benchmark):
    settings = {
        "input_dim": 1_000_000,
        "top_k": 10,
        "rounds": Flag(50, "queries, one at a time"),
    }
    quick = {"input_dim": 3000, "rounds": 3}
    columns = {
        "ids": tables.field("name"),
        "file bytes": tables.figure("file_bytes", "{:,.0f}"),
        "milliseconds": tables.figure("milliseconds", "{:.1f}"),
        "to the table": tables.figure("ratio", "{:.2f}"),
        "peak memory, MB": tables.figure("peak_megabytes", "{:.1f}"),
    }

    def rows(self):
        shapes = {
            "codes 8x256": (8, 256),
            "codes 16x16": (16, 16),
            "table": None,
        }
        return [
            Row(f"{name} of {width}, {where}", width, shape, where == "Keras")
            for width in ((64,) if self.args.quick else (64, 128))
            for where in ("LiteRT", "Keras")
            for name, shape in shapes.items()
        ]

    def together(self, row):
        return row.output_dim, row.in_keras

    def measure_together(self, rows, seed):
        group = self.together(rows[0])
        (table,) = (
            row
            for row in self.rows()
            if row.shape is None and self.together(row) == group
        )
        ways = dict.fromkeys([table, *rows])
        if table.in_keras:
            found = {way: self._in_process(way, seed) for way in ways}
        else:
            found = self._in_files(ways, seed)
        for row in rows:
            ratio = found[row]["milliseconds"] / found[table]["milliseconds"]
            yield {**found[row], "ratio": round(ratio, 2)}

    def _in_process(self, row, seed):
        # Threads can only be chosen before TensorFlow runs anything.
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
            return pool.submit(run_in_keras, row, self.args, seed).result()

    def _in_files(self, rows, seed):
        args = self.args
        runs, found = {}, {}
        with (
            tempfile.TemporaryDirectory() as folder,
            peak_memory.measuring() as measure,
        ):
            for place, row in enumerate(rows):
                path = pathlib.Path(folder) / f"{place}.tflite"
                export = write(row, args, seed, path)
                peak = measure([(path, {})])
                found[row] = {
                    "file_bytes": export.file_bytes,
                    "peak_megabytes": peak and round(peak / 1e6, 1),
                }
                runs[row] = litert.load(path)
            times = timing.take_turns(runs, queries(row, args, seed))
        for row, taken in times.items():
            found[row] |= timing.summarize(taken)
        return found


class Table(keras.layers.Layer):
    """The best of a float32 table."""

    def __init__(self, input_dim, k, **kwargs):
        super().__init__(**kwargs)
        self.input_dim, self.k = input_dim, k

    def build(self, input_shape):
        shape = self.input_dim, input_shape[-1]
        self.table = self.add_weight(shape=shape, initializer="normal")

    def call(self, inputs):
        logits = tf.matmul(inputs, self.table, transpose_b=True)
        scores, ids = tf.math.top_k(logits, self.k)
        return {"ids": ids, "scores": scores}


def make_model(row, args, seed):
    keras.utils.set_random_seed(seed)
    query = keras.Input((row.output_dim,), batch_size=1)
    if row.shape is None:
        return keras.Model(query, Table(args.input_dim, args.top_k)(query))
    items = kc.CodeEmbedding(
        args.input_dim, row.output_dim, *row.shape, seed=seed
    )
    logits = items(query, reverse=True)
    return kc.top_k_model(keras.Model(query, logits), args.top_k)


def write(row, args, seed, path):
    """Writes a file; codebooks are float32, tables int8."""
    return kc.export.export_litert(
        make_model(row, args, seed),
        path,
        quantize="int8" if row.shape is None else None,
        # Rounding swaps ids.
        tolerance=1.0 if row.shape is None else None,
        verbose=0,
    )


def queries(row, args, seed):
    rng = np.random.default_rng(seed + 1)
    shape = args.rounds, 1, row.output_dim
    return rng.normal(size=shape).astype("float32")


def run_in_keras(row, args, seed):
    """Figures of a way in Keras, in a process of its own."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    # What TensorFlow needs itself.
    tf.math.top_k(tf.matmul(tf.ones((1, 9)), tf.ones((9, 9))), 1)
    with peak_memory.counting() as count:
        model = make_model(row, args, seed)
        answer = timing.timed(tf.function(model, jit_compile=False))
        inputs = tf.constant(queries(row, args, seed))
        answer(inputs[0])
        times = [answer(query) for query in inputs]
    peak = count()
    return {
        "peak_megabytes": peak and round(peak / 1e6, 1),
        **timing.summarize(times),
    }


main = functools.partial(run, Scoring)
