"""A `BeamTree` that is built anew while its layer trains."""

import keras
import numpy as np
import pytest
from beam_heads import TREES
from beam_heads import make_features
from beam_heads import make_head

import keras_compembed as kc
from keras_compembed.candidates import BeamTree
from keras_compembed.trees import ClassTree


def vectors_of(head):
    classes = np.arange(head.num_classes)
    return (
        head.scores.class_vectors(classes).numpy(),
        head.scores.class_biases(classes).numpy(),
    )


@pytest.mark.parametrize("max_frontier", [1, 20])
@pytest.mark.parametrize("name", ["even", "uneven", "one level", "binary"])
def test_only_how_vectors_are_made_up_changes(name, max_frontier):
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
    # Searched whole, the tree gives the best of all classes.
    features = make_features()
    head.selector.beam_width = tree.num_classes
    ids, _ = head.top_k(features, 3)
    scores = features @ vectors.T + biases
    np.testing.assert_array_equal(ids, np.argsort(-scores, axis=1)[:, :3])


def test_nodes_are_means_and_log_sums():
    head = make_head("even")
    head.selector.refresh(head.scores)
    vectors, biases = vectors_of(head)
    parents = head.selector.tree.class_parents.numpy()
    level = len(head.selector.tree.level_sizes)
    first = sum(head.selector.tree.level_sizes[: level - 1])
    nodes = head.scores.node_vectors(level).numpy()
    sums = head.scores.node_biases(level).numpy()
    for node in range(len(nodes)):
        under = parents == first + node
        np.testing.assert_allclose(
            nodes[node], vectors[under].mean(axis=0), atol=1e-5
        )
        assert sums[node] == pytest.approx(
            np.log(np.exp(biases[under]).sum()), abs=1e-5
        )


def make_task():
    """Classes in groups that a random tree does not know."""
    rng = np.random.default_rng(0)
    groups = rng.normal(size=(25, 12)).repeat(20, axis=0)
    means = 2 * groups + 0.4 * rng.normal(size=(500, 12))
    y = rng.integers(500, size=4000)
    x = means[y] + 0.2 * rng.normal(size=(4000, 12))
    return x.astype("float32"), y


def fit(refresh_every, epochs=6):
    x, y = make_task()
    tree = ClassTree.random(500, branching=8, seed=0)
    selector = BeamTree(tree, 4, max_frontier=1, refresh_every=refresh_every)
    head = kc.CANESoftmax(500, selector, 10, 30, share_noises=True, seed=0)
    model = keras.Sequential([keras.Input((12,)), head])
    optimizer = kc.optimizers.SparseRowOptimizer(keras.optimizers.Adam(0.03))
    keras.utils.set_random_seed(0)
    model.compile(optimizer, kc.CANELoss(), metrics=[kc.Coverage()])
    model.fit(x, y, batch_size=200, epochs=epochs, verbose=0)
    return model, head


def test_a_random_tree_comes_to_cover_labels():
    coverages = []
    for refresh_every in (None, 20):
        model, head = fit(refresh_every)
        coverages.append(
            model.evaluate(*make_task(), verbose=0, return_dict=True)[
                "coverage"
            ]
        )
    assert coverages[1] > coverages[0] + 0.1


def test_it_is_due_after_steps_of_training(tmp_path):
    model, head = fit(20, epochs=1)
    first = head.selector.tree.class_tree.children
    # The step after the 20th builds it; there were 20.
    np.testing.assert_array_equal(head.selector.tree.children, first)
    assert int(head.selector.age.value) == 20
    x, y = make_task()
    path = tmp_path / "model.keras"
    model.save(path)
    again = keras.saving.load_model(path)
    for each in (model, again):
        each.fit(x[:200], y[:200], batch_size=200, verbose=0)
        selector = each.layers[-1].selector
        assert int(selector.age.value) == 1
        assert (selector.tree.children.numpy() != first).any()
        # Neither evaluation nor prediction builds it.
        each.evaluate(x[:200], y[:200], verbose=0)
        assert int(selector.age.value) == 1
    for one, other in zip(model.weights, again.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["taxonomy", "groups", "chain"])
def test_trees_of_other_shapes(name):
    message = "must have the shape of those of `ClassTree.from_vectors`"
    with pytest.raises(ValueError, match=message):
        BeamTree(TREES[name](), refresh_every=10)
    head = make_head(name)
    with pytest.raises(ValueError, match=message):
        head.selector.refresh(head.scores)


def test_wrong_arguments():
    tree = TREES["even"]()
    with pytest.raises(ValueError, match="`refresh_every` must be a positive"):
        BeamTree(tree, refresh_every=0)


@pytest.mark.parametrize(
    "table",
    [
        lambda: kc.ANTEmbedding(64, 5, num_anchors=4),
        lambda: keras.layers.Embedding(64, 5),
    ],
)
def test_tables_that_others_use(table):
    selector = BeamTree(TREES["even"](), refresh_every=5)
    head = kc.CANESoftmax(64, selector, class_embedding=table())
    head.build((None, 5))
    with pytest.raises(ValueError, match="with a `class_embedding`"):
        head.selector.refresh(head.scores)
