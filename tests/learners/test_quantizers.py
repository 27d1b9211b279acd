"""Learners that search: `AdditiveQuantizer`, `FactorQuantizer`, and random
codes to compare with."""

import joblib
import numpy as np
import pytest

from benchmarks.baselines import RandomCodeLearner
from keras_compembed.learners import AdditiveQuantizer
from keras_compembed.learners.additive_quantizer import FactorQuantizer


def make_table(num_rows=300, width=12, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(10, width))
    table = centres[rng.integers(10, size=num_rows)] + 3.0
    return (table + 0.3 * rng.normal(size=table.shape)).astype("float32")


def quantizer(num_codebooks=4, codebook_size=8, effort=0.1, **kwargs):
    kwargs.setdefault("seed", 0)
    return AdditiveQuantizer(
        num_codebooks, codebook_size, effort=effort, verbose=0, **kwargs
    )


def mean_loss(table, learner, codes=None, weight=None):
    codes = learner.codes if codes is None else codes
    distance = np.square(table - learner.decode(codes), dtype="float64")
    return np.average(distance.sum(axis=1), weights=weight)


# The larger table starts with an encoder, and is searched in two blocks.
SIZES = pytest.mark.parametrize("rows", [300, 17_000], ids=["cold", "warm"])


@SIZES
def test_learns(rows):
    table = make_table(rows)
    learner = quantizer(effort=0.3 if rows == 300 else 0.1)
    assert learner.train(table) is learner
    assert learner.codes.shape == (rows, 4)
    assert learner.codes.dtype == np.uint8
    assert learner.codebooks.shape == (4, 8, 12)
    assert learner.codebooks.dtype == np.float32
    losses = learner.history["loss"]
    assert len(learner.history["seconds"]) == len(losses)
    assert losses[-1] == min(losses)
    assert losses[-1] == pytest.approx(mean_loss(table, learner), rel=1e-4)
    # The table is ten clusters of this variance a row.
    assert losses[-1] < 12 * 0.3**2
    # A beam finds as good codes for the codebooks, of new rows as well.
    for new in (table, make_table(rows)[:50] + np.float32(0.01)):
        codes = learner.encode(new)
        assert codes.dtype == np.uint8
        assert mean_loss(new, learner, codes) <= 1.2 * losses[-1]


def residual_k_means(table, num_codebooks, codebook_size, iterations=20):
    """Rows from codebooks that are each fitted to what is left."""
    rng, rest = np.random.default_rng(0), table - table.mean(axis=0)
    for _ in range(num_codebooks):
        means = rest[rng.choice(len(rest), codebook_size, replace=False)]
        for _ in range(iterations):
            apart = np.square(rest[:, None] - means).sum(axis=2)
            nearest = apart.argmin(axis=1)
            for k in np.unique(nearest):
                means[k] = rest[nearest == k].mean(axis=0)
        rest = rest - means[nearest]
    return table - rest


@pytest.mark.parametrize(
    "shape, most", [((12, 8), 0.8), ((7, 8), 0.8), ((2, 128), 0.9)]
)
def test_many_bits_and_large_codebooks(shape, most):
    table = np.random.default_rng(0).normal(size=(1500, 8)).astype("float32")
    learner = quantizer(*shape, effort=1.0).train(table)
    plain = np.square(table - residual_k_means(table, *shape)).sum(axis=1)
    found = mean_loss(table, learner)
    assert found < most * plain.mean()
    # Codes found anew are nearly as good, which annealing does not give.
    assert mean_loss(table, learner, learner.encode(table)) < 1.02 * found


@pytest.mark.parametrize("shape", [(12, 8), (2, 128)])
def test_many_bits_for_rows_of_uneven_lengths(shape):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(1500, 8)) * rng.lognormal(size=(1500, 1))
    plain = np.square(table - residual_k_means(table, *shape)).sum(axis=1)
    learner = quantizer(*shape, effort=1.0).train(table)
    assert mean_loss(table, learner) < 0.9 * plain.mean()


def test_few_trained_rows_among_zeros_are_exact():
    table = np.zeros((3000, 8))
    table[:100] = np.random.default_rng(0).normal(size=(100, 8))
    learner = quantizer(2, 128).train(table)
    assert mean_loss(table, learner) < 1e-3 * np.square(table).sum() / 3000


def test_few_rows_do_not_make_codewords_long():
    """Otherwise new codes are worse, and scales of int8 coarse."""
    rng = np.random.default_rng(1)
    table = rng.standard_t(4, size=(1500, 8)).astype("float32")
    learner = quantizer(8, 8, effort=1.0).train(table)
    found = mean_loss(table, learner)
    assert mean_loss(table, learner, learner.encode(table)) < 1.05 * found


def test_codes_of_few_bits_found_anew_are_nearly_as_good():
    table = np.random.default_rng(0).normal(size=(700, 150))
    table *= np.linspace(2, 0.3, 150)
    learner = quantizer(24, 8, effort=0.3).train(table)
    found = mean_loss(table, learner)
    assert mean_loss(table, learner, learner.encode(table)) < 1.035 * found


@pytest.mark.parametrize("shape", [(4, 16), (8, 16)])
def test_long_rows_cost_the_others_little(shape):
    table = np.random.default_rng(0).normal(size=(2000, 16))
    wanted = mean_loss(table, quantizer(*shape, effort=1.0).train(table))
    table[17] *= 300
    learner = quantizer(*shape, effort=1.0).train(table)
    apart = np.square(table - learner.decode(learner.codes)).sum(axis=1)
    np.testing.assert_allclose(
        learner.decode(learner.codes[[17]]), table[[17]], rtol=1e-4
    )
    assert np.delete(apart, 17).mean() < 1.05 * wanted


@pytest.mark.parametrize("shape", [(2, 16), (8, 16)])
def test_a_long_row_among_few_different_ones(shape):
    """Codewords are left over, and the mean is far from all other rows."""
    table = np.repeat(np.random.default_rng(0).normal(size=(3, 16)), 5, axis=0)
    table[7] *= 300
    learner = quantizer(*shape).train(table)
    # The ridge of 0.01 against five rows a codeword, of lengths up to 6.
    np.testing.assert_allclose(
        learner.decode(learner.codes), table, rtol=1e-4, atol=0.03
    )
    lengths = np.sort(np.linalg.norm(learner.codebooks, axis=2), axis=None)
    assert lengths[-2] < 2 * np.linalg.norm(table[0])


@pytest.mark.parametrize("shape", [(2, 16), (8, 16)])
def test_tables_of_many_long_rows(shape):
    """Rows that nothing trained are short, or zero; lengths vary widely."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(1000, 8))
    for scale in (0.0, 0.01):
        mixed = table * np.where(np.arange(1000) < 600, scale, 1.0)[:, None]
        found, wanted = np.zeros(1000), 0.0
        # One seed may be lucky, or not.
        for seed in range(3):
            options = {"effort": 1.0, "seed": seed}
            learner = quantizer(*shape, **options).train(mixed)
            rows = learner.decode(learner.codes)
            found += np.square(mixed - rows).sum(axis=1) / 3
            learner = quantizer(*shape, **options).train(mixed[600:])
            wanted += mean_loss(mixed[600:], learner) / 3
        assert found[600:].mean() < 1.2 * wanted
        assert found[:600].mean() < 0.1
    heavy = table * rng.pareto(1.5, size=(1000, 1)).clip(0.01, 200)
    learner = quantizer(*shape, effort=1.0).train(heavy)
    energy = np.square(heavy).sum(axis=1).mean()
    assert mean_loss(heavy, learner) < 0.1 * energy


def test_seed_repeats():
    table = make_table()
    before = table.copy()
    one, two, other = (
        quantizer(effort=0.02, seed=seed).train(table) for seed in (7, 7, 8)
    )
    np.testing.assert_array_equal(one.codes, two.codes)
    np.testing.assert_array_equal(one.codebooks, two.codebooks)
    np.testing.assert_array_equal(one.encode(table), two.encode(table))
    assert (one.codes != other.codes).any()
    np.testing.assert_array_equal(table, before)


def test_rows_that_count_more_come_nearer():
    rows = 300
    rng = np.random.default_rng(0)
    table = rng.normal(size=(rows, 8)).astype("float32")
    weight = np.where(np.arange(rows) < 20, rows / 4, 1.0)
    plain = quantizer(2, 8).train(table)
    learner = quantizer(2, 8).train(table, weight)
    assert mean_loss(table[:20], learner, learner.codes[:20]) < 0.5 * (
        mean_loss(table[:20], plain, plain.codes[:20])
    )
    assert learner.history["loss"][-1] == pytest.approx(
        mean_loss(table, learner, weight=weight), rel=1e-4
    )


def test_unusual_tables():
    for table in (np.full((15, 4), 7.5), np.array([[1.0, -2.0, 3.0]])):
        learner = quantizer(4, 16).train(table)
        for codes in (learner.codes, learner.encode(table)):
            decoded = learner.decode(codes)
            np.testing.assert_allclose(decoded, table, rtol=1e-6)
    table = np.repeat(make_table(3), 10, axis=0)
    learner = quantizer(4, 16, effort=1.0).train(table)
    energy = np.square(table - table.mean(axis=0)).sum(axis=1).mean()
    # The ridge pulls codewords that one row uses by 0.01 of their length,
    # in each of the codebooks.
    assert mean_loss(table, learner) < (4 * 0.01) ** 2 * energy
    # More codewords than rows; the last are very many.
    for shape, rows, dtype in (
        ((3, 257), 50, "uint16"),
        ((2, 5000), 30, "uint16"),
    ):
        weight = np.random.default_rng(0).uniform(0.5, 1, size=rows)
        learner = quantizer(*shape).train(make_table(rows), weight)
        assert mean_loss(make_table(rows), learner) < 0.1
        assert learner.codes.dtype == dtype
    table = make_table()[:, :1]
    narrow = quantizer(3, 4).train(table)
    assert narrow.codebooks.shape == (3, 4, 1)
    assert mean_loss(table, narrow) < 0.05


@pytest.mark.parametrize("kind", ["float16", "int32"])
def test_dtypes_and_layouts(kind, tmp_path):
    table = (make_table(100) * 2).astype("int32").astype(kind)
    wanted = quantizer().train(np.asarray(table, "float32"))
    path = tmp_path / "table.npy"
    np.save(path, table)
    wide = np.zeros((200, 24), table.dtype)
    wide[::2, ::2] = table
    for same in (
        table,
        np.asfortranarray(table),
        wide[::2, ::2],
        np.load(path, mmap_mode="r"),
    ):
        learner = quantizer().train(same)
        np.testing.assert_array_equal(learner.codes, wanted.codes)


@pytest.mark.parametrize(
    "backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)]
)
def test_several_cores_give_the_codes_of_one(backend):
    table = make_table(17_000, 4)
    weight = np.random.default_rng(0).random(17_000)

    def learn():
        learner = quantizer(effort=0.05).train(table, sample_weight=weight)
        return [learner.codes, learner.codebooks, learner.encode(table)]

    expected = learn()
    with joblib.parallel_config(backend, n_jobs=2):
        found = learn()
    if backend == "loky":
        joblib.externals.loky.get_reusable_executor().shutdown()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


RNG = np.random.default_rng(0)
# Four axes, of which the last matters little, about a mean far from zero.
FACTORS = (RNG.normal(size=(300, 4)) * [4, 3, 2, 0.1]) @ RNG.normal(
    size=(4, 10)
) + 3


@pytest.mark.parametrize("weighted", [False, True])
def test_factors_of_few_rows_are_those_of_singular_vectors(weighted):
    """Each row has a codeword of its own, so that rank alone costs."""
    table = FACTORS[:12] + RNG.normal(size=(12, 10))
    weight = RNG.uniform(0.1, 2, 12) if weighted else np.ones(12)
    learner = FactorQuantizer(1, 256, 3, effort=1.0, seed=0, verbose=0)
    learner.train(table, sample_weight=weight if weighted else None)
    assert len(np.unique(learner.codes)) == 12
    np.testing.assert_array_equal(learner.encode(table), learner.codes)
    singular = np.linalg.svd(
        np.sqrt(weight / weight.sum())[:, None] * table, compute_uv=False
    )
    least = np.sum(singular[3:] ** 2)
    found = mean_loss(table, learner, weight=weight)
    assert least * 0.999 < found < 1.02 * least


@pytest.mark.parametrize("weighted", [False, True])
def test_codebooks_of_random_codes_are_those_of_least_squares(weighted):
    table = np.random.default_rng(0).normal(size=(700, 6)) + 3
    weight = np.random.default_rng(1).uniform(0.5, 2, size=700)
    learner = RandomCodeLearner(3, 4, seed=0)
    learner.train(table, sample_weight=weight if weighted else None)
    one_hot = np.eye(4)[learner.codes].reshape(700, 12)
    root = np.sqrt(weight)[:, None] if weighted else 1.0
    solution = np.linalg.lstsq(root * one_hot, root * table, rcond=None)[0]
    # A ridge of 0.01 against about 50 rows a codeword.
    np.testing.assert_allclose(
        learner.decode(learner.codes), one_hot @ solution, atol=3e-3
    )
    loss = mean_loss(table, learner, weight=weight if weighted else None)
    assert learner.history["loss"] == [pytest.approx(loss, rel=1e-5)]
