"""Candidates of a `BeamTree`: search, frontier, width, a tree built anew."""

import keras
import numpy as np
import pytest
from beam_heads import TREES
from beam_heads import WIDTH
from beam_heads import all_scores
from beam_heads import best
from beam_heads import make_features
from beam_heads import make_head
from beam_heads import search
from class_models import cane
from errors import refused

import keras_compembed as kc
from keras_compembed.classes import BeamTree
from keras_compembed.classes import ClassTree
from keras_compembed.classes import calibrate_beam
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


@pytest.mark.parametrize("name", ["taxonomy", "one level"])
def test_nan_features(name):
    head, features = make_head(name, 2), make_features()
    right = head.selector.top_k(head.scores, features, 3)
    features[[1, 4], 2] = np.nan
    found = head.selector.top_k(head.scores, features, 3)
    others = [0, 2, 3, 5]
    for got, before in zip(found, right, strict=True):
        np.testing.assert_array_equal(
            got.numpy()[others], before.numpy()[others]
        )
    assert (found[0].numpy()[[1, 4]] == -1).all()
    assert (found[1].numpy()[[1, 4]] == -np.inf).all()
    candidates = head.selector.select(head.scores, features).numpy()
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


def vectors_of(head):
    classes = np.arange(head.num_classes)
    return (
        head.scores.class_vectors(classes).numpy(),
        head.scores.class_biases(classes).numpy(),
    )


@pytest.mark.parametrize("max_frontier", [1, 20])
@pytest.mark.parametrize("name", ["uneven", "one level"])
def test_a_refresh_changes_only_how_vectors_are_made_up(name, max_frontier):
    tree = TREES[name]()
    head = make_head(tree, max_frontier=max_frontier, refresh_every=1)
    vectors, biases = vectors_of(head)
    head.selector._refresh(head.scores)
    new = ClassTree.from_vectors(vectors, tree.branching, seed=0, verbose=0)
    arrays = head.selector.tree
    for part in ("children", "class_parents", "node_parents"):
        np.testing.assert_array_equal(getattr(arrays, part), getattr(new, part))
    # Sums of some 6 numbers of size 4, twice.
    for now, before in zip(vectors_of(head), (vectors, biases), strict=True):
        np.testing.assert_allclose(now, before, atol=1e-5)
    if new.num_nodes:
        # Nodes are means, and log sums of biases.
        under = [(new.paths() == node).any(axis=1) for node in (0, 1)]
        means, sums = head.scores.of_nodes(1)
        right = [vectors[own].mean(axis=0) for own in under]
        np.testing.assert_allclose(means[:2], right, atol=1e-5)
        right = [np.log(np.exp(biases[own]).sum()) for own in under]
        np.testing.assert_allclose(sums[:2], right, atol=1e-5)
    # Searched whole, the tree gives the best of all classes.
    features = make_features()
    head.selector.beam_width = tree.num_classes
    ids, _ = head.top_k(features, 3)
    scores = features @ vectors.T + biases
    np.testing.assert_array_equal(ids, np.argsort(-scores, axis=1)[:, :3])


def test_it_is_due_after_steps_of_training(tmp_path):
    """As `refresh_every` says, in files, too, and in no evaluation."""
    selector = BeamTree(TREES["even"](), 4, 1, refresh_every=3)
    numbers = {"num_candidates": 10, "num_noises": 20, "shared": True}
    head = cane(64, selector=selector, **numbers)
    model = keras.Sequential([keras.Input((WIDTH,)), head])
    metrics = [kc.Coverage()]
    model.compile("adam", kc.CANELoss(), metrics=metrics, run_eagerly=True)
    x, y = make_features(32), np.arange(32)
    model.fit(x[:24], y[:24], batch_size=8, verbose=0)
    first = TREES["even"]().children
    # The step after the third builds it; there were 3.
    np.testing.assert_array_equal(selector.tree.children, first)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for each in (model, again):
        each.run_eagerly = True
        each.fit(x[:8], y[:8], verbose=0)
        children = each.layers[-1].selector.tree.children
        new = children.numpy()
        assert (new != first).any()
        # Neither the next step builds it, nor does evaluation.
        each.fit(x[:8], y[:8], verbose=0)
        each.evaluate(x, y, batch_size=8, verbose=0)
        np.testing.assert_array_equal(children, new)


def test_trees_that_are_not_built_anew():
    """Of other shapes, and over tables that others use."""
    for name in ("taxonomy", "groups", "chain"):
        with pytest.raises(ValueError, match="from_vectors"):
            BeamTree(TREES[name](), refresh_every=10)
    for table in (
        kc.ANTEmbedding(64, 5, num_anchors=4),
        keras.layers.Embedding(64, 5),
    ):
        selector = BeamTree(TREES["even"](), refresh_every=5)
        head = cane(64, 5, selector=selector, class_embedding=table)
        with refused("class_embedding"):
            head.selector._refresh(head.scores)


@pytest.mark.parametrize("name", ["huffman", "taxonomy", "one level"])
def test_parts_add_up_to_what_is_known_at_the_start(name):
    """Means of classes, and logarithms of how often what is under comes."""
    tree = TREES[name]()
    rng = np.random.default_rng(0)
    means = 3 + rng.normal(size=(tree.num_classes, WIDTH)).astype("float32")
    tree._set_means(means, rng.random(tree.num_classes))
    counts = 10 ** rng.uniform(0, 6, tree.num_classes)
    numbers = {"num_candidates": 1, "num_noises": 1, "class_counts": counts}
    head = cane(tree.num_classes, selector=BeamTree(tree), **numbers)
    head.build((None, WIDTH))
    vectors, biases = vectors_of(head)
    # The mean of all, which all classes share, changes no probability.
    np.testing.assert_allclose(vectors, means - tree.root_mean, atol=1e-5)
    shares = counts / counts.sum()
    np.testing.assert_allclose(biases, np.log(shares), atol=1e-5)
    ends = np.cumsum(tree.level_sizes, dtype=int)
    for depth, end in enumerate(ends, 1):
        nodes = np.arange(end - tree.level_sizes[depth - 1], end)
        found = head.scores.of_nodes(depth)
        right = tree.node_means[nodes] - tree.root_mean
        np.testing.assert_allclose(found[0], right, atol=1e-5)
        right = [shares[(tree.paths() == n).any(axis=1)].sum() for n in nodes]
        np.testing.assert_allclose(found[1], np.log(right), atol=1e-5)


def recall(tree, head, features, beam_width, k):
    found, _ = best(search(head, tree, features, max(beam_width, k)), k)
    exact = np.argsort(-all_scores(head, tree, features), axis=1)[:, :k]
    return (found[:, :, None] == exact[:, None, :]).any(axis=1).mean()


@pytest.mark.parametrize("k", [1, 5])
def test_calibration_finds_the_least_width(k, capsys):
    tree, features = TREES["uneven"](), make_features(100)
    head = make_head(tree)
    recalls = calibrate_beam(head, features, 0.9, k)
    widths = list(recalls)
    assert widths == [2**i for i in range(len(widths))]
    assert head.selector.beam_width == widths[-1]
    assert recalls[widths[-1]] >= 0.9
    assert all(recalls[width] < 0.9 for width in widths[:-1])
    for width in widths:
        right = recall(tree, head, features, width, k)
        assert recalls[width] == pytest.approx(right, abs=1e-9)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(widths)
    assert lines[0] == f"beam width 1: recall {recalls[1]:.4f}"
