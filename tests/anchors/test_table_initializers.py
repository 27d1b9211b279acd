"""Anchors chosen in a space of objects."""

import numpy as np
import pytest
from errors import refused

from keras_compembed import anchors
from keras_compembed.anchors.data_initializers import k_means_seeds


def normal_table(rows=200, columns=5):
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, columns)).astype("float32")


def naive_k_means_seeds(table, number, rng, first=()):
    """The whole table at once, as k-means++ is written down."""
    table = np.asarray(table, "float64")
    ids = list(first)
    while len(ids) < number:
        chances = np.ones(len(table))
        if ids:
            pairs = [np.square(table - table[i]).sum(axis=1) for i in ids]
            chances = np.min(pairs, axis=0)
        below = np.cumsum(chances) / chances.sum()
        ids.append(int(np.argmax(rng.random() < below)))
    return ids


@pytest.mark.parametrize(
    # The last table is read in two parts.
    "rows, number, first",
    [(200, 20, (3, 90)), (27_000, 6, ())],
)
def test_seeds_equal_the_naive_ones(rows, number, first):
    table = normal_table(rows)
    found, expected = (
        seeds(table, number, np.random.default_rng(2), first=first)
        for seeds in (k_means_seeds, naive_k_means_seeds)
    )
    np.testing.assert_array_equal(found, expected)


def test_duplicates_are_taken_last():
    table = np.repeat(normal_table(3), 4, axis=0)
    ids = k_means_seeds(table, 12, np.random.default_rng(0))
    assert len(set(ids[:3] // 4)) == 3
    np.testing.assert_array_equal(np.sort(ids), np.arange(12))


def test_frequent_ones_first():
    counts = np.random.default_rng(3).permutation(200)
    initializer = anchors.KMeansPlusPlus(normal_table(), counts, seed=5)
    ids = initializer.choose(200, 11)
    np.testing.assert_array_equal(counts[ids[:5]], [199, 198, 197, 196, 195])
    expected = naive_k_means_seeds(
        normal_table(), 11, np.random.default_rng(5), ids[:5]
    )
    np.testing.assert_array_equal(ids, expected)


def test_tables_are_checked():
    kind = anchors.KMeansPlusPlus
    # Squares of distances were infinite, or all zero.
    for table, received in (
        (np.full((3, 2), np.nan), "row 0"),
        (1e20 * normal_table(), "e+20"),
        (1e-30 * normal_table(), "e-30"),
    ):
        with refused("table", received):
            kind(table)
    with pytest.raises(ValueError, match="6 objects.*entries=5"):
        anchors.KMeansPlusPlus(normal_table(6), np.ones(5))
