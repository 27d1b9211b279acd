import numpy as np
import pytest
import tensorflow as tf
from beam_heads import TREES
from beam_heads import all_scores
from beam_heads import best
from beam_heads import make_features
from beam_heads import make_head
from beam_heads import search

from keras_compembed.classes import ClassTree
from keras_compembed.classes.tree_arrays import TreeArrays
from keras_compembed.classes.tree_arrays import find_frontier

# Sums of some tens of products of numbers around one, in float32.
ROUNDING = dict(rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("max_frontier", [1, 8, 1000])
@pytest.mark.parametrize("name", TREES)
def test_as_by_brute_force(name, max_frontier):
    """Candidates, and predictions, of beams that are narrow and wide."""
    tree, features = TREES[name](), make_features()
    head = make_head(tree, max_frontier=max_frontier)
    _, depth = find_frontier(tree, max_frontier)
    for beam_width in (1, 2, 5):
        head.selector.beam_width = beam_width
        k = min(beam_width, 4)
        ids, scores, total = head.selector.top_k(head.scores, features, k)
        met = search(head, tree, features, beam_width, depth)
        right_ids, right_scores = best(met, k)
        np.testing.assert_array_equal(ids, right_ids)
        np.testing.assert_allclose(scores, right_scores, **ROUNDING)
        right_total = [
            np.log(np.sum(np.exp(list(found.values())))) for found in met
        ]
        np.testing.assert_allclose(total, right_total, **ROUNDING)
        candidates = head.selector.select(head.scores, features)
        np.testing.assert_array_equal(candidates, best(met, 3)[0])
    # As wide as the tree, a beam finds all.
    k = head.selector.beam_width = tree.num_classes
    ids, scores, total = head.selector.top_k(head.scores, features, k)
    right = all_scores(head, tree, features)
    np.testing.assert_array_equal(ids, np.argsort(-right, axis=1))
    np.testing.assert_allclose(scores, -np.sort(-right, axis=1), **ROUNDING)
    right_total = np.log(np.exp(right).sum(axis=1))
    np.testing.assert_allclose(total, right_total, **ROUNDING)
    _, probabilities = head.top_k(features, k)
    np.testing.assert_allclose(probabilities.numpy().sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    "beam_width, num_candidates, k, of_candidates, of_top_k",
    [
        (None, 6, 2, 6, 6),
        (None, 3, 8, 3, 8),
        (2, 6, 1, 2, 2),
        (2, 6, 5, 2, 5),
        (20, 3, 5, 20, 20),
    ],
)
def test_beam_width(beam_width, num_candidates, k, of_candidates, of_top_k):
    """Of its own, or of as many as are asked for."""
    tree, features = TREES["even"](), make_features(20)
    head = make_head(tree, beam_width, num_candidates=num_candidates)
    candidates = head.selector.select(head.scores, features)
    assert candidates.shape == (20, num_candidates)
    assert candidates.dtype == "int32"
    met = search(head, tree, features, of_candidates)
    np.testing.assert_array_equal(candidates, best(met, num_candidates)[0])
    ids, probabilities = head.top_k(features, k)
    met = search(head, tree, features, of_top_k)
    right, scores = best(met, k)
    np.testing.assert_array_equal(ids, right)
    totals = [np.sum(np.exp(list(found.values()))) for found in met]
    right = np.exp(scores) / np.array(totals)[:, None]
    np.testing.assert_allclose(probabilities, right, rtol=1e-4)


def test_fewer_found_than_wanted():
    """A beam of one, under whose nodes there are fewer classes than asked."""
    tree = ClassTree.from_groups([0, 0, 1, 1, 1, 2])
    for subset, right in ((0, [-1, 0, 1]), (2, [-1, -1, 5])):
        head = make_head(tree, beam_width=1, num_candidates=3)
        # Only one subset is worth looking at.
        head.node_bias.assign(1000.0 * (np.arange(3) == subset))
        candidates = head.selector.select(head.scores, make_features())
        assert (np.sort(candidates, axis=1) == right).all()


@pytest.mark.parametrize("max_frontier", [1, 1000])
@pytest.mark.parametrize("name", ["even", "taxonomy", "one level"])
def test_nan_features(name, max_frontier):
    tree, features = TREES[name](), make_features()
    head = make_head(tree, 2, max_frontier)
    right = head.selector.top_k(head.scores, features, 3)
    spoilt = features.copy()
    spoilt[[1, 4], 2] = np.nan
    ids, scores, total = head.selector.top_k(head.scores, spoilt, 3)
    others = [0, 2, 3, 5]
    for got, before in zip((ids, scores, total), right, strict=True):
        np.testing.assert_array_equal(
            got.numpy()[others], before.numpy()[others]
        )
    assert (ids.numpy()[[1, 4]] == -1).all()
    assert (scores.numpy()[[1, 4]] == -np.inf).all()
    candidates = head.selector.select(head.scores, spoilt).numpy()
    assert (candidates[[1, 4]] == -1).all()
    assert (candidates[others] >= 0).any(axis=1).all()


@pytest.mark.parametrize("where", ["nodes", "node_bias", "kernel", "bias"])
@pytest.mark.parametrize("max_frontier", [1, 8, 1000])
def test_nan_weights(where, max_frontier):
    """Classes without a score are never named; others are, best first."""
    tree, features = TREES["taxonomy"](), make_features()
    head = make_head(tree, tree.num_classes, max_frontier)
    weight = getattr(head, where)
    values = weight.numpy()
    values[1] = np.nan
    weight.assign(values)
    if where in ("kernel", "bias"):
        spoilt = [1]
    else:
        spoilt = list(np.flatnonzero((tree.paths() == 1).any(axis=1)))
    k = tree.num_classes
    candidates = head.selector.select(head.scores, features).numpy()
    assert not np.isin(candidates, spoilt).any()
    ids, _, total = head.selector.top_k(head.scores, features, k)
    right = all_scores(head, tree, features)
    right[:, spoilt] = -np.inf
    left = k - len(spoilt)
    np.testing.assert_array_equal(
        ids.numpy()[:, :left], np.argsort(-right, axis=1)[:, :left]
    )
    assert (ids.numpy()[:, left:] == -1).all()
    assert np.isfinite(total).all()


@pytest.mark.parametrize(
    "name, max_frontier, jit_compile",
    [
        ("taxonomy", 4, False),
        pytest.param("taxonomy", 4, True, marks=pytest.mark.apart),
        ("one level", 1, False),
    ],
)
def test_graphs(name, max_frontier, jit_compile):
    head = make_head(name, 3, max_frontier)

    def run(features):
        found = head.selector.top_k(head.scores, features, 3)
        return head.selector.select(head.scores, features), *found

    features = make_features()
    features[2, 0] = np.nan
    eager = run(tf.constant(features))
    open_rows = tf.TensorSpec((None, features.shape[1]))
    function = tf.function(
        run, input_signature=[open_rows], jit_compile=jit_compile
    )
    for got, expected in zip(function(features), eager, strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, **ROUNDING)


@pytest.mark.parametrize("name", TREES)
def test_frontier(name):
    """As deep as possible within the size, and every class under it once."""
    tree = TREES[name]()
    depths = tree.depths()
    sizes = [
        sum(tree.level_sizes[depth - 1 : depth]) + np.sum(depths <= depth)
        for depth in range(1, tree.depth + 1)
    ]
    for max_size in (1, *sizes, *np.add(sizes, 1), *np.subtract(sizes, 1)):
        frontier, depth = find_frontier(tree, max_size)
        # Whatever the size, the search begins below the root.
        deepest = max([1, *np.flatnonzero(np.less_equal(sizes, max_size)) + 1])
        assert len(frontier) == sizes[deepest - 1]
        assert depth == deepest
        classes = frontier[frontier >= tree.num_nodes] - tree.num_nodes
        nodes = frontier[frontier < tree.num_nodes]
        assert set(classes) == set(np.flatnonzero(depths <= deepest))
        if len(nodes):
            column = tree.paths()[depths > deepest][:, deepest - 1]
            assert set(column) == set(nodes)


@pytest.mark.parametrize("name", TREES)
def test_entries_under_entries(name):
    arrays = TreeArrays(TREES[name]())
    arrays.build()
    tree = arrays.class_tree
    # None is under classes, nor under -1.
    right = np.full((1 + tree.num_nodes + tree.num_classes, tree.branching), -1)
    right[1 : 1 + tree.num_nodes] = tree.children[1:]
    entries = np.arange(-1, tree.num_nodes + tree.num_classes)
    np.testing.assert_array_equal(arrays.under(entries), right)
