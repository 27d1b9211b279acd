"""What is left of vectors of words in so many bytes, by what people say?

Each method in the largest setting that fits in a part of the table's bytes,
with no training after. The vectors are those of a LiteRT file with
`quantize="int8"`: their error, how many of the nearest words stay so, how well
cosines agree with people, how many analogies are right.
"""

import dataclasses
import functools
import math
import pathlib
import tempfile
import time

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.baselines import methods as baselines
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.comparison.methods import QUANTIZE
from benchmarks.comparison.methods import Sizes
from benchmarks.data import vectors
from examples.word_tests import ANALOGIES
from examples.word_tests import PAIRS
from examples.word_tests import WordAnalogies
from examples.word_tests import WordPairs
from keras_compembed import methods

TABLE = "table"
FOLDERS = {
    "googlenews": vectors.GOOGLE_NEWS,
    "reviews": vectors.REVIEWS,
}
# Words that may be an answer, as is usual: the first.
RESTRICT_VOCAB = 30_000


def low_rank_rows(bits):
    """Rows of any rank."""

    def make(size, shape):
        rank = size if size < shape[1] else None
        return methods.Quantized(bits, rank=rank)

    return make


def low_rank_codes(codewords):
    """Codes of so many columns that each has one and a half bits."""

    def make(size, shape):
        rank = round(size * math.log2(codewords) / 1.5)
        return methods.Codes(size, codewords, rank=min(rank, shape[1]))

    return make


def frequent_words(size, shape):
    """Rows of the frequent words in int4; all others share one."""
    return methods.Tiered(
        size, methods.Quantized(4), scores=np.arange(shape[0])[::-1]
    )


# Functions of an integer and the table's shape, and the largest integer.
FAMILIES = {
    "codes of 256": (lambda size, shape: methods.Codes(size, 256), 64),
    "codes of 16": (lambda size, shape: methods.Codes(size, 16), 256),
    "low-rank codes of 256": (low_rank_codes(256), 128),
    "low-rank codes of 16": (low_rank_codes(16), 256),
    "low-rank int8": (low_rank_rows(8), None),
    "low-rank int4": (low_rank_rows(4), None),
    "low-rank int2": (low_rank_rows(2), None),
    "anchors": (lambda size, shape: methods.Anchors(256, size / 10), 640),
    "even anchors": (lambda size, shape: methods.Anchors(256, size, size), 64),
    "frequent words in int4": (frequent_words, 10**6),
    "pruned": (
        lambda size, shape: methods.Pruned(1 - size / 1000),
        1000,
    ),
    "tensor train": (lambda size, shape: baselines.TensorTrain(size), 4096),
    "hashed": (lambda size, shape: baselines.Hashed(size), 10**6),
    "quotient and remainder": (
        lambda size, shape: baselines.QuotientRemainder(size),
        10**6,
    ),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    table: str
    part: int
    family: str


class Quality(Benchmark):
    choices = {
        "tables": ("googlenews", "reviews"),
        "parts": (64, 128, 16),
        "families": tuple(FAMILIES),
    }
    quick = {
        "tables": ("generated",),
        "parts": (4,),
        "families": ("codes of 16", "low-rank int2"),
    }

    def rows(self):
        args = self.args
        whole = [
            Row(f"{table}, table, as they are", table, 1, TABLE)
            for table in args.tables
        ]
        return whole + [
            Row(f"{table}, 1/{part}, {family}", table, part, family)
            for part in args.parts
            for table in args.tables
            for family in args.families
        ]

    def measure(self, row, seed):
        words, table = self.read(row.table)
        if row.family == TABLE:
            return {
                "method": "float32",
                "bytes": 4 * table.size,
                "tests": self.scores(table, words),
            }
        limit = 4 * table.size // row.part
        method = largest(row.family, table.shape, limit)
        if method is None:
            return {"method": "none fits"}
        started = time.process_time()
        layer = method.start(seed).from_table(table)
        seconds = time.process_time() - started
        rows, file_bytes = read_file(layer)
        near = kc.reports.fidelity(table, rows)
        return {
            "method": method.name,
            "bytes": method.litert_bytes(*table.shape, QUANTIZE),
            "file_bytes": file_bytes,
            "relative_error": near.relative_squared_error,
            "centred_relative_error": near.centred_relative_squared_error,
            "mean_cosine": near.mean_cosine,
            "neighbor_overlap": near.neighbor_overlap,
            "tests": self.scores(rows, words),
            "cpu_seconds": seconds,
        }

    def scores(self, table, words):
        found = [test.evaluate(table, words) for test in self.tests]
        return {
            each.name: {"score": each.score, "num_used": each.num_used}
            for each in found
        }

    @functools.lru_cache(maxsize=1)  # noqa: B019
    def read(self, name):
        """Words and their table."""
        if name == "generated":
            table = vectors.generated()
            return [f"w{row}" for row in range(len(table))], table
        return vectors.load_vectors(self.folder / FOLDERS[name])

    @functools.cached_property
    def tests(self):
        """What vectors are asked."""
        if self.args.tables == ("generated",):
            words = [f"w{row}" for row in range(40)]
            return [
                WordPairs(
                    [
                        (word, other, place)
                        for place, (word, other) in enumerate(
                            zip(words, words[1:], strict=False)
                        )
                    ],
                    name=PAIRS["WordSim"],
                ),
                WordAnalogies([words[:4], words[4:8]], name=ANALOGIES),
            ]
        folder = self.folder / "word_similarity"
        return [
            *(
                WordPairs.read(folder / f"{name}.txt")
                for name in PAIRS.values()
            ),
            WordAnalogies.read(folder / f"{ANALOGIES}.txt", RESTRICT_VOCAB),
        ]


def largest(family, shape, limit):
    """The method of a family that takes most bytes within a limit, or None."""
    make, most = FAMILIES[family]
    sizes = Sizes(lambda size: make(size, shape), most or shape[1])
    return sizes.fit(shape, limit)


def read_file(layer, chunk=2048):
    """The vectors that a LiteRT file of a layer gives, and its bytes."""
    inputs = keras.Input((None,), dtype="int32")
    model = keras.Model(inputs, layer(inputs))
    rows = np.empty((layer.input_dim, layer.output_dim), "float32")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows.tflite"
        target = kc.export.Target(tolerance=1.0)
        kc.export_litert(
            model, path, quantize=QUANTIZE, target=target, verbose=0
        )
        read = kc.export.LiteRTModel(path)
        for start in range(0, len(rows), chunk):
            stop = min(start + chunk, len(rows))
            ids = np.arange(start, stop, dtype="int32")
            rows[start:stop] = read(ids[None])[0]
        return rows, path.stat().st_size


main = functools.partial(run, Quality)
