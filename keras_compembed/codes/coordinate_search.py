"""Codes and codebooks of a sum of codewords, each improved with the other
fixed: a sweep over subcodes, and least squares.

Rows are centred by `offset`, the row that is subtracted from every row.
"""

import numpy as np

from keras_compembed.codes.packing import code_dtype

# Rows searched at once: their residuals and scores stay in the cache.
_CHUNK_ROWS = 512
_CHUNK_SCORES = 1 << 19
_NOISE_BANK = 1 << 20
# Up to here sums by subcode are a product with a one-hot matrix.
_ONE_HOT_CODEBOOK_SIZE = 64
# Up to here the normal equations are solved, above it improved step by step.
_DIRECT_CODEWORDS = 2048
_RIDGE = 0.01


class GumbelBank:
    """Gumbel noise drawn once and read from random places."""

    def __init__(self, rng):
        self._noise = rng.gumbel(size=2 * _NOISE_BANK).astype("float32")

    def draw(self, shape, rng):
        size = shape[0] * shape[1]
        start = int(rng.integers(len(self._noise) - size + 1))
        return self._noise[start : start + size].reshape(shape)


def chunk_rows(codebook_size):
    """Rows in a chunk, so that a chunk's scores are bounded."""
    return max(1, min(_CHUNK_ROWS, _CHUNK_SCORES // codebook_size))


def centred_chunks(table, offset, codebook_size):
    """Yields `(slice, float32 rows minus offset)` over a table."""
    rows = chunk_rows(codebook_size)
    for start in range(0, len(table), rows):
        part = slice(start, min(start + rows, len(table)))
        yield part, np.asarray(table[part], dtype="float32") - offset


def subtract_codewords(rows, codes, codebooks):
    """Subtracts from `rows`, in place, what `codes` stand for."""
    for codebook, subcodes in zip(codebooks, codes.T, strict=True):
        rows -= codebook[subcodes]


def sweep(residual, codes, codebooks, grams, temperature, noise, rng):
    """Chooses every subcode anew, the others fixed, codebooks in random order.

    With the others fixed, codeword k of codebook m leaves the squared distance
    `||r + c_old - c_k||^2`, r the residual: `||c_k||^2 - 2 (r + c_old) . c_k`
    up to what is common to all k.

    Args:
        residual: float32 `(rows, columns)`, rows minus their reconstruction,
            changed in place.
        codes: Unsigned integers `(rows, num_codebooks)`, changed in place.
        codebooks: float32 `(num_codebooks, codebook_size, columns)`.
        grams: What `codebook_grams` gives for `codebooks`, or None.
        temperature: Number. Above zero, subcodes are drawn with probability
            proportional to `exp(-distance / temperature)`; at zero, the best
            is taken.
        noise: `GumbelBank`.
        rng: NumPy `Generator`.
    """
    for m in rng.permutation(len(codebooks)):
        codebook = codebooks[m]
        old = codes[:, m]
        if grams is None:
            score = (residual + codebook[old]) @ codebook.T
            score *= -2
            score += np.einsum("kd,kd->k", codebook, codebook)
        else:
            score = residual @ codebook.T
            score *= -2
            score += grams[m][old]
        if temperature > 0:
            score -= temperature * noise.draw(score.shape, rng)
        new = score.argmin(axis=1).astype(codes.dtype)
        changed = np.flatnonzero(new != old)
        if changed.size:
            step = codebook[old[changed]] - codebook[new[changed]]
            residual[changed] += step
            codes[:, m] = new


def codebook_grams(codebooks):
    """`||c_k||^2 - 2 c_j . c_k` at `[m, j, k]`, or None where it is large."""
    num_codebooks, codebook_size, _ = codebooks.shape
    if codebook_size > 256:
        return None
    grams = codebooks @ codebooks.transpose(0, 2, 1)
    squares = np.einsum("mkk->mk", grams).copy()
    return squares[:, None] - 2 * grams


def sums_by_subcode(rows, codes, codebook_size, out):
    """Adds to `out[m, k]` the sum of the rows whose subcode m is k."""
    if codebook_size <= _ONE_HOT_CODEBOOK_SIZE:
        num_rows, num_codebooks = codes.shape
        one_hot = np.zeros((num_codebooks, codebook_size, num_rows), "float32")
        one_hot[
            np.arange(num_codebooks)[:, None], codes.T, np.arange(num_rows)
        ] = 1
        out += (one_hot.reshape(-1, num_rows) @ rows).reshape(out.shape)
        return
    for m, subcodes in enumerate(codes.T):
        order = np.argsort(subcodes, kind="stable")
        ordered = subcodes[order]
        first = np.flatnonzero(np.diff(ordered, prepend=-1))
        out[m, ordered[first]] += np.add.reduceat(rows[order], first, axis=0)


def co_occurrence(codes, codebook_size, sample_weight=None):
    """How often codewords meet in a row: A'A of the one-hot matrix A."""
    num_codebooks = codes.shape[1]
    size = num_codebooks * codebook_size
    counts = np.zeros((size, size))
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


def least_squares_step(codes, codebooks, sums, sample_weight=None):
    """What to add to codebooks so that they fit best for given codes.

    Solves `(A'A + ridge) C = A'X` as `(A'A + ridge) step = A'R - ridge C`, A
    the one-hot matrix of the codes, R the residuals, which is exact in
    float32 where the sums of rows are not.

    Args:
        codes: Unsigned integers `(rows, num_codebooks)`.
        codebooks: float32 `(num_codebooks, codebook_size, columns)`.
        sums: A'R, `sums_by_subcode` of (weighted) residuals.
        sample_weight: Optional array `(rows,)`.

    Returns:
        float32 array of the codebooks' shape.
    """
    num_codebooks, codebook_size, width = codebooks.shape
    size = num_codebooks * codebook_size
    right = (sums - _RIDGE * codebooks).reshape(size, width)
    if size <= _DIRECT_CODEWORDS:
        left = co_occurrence(codes, codebook_size, sample_weight)
        left[np.diag_indices(size)] += _RIDGE
        step = np.linalg.solve(left, right.astype("float64"))
        return step.astype("float32").reshape(codebooks.shape)
    return _conjugate_gradient(codes, right, codebooks.shape, sample_weight)


def _conjugate_gradient(codes, right, shape, sample_weight, iterations=6):
    """`least_squares_step` for many codewords, from codes alone."""
    num_codebooks, codebook_size, width = shape
    diagonal = np.empty((num_codebooks, codebook_size, 1), "float32")
    for m in range(num_codebooks):
        diagonal[m, :, 0] = np.bincount(
            codes[:, m], sample_weight, minlength=codebook_size
        )
    # The scale of a codebook's block: M blocks share the work.
    inverse = 1 / (diagonal + _RIDGE)
    remaining = right.reshape(shape).copy()
    solution = np.zeros(shape, "float32")
    direction = inverse * remaining
    energy = np.sum(remaining * direction, dtype="float64", axis=(0, 1))
    for _ in range(iterations):
        product = _RIDGE * direction
        for part, rows in decoded_chunks(codes, direction):
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


def decoded_chunks(codes, codebooks):
    """Yields `(slice, rows that codes stand for)` over codes."""
    width = codebooks.shape[2]
    rows = max(1, (1 << 22) // width)
    for start in range(0, len(codes), rows):
        part = slice(start, min(start + rows, len(codes)))
        decoded = np.zeros((part.stop - start, width), "float32")
        subtract_codewords(decoded, codes[part], -codebooks)
        yield part, decoded


def water_level(table, offset, bits):
    """Water level of reverse water-filling (Cover & Thomas, theorem 10.3.3).

    A Gaussian source with the table's covariance, coded at `bits` bits a row,
    has this distortion along each axis that is worth coding.
    """
    width = table.shape[1]
    covariance = np.zeros((width, width))
    for _, rows in centred_chunks(table, offset, 2):
        covariance += rows.T @ rows
    variances = np.linalg.eigvalsh(covariance / len(table))[::-1]
    variances = variances[variances > 1e-12 * max(variances[0], 1e-300)]
    if not variances.size:
        return 0.0
    # With the n largest axes in use, log2(theta) is their mean log2(variance)
    # less 2 bits / n; n is the most for which theta is below them all.
    axes = np.arange(1, len(variances) + 1)
    levels = (np.cumsum(np.log2(variances)) - 2 * bits) / axes
    in_use = np.flatnonzero(levels <= np.log2(variances))[-1]
    return float(2 ** levels[in_use])


def random_codes(num_rows, num_codebooks, codebook_size, rng):
    """Codes drawn uniformly."""
    return rng.integers(
        codebook_size,
        size=(num_rows, num_codebooks),
        dtype=code_dtype(codebook_size),
    )
