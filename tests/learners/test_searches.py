"""Searches for codes and codebooks in arrays, held to searches row by row."""

import keras
import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.learners import coordinate_search as search
from keras_compembed.learners import refinement
from keras_compembed.learners.coordinate_search import encode_rows
from keras_compembed.learners.quantizer_run import StraightThroughEncoder

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


@pytest.mark.parametrize("shape", [(5, 4), (3, 64), (2, 200), (1, 3)])
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
@pytest.mark.parametrize("shape", [(4, 5), (2, 100), (3, 700)])
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


@pytest.mark.parametrize("weighted", [False, True])
def test_least_squares_of_very_many_codewords(weighted):
    """Step by step, of which each needs the codes alone."""
    # Of one codebook, the first step is the solution.
    rows, codes, codebooks, weight = random_problem(1, 8200)
    found = codebooks + step(
        rows, codes, codebooks, weight if weighted else None
    )
    weight = weight if weighted else np.ones(len(rows))
    counts, sums = np.zeros((8200, 1)), np.zeros((8200, 6))
    np.add.at(counts, codes[:, 0], weight[:, None])
    np.add.at(sums, codes[:, 0], weight[:, None] * rows)
    np.testing.assert_allclose(found[0], sums / (counts + RIDGE), atol=1e-4)
    # Of several, six steps come near to it.
    rows, codes, codebooks, _ = random_problem(4, 70, num_rows=2000)
    large = np.pad(codebooks, ((0, 0), (0, 2000), (0, 0)))
    weight = np.random.default_rng(2).random(2000).astype("float32")
    weight = weight if weighted else None
    right, found = (
        np.average(
            np.square(
                rows - decode(codes, start + step(rows, codes, start, weight))
            ).sum(axis=1),
            weights=weight,
        )
        for start in (codebooks, large)
    )
    assert right * 0.9999 <= found <= right * 1.01


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(900, 3), ((1 << 22) + 5, 1)])
def test_mean_and_covariance(shape, weighted):
    rng = np.random.default_rng(0)
    table = rng.normal(10, size=shape).astype("float32")
    weight = None
    if weighted:
        weight = rng.random(len(table)).astype("float32")
        weight /= weight.mean()
        table[-5:] += 1e6
    offset = search.mean_row(table, weight)
    np.testing.assert_allclose(
        offset, np.average(table, axis=0, weights=weight), rtol=1e-5
    )
    found = search.second_moments(table, offset) / len(table)
    centred = table.astype("float64") - offset
    np.testing.assert_allclose(
        found, centred.T @ centred / len(table), rtol=1e-4, atol=1e-3
    )


def test_water_level_spends_the_bits():
    variances = np.array([4.0, 1.0, 0.25, 0.01])
    for bits in (0.5, 3.0, 20.0):
        level = search.water_level(np.diag(variances), bits)
        spent = 0.5 * np.log2(np.maximum(variances / level, 1)).sum()
        assert spent == pytest.approx(bits)
    assert search.water_level(np.zeros((3, 3)), bits=8) == 0


@pytest.mark.parametrize("shape", [(2, 4), (1, 40), (4, 2)])
def test_a_beam_of_all_codes_finds_the_best(shape):
    rows, _, codebooks, _ = random_problem(*shape)
    every = np.indices((shape[1],) * shape[0]).reshape(shape[0], -1).T
    sums = decode(every, codebooks)
    distance = np.square(rows[:, None] - sums).sum(axis=2)
    codes = encode_rows(rows, codebooks, np.random.default_rng(0))
    np.testing.assert_array_equal(codes, every[distance.argmin(axis=1)])


def test_a_beam_sees_each_row_by_itself():
    """Whatever the chunk or the block that it comes in."""
    rows, _, codebooks, _ = random_problem(3, 600, num_rows=1100)
    whole = encode_rows(rows, codebooks, np.random.default_rng(0))
    assert whole.dtype == np.uint16
    for part in (slice(0, 1), slice(430, 520), slice(1099, 1100)):
        alone = encode_rows(rows[part], codebooks, np.random.default_rng(0))
        np.testing.assert_array_equal(alone, whole[part])


@pytest.mark.parametrize("progress", [0.0, 0.3, 1.0])
def test_first_step_of_an_encoder_is_that_of_adam(progress):
    """Each weight moves by the rate, whatever the size of its gradient."""
    table, _, _, _ = random_problem(1, 2, 50, width=3)
    encoder = StraightThroughEncoder((2, 4, 3), 1.0, np.random.default_rng(0))
    before = encoder._weights.copy()
    encoder.train_on_batch(table, progress)
    moves = np.abs(encoder._weights - before)
    rate = 1e-4 + (1e-2 - 1e-4) * 0.5 * (1 + np.cos(np.pi * progress))
    # What no row chose stays.
    moves = moves[moves > 0]
    assert len(moves) > 20
    np.testing.assert_allclose(moves, rate, rtol=0.01)


RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(200, 7)).astype("float32") + 1
WEIGHT = RNG.uniform(0.5, 2, size=200).astype("float32")
WEIGHT /= WEIGHT.mean()
CODES = RNG.integers(5, size=(200, 3)).astype("uint8")


def make_composition(name, num_codebooks=3, codebook_size=5, width=7):
    keras.utils.set_random_seed(0)
    return kc.CodeEmbedding(
        9, width, num_codebooks, codebook_size, composition=name
    ).composition


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


@pytest.mark.parametrize("num_codebooks", [1, 3, 7])
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


@pytest.mark.parametrize("name", ["sum", "linear", "concat"])
def test_what_was_refined_stays_as_it_is(name):
    composition = make_composition(name)
    weights = composition.get_weights()
    first = RNG.normal(size=composition.codebooks_shape).astype("float32")
    codebooks, codes = first.copy(), CODES.copy()
    kept = []
    for step in refinement.refine_composed(
        TABLE, codes, composition, codebooks
    ):
        kept.append((step, [np.copy(part) for part in step[:2]]))
    np.testing.assert_array_equal(codes, CODES)
    np.testing.assert_array_equal(codebooks, first)
    for one, two in zip(weights, composition.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)
    for step, copies in kept:
        for part, copy in zip(step, copies, strict=False):
            np.testing.assert_array_equal(part, copy)
