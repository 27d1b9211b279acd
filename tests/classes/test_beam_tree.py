"""Candidates of a `BeamTree`: its frontier, its width, and a tree built anew.

The search itself is in `test_beam_search.py`.
"""

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
from errors import refused

import keras_compembed as kc
from keras_compembed.classes import BeamTree
from keras_compembed.classes import ClassTree
from keras_compembed.classes import calibrate_beam


def vectors_of(head):
    classes = np.arange(head.num_classes)
    return (
        head.scores.class_vectors(classes).numpy(),
        head.scores.class_biases(classes).numpy(),
    )


@pytest.mark.parametrize("max_frontier", [1, 20])
@pytest.mark.parametrize("name", ["even", "uneven", "one level", "binary"])
def test_a_refresh_changes_only_how_vectors_are_made_up(name, max_frontier):
    tree = (
        ClassTree.random(45, branching=2, seed=3)
        if name == "binary"
        else TREES[name]()
    )
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
    # Nodes are means, and log sums of biases.
    ends = np.cumsum(new.level_sizes, dtype=int)
    for depth, end in enumerate(ends, 1):
        nodes = np.arange(end - new.level_sizes[depth - 1], end)
        under = [(new.paths() == node).any(axis=1) for node in nodes]
        # Of the vectors less the mean of all, which changes no search.
        means, sums = head.scores._of_nodes(depth)
        right = [vectors[own].mean(axis=0) for own in under]
        np.testing.assert_allclose(means, right, atol=1e-5)
        right = [np.log(np.exp(biases[own]).sum()) for own in under]
        np.testing.assert_allclose(sums, right, atol=1e-5)
    # Searched whole, the tree gives the best of all classes.
    features = make_features()
    head.selector.beam_width = tree.num_classes
    ids, _ = head.top_k(features, 3)
    scores = features @ vectors.T + biases
    np.testing.assert_array_equal(ids, np.argsort(-scores, axis=1)[:, :3])


def test_it_is_due_after_steps_of_training(tmp_path):
    """As `refresh_every` says, in files, too, and in no evaluation."""
    selector = BeamTree(TREES["even"](), 4, 1, refresh_every=3)
    head = kc.CANESoftmax(64, selector, 10, 20, share_noises=True, seed=0)
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


@pytest.mark.parametrize("name", ["taxonomy", "groups", "chain"])
def test_trees_of_other_shapes_are_not_built_anew(name):
    with pytest.raises(ValueError, match="from_vectors"):
        BeamTree(TREES[name](), refresh_every=10)


@pytest.mark.parametrize(
    "table",
    [
        lambda: kc.ANTEmbedding(64, 5, num_anchors=4),
        lambda: keras.layers.Embedding(64, 5),
    ],
)
def test_tables_that_others_use_are_not_built_anew(table):
    selector = BeamTree(TREES["even"](), refresh_every=5)
    head = kc.CANESoftmax(64, selector, class_embedding=table())
    head.build((None, 5))
    with refused("class_embedding"):
        head.selector._refresh(head.scores)


@pytest.mark.parametrize("name", TREES)
def test_parts_add_up_to_what_is_known_at_the_start(name):
    """Means of classes, and logarithms of how often what is under comes."""
    tree = TREES[name]()
    rng = np.random.default_rng(0)
    means = 3 + rng.normal(size=(tree.num_classes, WIDTH)).astype("float32")
    tree._set_means(means, rng.random(tree.num_classes))
    counts = 10 ** rng.uniform(0, 6, tree.num_classes)
    head = make_fresh(tree, counts)
    vectors, biases = vectors_of(head)
    # The mean of all, which all classes share, changes no probability.
    np.testing.assert_allclose(vectors, means - tree.root_mean, atol=1e-5)
    shares = counts / counts.sum()
    np.testing.assert_allclose(biases, np.log(shares), atol=1e-5)
    ends = np.cumsum(tree.level_sizes, dtype=int)
    for depth, end in enumerate(ends, 1):
        nodes = np.arange(end - tree.level_sizes[depth - 1], end)
        found = head.scores._of_nodes(depth)
        right = tree.node_means[nodes] - tree.root_mean
        np.testing.assert_allclose(found[0], right, atol=1e-5)
        right = [shares[(tree.paths() == n).any(axis=1)].sum() for n in nodes]
        np.testing.assert_allclose(found[1], np.log(right), atol=1e-5)
    # Counts that are far apart.
    head = make_fresh(tree, np.geomspace(1e-30, 1e30, tree.num_classes))
    assert all(np.isfinite(weight).all() for weight in head.trainable_weights)


def make_fresh(tree, counts):
    selector = BeamTree(tree)
    head = kc.CANESoftmax(tree.num_classes, selector, 1, 1, class_counts=counts)
    head.build((None, WIDTH))
    return head


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
    # Which predictions use.
    ids, _ = head.top_k(features, k)
    right, _ = best(search(head, tree, features, max(widths[-1], k)), k)
    np.testing.assert_array_equal(ids, right)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(widths)
    assert lines[0] == f"beam width 1: recall {recalls[1]:.4f}"


def test_calibration_of_special_layers():
    # A tree that is scored whole.
    head, features = make_head("one level"), make_features(12)
    assert calibrate_beam(head, features, 1.0, verbose=0) == {1: 1.0}
    # One that is not built, with leading axes.
    head = kc.CANESoftmax(50, BeamTree(ClassTree.random(50, seed=0)), 2, 2)
    recalls = calibrate_beam(head, features.reshape(3, 4, WIDTH), verbose=0)
    assert head.built and recalls == {1: 1.0}
    # No width finds a class without a score; none is missed either.
    head = make_head("uneven")
    head.kernel.assign(np.full(head.kernel.shape, np.nan))
    recalls = calibrate_beam(head, features, 1.0, verbose=0)
    assert max(recalls) < 2 * head.num_classes


def test_wrong_calibrations():
    head, features = make_head("even"), make_features()
    spoilt = [features * np.nan, features * np.inf]
    frequent = kc.classes.FrequentClasses(np.arange(1, 51))
    for argument, values in (
        ("target_recall", [0, -0.1, 1.01, 99, np.nan, "0.9"]),
        ("k", [0, 65, 1.0]),
        # Searches and exact scores find nothing alike for these.
        ("features", [features[:0], *spoilt]),
        ("head", [keras.layers.Dense(50)]),
    ):
        for value in values:
            kwargs = {"head": head, "features": features, argument: value}
            with refused(argument):
                calibrate_beam(**kwargs)
    with refused("head"):
        calibrate_beam(kc.CANESoftmax(50, frequent), features)
