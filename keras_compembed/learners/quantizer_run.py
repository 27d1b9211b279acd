"""A run of `AdditiveQuantizer`."""

import functools
import time

import keras
import numpy as np

from keras_compembed.learners import coordinate_search as search
from keras_compembed.learners.residual_start import MOST_ROWS
from keras_compembed.learners.residual_start import residual_codebooks

# Sweeps at an effort of 1, and the first and last temperature, in units of
# twice the water level.
_ITERATIONS, _HOT, _COLD = 50, 2.5, 0.4
# Least rows for a warm start, with fewer sweeps from a lower temperature. The
# cost of its batches does not depend on the number of rows.
_WARM_ROWS, _WARM_ITERATIONS, _WARM = 10_000, 6, 0.8
_WARM_STEPS, _ROUND, _BATCH_SIZE = 2000, 50, 128
# Most codebook entries for an encoder that fits in memory.
_WARM_WEIGHTS = 1 << 25
_LAST_SWEEPS = 3
# Rows of few columns start from residual k-means if codes have more bits a
# number, or codebooks more codewords.
_MANY_BITS, _LARGE_CODEBOOK = 1.25, 64
# The largest ridge of least squares, in rows. With fewer rows for a codeword, a
# fit almost without ridge is exact.
_MOST_RIDGE, _EXACT = 4.0, 2
# Rounds of beam search at an effort of 1, while each gains this: one of usual
# and one of wide beams, or several if codebooks are too large for wide ones.
# After annealing, a sample of rows shows whether the first one gains.
_ROUNDS, _LARGE_ROUNDS, _LEAST_GAIN, _ASKED = 2, 3, 0.01, 1024
# One in 256 codewords may be that of a single long row. If there are more of
# them, they are no exception.
_OWN_CODEWORDS = 256
# Learning rates of the encoder.
_FIRST_RATE, _LAST_RATE = 1e-2, 1e-4
_DECAYS = 0.9, 0.999
_EPSILON = 1e-7


class QuantizerRun:
    """A training run: a start, then rounds of beam search while they pay.

    It starts from residual k-means, or by annealing from random or warm codes.
    """

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
        self.long_rows = ()
        self.has_codebooks = self.has_loss = self.is_whole = False

    def run(self):
        """Dict of the best codes and codebooks, and history."""
        self.offset = search.mean_row(self.table, self.weight)
        num_codebooks, codebook_size, _ = self.shape
        usual = self._find_long_rows()
        covariance = search.second_moments(self.table, self.offset, usual)
        covariance /= len(self.table)
        level = search.water_level(
            covariance, num_codebooks * np.log2(codebook_size)
        )
        self.noise_seed = self._draw_seed()
        try:
            try:
                self._search(2 * level, np.sqrt(np.diag(covariance).mean()))
                self._give_own_codewords()
                self.is_whole = True
            except KeyboardInterrupt:
                print("\nInterrupted: finishing with the best so far.")
                if not self.has_codebooks:
                    self._first_codes()
                self._step(0.0)
            self._visit()
        except KeyboardInterrupt:
            self.is_whole = False
            if not self.has_loss:
                raise
        # A part of the mean row in each codebook, as one scale serves all of
        # them in int8 files.
        loss, codes, codebooks = self.best
        self._record(loss)
        codebooks += self.offset / len(codebooks)
        return {"codes": codes, "codebooks": codebooks, "history": self.history}

    def _find_long_rows(self):
        """Finds few rows that would spoil others; 1 for all but these."""
        squares = np.concatenate(
            [
                np.einsum("nd,nd->n", rows, rows)
                for _, rows in search.centred_chunks(
                    self.table, self.offset, self.shape[1]
                )
            ]
        )
        most = search.LONGEST**2 * np.median(squares)
        long_rows = np.flatnonzero(squares > most)
        most = max(1, np.prod(self.shape[:2]) // _OWN_CODEWORDS)
        if len(long_rows) > most:
            long_rows = long_rows[:0]
        usual = np.ones(len(squares), "float32")
        usual[long_rows] = 0
        if not len(long_rows):
            return None
        self.long_rows = long_rows
        self.weight = usual if self.weight is None else usual * self.weight
        self.offset = search.mean_row(self.table, self.weight)
        return usual

    def _search(self, unit, scale):
        num_codebooks, codebook_size, width = self.shape
        # Above 256 codewords, sweeps and batches are slow: fewer of them.
        effort = self.learner.effort * min(1, 16 / np.sqrt(codebook_size))
        bits = num_codebooks * np.log2(codebook_size) / width
        is_dense = width <= search.NARROW and (
            bits >= _MANY_BITS or codebook_size > _LARGE_CODEBOOK
        )
        hot, rounds, iterations, sweeps = _HOT, 0, _ITERATIONS, _LAST_SWEEPS
        if is_dense:
            rounds, iterations, sweeps = num_codebooks, 0, 0
        elif (
            scale > 0
            and len(self.table) >= _WARM_ROWS
            and np.prod(self.shape) <= _WARM_WEIGHTS
        ):
            hot, iterations = _WARM, _WARM_ITERATIONS
            rounds = max(1, round(_WARM_STEPS * effort / _ROUND))
        if iterations:
            iterations = max(1, round(iterations * effort))
        beams, wide = search.BEAM, search.wide_beam(codebook_size)
        searches = _ROUNDS if wide > beams else _LARGE_ROUNDS
        searches = max(1, round(searches * self.learner.effort))
        bar = keras.utils.Progbar(
            rounds + iterations + sweeps + searches,
            verbose=self.learner.verbose,
            stateful_metrics=["loss"],
        )
        if is_dense:
            self._residual_start(effort, bar)
        elif rounds:
            self._warm_start(scale, rounds, bar)
        self._first_codes()
        for iteration in range(iterations):
            progress = iteration / iterations
            self._step(unit * (hot + (_COLD - hot) * progress))
            self._report(bar, self.loss)
        for _ in range(sweeps):
            self._step(0.0)
            self._report(bar, self.loss)
        gain = 1.0 if is_dense else self._gain_of_beams()
        while searches and gain > _LEAST_GAIN:
            before = self.loss
            self._step_by_beams(beams)
            self._report(bar, self.loss)
            beams = wide
            gain, searches = 1 - self.loss / max(before, 1e-30), searches - 1
        bar.update(bar.target, finalize=True)

    def _residual_start(self, effort, bar):
        rows, weight = slice(None), self.weight
        if len(self.table) > MOST_ROWS:
            rows = self.rng.choice(len(self.table), MOST_ROWS, replace=False)
            rows = np.sort(rows)
        if weight is not None:
            weight = weight[rows]
        rows = np.asarray(self.table[rows], "float32") - self.offset
        for _ in residual_codebooks(
            rows, self.codebooks, self.rng, weight, effort
        ):
            bar.add(1)

    def _gain_of_beams(self):
        """The part of the loss of some rows that better codes save."""
        some, rows = self._sample
        known = self.codes[some]
        found = search.encode_rows(rows, self.codebooks, self.rng, 0.0, known)
        before, after = (
            _losses(rows, codes, self.codebooks).sum()
            for codes in (known, found)
        )
        return 1 - after / max(before, 1e-30)

    @functools.cached_property
    def _sample(self):
        """Ids of some rows, and these rows about the mean."""
        some = search.some_rows(self.table, _ASKED)
        return some, np.asarray(self.table[some], "float32") - self.offset

    def _give_own_codewords(self):
        """Makes long rows exact: each has a codeword that few others used."""
        if not len(self.long_rows):
            return
        codebook_size = self.shape[1]
        others = np.ones(len(self.codes), bool)
        others[self.long_rows] = False
        counts = np.stack(
            [
                np.bincount(subcodes[others], minlength=codebook_size)
                for subcodes in self.codes.T
            ]
        )
        # No codebook is taken as a whole.
        np.put_along_axis(counts, counts.argmax(1)[:, None], len(others), 1)
        order = np.argsort(counts, axis=None, kind="stable")
        taken = np.zeros(self.shape[:2], bool)
        taken.flat[order[: len(self.long_rows)]] = True
        is_user = np.zeros(len(self.codes), bool)
        for place in np.flatnonzero(taken.any(axis=1)):
            codebook, subcodes = self.codebooks[place], self.codes[:, place]
            users = np.flatnonzero(taken[place][subcodes])
            is_user[users] = True
            rests = np.asarray(self.table[users], "float32") - self.offset
            search.subtract_codewords(rests, self.codes[users], self.codebooks)
            rests += codebook[subcodes[users]]
            scores = rests @ (-2 * codebook.T)
            scores += np.einsum("kd,kd->k", codebook, codebook)
            scores[:, taken[place]] = np.inf
            subcodes[users] = scores.argmin(axis=1)
        for row, (place, own) in zip(
            self.long_rows, np.argwhere(taken), strict=True
        ):
            rest = np.asarray(self.table[[row]], "float32") - self.offset
            search.subtract_codewords(rest, self.codes[[row]], self.codebooks)
            rest += self.codebooks[place, self.codes[row, place]]
            self.codebooks[place, own] = rest[0]
            self.codes[row, place] = own
        users = np.flatnonzero(is_user)
        self.codes[users] = search.encode_rows(
            self.table[users],
            self.codebooks,
            self.rng,
            self.offset,
            self.codes[users],
        )
        # The loss of the others is a little larger now.
        self.best = None

    def _step_by_beams(self, number):
        """Codes that are better, if beams find them; then codebooks."""
        self.codes = search.encode_rows(
            self.table,
            self.codebooks,
            self.rng,
            self.offset,
            self.codes,
            number,
        )
        self._step(None)

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
        """Codes from the encoder, or random codes, and codebooks."""
        if self.codes is None and self.codebooks.any():
            self.codes = search.encode_rows(
                self.table, self.codebooks, self.rng, self.offset
            )
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
        """Computes the loss, and keeps the best codes and codebooks."""
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
            self.codes, self.codebooks, sums, self.weight, self._ridge()
        )

    def _ridge(self):
        """What codes leave of a usual row, relative to each codebook's part.

        Otherwise few rows could make a codeword long, and int8 scales coarse.
        """
        squares = np.einsum("mkd,mkd->mk", self.codebooks, self.codebooks)
        if len(self.codes) < _EXACT * squares.size:
            return search.RIDGE
        counts = [
            np.bincount(subcodes, minlength=squares.shape[1])
            for subcodes in self.codes.T
        ]
        own = np.einsum("mk,mk->m", counts, squares) / len(self.codes)
        some, rows = self._sample
        usual = np.median(_losses(rows, self.codes[some], self.codebooks))
        ridge = usual / np.maximum(own, 1e-30)
        return np.clip(ridge, search.RIDGE, _MOST_RIDGE)

    def _report(self, bar, loss):
        self._record(loss)
        bar.add(1, [("loss", loss)])

    def _record(self, loss):
        self.history["loss"].append(float(loss))
        self.history["seconds"].append(time.monotonic() - self.start)


def visit_block(rows, codes, weight, codebooks, offset, sweep, adds):
    """Loss sum of rows, new codes, and sums by subcode or None."""
    codebook_size = codebooks.shape[1]
    codes, total = codes.copy(), 0.0
    sums = np.zeros_like(codebooks) if adds else None
    if sweep is not None:
        temperature, noise_seed, seed, number = sweep
        noise = None
        if temperature:
            noise = search.gumbel_bank(codebook_size, noise_seed)
        rng = np.random.default_rng([seed, number])
        # The same order in all blocks.
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


def _losses(rows, codes, codebooks):
    """What codes leave of each row, squared."""
    rests = rows.copy()
    search.subtract_codewords(rests, codes, codebooks)
    return np.square(rests).sum(axis=1, dtype="float64")


class StraightThroughEncoder:
    """A linear encoder and codebooks, trained together by Adam."""

    def __init__(self, shape, scale, rng):
        num_codebooks, codebook_size, width = shape
        size = num_codebooks * codebook_size
        self._shape = shape
        self._scale = np.float32(scale)
        self._step = 0
        # Kernel, bias and codebooks are one vector, for one pass of Adam.
        self._weights = np.zeros(size * (2 * width + 1), "float32")
        self._gradient = np.zeros_like(self._weights)
        self._mean = np.zeros_like(self._weights)
        self._square = np.zeros_like(self._weights)
        self._kernel, self._bias, self._codebooks = self._views(self._weights)
        limit = np.sqrt(6 / (width + size))
        self._kernel[:] = rng.uniform(-limit, limit, self._kernel.shape)
        self._codebooks[:] = rng.normal(size=shape) * num_codebooks**-0.5

    def _views(self, vector):
        size = self._shape[0] * self._shape[1]
        kernel, bias, codebooks = np.split(
            vector, [size * self._shape[2], size * (self._shape[2] + 1)]
        )
        return kernel.reshape(size, -1), bias, codebooks.reshape(self._shape)

    def train_on_batch(self, rows, progress, sample_weight=None):
        """A step; the learning rate falls as `progress` goes from 0 to 1."""
        kernel, bias, codebooks = self._views(self._gradient)
        num_codebooks, codebook_size, width = self._shape
        rows = rows / self._scale
        logits = self._logits(rows)
        codes = logits.argmax(axis=2)
        residual = rows.copy()
        search.subtract_codewords(residual, codes, self._codebooks)
        loss = np.einsum("nd,nd->n", residual, residual)
        if sample_weight is not None:
            loss *= sample_weight
            residual *= sample_weight[:, None]
        # Softmax, then times the gradient of the choice.
        logits -= logits.max(axis=2, keepdims=True)
        chosen = np.exp(logits, out=logits)
        chosen /= chosen.sum(axis=2, keepdims=True)
        pull = residual @ self._codebooks.reshape(-1, width).T
        pull = pull.reshape(chosen.shape)
        pull -= np.einsum("nmk,nmk->nm", pull, chosen)[..., None]
        pull *= chosen
        pull = pull.reshape(len(rows), -1)
        np.matmul(pull.T, rows, out=kernel)
        pull.sum(axis=0, out=bias)
        codebooks[:] = 0
        search.sums_by_subcode(residual, codes, codebook_size, codebooks)
        self._adam(progress)
        return float(loss.mean()) * float(self._scale) ** 2

    def codes(self, rows):
        return self._logits(rows / self._scale).argmax(axis=2)

    def _logits(self, rows):
        logits = rows @ self._kernel.T
        logits += self._bias
        return logits.reshape(len(rows), *self._shape[:2])

    def _adam(self, progress):
        """An Adam step; gradients here point downhill."""
        self._step += 1
        first, second = _DECAYS
        decay = 0.5 * (1 + np.cos(np.pi * progress))
        rate = _LAST_RATE + (_FIRST_RATE - _LAST_RATE) * decay
        rate *= np.sqrt(1 - second**self._step) / (1 - first**self._step)
        # In parts that stay in the cache.
        for start in range(0, len(self._weights), 1 << 15):
            part = slice(start, start + (1 << 15))
            gradient, mean = self._gradient[part], self._mean[part]
            square = self._square[part]
            mean += np.float32(1 - first) * (gradient - mean)
            gradient *= gradient
            square += np.float32(1 - second) * (gradient - square)
            update = np.sqrt(square)
            update += np.float32(_EPSILON)
            np.divide(mean, update, out=update)
            update *= np.float32(rate)
            self._weights[part] += update
