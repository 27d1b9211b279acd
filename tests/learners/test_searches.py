"""Searches for codes and codebooks in arrays, held to searches row by row."""

import numpy as np
import pytest

from keras_compembed.learners import coordinate_search as search
from keras_compembed.learners import refinement
from keras_compembed.learners.coordinate_search import encode_rows

RIDGE = 0.01


def random_problem(num_codebooks, codebook_size, num_rows=70, width=6):
    """Rows, codes, codebooks and weights; the same for the same shape."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(num_rows, width)).astype("float32")
    codebooks = rng.normal(size=(num_codebooks, codebook_size, width))
    codes = search.random_codes(num_rows, num_codebooks, codebook_size, rng)
    weight = rng.uniform(0.1, 2, num_rows).astype("float32")
    return rows, codes, codebooks.astype("float32"), weight / weight.mean()


def one_hot(codes, codebook_size):
    matrix = np.zeros((*codes.shape, codebook_size))
    np.put_along_axis(matrix, codes[..., None].astype(int), 1, axis=2)
    return matrix.reshape(len(codes), -1)


def decode(codes, codebooks):
    return codebooks[np.arange(len(codebooks)), codes].sum(axis=1)


def swept(rows, codes, codebooks, order):
    """Each subcode in turn the best, given all others."""
    codes = codes.astype(int)
    for m in order:
        for row, code in zip(rows, codes, strict=True):
            code[m] = 0
            rest = row - decode(code[None], codebooks)[0] + codebooks[m, 0]
            code[m] = np.square(rest - codebooks[m]).sum(axis=1).argmin()
    return codes


def least_squares(rows, codes, codebook_size, weight):
    """Codebooks of a ridge regression."""
    matrix = one_hot(codes, codebook_size)
    left = matrix.T @ (weight[:, None] * matrix)
    left += RIDGE * np.eye(matrix.shape[1])
    solution = np.linalg.solve(left, matrix.T @ (weight[:, None] * rows))
    return solution.reshape(codes.shape[1], codebook_size, -1)


@pytest.mark.parametrize("shape", [(5, 4), (2, 200)])
def test_a_sweep_takes_the_best_subcode_one_at_a_time(shape):
    rows, codes, codebooks, _ = random_problem(*shape)
    # The order that the sweep draws.
    order = np.random.default_rng(3).permutation(shape[0])
    wanted = swept(rows, codes, codebooks, order)
    sweep = search.Sweep(codebooks, np.random.default_rng(3))
    residual = rows.copy()
    search.subtract_codewords(residual, codes, codebooks)
    sweep.run(residual, codes, 0.0, None, None)
    np.testing.assert_array_equal(codes, wanted)
    np.testing.assert_allclose(
        residual, rows - decode(wanted, codebooks), atol=1e-5
    )


def test_a_sweep_draws_with_the_probability_of_its_temperature():
    codebooks = np.array([[[0.0], [1.0], [3.0]]], "float32")
    rows = np.full((20_000, 1), 0.4, "float32")
    codes = np.zeros((len(rows), 1), "uint8")
    rng = np.random.default_rng(0)
    sweep = search.Sweep(codebooks, rng)
    # A chunk is at most half the bank.
    noise = search.GumbelBank(3, rng)
    for start in range(0, len(rows), 500):
        part = slice(start, start + 500)
        sweep.run(rows[part].copy(), codes[part], 0.7, noise, rng)
    weight = np.exp(-np.square(0.4 - codebooks[0, :, 0]) / 0.7)
    seen = np.bincount(codes[:, 0], minlength=3) / len(rows)
    # Four standard deviations of a share of 20,000 draws.
    np.testing.assert_allclose(seen, weight / weight.sum(), atol=0.015)


def step(rows, codes, codebooks, weight=None):
    residual = rows.copy()
    search.subtract_codewords(residual, codes, codebooks)
    if weight is not None:
        residual *= weight[:, None]
    sums = np.zeros_like(codebooks)
    search.sums_by_subcode(residual, codes, codebooks.shape[1], sums)
    return search.least_squares_step(codes, codebooks, sums, weight)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(4, 5), (3, 700)])
def test_least_squares_solves_the_normal_equations(shape, weighted):
    rows, codes, codebooks, weight = random_problem(*shape)
    # Those above 2048 codewords, in single precision, are far from unique.
    found = codebooks + step(
        rows, codes, codebooks, weight if weighted else None
    )
    weight = weight if weighted else np.ones(len(rows))
    wanted = least_squares(rows, codes, shape[1], weight)
    # Single precision, times the condition number 1 / ridge of the sums.
    np.testing.assert_allclose(found, wanted, atol=2e-4)


def test_water_level_spends_the_bits():
    variances = np.array([4.0, 1.0, 0.25, 0.01])
    for bits in (0.5, 3.0, 20.0):
        level = search.water_level(np.diag(variances), bits)
        spent = 0.5 * np.log2(np.maximum(variances / level, 1)).sum()
        assert spent == pytest.approx(bits)
    assert search.water_level(np.zeros((3, 3)), bits=8) == 0


@pytest.mark.parametrize("shape", [(2, 4), (1, 40)])
def test_a_beam_of_all_codes_finds_the_best(shape):
    rows, _, codebooks, _ = random_problem(*shape)
    every = np.indices((shape[1],) * shape[0]).reshape(shape[0], -1).T
    sums = decode(every, codebooks)
    distance = np.square(rows[:, None] - sums).sum(axis=2)
    codes = encode_rows(rows, codebooks, np.random.default_rng(0))
    np.testing.assert_array_equal(codes, every[distance.argmin(axis=1)])


RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(200, 7)).astype("float32") + 1
WEIGHT = RNG.uniform(0.5, 2, size=200).astype("float32")
WEIGHT /= WEIGHT.mean()


def lloyd(table, codebooks, num_codebooks, weight):
    """One step of k-means in each part, row by row."""
    codes = np.zeros((len(table), num_codebooks), int)
    new, loss = codebooks.copy(), np.zeros(len(table))
    parts = np.array_split(np.arange(table.shape[1]), num_codebooks)
    for m, columns in enumerate(parts):
        apart = table[:, None, columns] - codebooks[:, columns]
        distances = np.square(apart).sum(axis=2)
        codes[:, m] = distances.argmin(axis=1)
        loss += distances.min(axis=1)
        for k in np.unique(codes[:, m]):
            mine = np.flatnonzero(codes[:, m] == k)
            new[k, columns] = np.average(
                table[np.ix_(mine, columns)], axis=0, weights=weight[mine]
            )
    return codes, new, np.average(loss, weights=weight)


@pytest.mark.parametrize("num_codebooks", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_parts_equal_the_reference(num_codebooks, weighted):
    weight = WEIGHT if weighted else np.ones(200)
    rng = np.random.default_rng(1)
    codebooks = rng.normal(size=(6, 7)).astype("float32")
    codebooks[4] = 100  # nearest to no row
    expected, wanted = codebooks.astype("float64"), []
    for _ in range(3):
        codes, expected, loss = lloyd(TABLE, expected, num_codebooks, weight)
        wanted.append(loss)
    weight = weight if weighted else None
    steps = refinement.refine_parts(
        TABLE, codebooks, num_codebooks, weight, sweeps=3
    )
    *_, (found, fitted, _) = steps = list(steps)
    losses = [step[-1] for step in steps]
    np.testing.assert_array_equal(found, codes)
    # Means of some 30 rows in float32.
    np.testing.assert_allclose(fitted, expected, atol=1e-5)
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    np.testing.assert_array_equal(fitted[4], codebooks[4])
