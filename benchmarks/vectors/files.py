"""How long do word vectors take to compress, to open and to search?

Writes a table of word vectors as text, compresses it by the command, opens both
files in turns, and finds the ten nearest words in the compressed vectors and by
a float32 product in NumPy, in turns on one thread. The text (220 MB) and the
compressed file stay in `--folder`.
"""

import dataclasses
import functools
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import threadpoolctl

from benchmarks.common import timing
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.data.vectors import REVIEWS
from benchmarks.data.vectors import generated
from benchmarks.data.vectors import load_vectors
from keras_compembed.methods import Quantized
from keras_compembed.vectors import CompressedVectors
from keras_compembed.vectors import WordVectors
from keras_compembed.vectors import read_vectors

GENERATED = "generated"
COMMAND, OPEN, NEIGHBORS = "command", "open", "neighbors"
# Other ways to store vectors, whose neighbors are looked for as well.
STORED = {
    f"neighbors in {method.name}": method
    for method in (
        Quantized(8),
        Quantized(4),
        Quantized(2),
        Quantized(4, rank=64),
    )
}
_TEMPORARY = pathlib.Path(tempfile.gettempdir())


@dataclasses.dataclass(frozen=True)
class Row:
    """What is measured."""

    name: str


class Files(Benchmark):
    settings = {
        "table": Flag(REVIEWS, f"folder of vectors, or {GENERATED}"),
        "max_bytes": "2MB",
        "opened": Flag(3, "how often files are opened"),
        "queries": Flag(41, "words whose neighbors are looked for"),
    }
    choices = {
        "folder": Flag(
            _TEMPORARY / "compembed_vectors",
            "where files are written",
            pathlib.Path,
        )
    }
    quick = {
        "table": GENERATED,
        "max_bytes": "8kB",
        "opened": 1,
        "queries": 3,
        "folder": _TEMPORARY / "compembed_vectors_quick",
    }

    def rows(self):
        return [Row(name) for name in (COMMAND, OPEN, NEIGHBORS, *STORED)]

    def measure(self, row, seed):
        self.args.folder.mkdir(exist_ok=True)
        if row.name == COMMAND:
            return self.compress(seed)
        if row.name == OPEN:
            return self.open(seed)
        return self.search(seed, STORED.get(row.name))

    @property
    def text(self):
        """Path of the vectors as text, which is written once."""
        path = self.args.folder / "vectors.txt"
        if not path.exists():
            words, table = self.vectors()
            beside = path.with_suffix(".writing")
            with open(beside, "w", encoding="utf-8") as file:
                file.write("{} {}\n".format(*table.shape))
                for word, row in zip(words, table.tolist(), strict=True):
                    numbers = " ".join([f"{x:.5f}" for x in row])
                    file.write(f"{word} {numbers}\n")
            os.replace(beside, path)
        return path

    def vectors(self):
        if self.args.table == GENERATED:
            table = generated()
            return [f"word{x}" for x in range(len(table))], table
        return load_vectors(self.folder / self.args.table)

    @property
    def compressed(self):
        """Path of the compressed file; the command makes it if need be."""
        path = self.args.folder / "small.npz"
        if not path.exists():
            self.compress(0)
        return path

    def compress(self, seed):
        """The command as a whole: it starts, reads, searches, learns."""
        output, text = self.args.folder / "small.npz", self.text
        command = [
            *(sys.executable, "-m", "keras_compembed", "learn", str(text)),
            *("--max-bytes", self.args.max_bytes, "--seed", str(seed)),
            *("--overwrite", "-o", str(output)),
        ]
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds = time.perf_counter() - start
        small = CompressedVectors.load(output)
        return {
            "seconds": round(seconds, 1),
            "words": len(small),
            "text_bytes": text.stat().st_size,
            "bytes": output.stat().st_size,
            "method": small.method,
        }

    def open(self, seed):
        """Seconds to open files, without those of imports."""
        runs = {
            "text": lambda _: read_vectors(self.text),
            "compressed": lambda _: CompressedVectors.load(self.compressed),
        }
        times = timing.take_turns(
            {name: timing.timed(function) for name, function in runs.items()},
            range(self.args.opened),
        )
        return {
            "seconds": round(float(np.median(times["compressed"][:, 0])), 4),
            "ratio": round(ratio(times, "compressed", "text"), 5),
            "bytes": self.compressed.stat().st_size,
            "text_bytes": self.text.stat().st_size,
        }

    def stored(self, words, table, method, seed):
        """Vectors stored by a method; None for the file's."""
        if method is None:
            return CompressedVectors.load(self.compressed)
        if (method.rank or 0) > table.shape[1]:
            method = Quantized(method.bits)
        vectors = WordVectors(words, table)
        return CompressedVectors.learn(vectors, method, seed=seed, verbose=0)

    def search(self, seed, method):
        """Seconds to find ten neighbors on one thread."""
        words, table = self.vectors()
        small = self.stored(words, table, method, seed)
        table = table / np.linalg.norm(table, axis=1, keepdims=True)
        rows = np.random.default_rng(seed).choice(len(table), self.args.queries)

        def product(row):
            scores = table @ table[row]
            best = np.argpartition(-scores, 11)[:11]
            return best[np.argsort(-scores[best])]

        runs = {
            "product": timing.timed(product),
            "codes": timing.timed(lambda row: small.most_similar(words[row])),
        }
        with threadpoolctl.threadpool_limits(1):
            start = time.perf_counter()
            small.most_similar(words[0])
            first = time.perf_counter() - start
            times = timing.take_turns(runs, rows)
        seconds = {x: float(np.median(y[:, 0])) for x, y in times.items()}
        return {
            "words": len(small),
            "bytes": small.nbytes,
            "seconds": round(seconds["codes"], 6),
            "product_seconds": round(seconds["product"], 6),
            "first_seconds": round(first, 4),
            "ratio": round(ratio(times, "codes", "product"), 3),
            "method": small.method,
        }


def ratio(times, one, other):
    """Median over turns of a time to another."""
    return float(np.median(times[one][:, 0] / times[other][:, 0]))


main = functools.partial(run, Files)
