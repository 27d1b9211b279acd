"""`ClassScores` of variables made by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.classes.class_scores import ClassScores

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


def by_hand(made):
    """Vectors and biases of all classes."""
    rows = getattr(made.table, "rows", made.table)
    return rows.numpy().astype("float64"), made.bias.numpy()


def features_of(rows):
    values = np.random.default_rng(4).normal(size=(rows, WIDTH))
    return tf.constant(values, "float32")


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


@pytest.mark.parametrize("num_classes", [CHUNK, 9000])
def test_exact_in_chunks(num_classes):
    """Chunks of classes and, of 1100 examples, of these."""
    made = large(num_classes)
    labels = np.random.default_rng(5).integers(num_classes, size=1100)
    labels[:2] = 0, num_classes - 1
    x = features_of(1100)
    exact = in_a_graph(made.exact, "int32")
    losses, ranks = exact(x, tf.constant(labels, "int32"))
    vectors, offsets = by_hand(made)
    scores = x.numpy() @ vectors.T + offsets
    own = np.take_along_axis(scores, labels[:, None], axis=1)
    right = np.log(np.exp(scores).sum(axis=1)) - own[:, 0]
    np.testing.assert_allclose(losses, right, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(ranks, (scores > own).sum(axis=1))


@pytest.mark.parametrize(
    "num_classes, k, embeds",
    [
        (CHUNK, 1, True),
        (CHUNK + 1, 7, True),
        (9000, 5000, True),
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
