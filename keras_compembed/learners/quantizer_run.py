"""A run of `AdditiveQuantizer`."""

import functools
import time

import keras
import numpy as np

from keras_compembed.learners import coordinate_search as search
from keras_compembed.learners.straight_through import StraightThroughEncoder

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


class QuantizerRun:
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
        self.has_codebooks = self.has_loss = self.is_whole = False

    def run(self):
        """Dict of the codes and codebooks of the lowest loss, and history."""
        self.offset = search.mean_row(self.table, self.weight)
        num_codebooks, codebook_size, _ = self.shape
        covariance = search.covariance(self.table, self.offset)
        level = search.water_level(
            covariance, num_codebooks * np.log2(codebook_size)
        )
        self.noise_seed = self._draw_seed()
        try:
            try:
                self._search(2 * level, np.sqrt(np.diag(covariance).mean()))
                self.is_whole = True
            except KeyboardInterrupt:
                print("\nInterrupted: finishing with what was found so far.")
                if not self.has_codebooks:
                    self._first_codes()
                self._step(0.0)
            self._visit()
        except KeyboardInterrupt:
            self.is_whole = False
            if not self.has_loss:
                raise
        # With the mean row in the first codebook.
        loss, codes, codebooks = self.best
        self._record(loss)
        codebooks[0] += self.offset
        return {"codes": codes, "codebooks": codebooks, "history": self.history}

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
            progress = iteration / iterations
            self._step(unit * (hot + (_COLD - hot) * progress))
            self._report(bar, self.loss)
        for _ in range(_LAST_SWEEPS):
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
                progress = (index + step / _ROUND) / rounds
                ids = self.rng.integers(len(self.table), size=_BATCH_SIZE)
                rows = np.asarray(self.table[ids], dtype="float32")
                rows = rows - self.offset
                weight = None if self.weight is None else self.weight[ids]
                losses.append(
                    self.encoder.train_on_batch(rows, progress, weight)
                )
            self._report(bar, np.mean(losses))

    def _first_codes(self):
        """Codes from the encoder, or random ones, and codebooks for them."""
        if self.codes is None:
            codes = search.random_codes(
                len(self.table), *self.shape[:2], self.rng
            )
            if self.encoder is not None:
                for part, rows in search.centred_chunks(
                    self.table, self.offset, self.shape[1]
                ):
                    codes[part] = self.encoder.codes(rows)
            self.codes = codes
        self.encoder = None
        self._step(None)
        self.has_codebooks = True

    def _draw_seed(self):
        return int(self.rng.integers(1 << 62))

    def _visit(self, temperature=None, sums=None):
        """Finds the loss, and keeps the codes and codebooks of the lowest."""
        before, total, seed = self.codes.copy(), 0.0, self._draw_seed()
        blocks = search.row_blocks(len(self.codes), *self.shape[:2])

        def arguments():
            for number, part in enumerate(blocks):
                weight = None if self.weight is None else self.weight[part]
                sweep = None
                if temperature is not None:
                    sweep = temperature, self.noise_seed, seed, number
                rows = self.table[part], self.codes[part], weight
                yield (
                    *rows,
                    self.codebooks,
                    self.offset,
                    sweep,
                    sums is not None,
                )

        results = search.in_order(visit_block, arguments())
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


def visit_block(rows, codes, weight, codebooks, offset, sweep, adds):
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
