"""`ClassScores` of variables made by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from beam_heads import TREES

from keras_compembed.classes.class_scores import ClassScores
from keras_compembed.classes.tree_arrays import TreeArrays

WIDTH = 3
# How many classes are scored at a time, where the number of rows is unknown.
CHUNK = 4096


def variable(*shape, seed):
    values = np.random.default_rng(seed).normal(size=shape)
    return keras.Variable(values, dtype="float32")


class Embedding:
    """What `ClassScores` uses of a layer that looks vectors up."""

    def __init__(self, rows):
        self.rows = rows
        self.input_dim, self.output_dim = rows.shape

    def embed(self, ids):
        return tf.gather(self.rows.value, ids)


def make(tree=None, biases=True, embeds=False):
    """Scores over a tree of some name, or of 7 classes without one."""
    arrays = None
    num_classes, num_nodes = 7, 0
    if tree is not None:
        arrays = TreeArrays(TREES[tree]())
        arrays.build()
        num_classes, num_nodes = arrays.num_classes, arrays.num_nodes
    table = variable(num_classes, WIDTH, seed=0)
    if embeds:
        table = Embedding(table)
    return ClassScores(
        table,
        variable(num_classes, seed=1) if biases else None,
        arrays,
        variable(num_nodes, WIDTH, seed=2) if num_nodes else None,
        variable(num_nodes, seed=3) if num_nodes and biases else None,
    )


def sum_up(tree, values, node):
    """Of a node, what it and those above it hold."""
    total = np.zeros(values.shape[1:])
    while node >= 0:
        total = total + values[node]
        node = tree.node_parents[node]
    return total


def by_hand(made):
    """Vectors and biases of all classes, node after node up each path."""
    rows = getattr(made.table, "rows", made.table)
    vectors = rows.numpy().astype("float64")
    biases = np.zeros(len(vectors))
    if made.bias is not None:
        biases += made.bias.numpy()
    if made.nodes is not None:
        tree = made.tree.class_tree
        for place, node in enumerate(tree.class_parents):
            vectors[place] += sum_up(tree, made.nodes.numpy(), node)
            if made.bias is not None:
                biases[place] += sum_up(tree, made.node_bias.numpy(), node)
    return vectors, biases


def features_of(rows):
    values = np.random.default_rng(4).normal(size=(rows, WIDTH))
    return tf.constant(values, "float32")


EVERY = pytest.mark.parametrize(
    ("tree", "biases", "embeds"),
    [
        (None, True, False),
        (None, False, True),
        *[(tree, True, False) for tree in TREES],
        ("taxonomy", True, True),
        ("huffman", False, False),
    ],
)


@EVERY
def test_vectors_biases_and_all_scores(tree, biases, embeds):
    made = make(tree, biases, embeds)
    vectors, offsets = by_hand(made)
    assert (made.num_classes, made.width) == vectors.shape
    ids = tf.constant([5, 0, 5, 6])
    np.testing.assert_allclose(
        made.class_vectors(ids), vectors[ids.numpy()], atol=1e-5
    )
    np.testing.assert_allclose(
        made.class_biases(ids), offsets[ids.numpy()], atol=1e-5
    )
    x = features_of(4)
    right = x @ vectors.T + offsets
    np.testing.assert_allclose(made.score_all(x), right, atol=1e-5)
    check_exact(made.exact, made, features_of(5), [0, 6, 3, 1, 5])


@EVERY
@pytest.mark.parametrize("neighbors", [2, None])
def test_scores_of_lists_and_gradients(tree, biases, embeds, neighbors):
    """Own ones, those of the batch and of groups; some without a class."""
    made = make(tree, biases, embeds)
    x = features_of(5)
    own = tf.constant([[1, 3], [0, -1], [6, 6], [2, 4], [5, 1]])
    common = tf.constant([4, 0, 4])
    groups = tf.constant([[1, 2, 6], [0, 0, 5], [3, -1, 4]])
    # Of two rows, the last of one; or dealt in turn.
    rows = [0, 0, 1, 1, 2] if neighbors else [0, 1, 2, 0, 1]
    lists = own, common, groups
    rng = np.random.default_rng(5)
    offsets = [rng.normal(size=ids.shape).astype("float32") for ids in lists]

    def total(parts):
        weights = tf.range(1.0, 1 + sum(part.shape[1] for part in parts))
        return tf.reduce_sum(tf.concat(parts, axis=1) * weights)

    table = made.table.rows if embeds else made.table
    variables = [table, made.bias, made.nodes, made.node_bias]
    variables = [each.value for each in variables if each is not None]
    with tf.GradientTape(persistent=True) as tape:
        got = made.shared(x, [own], lists[1:], offsets, neighbors)
        got_total = total(got)
        every = made.score_all(x)
        right = [
            tf.gather(every, tf.maximum(ids, 0), batch_dims=1) + offset
            for ids, offset in (
                (own, offsets[0]),
                (tf.tile(common[None], (5, 1)), offsets[1]),
                (tf.gather(groups, rows), offsets[2][rows]),
            )
        ]
        right_total = total(right)
    for part, expected in zip(got, right, strict=True):
        np.testing.assert_allclose(part, expected, atol=1e-5)
    alone = made.own(x, own, offsets=offsets[:1])[0]
    np.testing.assert_allclose(alone, right[0], atol=1e-5)
    for part, expected in zip(
        tape.gradient(got_total, variables),
        tape.gradient(right_total, variables),
        strict=True,
    ):
        if isinstance(part, tf.IndexedSlices) and not embeds:
            # Optimizers take each slice for all that its row gets.
            assert len(set(part.indices.numpy())) == len(part.indices)
        np.testing.assert_allclose(
            *map(tf.convert_to_tensor, (part, expected)), rtol=1e-4, atol=1e-4
        )


def check_exact(exact, made, x, labels):
    vectors, offsets = by_hand(made)
    scores = x.numpy() @ vectors.T + offsets
    own = scores[np.arange(len(labels)), labels]
    losses, ranks = exact(x, tf.constant(labels, "int32"))
    right = np.log(np.exp(scores).sum(axis=1)) - own
    np.testing.assert_allclose(losses, right, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(ranks, (scores > own[:, None]).sum(axis=1))


def large(num_classes, embeds=True):
    table = variable(num_classes, WIDTH, seed=0)
    return ClassScores(
        Embedding(table) if embeds else table, variable(num_classes, seed=1)
    )


def in_a_graph(function, *dtypes):
    """The same for an unknown number of rows: in chunks of classes."""
    shapes = [(None, WIDTH), *[(None,) for _ in dtypes]]
    signature = [
        tf.TensorSpec(shape, dtype)
        for shape, dtype in zip(shapes, ("float32", *dtypes), strict=True)
    ]
    return tf.function(function, input_signature=signature)


@pytest.mark.parametrize("num_classes", [CHUNK - 1, CHUNK, CHUNK + 1, 9000])
def test_exact_in_chunks(num_classes):
    """Chunks of classes and, of 1100 examples, of these."""
    made = large(num_classes)
    labels = np.random.default_rng(5).integers(num_classes, size=1100)
    labels[:2] = 0, num_classes - 1
    exact = in_a_graph(made.exact, "int32")
    check_exact(exact, made, features_of(1100), labels)


@pytest.mark.parametrize(
    "num_classes, k, embeds",
    [
        (CHUNK - 1, 7, True),
        (CHUNK, 1, True),
        (CHUNK + 1, 7, True),
        (9000, 5000, True),
        (9000, 9000, True),
        (9000, 7, False),
    ],
)
def test_top_k(num_classes, k, embeds):
    """Of chunks of vectors that are looked up, or by the table as it is."""
    made = large(num_classes, embeds)
    x = features_of(6)
    vectors, offsets = by_hand(made)
    # The best are next to the boundaries of chunks.
    places = [0, min(CHUNK, num_classes) - 1, num_classes - 1]
    offsets[places] += 20, 19, 18
    made.bias.assign(offsets)
    scores = x.numpy() @ vectors.T + made.bias.numpy()
    ids, best, total = in_a_graph(lambda x: made.top_k(x, k))(x)
    assert ids.dtype == tf.int32
    order = np.argsort(-scores, axis=1)[:, :k]
    found = np.take_along_axis(scores, ids.numpy(), axis=1)
    right = np.take_along_axis(scores, order, axis=1)
    # Those of equal scores, but for rounding, may come in another order.
    np.testing.assert_allclose(found, right, atol=1e-5)
    np.testing.assert_allclose(best, right, atol=1e-5)
    assert all(len(set(row)) == k for row in ids.numpy())
    exact = np.log(np.exp(scores).sum(axis=1))
    np.testing.assert_allclose(total, exact, rtol=1e-5)


@pytest.mark.parametrize("embeds", [False, True])
def test_ties_go_to_the_first(embeds):
    made = large(9000, embeds)
    made.bias.assign(np.zeros(9000))
    ids, _, total = in_a_graph(lambda x: made.top_k(x, 5000))(
        tf.zeros((2, WIDTH))
    )
    np.testing.assert_array_equal(ids, [np.arange(5000)] * 2)
    np.testing.assert_allclose(total, [np.log(9000)] * 2, rtol=1e-6)


@pytest.mark.parametrize("embeds", [False, True])
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_classes_without_a_score_are_not_found(value, embeds):
    made = large(9000, embeds)
    bias = made.bias.numpy()
    bias[:8950] = value
    made.bias.assign(bias)
    x = features_of(3).numpy()
    x[1] = np.nan
    ids, best, total = in_a_graph(lambda x: made.top_k(x, 100))(x)
    vectors, offsets = by_hand(made)
    scores = x @ vectors[8950:].T + offsets[8950:]
    for row in (0, 2):
        order = 8950 + np.argsort(-scores[row])
        np.testing.assert_array_equal(ids[row, :50], order)
        assert (ids[row, 50:].numpy() == -1).all()
        assert (best[row, 50:].numpy() == -np.inf).all()
        exact = np.log(np.exp(scores[row]).sum())
        np.testing.assert_allclose(total[row], exact, rtol=1e-5)
    assert (ids[1].numpy() == -1).all() and total[1] == -np.inf
