"""`ClassScores` of variables made by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from beam_heads import TREES

from keras_compembed.candidates import CandidateGroups
from keras_compembed.candidates import ClassScores
from keras_compembed.candidates import class_scores
from keras_compembed.trees.tree_arrays import TreeArrays

WIDTH = 3


def variable(*shape, seed):
    values = np.random.default_rng(seed).normal(size=shape)
    return keras.Variable(values, dtype="float32")


class Embedding:
    """What `ClassScores` uses of a layer that looks vectors up."""

    def __init__(self, num_classes):
        self.input_dim, self.output_dim = num_classes, WIDTH
        self.rows = variable(num_classes, WIDTH, seed=0)

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
        table = Embedding(num_classes)
    return ClassScores(
        table,
        variable(num_classes, seed=1) if biases else None,
        arrays,
        variable(num_nodes, WIDTH, seed=2) if num_nodes else None,
        variable(num_nodes, seed=3) if num_nodes and biases else None,
    )


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
            while node >= 0:
                vectors[place] += made.nodes.numpy()[node]
                if made.bias is not None:
                    biases[place] += made.node_bias.numpy()[node]
                node = tree.node_parents[node]
    return vectors, biases


def features_of(rows):
    values = np.random.default_rng(4).normal(size=(rows, WIDTH))
    return tf.constant(values, "float32")


CASES = [
    (None, True, False),
    (None, False, True),
    ("taxonomy", True, False),
    ("taxonomy", True, True),
    ("huffman", False, False),
]


@pytest.mark.parametrize(("tree", "biases", "embeds"), CASES)
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
    ids, chunk = made.score_chunk(x, 5, 3)
    exist = min(3, made.num_classes - 5)
    np.testing.assert_array_equal(ids[:exist], np.arange(5, 5 + exist))
    np.testing.assert_allclose(
        chunk[:, :exist], right[:, 5 : 5 + exist], atol=1e-5
    )
    assert np.isneginf(chunk[:, exist:]).all()


@pytest.mark.parametrize(("tree", "biases", "embeds"), CASES)
def test_score_and_gradients(tree, biases, embeds):
    """Groups of all kinds, some of them without a class."""
    made = make(tree, biases, embeds)
    x = features_of(5)
    own = tf.constant([[1, 3], [0, -1], [6, 6], [2, 4], [5, 1]])
    common = tf.constant([4, 0, 4])
    # Blocks of two rows, the last of one.
    blocks = tf.constant([[[1, 2, 6]], [[0, 0, 5]], [[3, -1, 4]]])

    def total(parts):
        weights = tf.range(1.0, 1 + sum(part.shape[1] for part in parts))
        return tf.reduce_sum(tf.concat(parts, axis=1) * weights)

    table = made.table.rows if embeds else made.table
    variables = [table, made.bias, made.nodes, made.node_bias]
    variables = [each.value for each in variables if each is not None]
    with tf.GradientTape(persistent=True) as tape:
        got = made.score(x, own, common, blocks, block=2)
        got_total = total(got)
        every = made.score_all(x)
        right = [
            tf.gather(every, tf.maximum(ids, 0), batch_dims=1)
            for ids in (
                own,
                tf.tile(common[None], (5, 1)),
                tf.repeat(blocks[:, 0], 2, axis=0)[:5],
            )
        ]
        right_total = total(right)
    for part, expected in zip(got, right, strict=True):
        np.testing.assert_allclose(part, expected, atol=1e-5)
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


@pytest.mark.parametrize(("tree", "biases", "embeds"), CASES)
def test_exact(tree, biases, embeds, monkeypatch):
    # Several chunks of rows and classes, the last of them not full.
    monkeypatch.setattr(class_scores, "chunk_sizes", lambda *_: (2, 4))
    made = make(tree, biases, embeds)
    x, labels = features_of(5), np.array([0, 6, 3, 1, 5])
    vectors, offsets = by_hand(made)
    scores = x.numpy() @ vectors.T + offsets
    own = scores[np.arange(5), labels]
    losses, ranks = made.exact(x, tf.constant(labels, "int32"))
    right = np.log(np.exp(scores).sum(axis=1)) - own
    np.testing.assert_allclose(losses, right, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(ranks, (scores > own[:, None]).sum(axis=1))


def scored(scores):
    """`ClassScores` whose features are the scores of all classes."""
    num_classes = scores.shape[1]
    made = ClassScores(keras.Variable(np.zeros((num_classes, 1))))

    def score_chunk(features, start, size):
        ids = start + tf.range(size)
        exists = ids < num_classes
        ids = tf.minimum(ids, num_classes - 1)
        chunk = tf.gather(features, ids, axis=1)
        return ids, tf.where(exists, chunk, float("-inf"))

    made.score_chunk = score_chunk
    return made


@pytest.fixture
def small_chunks(monkeypatch):
    """300 classes and 4 rows at a time."""
    monkeypatch.setattr(class_scores, "chunk_sizes", lambda *_: (4, 300))


@pytest.mark.parametrize("num_classes", [299, 300, 301, 600, 1234])
@pytest.mark.parametrize("k", [1, 7, 299])
def test_top_k(small_chunks, num_classes, k):
    rng = np.random.default_rng(num_classes)
    scores = rng.normal(size=(6, num_classes)).astype("float32")
    # The best and the worst at the boundaries of chunks.
    scores[0, [0, -1]] = 10, 20
    scores[1, [min(299, num_classes - 1), num_classes // 2]] = 20, 10
    scores[2, -min(3, num_classes) :] = -50
    ids, best, total = scored(scores).top_k(tf.constant(scores), k)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    assert ids.dtype == tf.int32
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_array_equal(
        best, np.take_along_axis(scores, order, axis=1)
    )
    exact = np.log(np.exp(scores.astype("float64")).sum(axis=1))
    np.testing.assert_allclose(total, exact, rtol=1e-5)


def test_ties_go_to_the_first(small_chunks):
    scores = np.zeros((2, 1000), "float32")
    ids, _, total = scored(scores).top_k(tf.constant(scores), 400)
    np.testing.assert_array_equal(ids, [np.arange(400)] * 2)
    np.testing.assert_allclose(total, [np.log(1000)] * 2, rtol=1e-6)


def test_more_than_a_chunk(small_chunks):
    scores = np.random.default_rng(0).normal(size=(3, 700)).astype("float32")
    ids, _, _ = scored(scores).top_k(tf.constant(scores), 700)
    np.testing.assert_array_equal(ids, np.argsort(-scores, axis=1))


def test_nan_and_infinite_scores(small_chunks):
    scores = np.random.default_rng(0).normal(size=(5, 700)).astype("float32")
    scores[0, :650] = np.nan
    scores[1, :650] = -np.inf
    scores[2] = np.nan
    scores[3, 5] = 1e30
    ids, best, total = scored(scores).top_k(tf.constant(scores), 100)
    for row in (0, 1):
        order = 650 + np.argsort(-scores[row, 650:])
        np.testing.assert_array_equal(ids[row, :50], order)
        assert (ids[row, 50:].numpy() == -1).all()
        assert (best[row, 50:].numpy() == -np.inf).all()
        exact = np.log(np.exp(scores[row, 650:]).sum())
        np.testing.assert_allclose(total[row], exact, rtol=1e-5)
    assert (ids[2].numpy() == -1).all() and total[2] == -np.inf
    assert ids[3, 0] == 5 and total[3] == 1e30
    assert (ids[4].numpy() >= 0).all()


@pytest.mark.parametrize("rows", [None, 4])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_top_k_in_graphs(small_chunks, rows, jit_compile):
    scores = np.random.default_rng(0).normal(size=(4, 700)).astype("float32")
    made = scored(scores)

    @tf.function(
        input_signature=[tf.TensorSpec((rows, 700))], jit_compile=jit_compile
    )
    def run(features):
        ids, best, total = made.top_k(features, 5)
        assert ids.shape == best.shape == (rows, 5)
        assert total.shape == (rows,)
        return ids

    order = np.argsort(-scores, axis=1)[:, :5]
    np.testing.assert_array_equal(run(scores), order)


def test_offsets_are_added_to_scores():
    made = make()
    x = features_of(4)
    groups = (
        tf.constant([[1, 3], [0, 2], [6, 6], [2, 4]]),
        tf.constant([4, 0, 5]),
        tf.constant([[1, 2], [3, 0]])[:, None],
        CandidateGroups(tf.constant([1, 0, 1, 1]), tf.constant([[5], [6]])),
        tf.constant([[3], [1], [1], [0]]),
    )
    shapes = (4, 2), (3,), (2, 1, 2), (2, 1), (4, 1)
    rng = np.random.default_rng(5)
    offsets = [rng.normal(size=shape).astype("float32") for shape in shapes]
    plain = made.score(x, *groups, block=2)
    found = made.score(x, *groups, block=2, offsets=offsets)
    added = [
        offsets[0],
        np.tile(offsets[1], (4, 1)),
        np.repeat(offsets[2][:, 0], 2, axis=0),
        offsets[3][[1, 0, 1, 1]],
        offsets[4],
    ]
    for part, with_offset, offset in zip(plain, found, added, strict=True):
        np.testing.assert_allclose(with_offset - part, offset, atol=1e-6)


def test_no_group_of_rows():
    with pytest.raises(ValueError, match=r"`groups` at least .*\[\(3,\)\]"):
        make().score(features_of(2), tf.constant([4, 0, 5]))
