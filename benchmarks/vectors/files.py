"""How long do vectors take to compress, to open and to search?

Writes the table of word vectors as text, as word2vec does, and compresses it by
the command, as a user would. Then opens the text by gensim and by
`read_vectors`, and the compressed file by `CompressedVectors.load`, in turns in
one process; and looks for the ten words nearest to one, in codes and by a
product of the float32 table in NumPy, in turns on one thread. Last, those of a
thousand words in one call, by turns with some that are asked one by one.

    python -m benchmarks vectors.files

The text (220 MB) and the compressed file stay in `--folder`.
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

from benchmarks.common import tables
from benchmarks.common import timing
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.data.vectors import REVIEWS
from benchmarks.data.vectors import generated
from keras_compembed.methods import Rounded
from keras_compembed.vectors import CompressedVectors
from keras_compembed.vectors import WordVectors
from keras_compembed.vectors import read_vectors

GENERATED = "generated"
COMMAND, OPEN, NEIGHBORS = "command", "open", "neighbors"
# Other ways to store vectors, whose neighbors are looked for as well.
STORED = {
    f"neighbors in {method.name}": method
    for method in (Rounded(8), Rounded(4), Rounded(2), Rounded(4, rank=64))
}
MANY = {
    name.replace("neighbors", "neighbors of many"): method
    for name, method in {NEIGHBORS: None, **STORED}.items()
}
# Words that are asked at once, and one by one beside them; how often.
_AT_ONCE, _ONE_BY_ONE, _TURNS = 1000, 20, 5
_IMPORTS = ("gensim.models", "keras_compembed")


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
            pathlib.Path(tempfile.gettempdir()) / "compembed_vectors",
            "where files are written",
            pathlib.Path,
        )
    }
    quick = {
        "table": GENERATED,
        "max_bytes": "8kB",
        "opened": 1,
        "queries": 3,
        "folder": pathlib.Path(tempfile.gettempdir())
        / "compembed_vectors_quick",
    }
    columns = {
        "what": tables.field("name"),
        "words": tables.figure("words", "{:,.0f}"),
        "text bytes": tables.figure("text_bytes", "{:,.0f}"),
        "bytes": tables.figure("bytes", "{:,.0f}"),
        "seconds": tables.figure("seconds", "{:.3g}"),
        "of gensim's, or of the product's": tables.figure("ratio", "{:.3g}"),
    }

    def rows(self):
        names = (COMMAND, OPEN, NEIGHBORS, *STORED, *MANY)
        return [Row(name) for name in names]

    def measure(self, row, seed):
        self.args.folder.mkdir(exist_ok=True)
        if row.name == COMMAND:
            return self.compress(seed)
        if row.name == OPEN:
            return self.open(seed)
        if row.name in MANY:
            return self.search_many(seed, MANY[row.name])
        return self.search(seed, STORED.get(row.name))

    @property
    def text(self):
        """Path of the vectors as text, which is written once."""
        path = self.args.folder / "vectors.txt"
        if not path.exists():
            vectors = self.vectors()
            beside = path.with_suffix(".writing")
            with open(beside, "w", encoding="utf-8") as file:
                rows, columns = vectors.vectors.shape
                file.write(f"{rows} {columns}\n")
                for word, row in zip(
                    vectors.words, vectors.vectors, strict=True
                ):
                    numbers = " ".join([f"{x:.5f}" for x in row.tolist()])
                    file.write(f"{word} {numbers}\n")
            os.replace(beside, path)
        return path

    def vectors(self):
        if self.args.table == GENERATED:
            table = generated()
            return WordVectors([f"word{x}" for x in range(len(table))], table)
        folder = self.folder / self.args.table
        return read_vectors(
            folder / "vectors.npy", words=folder / "words.txt", verbose=0
        )

    @property
    def compressed(self):
        """Path of the compressed file; the command makes it if need be."""
        path = self.args.folder / "small.npz"
        if not path.exists():
            self.compress(0)
        return path

    def compress(self, seed):
        """The command as a whole: it starts, reads, searches, learns."""
        output = self.args.folder / "small.npz"
        text = self.text
        command = [
            *(sys.executable, "-m", "keras_compembed", "learn", str(text)),
            *("--max-bytes", self.args.max_bytes, "--seed", str(seed)),
            *("--overwrite", "-o", str(output)),
        ]
        start = time.perf_counter()
        answer = subprocess.run(
            command, check=True, capture_output=True, text=True
        )
        seconds = time.perf_counter() - start
        small = CompressedVectors.load(output)
        said = answer.stdout.replace(f"{self.args.folder}{os.sep}", "")
        report = said.rpartition("\n\nvectors ")[2]
        return {
            "seconds": round(seconds, 1),
            "words": len(small),
            "text_bytes": text.stat().st_size,
            "bytes": output.stat().st_size,
            "method": small.method,
            "report": "vectors " + report.partition("\n\n")[0],
            "cores": os.cpu_count(),
        }

    def open(self, seed):
        """Seconds to open files, those of imports apart."""
        from gensim.models import KeyedVectors

        text, small = self.text, self.compressed
        runs = {
            "gensim": lambda _: KeyedVectors.load_word2vec_format(text),
            "read_vectors": lambda _: read_vectors(text, verbose=0),
            "compressed": lambda _: CompressedVectors.load(small),
        }
        times = timing.take_turns(
            {name: timing.timed(function) for name, function in runs.items()},
            range(self.args.opened),
        )
        seconds = {x: float(np.median(y[:, 0])) for x, y in times.items()}
        ratios = times["compressed"][:, 0] / times["gensim"][:, 0]
        return {
            "seconds": round(seconds["compressed"], 4),
            "gensim_seconds": round(seconds["gensim"], 3),
            "read_vectors_seconds": round(seconds["read_vectors"], 3),
            "ratio": round(float(np.median(ratios)), 5),
            "import_seconds": {
                name: round(_import_seconds(name), 2) for name in _IMPORTS
            },
            "bytes": small.stat().st_size,
            "text_bytes": text.stat().st_size,
        }

    def stored(self, vectors, method, seed):
        """Vectors stored by a method; None for the file's."""
        if method is None:
            return CompressedVectors.load(self.compressed)
        if (method.rank or 0) > vectors.vectors.shape[1]:
            method = Rounded(method.bits)
        return CompressedVectors.learn(vectors, method, seed=seed, verbose=0)

    def search_many(self, seed, method):
        """Seconds a word to find ten neighbors of many, on one thread."""
        small = self.stored(self.vectors(), method, seed)
        rng = np.random.default_rng(seed)
        rows = rng.choice(len(small), min(_AT_ONCE, len(small)), replace=False)
        words = [small.words[row] for row in rows]
        some = words[:_ONE_BY_ONE]
        runs = {
            "many": lambda _: small.most_similar_many(words),
            "single": lambda _: [small.most_similar(word) for word in some],
        }
        small.most_similar(words[0])
        with threadpoolctl.threadpool_limits(1):
            times = timing.take_turns(
                {name: timing.timed(call) for name, call in runs.items()},
                range(_TURNS),
            )
        many = times["many"][:, 0] / len(words)
        single = times["single"][:, 0] / len(some)
        return {
            "words": len(small),
            "bytes": small.nbytes,
            "seconds": round(float(np.median(many)), 7),
            "single_seconds": round(float(np.median(single)), 7),
            "ratio": round(float(np.median(many / single)), 3),
            "method": small.method,
        }

    def search(self, seed, method):
        """Seconds to find ten neighbors on one thread."""
        vectors = self.vectors()
        table = vectors.vectors.astype("float32")
        small = self.stored(vectors, method, seed)
        table /= np.linalg.norm(table, axis=1, keepdims=True)
        rng = np.random.default_rng(seed)
        rows = rng.choice(len(table), self.args.queries)

        def product(row):
            scores = table @ table[row]
            best = np.argpartition(-scores, 11)[:11]
            return best[np.argsort(-scores[best])]

        runs = {
            "product": timing.timed(product),
            "codes": timing.timed(
                lambda row: small.most_similar(small.words[row])
            ),
        }
        with threadpoolctl.threadpool_limits(1):
            start = time.perf_counter()
            small.most_similar(small.words[0])
            first = time.perf_counter() - start
            times = timing.take_turns(runs, rows)
        ratios = times["codes"][:, 0] / times["product"][:, 0]
        return {
            "words": len(small),
            "bytes": small.nbytes,
            "seconds": round(float(np.median(times["codes"][:, 0])), 6),
            "product_seconds": round(
                float(np.median(times["product"][:, 0])), 6
            ),
            "first_seconds": round(first, 4),
            "ratio": round(float(np.median(ratios)), 3),
            "method": small.method,
        }


def _import_seconds(name):
    """Seconds of an import in a process of its own, less those of Python."""
    found = []
    for code in ("pass", f"import {name}"):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True
        )
        found.append(time.perf_counter() - start)
    return found[1] - found[0]


main = functools.partial(run, Files)
