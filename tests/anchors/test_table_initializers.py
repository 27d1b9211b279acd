"""Anchors chosen in a space of objects."""

import numpy as np
import pytest
from errors import refused

from keras_compembed import anchors
from keras_compembed.anchors.coreset import coreset_chances
from keras_compembed.anchors.k_means_seeding import k_means_seeds


def normal_table(rows=200, columns=5):
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, columns)).astype("float32")


def naive_k_means_seeds(table, number, rng, weight, first=()):
    """The whole table at once, as k-means++ is written down."""
    table = np.asarray(table, "float64")
    ids = list(first)
    while len(ids) < number:
        chances = np.array(weight, "float64")
        if ids:
            pairs = [np.square(table - table[i]).sum(axis=1) for i in ids]
            chances *= np.min(pairs, axis=0)
        below = np.cumsum(chances) / chances.sum()
        ids.append(int(np.argmax(rng.random() < below)))
    return ids


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("first", [(), (3, 90)])
# The last table is read in two parts.
@pytest.mark.parametrize("rows, number", [(200, 20), (27_000, 6)])
def test_seeds_equal_the_naive_ones(rows, number, weighted, first):
    table = normal_table(rows)
    weight = np.random.default_rng(1).random(rows) if weighted else None
    found = k_means_seeds(
        table, number, np.random.default_rng(2), weight, first=first
    )
    expected = naive_k_means_seeds(
        table,
        number,
        np.random.default_rng(2),
        np.ones(rows) if weight is None else weight,
        first,
    )
    np.testing.assert_array_equal(found, expected)


def test_probabilities_of_the_second_seed():
    table = np.array([[0.0], [1.0], [2.0], [4.0]])
    weight = np.array([1.0, 1.0, 3.0, 1.0])
    rng = np.random.default_rng(0)
    draws = 4000
    seconds = [
        k_means_seeds(table, 2, rng, weight, first=[0])[1] for _ in range(draws)
    ]
    found = np.bincount(seconds, minlength=4) / draws
    expected = np.array([0, 1, 3 * 4, 16]) / 29
    deviation = np.sqrt(expected * (1 - expected) / draws)
    assert (np.abs(found - expected) <= 4 * deviation).all()


def test_duplicates_and_rows_of_no_weight_are_taken_last():
    table = np.repeat(normal_table(3), 4, axis=0)
    ids = k_means_seeds(table, 12, np.random.default_rng(0))
    assert len(set(ids[:3] // 4)) == 3
    np.testing.assert_array_equal(np.sort(ids), np.arange(12))
    weight = np.array([0, 1, 0, 1, 1, 0])
    ids = k_means_seeds(normal_table(6), 6, np.random.default_rng(0), weight)
    assert set(ids[:3]) == {1, 3, 4}
    np.testing.assert_array_equal(np.sort(ids), np.arange(6))


def test_more_candidates_span_better():
    table = normal_table(500)

    def cost(num_candidates, seed):
        ids = k_means_seeds(
            table,
            10,
            np.random.default_rng(seed),
            num_candidates=num_candidates,
        )
        pairs = table[:, None] - table[ids][None]
        return (pairs**2).sum(-1).min(-1).sum()

    plain = np.mean([cost(1, seed) for seed in range(10)])
    greedy = np.mean([cost(5, seed) for seed in range(10)])
    assert greedy < 0.95 * plain


def test_table_on_disk(tmp_path):
    table = normal_table()
    np.save(tmp_path / "table.npy", table)
    mapped = np.load(tmp_path / "table.npy", mmap_mode="r")
    for kind in (anchors.KMeansPlusPlus, anchors.Coreset):
        found = kind(mapped, seed=0)
        assert isinstance(found.table, np.memmap)
        expected = kind(table, seed=0)
        np.testing.assert_array_equal(
            found.choose(200, 10), expected.choose(200, 10)
        )
        np.testing.assert_array_equal(
            found.vectors(10, 5), expected.vectors(10, 5)
        )


@pytest.mark.parametrize(
    "initializer",
    [
        anchors.KMeansPlusPlus(normal_table(), seed=0),
        anchors.Coreset(normal_table(), seed=0),
        anchors.FrequencyThenKMeansPlusPlus(range(200), normal_table(), seed=0),
    ],
)
def test_vectors_are_the_rows_chosen(initializer):
    ids = initializer.choose(200, 10)
    np.testing.assert_array_equal(
        initializer.vectors(10, 5), normal_table()[ids]
    )
    basis = initializer.vectors(10, 12)
    np.testing.assert_allclose(basis @ basis.T, 12 * np.eye(10), atol=1e-5)
    # Answers may be changed by the caller.
    kept = ids.copy()
    ids[:] = -1
    np.testing.assert_array_equal(initializer.choose(200, 10), kept)


def test_frequent_ones_first():
    counts = np.random.default_rng(3).permutation(200)
    initializer = anchors.FrequencyThenKMeansPlusPlus(
        counts, normal_table(), seed=5
    )
    ids = initializer.choose(200, 11)
    np.testing.assert_array_equal(counts[ids[:5]], [199, 198, 197, 196, 195])
    expected = naive_k_means_seeds(
        normal_table(), 11, np.random.default_rng(5), np.ones(200), ids[:5]
    )
    np.testing.assert_array_equal(ids, expected)
    for number in (0, 11):
        initializer = anchors.FrequencyThenKMeansPlusPlus(
            counts, normal_table(), number, seed=5
        )
        assert len(np.unique(initializer.choose(200, 11))) == 11


def test_coreset_probabilities():
    table = np.array([[0.0, 0], [0, 0], [4, 0], [0, 4]])
    squares = ((table - table.mean(axis=0)) ** 2).sum(axis=1)
    expected = 0.5 / 4 + 0.5 * squares / squares.sum()
    np.testing.assert_allclose(coreset_chances(table), expected, rtol=1e-6)
    np.testing.assert_allclose(coreset_chances(np.ones((4, 2))), 0.25)
    draws = 4000
    firsts = [
        anchors.Coreset(table, seed=seed).choose(4, 1)[0]
        for seed in range(draws)
    ]
    found = np.bincount(firsts, minlength=4) / draws
    deviation = np.sqrt(expected * (1 - expected) / draws)
    assert (np.abs(found - expected) <= 4 * deviation).all()
    ids = anchors.Coreset(normal_table(6)).choose(6, 6)
    np.testing.assert_array_equal(np.sort(ids), np.arange(6))


@pytest.mark.parametrize("kind", [anchors.KMeansPlusPlus, anchors.Coreset])
def test_tables_are_checked(kind):
    # Squares of distances were infinite, or all zero.
    for table, received in (
        (np.zeros(3), "(3,)"),
        (np.full((3, 2), np.nan), "row 0"),
        (1e20 * normal_table(), "e+20"),
        (1e-30 * normal_table(), "e-30"),
    ):
        with refused("table", received):
            kind(table)
    with pytest.raises(ValueError, match="num_anchors=7, input_dim=6"):
        kind(normal_table(6)).vectors(7, 5)


def test_arguments_are_checked():
    table = normal_table(6)
    for name, kwargs in (
        ("sample_weight", {"sample_weight": [1]}),
        ("num_candidates", {"num_candidates": 0}),
    ):
        with refused(name):
            anchors.KMeansPlusPlus(table, **kwargs)
    both = anchors.FrequencyThenKMeansPlusPlus
    with pytest.raises(ValueError, match="5 counts, 6 rows"):
        both(np.ones(5), table)
    with refused("num_frequent", -1):
        both(np.ones(6), table, num_frequent=-1)
    with pytest.raises(ValueError, match="num_frequent=4, num_anchors=3"):
        both(np.ones(6), table, 4).choose(6, 3)
