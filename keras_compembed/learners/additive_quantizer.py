"""Learners of codes with codewords that add up."""

import os
import warnings

import joblib
import numpy as np

from keras_compembed.compositions.composition import LinearComposition
from keras_compembed.learners import coordinate_search as search
from keras_compembed.learners.code_learner import CodeLearner
from keras_compembed.learners.quantizer_run import QuantizerRun
from keras_compembed.learners.refinement import nearest_composed
from keras_compembed.learners.refinement import refine_until_stopped
from keras_compembed.utils.files import replacing
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_code_shape
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_seed
from keras_compembed.utils.validation import float_chunks
from keras_compembed.utils.validation import require
from keras_compembed.utils.workers import one_thread
from keras_compembed.version import __version__


class AdditiveQuantizer(CodeLearner):
    """Learns codes with codewords that add up to the rows of a table.

    It alternates between choosing codes with random noise at a falling
    temperature, and fitting codebooks by least squares. In rows of at most 128
    numbers, it starts from residual k-means instead if codebooks have over 64
    codewords, or codes at least 1.25 bits for each number. If few rows are over
    ten times as long as the median, each of them has its own codeword.

    It runs on one core. Within `joblib.parallel_config` it runs on several,
    with the same result.

    Ctrl-C stops `train` early: codes are improved once more, and the best are
    kept. A second Ctrl-C skips this improvement.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(1000, 64))
    >>> quantizer = AdditiveQuantizer(
    ...     num_codebooks=8, codebook_size=16, seed=0, verbose=0
    ... )
    >>> quantizer.train(table).codes.shape
    (1000, 8)
    >>> quantizer.decode(quantizer.codes).shape
    (1000, 64)

    Args:
        num_codebooks: Integer. Subcodes per row (M). Defaults to `32`.
        codebook_size: Integer from 2 to 65536. Codewords per codebook (K).
            Defaults to `16`.
        effort: Positive number. How long to search. Defaults to `1.0`.
        seed: Optional integer. Makes `train` and `encode` repeatable.
        verbose: `0` or `1`. Whether to show progress. Defaults to `1`.
        cache: Optional string or path-like. A folder that keeps finished codes
            by a hash of table and settings, instead of learning them again. It
            needs a `seed`. Defaults to `None`.

    Attributes:
        codes: Unsigned integers `(rows, num_codebooks)`, None before `train`.
        codebooks: float32 `(num_codebooks, codebook_size, columns)`, or None.
        history: Dict of lists. `"loss"` is the mean squared distance of rows;
            its last entry is that of the final codes. `"seconds"` is the time
            since the start.

    Raises:
        ValueError: If an argument is out of range.

    References:
        - Babenko & Lempitsky, Additive Quantization for Extreme Vector
          Compression, CVPR 2014
        - Martinez et al., LSQ++: Lower Running Time and Higher Recall in
          Multi-Codebook Quantization, ECCV 2018 (annealing)
        - [Bengio et al., 2013](https://arxiv.org/abs/1308.3432) (the encoder)
    """

    def __init__(
        self,
        num_codebooks: int = 32,
        codebook_size: int = 16,
        effort: float = 1.0,
        seed: int | None = None,
        verbose: int = 1,
        cache: str | os.PathLike | None = None,
    ):
        self.num_codebooks, self.codebook_size = check_code_shape(
            num_codebooks, codebook_size
        )
        self.effort = check_positive_number("effort", effort)
        self.seed = check_seed(seed)
        self.cache = cache
        self.verbose = check_choice("verbose", verbose, (0, 1, 2))
        self.history = {"loss": [], "seconds": []}

    def train(self, table, sample_weight=None):
        table = check_fitted_table(table, shards=True)
        weight = check_sample_weight(sample_weight, len(table))
        path = found = None
        if self.cache is not None and self.seed is not None:
            names = "num_codebooks", "codebook_size", "effort", "seed"
            settings = [getattr(self, name) for name in names]
            # All that codes depend on.
            work = __version__, settings, table, weight
            name = f"codes-{joblib.hash(work, coerce_mmap=True)}.npz"
            os.makedirs(self.cache, exist_ok=True)
            path = os.path.join(self.cache, name)
            found = _load(path)
        if found is not None:
            self._keep(**found)
            return self
        run = QuantizerRun(self, table, weight)
        with one_thread():
            found = run.run()
        self._keep(**found)
        if path is not None and run.is_whole:
            _save(path, **found)
        return self

    def encode(self, table):
        table = self._check_new_rows(table)
        rng = np.random.default_rng(self.seed)
        with one_thread():
            return search.encode_closely(table, self.codebooks, rng)


def _load(path):
    """Dict of codes, codebooks and history, or None."""
    if not os.path.exists(path):
        return None
    try:
        # Opened here: NumPy does not close damaged files.
        with open(path, "rb") as opened, np.load(opened) as file:
            history = {x: file[x].tolist() for x in ("loss", "seconds")}
            found = {x: file[x] for x in ("codes", "codebooks")}
            return {**found, "history": history}
    # Damaged files raise any error.
    except Exception as error:
        _warn(path, "read", error)
        return None


def _save(path, codes, codebooks, history):
    try:
        with replacing(path, overwrite=True) as beside:
            np.savez(beside, codes=codes, codebooks=codebooks, **history)
    except OSError as error:
        _warn(path, "written", error)


def _warn(path, verb, error):
    line = f"The codes in {path!r} cannot be {verb}: {error}"
    warnings.warn(line, stacklevel=4)


class FactorQuantizer(CodeLearner):
    """Learns low-rank codes, for composition `"linear"`."""

    def __init__(
        self,
        num_codebooks=32,
        codebook_size=16,
        rank=16,
        effort=1.0,
        seed=None,
        verbose=1,
    ):
        self._quantizer = AdditiveQuantizer(
            num_codebooks,
            codebook_size,
            effort=effort,
            seed=seed,
            verbose=verbose,
        )
        self.num_codebooks = self._quantizer.num_codebooks
        self.codebook_size = self._quantizer.codebook_size
        self.rank = check_positive_int("rank", rank)
        self.composition = LinearComposition(self.rank)
        self.history = {"loss": [], "seconds": [], "refined_loss": []}

    def train(self, table, sample_weight=None):
        table = check_fitted_table(table, shards=True)
        width = table.shape[1]
        require(
            self.rank <= width,
            "`rank` must be at most the number of columns.",
            columns=width,
            rank=self.rank,
        )
        weight = check_sample_weight(sample_weight, len(table))
        # The principal axes of uncentred rows, the largest first.
        axes = np.linalg.eigh(search.second_moments(table, 0, weight))[1].T[
            ::-1
        ]
        kernel = axes[: self.rank].astype("float32")
        narrow = np.empty((len(table), self.rank), "float32")
        for start, rows in float_chunks(table):
            narrow[start : start + len(rows)] = rows @ kernel.T
        quantizer = self._quantizer.train(narrow, sample_weight=weight)
        composition = LinearComposition(self.rank)
        composition.set_shape(self.num_codebooks, self.codebook_size, width)
        composition.kernel.assign(kernel)
        codes, codebooks, weights, losses = refine_until_stopped(
            table, quantizer.codes, composition, quantizer.codebooks, weight
        )
        composition.set_weights(weights)
        self._keep(
            codes=codes,
            codebooks=codebooks,
            composition=composition,
            history={**quantizer.history, "refined_loss": losses},
        )
        return self

    def encode(self, table):
        table = self._check_new_rows(table)
        return nearest_composed(table, self.composition, self.codebooks)
