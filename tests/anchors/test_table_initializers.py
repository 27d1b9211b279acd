"""Anchors chosen in a space of objects."""

import numpy as np
import pytest

from keras_compembed import anchors
from keras_compembed.anchors import k_means_seeding
from keras_compembed.anchors.coreset import coreset_chances
from keras_compembed.anchors.k_means_seeding import k_means_seeds
from keras_compembed.anchors.table_initializer import TableInitializer


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
            pairs = table[:, None] - table[ids][None]
            chances *= (pairs**2).sum(-1).min(-1)
        below = np.cumsum(chances) / chances.sum()
        ids.append(int(np.argmax(rng.random() < below)))
    return ids


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("first", [(), (3, 90)])
def test_seeds_equal_the_naive_ones(monkeypatch, weighted, first):
    # Parts of 7 rows, of which the last is shorter.
    monkeypatch.setattr(k_means_seeding, "_PART", 35)
    table = normal_table()
    weight = np.random.default_rng(1).random(200) if weighted else np.ones(200)
    found = k_means_seeds(
        table, 20, np.random.default_rng(2), weight, first=first
    )
    expected = naive_k_means_seeds(
        table, 20, np.random.default_rng(2), weight, first
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


def test_duplicates_are_taken_last():
    table = np.repeat(normal_table(3), 4, axis=0)
    ids = k_means_seeds(table, 12, np.random.default_rng(0))
    assert sorted(ids // 4)[:12:4] == [0, 1, 2]
    assert len(set(ids[:3] // 4)) == 3
    np.testing.assert_array_equal(np.sort(ids), np.arange(12))


def test_rows_of_no_weight_are_taken_last():
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


def test_answers_may_be_changed_by_the_caller():
    initializer = anchors.KMeansPlusPlus(normal_table(), seed=0)
    first = initializer.choose(200, 10)
    kept = first.copy()
    first[:] = -1
    np.testing.assert_array_equal(initializer.choose(200, 10), kept)


def test_vectors_of_more_anchors_than_rows():
    with pytest.raises(ValueError, match="num_anchors=7, input_dim=6"):
        anchors.KMeansPlusPlus(normal_table(6)).vectors(7, 5)


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


def test_coreset_takes_all_when_asked():
    ids = anchors.Coreset(normal_table(6)).choose(6, 6)
    np.testing.assert_array_equal(np.sort(ids), np.arange(6))


@pytest.mark.parametrize(
    "kind", [anchors.KMeansPlusPlus, anchors.Coreset, TableInitializer]
)
def test_tables_are_checked(kind):
    with pytest.raises(ValueError, match="`table` must have two axes"):
        kind(np.zeros(3))
    with pytest.raises(ValueError, match="`table` must be finite"):
        kind(np.full((3, 2), np.nan))
    # Squares of distances were infinite, or all zero.
    for factor in (1e20, 1e-30):
        with pytest.raises(ValueError, match="`table` must have numbers whose"):
            anchors.KMeansPlusPlus(factor * normal_table())


def test_arguments_are_checked():
    table = normal_table(6)
    with pytest.raises(ValueError, match="`sample_weight` must hold"):
        anchors.KMeansPlusPlus(table, sample_weight=[1])
    with pytest.raises(ValueError, match="`num_candidates` must be"):
        anchors.KMeansPlusPlus(table, num_candidates=0)
    with pytest.raises(ValueError, match="5 counts, 6 rows"):
        anchors.FrequencyThenKMeansPlusPlus(np.ones(5), table)
    with pytest.raises(ValueError, match="`num_frequent` must be"):
        anchors.FrequencyThenKMeansPlusPlus(np.ones(6), table, num_frequent=-1)
    with pytest.raises(ValueError, match="num_frequent=4, num_anchors=3"):
        anchors.FrequencyThenKMeansPlusPlus(np.ones(6), table, 4).choose(6, 3)
    with pytest.raises(NotImplementedError):
        TableInitializer(table).choose(6, 3)
