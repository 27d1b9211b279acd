import types

import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.classes import FrequencySubsets
from keras_compembed.classes.count_selectors import split_evenly

COUNTS = 10_000 // np.arange(1, 101)


def make(counts=COUNTS, num_subsets=4, num_candidates=5, seed=0):
    selector = FrequencySubsets(counts, num_subsets, seed)
    selector.attach(len(counts), num_candidates)
    selector.build()
    return selector


def routing(num_subsets):
    """`ClassScores` whose subsets' scores are the features themselves."""
    return types.SimpleNamespace(
        _of_nodes=lambda depth: (tf.eye(num_subsets), tf.zeros(num_subsets))
    )


def choose(selector, subsets):
    features = tf.one_hot(subsets, selector.num_subsets)
    return selector.select(routing(selector.num_subsets), features).numpy()


def members(selector):
    """The classes of each subset, by the tree."""
    parents = selector.tree.class_parents.numpy()
    return [
        np.flatnonzero(parents == number)
        for number in range(selector.num_subsets)
    ]


@pytest.mark.parametrize("num_candidates", [1, 2, 3, 5, 8, 40])
def test_candidates_differ_and_are_of_the_subset(num_candidates):
    selector = make(num_candidates=num_candidates)
    subsets = np.repeat(np.arange(4), 300)
    candidates = choose(selector, subsets)
    assert candidates.shape == (1200, num_candidates)
    assert candidates.dtype == "int32"
    groups = members(selector)
    for subset, row in zip(subsets, candidates, strict=True):
        row = row[row >= 0]
        assert len(row) == min(num_candidates, len(groups[subset]))
        assert len(set(row)) == len(row)
        assert set(row) <= set(groups[subset])


@pytest.mark.parametrize("size, num_candidates", [(3, 2), (7, 5), (21, 2)])
def test_candidates_are_drawn_evenly(size, num_candidates):
    """Also where places do not divide into parts of one length."""
    counts = np.concatenate([[size], np.ones(size)])
    selector = make(counts, 2, num_candidates)
    groups = members(selector)
    assert [len(group) for group in groups] == [1, size]
    rows = 20_000
    candidates = choose(selector, np.ones(rows, int))
    drawn = np.bincount(candidates.ravel(), minlength=size + 1)[groups[1]]
    share = num_candidates / size
    deviation = np.sqrt(rows * share * (1 - share))
    assert np.abs(drawn - rows * share).max() < 5 * deviation
    # A candidate is not always in the same place of its row.
    assert len(np.unique(candidates[:, 0])) == size


def test_rows_and_steps_differ():
    selector = make(num_candidates=8)
    first = choose(selector, np.full(20, 3))
    assert len(np.unique(first, axis=0)) > 15
    selector.after_step(None, None, None)
    assert not np.array_equal(first, choose(selector, np.full(20, 3)))
    again = choose(make(num_candidates=8), np.full(20, 3))
    np.testing.assert_array_equal(first, again)


def test_routes_to_the_highest_score():
    """By vectors and biases of the subsets."""
    selector = FrequencySubsets(COUNTS, 3, seed=0)
    head = kc.CANESoftmax(100, selector, num_candidates=4, num_noises=4)
    head.build((None, 3))
    head.nodes.assign(np.eye(3))
    features = tf.constant([[2.0, 1, 0], [0, 2.0, 1], [0, 1, 2.0]])
    parents = selector.tree.class_parents.numpy()
    ids = selector.select(head.scores, features).numpy()
    assert [set(parents[row[row >= 0]]) for row in ids] == [{0}, {1}, {2}]
    head.node_bias.assign([0, 3, 0])
    ids = selector.select(head.scores, features).numpy()
    assert set(parents[ids.ravel()]) == {1}


@pytest.mark.parametrize("num_groups", [2, 3, 6])
def test_split_is_even(num_groups):
    counts = np.random.default_rng(0).permutation(COUNTS)
    groups = split_evenly(counts, num_groups)
    mass = np.bincount(groups, counts)
    # Where one class more or less is what an even split allows.
    assert len(mass) == num_groups
    largest = counts.max()
    assert np.abs(mass - counts.sum() / num_groups).max() <= largest
    # The most frequent classes come first.
    assert (np.diff(groups[np.argsort(-counts, kind="stable")]) >= 0).all()


@pytest.mark.parametrize("num_groups", [2, 3])
def test_no_subset_is_empty(num_groups):
    for counts in (
        [1, 1, 1],
        np.zeros(7),
        [0, 0, 5, 0, 0],
        [1e300, 1, 1, 1],
        [1e-300] * 4,
        [1, 1, 1, 1e12],
        2.0 ** -np.arange(60),
        np.arange(1000) == 0,
    ):
        groups = split_evenly(np.asarray(counts, "float64"), num_groups)
        assert set(groups) == set(range(num_groups))
        assert len(groups) == len(counts)


@pytest.mark.parametrize(
    "jit_compile", [False, pytest.param(True, marks=pytest.mark.apart)]
)
def test_graphs(jit_compile):
    eager, selector = make(), make()
    features = tf.one_hot([0, 1, 2, 3, 3], 4)
    run = tf.function(
        lambda features: selector.select(routing(4), features),
        jit_compile=jit_compile,
    )
    for _ in range(2):
        right = eager.select(routing(4), features)
        np.testing.assert_array_equal(run(features), right)
        for each in (eager, selector):
            each.after_step(None, None, None)
