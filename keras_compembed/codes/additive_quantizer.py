"""Codes by annealed coordinate search."""

import time

import keras
import numpy as np

from keras_compembed.codes import coordinate_search as search
from keras_compembed.codes.code_learner import CodeLearner
from keras_compembed.codes.code_learner import check_code_shape
from keras_compembed.codes.code_learner import decode_codes
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import float_chunks

_HOT, _COLD = 2.5, 0.4
_RESTARTS, _ENCODE_SWEEPS = 4, 6
_LAST_SWEEPS = 3


class AdditiveQuantizer(CodeLearner):
    """Learns codes whose codewords add up to the rows of a table.

    Alternates between codes and codebooks: a sweep draws each subcode anew
    with the others fixed, at a temperature that falls, then least squares
    fits the codebooks to the codes. At the end sweeps take the best subcode.

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
        num_codebooks: Integer. Subcodes a row (M). Defaults to `32`.
        codebook_size: Integer from 2 to 65536. Codewords a codebook (K).
            Defaults to `16`.
        effort: Positive number. How long to search, for a lower loss: time
            is about proportional to it. Defaults to `1.0`.
        max_time: Optional number of seconds that `train` may take. The
            search then cools down in that time, so its result depends on the
            machine's speed. Defaults to `None`.
        seed: Optional integer. Makes `train` and `encode` repeatable.
        verbose: `0` or `1`, whether to show progress. Defaults to `1`.

    Raises:
        ValueError: if a size is out of range, or `effort` or `max_time` is
            not a positive number.
    """

    def __init__(
        self,
        num_codebooks=32,
        codebook_size=16,
        effort=1.0,
        max_time=None,
        seed=None,
        verbose=1,
    ):
        self.num_codebooks, self.codebook_size = check_code_shape(
            num_codebooks, codebook_size
        )
        self.effort = check_positive_number("effort", effort)
        self.max_time = max_time
        if max_time is not None:
            self.max_time = check_positive_number("max_time", max_time)
        self.seed = seed
        self.verbose = verbose
        self.history = {"loss": [], "seconds": []}

    def train(self, table, sample_weight=None):
        """Learns codebooks for `table`, and its codes.

        Ctrl-C stops early: what was found so far is kept, and `train`
        returns as usual.

        Args:
            table: Array `(rows, columns)` of finite numbers. It is read a
                part at a time and may be memory-mapped.
            sample_weight: Optional array `(rows,)`, how much each row counts.
                Losses are then weighted means.

        Returns:
            The learner.

        Raises:
            ValueError: if the table is not a finite matrix, or
                `sample_weight` is not a non-negative number a row.
        """
        table = check_table(table)
        weight = check_sample_weight(sample_weight, len(table))
        _Run(self, table, weight).run()
        return self

    def encode(self, table):
        """Codes of rows that may be new, for the codebooks as they are.

        Args:
            table: Array `(rows, columns)` as wide as the table trained on.

        Returns:
            Unsigned integer array `(rows, num_codebooks)`.

        Raises:
            ValueError: if there are no codebooks yet, or the table is not a
                finite matrix of their width.
        """
        if self.codebooks is None:
            raise ValueError(
                "The learner has no codebooks yet: call `train` first."
            )
        table = check_table(table, width=self.codebooks.shape[2])
        rng = np.random.default_rng(self.seed)
        grams = search.codebook_grams(self.codebooks)
        best = search.random_codes(
            len(table), self.num_codebooks, self.codebook_size, rng
        )
        noise = search.GumbelBank(rng)
        for part, rows in search.centred_chunks(
            table, np.float32(0), self.codebook_size
        ):
            lowest = np.full(len(rows), np.inf, "float32")
            for _ in range(_RESTARTS):
                codes = search.random_codes(
                    len(rows), self.num_codebooks, self.codebook_size, rng
                )
                residual = rows.copy()
                search.subtract_codewords(residual, codes, self.codebooks)
                for _ in range(_ENCODE_SWEEPS):
                    search.sweep(
                        residual, codes, self.codebooks, grams, 0, noise, rng
                    )
                loss = np.einsum("nd,nd->n", residual, residual)
                better = loss < lowest
                best[part][better] = codes[better]
                lowest[better] = loss[better]
        return best


class _Run:
    """One training run."""

    def __init__(self, learner, table, weight):
        self.learner = learner
        self.table = table
        self.weight = weight
        self.total = float(len(table))
        self.shape = (
            learner.num_codebooks,
            learner.codebook_size,
            table.shape[1],
        )
        self.rng = np.random.default_rng(learner.seed)
        self.noise = search.GumbelBank(self.rng)
        self.start = time.monotonic()

    def run(self):
        learner = self.learner
        learner.history = {"loss": [], "seconds": []}
        num_codebooks, codebook_size, width = self.shape
        self.offset = self._mean_row()
        self.codes = search.random_codes(
            len(self.table), num_codebooks, codebook_size, self.rng
        )
        self.codebooks = np.zeros(self.shape, "float32")
        iterations = max(4, round(25 * learner.effort))
        bar = keras.utils.Progbar(
            iterations + _LAST_SWEEPS, verbose=learner.verbose
        )
        try:
            level = search.water_level(
                self.table,
                self.offset,
                num_codebooks * np.log2(codebook_size),
            )
            self._step(None)
            done = 0.0
            for iteration in range(iterations):
                done = max(
                    iteration / (iterations - 1), self._time_used() / 0.8
                )
                if done > 1:
                    break
                t = _HOT + (_COLD - _HOT) * done
                loss = self._step(2 * level * t, 1.8 if t > 0.5 else 1.0)
                bar.update(iteration + 1, [("loss", loss)])
            for last in range(_LAST_SWEEPS):
                loss = self._step(0.0)
                bar.update(iterations + last + 1, [("loss", loss)])
                if self._time_used() > 1:
                    break
            bar.update(iterations + _LAST_SWEEPS, finalize=True)
        except KeyboardInterrupt:
            print("\nInterrupted: the codes found so far are kept.")
            self._step(0.0)
        self._finish()

    def _mean_row(self):
        total = np.zeros(self.shape[2])
        for start, rows in float_chunks(self.table):
            if self.weight is None:
                total += rows.sum(axis=0, dtype="float64")
            else:
                total += self.weight[start : start + len(rows)] @ rows
        return (total / self.total).astype("float32")

    def _time_used(self):
        if self.learner.max_time is None:
            return 0.0
        return (time.monotonic() - self.start) / self.learner.max_time

    def _step(self, temperature, relaxation=1.0):
        """Sweeps (unless `temperature` is None), then fits the codebooks.

        Returns the loss between the two.
        """
        codebook_size = self.shape[1]
        grams = search.codebook_grams(self.codebooks)
        sums = np.zeros(self.shape, "float32")
        loss = 0.0
        for part, residual in search.centred_chunks(
            self.table, self.offset, codebook_size
        ):
            codes = self.codes[part]
            search.subtract_codewords(residual, codes, self.codebooks)
            if temperature is not None:
                search.sweep(
                    residual,
                    codes,
                    self.codebooks,
                    grams,
                    temperature,
                    self.noise,
                    self.rng,
                )
            weighted = residual
            if self.weight is not None:
                weighted = residual * self.weight[part, None]
            loss += float(np.vdot(weighted, residual))
            search.sums_by_subcode(weighted, codes, codebook_size, sums)
        step = search.least_squares_step(
            self.codes, self.codebooks, sums, self.weight
        )
        self.codebooks += np.float32(relaxation) * step
        loss /= self.total
        self._record(loss)
        return loss

    def _record(self, loss):
        history = self.learner.history
        history["loss"].append(loss)
        history["seconds"].append(time.monotonic() - self.start)

    def _finish(self):
        self.codebooks[0] += self.offset
        learner = self.learner
        learner.codebooks, learner.codes = self.codebooks, self.codes
        loss = 0.0
        for start, rows in float_chunks(self.table):
            part = slice(start, start + len(rows))
            rows = rows - decode_codes(self.codes[part], self.codebooks)
            each = np.einsum("nd,nd->n", rows, rows, dtype="float64")
            loss += (
                each.sum() if self.weight is None else each @ self.weight[part]
            )
        self._record(float(loss / self.total))
