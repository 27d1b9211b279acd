"""Codes by annealed coordinate search."""

import functools
import time

import keras
import numpy as np

from keras_compembed.learners import coordinate_search as search
from keras_compembed.learners.beam_encoding import encode_rows
from keras_compembed.learners.code_learner import CodeLearner
from keras_compembed.learners.code_learner import check_rows
from keras_compembed.learners.row_blocks import in_order
from keras_compembed.learners.row_blocks import row_blocks
from keras_compembed.learners.straight_through import StraightThroughEncoder
from keras_compembed.utils.one_thread import one_thread
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_code_shape
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_seed

# Sweeps at an effort of 1, and the temperatures between which they anneal, in
# units of twice the water level.
_ITERATIONS, _HOT, _COLD = 50, 2.5, 0.4
# Tables of at least so many rows start warm, for few sweeps from a lower
# temperature: batches cost the same for any table, sweeps cost by the row.
_WARM_ROWS, _WARM_ITERATIONS, _WARM = 10_000, 6, 0.8
_WARM_STEPS, _ROUND, _BATCH_SIZE = 2000, 50, 128
# Codebook entries up to which an encoder's training fits in memory.
_WARM_WEIGHTS = 1 << 25
_LAST_SWEEPS = 3


class AdditiveQuantizer(CodeLearner):
    """Learns codes whose codewords add up to the rows of a table.

    Alternates between codes and codebooks: a sweep draws each subcode anew
    with the others fixed, at a temperature that falls, then least squares
    fits the codebooks to the codes. At the end sweeps take the best subcode.
    Tables of 10,000 rows or more start from the codes of a linear encoder
    trained for a moment, which saves most of the sweeps.

    It needs memory for a few copies of codes and codebooks, and of a bounded
    part of the table. It runs on one core, or within
    `joblib.parallel_config` on several, or on several machines: for tables
    of 100,000 rows or more, with the same result.

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
        effort: Positive number. How long to search, for a lower loss: time
            is about proportional to it. Defaults to `1.0`.
        max_time: Optional number of seconds that `train` may take. The
            search then cools down in that time, so its result depends on the
            machine's speed. Defaults to `None`.
        seed: Optional integer. Makes `train` and `encode` repeatable.
        verbose: `0` or `1`, whether to show progress. Defaults to `1`.

    Attributes:
        history: Dict of lists. `"loss"` is the mean squared distance of a row
            (of the rows in recent batches, while the encoder is trained), and
            last that of the codes and codebooks kept, the best of the run;
            `"seconds"` is the time since the start.

    Raises:
        ValueError: if a size or the seed is out of range, or `effort` or
            `max_time` is not a positive number.

    References:
        - Babenko & Lempitsky, Additive Quantization for Extreme Vector
          Compression, CVPR 2014
        - Martinez et al., LSQ++: Lower Running Time and Higher Recall in
          Multi-Codebook Quantization, ECCV 2018 (annealing)
        - [Bengio et al., 2013](https://arxiv.org/abs/1308.3432) (gradients
          straight through the choice of codes)
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
        self.seed = check_seed(seed)
        self.verbose = check_choice("verbose", verbose, (0, 1, 2))
        self.history = {"loss": [], "seconds": []}

    def train(self, table, sample_weight=None):
        """Learns codebooks for `table`, and its codes.

        Ctrl-C stops early: codes are improved once more, the best found so
        far are kept, and `train` returns as usual. A second Ctrl-C leaves out
        the improvement. Before there is anything to keep, it goes through,
        and the learner stays as it was.

        Args:
            table: Array `(rows, columns)` of finite numbers. It is read a
                part at a time and may be memory-mapped.
            sample_weight: Optional array `(rows,)`, how much each row counts.
                Losses are then weighted means.

        Returns:
            The learner.

        Raises:
            ValueError: if the table is not a finite matrix, its largest
                number is not from 1e-12 to 1e12 (or 0), or `sample_weight` is
                not a non-negative number per row.
        """
        table = check_rows(table)
        weight = check_sample_weight(sample_weight, len(table))
        with one_thread():
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
        table = self._check_new_rows(table)
        with one_thread():
            return encode_rows(
                table, self.codebooks, np.random.default_rng(self.seed)
            )


class _Run:
    """One training run: a warm start, annealing, and sweeps at zero."""

    def __init__(self, learner, table, sample_weight):
        self.learner = learner
        self.table = table
        self.weight = sample_weight
        self.shape = (
            learner.num_codebooks,
            learner.codebook_size,
            table.shape[1],
        )
        self.rng = np.random.default_rng(learner.seed)
        self.start = time.monotonic()
        self.history = {"loss": [], "seconds": []}
        self.codebooks = np.zeros(self.shape, "float32")
        self.codes = self.encoder = self.best = None
        self.has_codebooks = self.has_loss = False

    def run(self):
        num_codebooks, codebook_size, _ = self.shape
        self.offset = search.mean_row(self.table, self.weight)
        covariance = search.covariance(self.table, self.offset)
        level = search.water_level(
            covariance, num_codebooks * np.log2(codebook_size)
        )
        self.noise_seed = self._draw_seed()
        try:
            try:
                self._search(2 * level, np.sqrt(np.diag(covariance).mean()))
            except KeyboardInterrupt:
                print("\nInterrupted: finishing with what was found so far.")
                if not self.has_codebooks:
                    self._first_codes()
                self._step(0.0)
            self._visit()
        except KeyboardInterrupt:
            if not self.has_loss:
                raise
        self._hand_over()

    def _search(self, unit, scale):
        # Beyond 256 codewords, sweeps and batches get dear, and are fewer.
        effort = self.learner.effort * min(1, 16 / np.sqrt(self.shape[1]))
        hot, rounds, iterations = _HOT, 0, _ITERATIONS
        if self._starts_warm(scale):
            hot, iterations = _WARM, _WARM_ITERATIONS
            rounds = max(1, round(_WARM_STEPS * effort / _ROUND))
        iterations = max(1, round(iterations * effort))
        bar = keras.utils.Progbar(
            rounds + iterations + _LAST_SWEEPS,
            verbose=self.learner.verbose,
            stateful_metrics=["loss"],
        )
        if rounds:
            self._warm_start(scale, rounds, bar)
        self._first_codes()
        for iteration in range(iterations):
            progress = self._progress(iteration / iterations, 0.5, 0.85)
            if progress >= 1:
                break
            self._step(unit * (hot + (_COLD - hot) * progress))
            self._report(bar, self.loss)
        for _ in range(_LAST_SWEEPS):
            if self._progress(0, 0, 1) >= 1:
                break
            self._step(0.0)
            self._report(bar, self.loss)
        bar.update(bar.target, finalize=True)

    def _starts_warm(self, scale):
        return (
            scale > 0
            and len(self.table) >= _WARM_ROWS
            and np.prod(self.shape) <= _WARM_WEIGHTS
        )

    def _warm_start(self, scale, rounds, bar):
        self.encoder = StraightThroughEncoder(self.shape, scale, self.rng)
        for index in range(rounds):
            losses = []
            for step in range(_ROUND):
                progress = self._progress(
                    (index + step / _ROUND) / rounds, 0, 0.5
                )
                if progress >= 1:
                    return
                ids = self.rng.integers(len(self.table), size=_BATCH_SIZE)
                rows = np.asarray(self.table[ids], dtype="float32")
                rows = rows - self.offset
                weight = None if self.weight is None else self.weight[ids]
                losses.append(
                    self.encoder.train_on_batch(rows, progress, weight)
                )
            self._report(bar, np.mean(losses))

    def _progress(self, done, start, end):
        """`done`, or how far `max_time` is from `start` to `end` of it."""
        if self.learner.max_time is None:
            return done
        used = (time.monotonic() - self.start) / self.learner.max_time
        return max(done, (used - start) / (end - start))

    def _first_codes(self):
        """Codes from the encoder, or random ones, and codebooks for them."""
        if self.codes is None:
            self.codes = self._encoded()
        self.encoder = None
        self._step(None)
        self.has_codebooks = True

    def _encoded(self):
        num_codebooks, codebook_size, _ = self.shape
        codes = search.random_codes(
            len(self.table), num_codebooks, codebook_size, self.rng
        )
        if self.encoder is not None:
            for part, rows in search.centred_chunks(
                self.table, self.offset, codebook_size
            ):
                codes[part] = self.encoder.codes(rows)
        return codes

    def _draw_seed(self):
        return int(self.rng.integers(1 << 62))

    def _visit(self, temperature=None, sums=None):
        """Finds the loss, and keeps the codes and codebooks of the lowest.

        Then sweeps, unless `temperature` is None, and adds what is left of
        rows to `sums`, by subcode.
        """
        before, total, seed = self.codes.copy(), 0.0, self._draw_seed()
        blocks = row_blocks(len(self.codes), *self.shape[:2])

        def arguments():
            for number, part in enumerate(blocks):
                weight = None if self.weight is None else self.weight[part]
                sweep = None
                if temperature is not None and self._progress(0, 0, 1) < 1:
                    sweep = temperature, self.noise_seed, seed, number
                rows = self.table[part], self.codes[part], weight
                yield (
                    *rows,
                    self.codebooks,
                    self.offset,
                    sweep,
                    sums is not None,
                )

        results = in_order(_visit_block, arguments())
        for part, (loss, codes, added) in zip(blocks, results, strict=True):
            total += loss
            self.codes[part] = codes
            if sums is not None:
                sums += added
        self.loss = total / len(self.table)
        if self.best is None or self.loss < self.best[0]:
            self.best = self.loss, before, self.codebooks.copy()
        self.has_loss = self.has_codebooks

    def _step(self, temperature):
        """Sweeps unless `temperature` is None, then fits the codebooks."""
        sums = np.zeros(self.shape, "float32")
        self._visit(temperature, sums)
        self.codebooks += search.least_squares_step(
            self.codes, self.codebooks, sums, self.weight
        )

    def _report(self, bar, loss):
        self._record(loss)
        bar.add(1, [("loss", loss)])

    def _record(self, loss):
        self.history["loss"].append(float(loss))
        self.history["seconds"].append(time.monotonic() - self.start)

    def _hand_over(self):
        """Gives the best, with the mean row in the first codebook."""
        loss, codes, codebooks = self.best
        self._record(loss)
        codebooks[0] += self.offset
        self.learner._keep(
            codes=codes, codebooks=codebooks, history=self.history
        )


def _visit_block(rows, codes, weight, codebooks, offset, sweep, adds):
    """The sum of losses of rows, new codes, and sums by subcode or None."""
    codebook_size = codebooks.shape[1]
    codes, total = codes.copy(), 0.0
    sums = np.zeros_like(codebooks) if adds else None
    if sweep is not None:
        temperature, noise_seed, seed, number = sweep
        noise = _noise(codebook_size, noise_seed) if temperature else None
        rng = np.random.default_rng([seed, number])
        # Of one order for all blocks.
        sweep = search.Sweep(codebooks, np.random.default_rng(seed))
    for part, residual in search.centred_chunks(rows, offset, codebook_size):
        search.subtract_codewords(residual, codes[part], codebooks)
        distance = np.einsum("nd,nd->n", residual, residual)
        if weight is not None:
            distance *= weight[part]
        total += float(distance.sum(dtype="float64"))
        if sweep is not None:
            sweep.run(residual, codes[part], temperature, noise, rng)
        if adds:
            if weight is not None:
                residual *= weight[part, None]
            search.sums_by_subcode(residual, codes[part], codebook_size, sums)
    return total, codes, sums


@functools.lru_cache(maxsize=1)
def _noise(codebook_size, seed):
    return search.GumbelBank(codebook_size, np.random.default_rng(seed))
