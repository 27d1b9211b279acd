import numpy as np
import pytest

from keras_compembed.compositions.linear_composition import LinearComposition
from keras_compembed.compositions.registry import get_composition
from keras_compembed.compositions.sum_composition import SumComposition
from keras_compembed.learners.refinement import can_refine
from keras_compembed.learners.refinement import codeword_of_row
from keras_compembed.learners.refinement import factor_codebooks
from keras_compembed.learners.refinement import nearest_composed
from keras_compembed.learners.refinement import refine_codes
from keras_compembed.learners.refinement import refine_composed
from keras_compembed.learners.refinement import refine_parts

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(200, 7)).astype("float32") + 1
WEIGHT = RNG.uniform(0.5, 2, size=200).astype("float32")
CODES = RNG.integers(5, size=(200, 3)).astype("uint8")


def mean_squares(rows, weight=None):
    return np.average(np.square(rows).sum(axis=1), weights=weight)


def refined(steps):
    """Last codes and codebooks of steps, and the losses of all."""
    steps = list(steps)
    return *steps[-1][:2], [step[-1] for step in steps]


def column_parts(width, num_parts):
    """Slices of columns, the first ones wider."""
    return [
        slice(part[0], part[-1] + 1)
        for part in np.array_split(np.arange(width), num_parts)
    ]


def lloyd(table, codebooks, num_codebooks, weight):
    """One step of k-means in each part, row by row."""
    codes = np.zeros((len(table), num_codebooks), int)
    new, loss = codebooks.copy(), np.zeros(len(table))
    for m, columns in enumerate(column_parts(table.shape[1], num_codebooks)):
        for row, vector in enumerate(table[:, columns]):
            distances = np.square(codebooks[:, columns] - vector).sum(axis=1)
            codes[row, m] = distances.argmin()
            loss[row] += distances.min()
        for k in range(len(codebooks)):
            mine = codes[:, m] == k
            if mine.any():
                new[k, columns] = np.average(
                    table[mine, columns], axis=0, weights=weight[mine]
                )
    return codes, new, np.average(loss, weights=weight)


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_equal_the_reference(weighted):
    weight = WEIGHT / WEIGHT.mean() if weighted else np.ones(200, "float32")
    codebooks = np.random.default_rng(2).normal(size=(3, 5, 7))
    codes = CODES.astype(int)
    for m in np.random.default_rng(4).permutation(3):
        for row, code in zip(TABLE, codes, strict=True):
            code[m] = 0
            rest = row - codebooks[np.arange(3), code].sum(axis=0)
            rest = rest + codebooks[m, 0]
            code[m] = np.square(rest - codebooks[m]).sum(axis=1).argmin()
    residual = TABLE - codebooks[np.arange(3), codes].sum(axis=1)
    one_hot = np.eye(5)[codes].reshape(200, 15)
    # A ridge of 0.01 on the codebooks themselves.
    solution = np.linalg.solve(
        one_hot.T @ (weight[:, None] * one_hot) + 0.01 * np.eye(15),
        one_hot.T @ (weight[:, None] * TABLE),
    )
    got = refined(
        refine_codes(
            TABLE,
            CODES,
            codebooks.astype("float32"),
            weight if weighted else None,
            sweeps=1,
            seed=4,
        )
    )
    np.testing.assert_array_equal(got[0], codes)
    np.testing.assert_allclose(got[1], solution.reshape(3, 5, 7), atol=1e-3)
    np.testing.assert_allclose(
        got[2], [mean_squares(residual, weight)], rtol=1e-5
    )


@pytest.mark.parametrize("num_codebooks", [1, 3, 7])
@pytest.mark.parametrize("weighted", [False, True])
def test_parts_equal_the_reference(num_codebooks, weighted):
    weight = WEIGHT if weighted else np.ones(200)
    codebooks = np.random.default_rng(1).normal(size=(6, 7)).astype("float32")
    codebooks[4] = 100  # nearest to no row
    expected, losses = codebooks.astype("float64"), []
    for _ in range(3):
        codes, expected, loss = lloyd(TABLE, expected, num_codebooks, weight)
        losses.append(loss)
    got = refined(
        refine_parts(
            TABLE,
            codebooks,
            num_codebooks,
            weight / weight.mean() if weighted else None,
            sweeps=3,
        )
    )
    np.testing.assert_array_equal(got[0], codes)
    # Means of some 30 rows in float32.
    np.testing.assert_allclose(got[1], expected, atol=1e-5)
    np.testing.assert_allclose(got[2], losses, rtol=1e-5)
    np.testing.assert_array_equal(got[1][4], codebooks[4])


def test_factors_are_the_best_of_their_width():
    """Reduced-rank regression, by the singular vectors of what is fitted."""
    root = np.sqrt(WEIGHT)[:, None]
    one_hot = np.eye(5)[CODES].reshape(200, 15)
    full = np.linalg.lstsq(root * one_hot, root * TABLE, rcond=None)[0]
    axes = np.linalg.svd(root * one_hot @ full)[2]
    for code_dim in (1, 3, 7, 9):
        narrow, kernel = factor_codebooks(
            full.reshape(3, 5, 7), CODES, code_dim, WEIGHT
        )
        assert narrow.shape == (3, 5, code_dim)
        assert kernel.shape == (code_dim, 7)
        axis = axes[:code_dim]
        np.testing.assert_allclose(
            narrow.reshape(15, -1) @ kernel, full @ axis.T @ axis, atol=1e-5
        )


@pytest.mark.parametrize("code_dim", [2, 7, 10])
def test_linear_refinement(code_dim):
    composition = get_composition(LinearComposition(code_dim), 3, 5, 7)
    first = RNG.normal(size=(3, 5, code_dim)).astype("float32")
    before = mean_squares(TABLE - composition.decode(CODES, first), WEIGHT)
    steps = list(
        refine_composed(
            TABLE, CODES, composition, first, WEIGHT / WEIGHT.mean()
        )
    )
    codes, codebooks, losses = refined(steps)
    composition.set_weights(steps[-1][2])
    after = mean_squares(TABLE - composition.decode(codes, codebooks), WEIGHT)
    # Least squares has a ridge of 0.01 against about 40 rows a codeword.
    assert (np.diff([before, *losses, after]) < 1e-3).all()
    assert after < 0.8 * losses[0]
    assert not np.array_equal(codes, CODES)


def test_wide_linear_refinement_is_that_of_a_sum():
    linear = get_composition("linear", 3, 5, 7)
    linear.kernel.assign(np.eye(7))
    plain = get_composition("sum", 3, 5, 7)
    first = RNG.normal(size=(3, 5, 7)).astype("float32")
    steps = list(refine_composed(TABLE, CODES, linear, first))
    codes, codebooks, losses = refined(steps)
    linear.set_weights(steps[-1][2])
    expected = refined(refine_composed(TABLE, CODES, plain, first))
    np.testing.assert_array_equal(codes, expected[0])
    np.testing.assert_allclose(losses, expected[2], rtol=1e-5)
    np.testing.assert_allclose(
        linear.decode(codes, codebooks),
        plain.decode(*expected[:2]),
        atol=1e-5,
    )


@pytest.mark.parametrize("name", ["sum", "linear", "concat"])
def test_what_was_refined_stays_as_it_is(name):
    composition = get_composition(name, 3, 5, 7)
    weights = composition.get_weights()
    first = RNG.normal(size=composition.codebooks_shape).astype("float32")
    codebooks, codes = first.copy(), CODES.copy()
    steps = refine_composed(TABLE, codes, composition, codebooks)
    kept = []
    for step in steps:
        kept.append((step, [np.copy(part) for part in step[:2]]))
    np.testing.assert_array_equal(codes, CODES)
    np.testing.assert_array_equal(codebooks, first)
    for one, two in zip(weights, composition.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)
    for step, copies in kept:
        for part, copy in zip(step, copies, strict=False):
            np.testing.assert_array_equal(part, copy)


@pytest.mark.parametrize("name", ["sum", "linear", "concat"])
def test_nearest_codes(name):
    composition = get_composition(name, 2, 3, 7)
    codebooks = RNG.normal(size=composition.codebooks_shape).astype("float32")
    every = np.stack(np.meshgrid(*[np.arange(3)] * 2), -1).reshape(-1, 2)
    rows = composition.decode(every, codebooks)
    distances = np.square(TABLE[:, None] - rows).sum(axis=2)
    best = distances.min(axis=1)
    # The beam is wider than the nine codes there are.
    codes = nearest_composed(TABLE, composition, codebooks)
    found = np.square(TABLE - composition.decode(codes, codebooks)).sum(axis=1)
    np.testing.assert_allclose(found, best, rtol=1e-5)
    start = np.zeros((200, 2), "uint8")
    codes = nearest_composed(TABLE, composition, codebooks, start)
    improved = np.square(TABLE - composition.decode(codes, codebooks))
    assert improved.sum(axis=1).mean() <= distances[:, 0].mean()


@pytest.mark.parametrize("name", ["sum", "linear", "concat"])
def test_codeword_of_row(name):
    composition = get_composition(name, 3, 2, 7)
    row = np.arange(7.0)
    codebooks = np.zeros(composition.codebooks_shape, "float32")
    codebooks += codeword_of_row(row, composition)
    got = composition.decode(np.array([[0, 1, 1]]), codebooks)
    np.testing.assert_allclose(got, [row], atol=1e-4)


def test_can_refine():
    for name in ("sum", "linear", "concat"):
        assert can_refine(name)
        assert can_refine(get_composition(name, 2, 3, 7))

    class HalfSum(SumComposition):
        def call(self, codewords):
            return 0.5 * super().call(codewords)

    assert not can_refine("lstm")
    assert not can_refine(HalfSum())
