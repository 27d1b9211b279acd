"""How near do anchors and a few numbers a row come, ours and scikit-learn's?

Fits anchors and a sparse T, with as many anchors and numbers a row, to vectors
of words: by `learn_dictionary`, which `ANTEmbedding.from_table` uses, and by
scikit-learn's dictionary learning in batches (that of whole tables takes
minutes) with orthogonal matching pursuit behind it; by K-SVD. Ours with as many
numbers in all, which rows share by what they gain, up to 8 more in a row. And
the pursuit alone, for the anchors that the first learned. Each in the same
number of iterations over the table; of weights `alpha` of the L1 loss that
scikit-learn learns by, the best of three is shown. Settings of both are their
defaults.

    python -m benchmarks anchors.sparse_coding

Needs scikit-learn, and the folder `vectors_googlenews_8k_300d` of the data
folder.
"""

import dataclasses
import functools
import time
import warnings

import numpy as np

from benchmarks.anchors.k_svd import learn_by_k_svd
from benchmarks.common import tables
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.data import vectors
from keras_compembed.transforms.sparse_coding import learn_dictionary
from keras_compembed.transforms.sparse_coding import sparse_code
from keras_compembed.utils.extras import require

# Numbers of a row beyond the mean, at most, where rows share them.
MORE = 8
ALPHAS = (0.1, 0.3, 1.0)
FOLDERS = {"googlenews": vectors.GOOGLE_NEWS}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: String.
        num_anchors, max_nonzeros: Integers.
        way: `"ours"`; `"shared"`, ours with numbers that rows share;
            `"k-svd"`; `"batch"`, scikit-learn's `MiniBatchDictionaryLearning`;
            or one of the pursuits for anchors that ours learned, `"our
            pursuit"` or `"its pursuit"`.
    """

    name: str
    num_anchors: int
    max_nonzeros: int
    way: str = "ours"


WAYS = {
    "learn_dictionary": "ours",
    "learn_dictionary, shared by gain": "shared",
    "K-SVD": "k-svd",
    "MiniBatchDictionaryLearning": "batch",
    "sparse_code, same anchors": "our pursuit",
    "sparse_encode, same anchors": "its pursuit",
}


class SparseCoding(Benchmark):
    settings = {"table": "googlenews", "iterations": 10}
    quick = {"table": "generated", "iterations": 2}
    columns = {
        "": tables.field("name"),
        "anchors": tables.field("row.num_anchors"),
        "numbers a row": tables.field("row.max_nonzeros"),
        "relative error": tables.figure("relative_error", "{:.4f}"),
        "CPU s": tables.figure("cpu_seconds", "{:.1f}"),
    }

    def rows(self):
        shapes = [(12, 3)] if self.args.quick else [(100, 8)]
        return [
            Row(name, *shape, way)
            for shape in shapes
            for name, way in WAYS.items()
        ]

    @functools.cached_property
    def table(self):
        if self.args.table == "generated":
            return vectors.generated()
        return vectors.load_table(self.folder / FOLDERS[self.args.table])

    def _learn(self, num_anchors, max_nonzeros, seed, total_nonzeros=None):
        return learn_dictionary(
            self.table,
            num_anchors,
            max_nonzeros,
            non_negative=False,
            iterations=self.args.iterations,
            seed=seed,
            verbose=0,
            total_nonzeros=total_nonzeros,
        )

    def measure(self, row, seed):
        shape = row.num_anchors, row.max_nonzeros
        if row.way == "batch":
            found = [
                self._measure(
                    functools.partial(self._sklearn, row, seed, alpha)
                )
                for alpha in ALPHAS
            ]
            best = min(found, key=lambda x: x["relative_error"])
            return {**best, "alpha": ALPHAS[found.index(best)]}
        if row.way == "ours":
            return self._measure(lambda: _product(self._learn(*shape, seed)))
        if row.way == "shared":
            most = min(row.num_anchors, row.max_nonzeros + MORE)
            total = row.max_nonzeros * len(self.table)
            return self._measure(
                lambda: _product(
                    self._learn(row.num_anchors, most, seed, total)
                )
            )
        if row.way == "k-svd":
            return self._measure(
                lambda: _product(
                    learn_by_k_svd(
                        self.table, *shape, self.args.iterations, seed
                    )
                )
            )
        _, anchors = self._learn(*shape, seed)
        if row.way == "our pursuit":
            return self._measure(
                lambda: _product(
                    (
                        sparse_code(
                            self.table, anchors, row.max_nonzeros, False
                        ),
                        anchors,
                    )
                )
            )
        encode = require("sklearn.decomposition", "tune").sparse_encode
        return self._measure(
            lambda: (
                encode(
                    self.table,
                    anchors,
                    algorithm="omp",
                    n_nonzero_coefs=row.max_nonzeros,
                )
                @ anchors
            )
        )

    def _sklearn(self, row, seed, alpha):
        module = require("sklearn.decomposition", "tune")
        learner = module.MiniBatchDictionaryLearning(
            row.num_anchors,
            alpha=alpha,
            max_iter=self.args.iterations,
            fit_algorithm="cd",
            transform_algorithm="omp",
            transform_n_nonzero_coefs=row.max_nonzeros,
            random_state=seed,
        )
        with warnings.catch_warnings():
            # That it has not converged.
            warnings.simplefilter("ignore")
            codes = learner.fit_transform(self.table)
        return codes @ learner.components_

    def _measure(self, approximate):
        start = time.process_time()
        near = approximate()
        seconds = time.process_time() - start
        error = np.square(self.table - near).sum(dtype="float64")
        return {
            "relative_error": float(error / np.square(self.table).sum()),
            "cpu_seconds": seconds,
        }


def _product(parts):
    transform, anchors = parts
    return transform.dense_rows() @ anchors


main = functools.partial(run, SparseCoding)
