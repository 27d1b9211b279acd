"""Candidates of a `BeamTree`: its frontier, its width, and a tree built anew.

The search itself is in `trees/test_beam_search.py`.
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
from keras_compembed.candidates import BeamTree
from keras_compembed.candidates import beam_recall
from keras_compembed.candidates import calibrate_beam
from keras_compembed.trees import ClassTree


def test_frontier():
    """Inner nodes of one depth, and all classes above them."""
    tree = TREES["taxonomy"]()
    head = make_head(tree, max_frontier=9)
    entries, vectors, biases = head.selector.frontier(head.scores)
    entries = entries.numpy()
    assert (np.diff(entries) > 0).all()
    number = int(np.sum(entries < tree.num_nodes))
    assert 0 < number < len(entries)
    ends = np.cumsum(tree.level_sizes)
    depth = 1 + int(np.searchsorted(ends, entries[0], side="right"))
    classes = entries[number:] - tree.num_nodes
    scores = head.scores
    for got, of_nodes, of_classes in (
        (vectors, scores.node_vectors(depth), scores.class_vectors(classes)),
        (biases, scores.node_biases(depth), scores.class_biases(classes)),
    ):
        right = np.concatenate([of_nodes, of_classes])
        np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("name", ["taxonomy", "one level"])
def test_files(name, tmp_path):
    tree = TREES[name]()
    head = make_head(tree, 3, max_frontier=5)
    model = keras.Sequential([keras.Input((WIDTH,)), head])
    features = make_features(32)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras").layers[-1]
    restored = again.selector.tree.class_tree
    np.testing.assert_array_equal(restored.children, tree.children)
    for a, b in zip(head.weights, again.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(head.top_k(features), again.top_k(features), strict=True):
        np.testing.assert_array_equal(a, b)


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
    head = make_head(tree, max_frontier=max_frontier)
    vectors, biases = vectors_of(head)
    head.selector.refresh(head.scores)
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
        means = head.scores.node_vectors(depth).numpy()
        right = [vectors[own].mean(axis=0) for own in under]
        np.testing.assert_allclose(means, right, atol=1e-5)
        sums = [np.log(np.exp(biases[own]).sum()) for own in under]
        np.testing.assert_allclose(
            head.scores.node_biases(depth), sums, atol=1e-5
        )
    # Searched whole, the tree gives the best of all classes.
    features = make_features()
    head.selector.beam_width = tree.num_classes
    ids, _ = head.top_k(features, 3)
    scores = features @ vectors.T + biases
    np.testing.assert_array_equal(ids, np.argsort(-scores, axis=1)[:, :3])


def make_task():
    """Classes in groups that a random tree does not know."""
    rng = np.random.default_rng(0)
    groups = rng.normal(size=(12, 12)).repeat(20, axis=0)
    means = 2 * groups + 0.4 * rng.normal(size=(240, 12))
    y = rng.integers(240, size=2000)
    x = means[y] + 0.2 * rng.normal(size=(2000, 12))
    return x.astype("float32"), y


def fit(refresh_every, epochs):
    x, y = make_task()
    tree = ClassTree.random(240, branching=8, seed=0)
    selector = BeamTree(tree, 4, max_frontier=1, refresh_every=refresh_every)
    head = kc.CANESoftmax(240, selector, 10, 30, share_noises=True, seed=0)
    model = keras.Sequential([keras.Input((12,)), head])
    optimizer = kc.optimizers.SparseRowOptimizer(keras.optimizers.Adam(0.03))
    keras.utils.set_random_seed(0)
    model.compile(optimizer, kc.CANELoss(), metrics=[kc.Coverage()])
    model.fit(x, y, batch_size=200, epochs=epochs, verbose=0)
    return model


def test_a_random_tree_comes_to_cover_labels():
    coverages = [
        fit(refresh_every, 5).evaluate(*make_task(), verbose=0)[1]
        for refresh_every in (None, 10)
    ]
    assert coverages[1] > coverages[0] + 0.1


def test_it_is_due_after_steps_of_training(tmp_path):
    model = fit(10, epochs=1)
    selector = model.layers[-1].selector
    first = selector.tree.class_tree.children
    # The step after the 10th builds it; there were 10.
    np.testing.assert_array_equal(selector.tree.children, first)
    x, y = make_task()
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for each in (model, again):
        each.run_eagerly = True
        each.fit(x[:200], y[:200], batch_size=200, verbose=0)
        children = each.layers[-1].selector.tree.children
        new = children.numpy()
        assert (new != first).any()
        # Neither the next steps build it, nor does evaluation.
        each.fit(x[:200], y[:200], batch_size=50, verbose=0)
        each.evaluate(x[:200], y[:200], verbose=0)
        np.testing.assert_array_equal(children, new)
    for one, other in zip(model.weights, again.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["taxonomy", "groups", "chain"])
def test_trees_of_other_shapes_are_not_built_anew(name):
    with pytest.raises(ValueError, match="from_vectors"):
        BeamTree(TREES[name](), refresh_every=10)
    head = make_head(name)
    with pytest.raises(ValueError, match="from_vectors"):
        head.selector.refresh(head.scores)


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
    with refused("kernel", "class_embedding"):
        head.selector.refresh(head.scores)


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
    assert beam_recall(head, features, k=k) == recalls[widths[-1]]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(widths)
    assert lines[0] == f"beam width 1: recall {recalls[1]:.4f}"


def test_predictions_use_the_width(capsys):
    tree, features = TREES["uneven"](), make_features(40)
    inputs = keras.Input((WIDTH,))
    head = make_head(tree)
    model = keras.Model(inputs, head(inputs))
    calibrate_beam(head, features, target_recall=1.0, k=3, verbose=0)
    assert capsys.readouterr().out == ""
    ids = kc.top_k_model(model, 3).predict(features, verbose=0)["ids"]
    exact = np.argsort(-all_scores(head, tree, features), axis=1)[:, :3]
    np.testing.assert_array_equal(np.sort(ids), np.sort(exact))


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
    frequent = kc.candidates.FrequentClasses(np.arange(1, 51))
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
            if argument in ("features", "head"):
                with refused(argument):
                    beam_recall(**kwargs)
    with refused("head"):
        calibrate_beam(kc.CANESoftmax(50, frequent), features)
