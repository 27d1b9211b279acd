"""Codes by coordinate search: sweeps, beam search, least squares."""

import functools
import itertools

import joblib
import numpy as np

from keras_compembed.codes.packing import code_dtype
from keras_compembed.utils.validation import float_chunks

# Rows per chunk: residuals and scores stay in the cache.
_CHUNK_ROWS = 512
_CHUNK_SCORES = 1 << 21
_NOISE_BANK = 1 << 20
# Largest codebook size for sums by a one-hot product, and largest size for pair
# counts that way.
_ONE_HOT_CODEBOOK_SIZE, _ONE_HOT_PAIRS = 64, 8
_GROUP_CODEWORDS = 128
# Most codewords for solving normal equations in float64, and in float32. Above,
# they do not fit in memory, and conjugate gradients are used.
_PRECISE_CODEWORDS, _DIRECT_CODEWORDS = 2048, 8192
# The least ridge of least squares, in rows.
RIDGE = 0.01
# Chunks per block. A block is a parallel task.
_CHUNKS = 32
# Least rows of a block per codeword, as each block sums by codeword.
_ROWS_PER_CODEWORD = 4
# For new rows: beam width, sweeps afterwards, and scores at a time.
BEAM = 16
_SWEEPS = 4
_BEAM_SCORES = 1 << 22
# Annealed sweeps after training, and their temperatures, in units of twice the
# water level.
_ANNEALED, _HOT, _COLD = 32, 1.2, 0.3
# Wider rows gain little by wide beams and by a start from residual k-means.
NARROW = 128
# Rows and codewords are long above this many median lengths.
LONGEST = 10
# Rows to choose the order of codebooks with.
_ORDER_ROWS = 256


class GumbelBank:
    """Gumbel noise, drawn once and read at random places."""

    def __init__(self, codebook_size, rng):
        size = 2 * chunk_rows(codebook_size) * codebook_size
        self._noise = rng.gumbel(size=max(size, _NOISE_BANK)).astype("float32")

    def draw(self, shape, rng):
        size = shape[0] * shape[1]
        start = int(rng.integers(len(self._noise) - size + 1))
        return self._noise[start : start + size].reshape(shape)


@functools.lru_cache(maxsize=1)
def gumbel_bank(codebook_size, seed):
    return GumbelBank(codebook_size, np.random.default_rng(seed))


def chunk_rows(codebook_size):
    """Rows per chunk, which bounds the memory for scores."""
    return max(1, min(_CHUNK_ROWS, _CHUNK_SCORES // codebook_size))


def centred_chunks(table, offset, codebook_size):
    """Yields `(slice, float32 rows minus offset)` over a table."""
    rows = chunk_rows(codebook_size)
    for start in range(0, len(table), rows):
        part = slice(start, min(start + rows, len(table)))
        yield part, np.asarray(table[part], "float32", order="C") - offset


def subtract_codewords(rows, codes, codebooks):
    """Subtracts the decoded `codes` from `rows`, in place."""
    for codebook, subcodes in zip(codebooks, codes.T, strict=True):
        rows -= codebook[subcodes]


class Sweep:
    """One pass that updates each subcode, with the others fixed."""

    def __init__(self, codebooks, rng):
        num_codebooks, self.codebook_size, width = codebooks.shape
        size = max(1, _GROUP_CODEWORDS // self.codebook_size)
        order = rng.permutation(num_codebooks)
        self._groups = []
        for start in range(0, num_codebooks, size):
            group = order[start : start + size]
            codewords = codebooks[group].reshape(-1, width)
            squares = np.einsum("kd,kd->k", codewords, codewords)
            products = None
            if len(group) > 1:
                products = 2 * (codewords @ codewords.T)
            self._groups.append((group, codewords, squares, products))

    def run(self, residual, codes, temperature, noise, rng):
        """Changes `residual`, `(rows, columns)`, and `codes` in place."""
        for group, codewords, squares, products in self._groups:
            old_codes = codes[:, group].astype("intp")
            new_codes = old_codes.copy()
            if products is None:
                residual += codewords[old_codes[:, 0]]
            scores = (-2 * residual) @ codewords.T
            scores += squares
            for place in range(len(group)):
                first = place * self.codebook_size
                block = slice(first, first + self.codebook_size)
                old = old_codes[:, place]
                own = scores[:, block]
                if products is not None:
                    own -= products[block, block][old]
                if temperature > 0:
                    own -= temperature * noise.draw(own.shape, rng)
                new = own.argmin(axis=1)
                new_codes[:, place] = new
                # The group's last codebook needs no update for later ones.
                if place + 1 < len(group):
                    rest = products[block, block.stop :]
                    scores[:, block.stop :] += rest[new] - rest[old]
            codes[:, group] = new_codes
            if products is None:
                residual -= codewords[new_codes[:, 0]]
                continue
            # From old to new codes, as a one-hot product.
            first = np.arange(len(group)) * self.codebook_size
            rows = np.arange(len(residual))[:, None]
            change = np.zeros((len(residual), len(codewords)), "float32")
            change[rows, old_codes + first] = 1
            change[rows, new_codes + first] -= 1
            residual += change @ codewords


def one_hot(codes, codebook_size):
    """float32 `(num_codebooks * codebook_size, rows)`, one where chosen."""
    num_rows, num_codebooks = codes.shape
    matrix = np.zeros((num_codebooks, codebook_size, num_rows), "float32")
    matrix[np.arange(num_codebooks)[:, None], codes.T, np.arange(num_rows)] = 1
    return matrix.reshape(-1, num_rows)


def sums_by_subcode(rows, codes, codebook_size, out):
    """Adds to `out[m, k]` the sum of rows with k as subcode m."""
    if codebook_size <= _ONE_HOT_CODEBOOK_SIZE:
        out += (one_hot(codes, codebook_size) @ rows).reshape(out.shape)
        return
    for m, subcodes in enumerate(codes.T):
        order = np.argsort(subcodes, kind="stable")
        ordered = subcodes[order]
        first = np.flatnonzero(np.diff(ordered, prepend=-1))
        out[m, ordered[first]] += np.add.reduceat(rows[order], first, axis=0)


def co_occurrence(codes, codebook_size, sample_weight=None, dtype="float64"):
    """Counts of codeword pairs in a row: A'A of the one-hot matrix A."""
    num_rows, num_codebooks = codes.shape
    size = num_codebooks * codebook_size
    counts = np.zeros((size, size), dtype)
    if codebook_size <= _ONE_HOT_PAIRS:
        step = max(1, _CHUNK_SCORES // size)
        for start in range(0, num_rows, step):
            part = slice(start, start + step)
            matrix = one_hot(codes[part], codebook_size)
            weighted = matrix
            if sample_weight is not None:
                weighted = matrix * sample_weight[part]
            counts += weighted @ matrix.T
        return counts
    blocks = counts.reshape((num_codebooks, codebook_size) * 2)
    for m in range(num_codebooks):
        first = codes[:, m].astype("int64") * codebook_size
        for other in range(m + 1):
            block = np.bincount(
                first + codes[:, other],
                sample_weight,
                minlength=codebook_size**2,
            ).reshape(codebook_size, codebook_size)
            blocks[m, :, other] = block
            blocks[other, :, m] = block.T
    return counts


def least_squares_step(codes, codebooks, sums, sample_weight=None, ridge=RIDGE):
    """The update that gives the best codebooks for fixed codes.

    A ridge, in rows, may differ for each codebook.
    """
    num_codebooks, codebook_size, width = codebooks.shape
    size = num_codebooks * codebook_size
    ridge = np.reshape(ridge, (-1, 1, 1))
    right = (sums - ridge * codebooks).reshape(size, width)
    if size <= _DIRECT_CODEWORDS:
        dtype = "float64" if size <= _PRECISE_CODEWORDS else "float32"
        left = co_occurrence(codes, codebook_size, sample_weight, dtype)
        each = np.broadcast_to(ridge, (num_codebooks, codebook_size, 1))
        left[np.diag_indices(size)] += each.ravel()
        step = np.linalg.solve(left, right.astype(dtype))
        return step.astype("float32").reshape(codebooks.shape)
    return _conjugate_gradient(
        codes, right, codebooks.shape, ridge, sample_weight
    )


def _conjugate_gradient(
    codes, right, shape, ridge, sample_weight, iterations=6
):
    """`least_squares_step` for many codewords, without a matrix."""
    num_codebooks, codebook_size, width = shape
    size = max(1, (1 << 22) // width)
    diagonal = np.empty((num_codebooks, codebook_size, 1), "float32")
    for m in range(num_codebooks):
        diagonal[m, :, 0] = np.bincount(
            codes[:, m], sample_weight, minlength=codebook_size
        )
    inverse = 1 / (diagonal + ridge)
    remaining = right.reshape(shape).copy()
    solution = np.zeros(shape, "float32")
    direction = inverse * remaining
    energy = np.sum(remaining * direction, dtype="float64", axis=(0, 1))
    for _ in range(iterations):
        product = ridge * direction
        for start in range(0, len(codes), size):
            part = slice(start, start + size)
            rows = np.zeros((len(codes[part]), width), "float32")
            subtract_codewords(rows, codes[part], -direction)
            if sample_weight is not None:
                rows *= sample_weight[part, None]
            sums_by_subcode(rows, codes[part], codebook_size, product)
        curvature = np.sum(direction * product, dtype="float64", axis=(0, 1))
        length = energy / np.where(curvature > 0, curvature, np.inf)
        length = length.astype("float32")
        solution += length * direction
        remaining -= length * product
        scaled = inverse * remaining
        new_energy = np.sum(remaining * scaled, dtype="float64", axis=(0, 1))
        ratio = new_energy / np.where(energy > 0, energy, np.inf)
        direction = scaled + ratio.astype("float32") * direction
        energy = new_energy
    return solution


def mean_row(table, sample_weight=None):
    """float32 (weighted) mean of the rows."""
    total = np.zeros(table.shape[1])
    for start, rows in float_chunks(table):
        if sample_weight is None:
            total += rows.sum(axis=0, dtype="float64")
        else:
            total += sample_weight[start : start + len(rows)] @ rows
    return (total / len(table)).astype("float32")


def second_moments(table, offset, sample_weight=None):
    """Weighted sum of outer products of rows minus `offset`."""
    products = np.zeros((table.shape[1],) * 2)
    for start, rows in float_chunks(table):
        rows = weighted = rows - offset
        if sample_weight is not None:
            weighted = rows * sample_weight[start : start + len(rows), None]
        products += weighted.T @ rows
    return products


def water_level(covariance, bits):
    """Water level of reverse water-filling (Cover & Thomas, theorem 10.3.3)."""
    return level_of_variances(np.linalg.eigvalsh(covariance)[::-1], bits)


def level_of_variances(variances, bits):
    """`water_level` from variances along axes, largest first."""
    variances = variances[variances > 1e-12 * variances[0]]
    if not variances.size:
        return 0.0
    # For the n largest axes, log2(level) is their mean log2(variance) minus
    # 2 bits / n; n is the largest number with the level below all variances.
    axes = np.arange(1, len(variances) + 1)
    levels = (np.cumsum(np.log2(variances)) - 2 * bits) / axes
    in_use = np.flatnonzero(levels <= np.log2(variances))[-1]
    return float(2 ** levels[in_use])


def random_codes(num_rows, num_codebooks, codebook_size, rng):
    return rng.integers(
        codebook_size,
        size=(num_rows, num_codebooks),
        dtype=code_dtype(codebook_size),
    )


def row_blocks(num_rows, num_codebooks, codebook_size):
    """Slices of rows for parallel tasks."""
    chunk = chunk_rows(codebook_size)
    least = _ROWS_PER_CODEWORD * num_codebooks * codebook_size
    size = chunk * max(_CHUNKS, -(-least // chunk))
    return [
        slice(start, min(start + size, num_rows))
        for start in range(0, num_rows, size)
    ]


def in_order(function, arguments):
    """Yields `function(*each)` for all arguments, in order."""
    # No memory mapping: files would be written repeatedly.
    parallel = joblib.Parallel(
        return_as="generator", batch_size=1, max_nbytes=None
    )
    if parallel.n_jobs == 1:
        return itertools.starmap(function, arguments)
    task = joblib.delayed(function)
    return parallel(itertools.starmap(task, arguments))


class Beams:
    """The best few partial codes of each row, and what they leave of it."""

    def __init__(self, rows, num_codebooks, codebook_size):
        self.rests = rows[:, None]
        self.distances = np.zeros((len(rows), 1), "float32")
        shape = len(rows), 1, num_codebooks
        self.codes = np.zeros(shape, code_dtype(codebook_size))

    def extend(self, codewords, place, most):
        """Chooses the subcodes at a place, and keeps `most` codes of a row."""
        count, number, width = self.rests.shape
        rests = self.rests.reshape(-1, width)
        scores = rests @ (-2 * codewords.T)
        scores += np.einsum("kd,kd->k", codewords, codewords)
        scores += self.distances.reshape(-1, 1)
        scores = scores.reshape(count, number * len(codewords))
        best = lowest(scores, min(most, scores.shape[1]))
        self.distances = np.take_along_axis(scores, best, axis=1)
        source, subcodes = np.divmod(best, len(codewords))
        # `take` is several times faster than two indices.
        source += np.arange(count)[:, None] * number
        self.rests = rests.take(source, axis=0)
        self.rests -= codewords.take(subcodes, axis=0)
        codes = self.codes.reshape(count * number, self.codes.shape[2])
        self.codes = codes.take(source, axis=0)
        self.codes[..., place] = subcodes

    def best(self):
        """The best code of each row."""
        return self.codes[
            np.arange(len(self.codes)), self.distances.argmin(axis=1)
        ]


def lowest(scores, most):
    """Places `(rows, most)` of the lowest scores of each row, in any order."""
    # Faster than `argpartition`, which is for ties.
    bound = np.partition(scores, most - 1, axis=1)[:, most - 1]
    places = np.flatnonzero(scores <= bound[:, None])
    if len(places) == len(scores) * most:
        return places.reshape(-1, most) % scores.shape[1]
    return np.argpartition(scores, most - 1, axis=1)[:, :most]


def wide_beam(codebook_size):
    """A width from 16 to 64, less for larger codebooks."""
    return min(64, max(BEAM, 2048 // codebook_size))


def rows_at_once(codebook_size, width, beam):
    """How many rows have beams at a time, which bounds the memory."""
    return max(1, _BEAM_SCORES // (beam * max(codebook_size, width)))


def encode_closely(table, codebooks, rng):
    """Codes by beams as wide as pays, then by annealed sweeps."""
    _, codebook_size, width = codebooks.shape
    beam = BEAM
    if width <= NARROW:
        beam = max(2 * BEAM, wide_beam(codebook_size))
    return encode_rows(table, codebooks, rng, beam=beam, annealed=True)


def encode_rows(
    table,
    codebooks,
    rng,
    offset=0.0,
    known=None,
    beam=BEAM,
    annealed=False,
):
    """Codes by beam search, then improved by a few sweeps.

    A row keeps its code in `known` where that is better.
    """
    num_codebooks, codebook_size, _ = codebooks.shape
    codes = np.empty((len(table), num_codebooks), code_dtype(codebook_size))
    blocks = row_blocks(len(table), num_codebooks, codebook_size)
    seed = int(rng.integers(1 << 62))
    offset = np.asarray(offset, "float32")
    sample = np.asarray(table[some_rows(table, _ORDER_ROWS)], "float32")
    order = _best_order(sample - offset, codebooks)
    settings = codebooks, offset, order, beam, seed, annealed

    def arguments():
        for part in blocks:
            yield table[part], None if known is None else known[part], *settings

    found = in_order(_encode_block, arguments())
    for part, of_block in zip(blocks, found, strict=True):
        codes[part] = of_block
    return codes


def some_rows(table, number):
    """Ids of about `number` rows, evenly spaced."""
    return np.arange(0, len(table), max(1, -(-len(table) // number)))


def _best_order(rows, codebooks):
    """The order of the codebooks, or that of falling variance."""
    orders = [
        np.arange(len(codebooks)),
        np.argsort(-codebooks.var(axis=1).sum(axis=1), kind="stable"),
    ]
    return min(
        orders,
        key=lambda order: (
            _beam_search(rows, codebooks, order).distances.min(axis=1).sum()
        ),
    )


def _encode_block(table, known, codebooks, offset, order, beam, seed, annealed):
    num_codebooks, codebook_size, width = codebooks.shape
    rng = np.random.default_rng(seed)
    sweeps = [Sweep(codebooks, rng) for _ in range(_SWEEPS)]
    codes = np.empty((len(table), num_codebooks), code_dtype(codebook_size))
    few = rows_at_once(codebook_size, width, beam)
    for part, rows in centred_chunks(table, offset, codebook_size):
        found = [
            _beam_search(rows[x : x + few], codebooks, order, beam).best()
            for x in range(0, len(rows), few)
        ]
        codes[part] = np.concatenate(found)
        rest = rows.copy()
        subtract_codewords(rest, codes[part], codebooks)
        for sweep in sweeps:
            sweep.run(rest, codes[part], 0.0, None, None)
        if annealed:
            _anneal(rest, codes[part], sweeps, codebook_size, rng)
        if known is not None:
            subtract_codewords(rows, known[part], codebooks)
            before, after = (np.einsum("nd,nd->n", x, x) for x in (rows, rest))
            worse = before <= after
            codes[part][worse] = known[part][worse]
    return codes


def _anneal(rests, codes, sweeps, codebook_size, rng):
    """Improves codes, in place, by choices that become less random."""
    before = np.einsum("nd,nd->n", rests, rests)
    unit, found = 2 * np.median(before) / rests.shape[1], codes.copy()
    noise, kept = gumbel_bank(codebook_size, 0), rests.copy()
    temperatures = [*np.linspace(_HOT, _COLD, _ANNEALED), 0.0, 0.0]
    for sweep, temperature in zip(itertools.cycle(sweeps), temperatures):
        sweep.run(rests, found, temperature * unit, noise, rng)
    worse = before <= np.einsum("nd,nd->n", rests, rests)
    codes[~worse] = found[~worse]
    rests[worse] = kept[worse]


def _means(codebooks):
    """Mean codewords, without those that one long row has for its own."""
    squares = np.einsum("mkd,mkd->mk", codebooks, codebooks)
    usual = squares <= LONGEST**2 * np.median(squares, axis=1, keepdims=True)
    means = np.einsum("mk,mkd->md", usual.astype("float32"), codebooks)
    return means / usual.sum(axis=1, keepdims=True).astype("float32")


def _beam_search(rows, codebooks, order, most=BEAM):
    """`Beams` of rows, codebooks in this order."""
    means = _means(codebooks)
    beams = Beams(rows - means.sum(axis=0), *codebooks.shape[:2])
    for m in order:
        beams.extend(codebooks[m] - means[m], m, most)
    return beams
