"""Layers that sum or average the vectors of each row of ids."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused
from layer_checks import largest_tensor

import keras_compembed as kc
from keras_compembed.compositions.composition import ScaledComposition

ROWS, WIDTH, LENGTH = 50, 12, 7
COMBINERS = ("mean", "sum", "sqrtn")


@keras.saving.register_keras_serializable(package="test_embed_reduce")
class ShiftedSum(kc.compositions.Composition):
    """Linear, and more than a sum: compositions of users may be."""

    def call(self, codewords):
        return keras.ops.sum(codewords, axis=1) + 1.0

    def fold(self, codebooks):
        return codebooks + 1.0 / self.num_codebooks


def pooled(cls, combiner="mean", empty_value=0.0, **kwargs):
    """A layer that combines rows, or not."""
    keras.utils.set_random_seed(0)
    if combiner is not None:
        combiner = kc.Combiner(combiner, empty_value)
    return cls(ROWS, WIDTH, combiner=combiner, **kwargs)


def codes(num_codebooks=5, codebook_size=8, **kwargs):
    shape = {"num_codebooks": num_codebooks, "codebook_size": codebook_size}
    return pooled(kc.CodeEmbedding, **shape, **kwargs)


def anchors(**kwargs):
    return pooled(kc.ANTEmbedding, num_anchors=10, **kwargs)


def rounded(**kwargs):
    shape = {"bits": 4, "block_size": 3, "rank": 7}
    return pooled(kc.QuantizedEmbedding, **shape, **kwargs)


EITHER = pytest.mark.parametrize("make", [codes, anchors, rounded])
EVERY_COMBINER = pytest.mark.parametrize("combiner", COMBINERS)


def draw(low=0, seed=0):
    """Ids with padding, a row of it alone among them, and weights."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, ROWS, size=(6, LENGTH), dtype="int32")
    ids[0, 3:] = ids[1] = 0
    ids[2] = 4
    return np.maximum(ids, low), rng.uniform(size=ids.shape).astype("float32")


def fill(layer, seed=1):
    """Weights of size 1, so that no part of a sum can be missed."""
    layer.build()
    rng = np.random.default_rng(seed)
    for weight in layer.trainable_weights:
        weight.assign(rng.normal(size=weight.shape))
    if hasattr(layer, "scale_unit"):
        layer.scale_unit.assign(1e-3)
        layer.mean_row.assign(rng.normal(size=layer.width))
    return layer


def reduced(table, ids, weights, combiner):
    """By the definition: weights are 0 for what does not count."""
    table = np.asarray(table, "float64")
    sums = np.einsum("gt,gtd->gd", weights, table[ids])
    if combiner == "sum":
        return sums
    power = 1 if combiner == "mean" else 2
    divisor = (weights**power).sum(axis=1, keepdims=True) ** (1 / power)
    return np.divide(sums, divisor, out=np.zeros_like(sums), where=divisor != 0)


def assert_close(outputs, expected):
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)


@EITHER
@EVERY_COMBINER
def test_ids_that_do_not_count(make, combiner):
    """Masked by 0, by a mask, by what a sparse tensor lacks."""
    ids, weights = draw()
    exists = ids != 0
    layer = fill(make(combiner=combiner))
    masking = make(combiner=combiner, mask_zero=True)
    masking.build()
    masking.set_weights(layer.get_weights())
    expected = reduced(
        layer.embeddings, ids, exists.astype("float64"), combiner
    )
    bad = np.where(exists, weights, np.nan)
    weighted = reduced(layer.embeddings, ids, weights * exists, combiner)
    sparse = tf.sparse.from_dense(ids)
    for each, with_weights in (
        (lambda **kw: masking(ids, **kw), bad),
        (lambda **kw: layer(ids, mask=exists, **kw), bad),
        (lambda **kw: layer(sparse, **kw), bad),
        (
            lambda **kw: layer(sparse, **kw),
            tf.SparseTensor(sparse.indices, weights[exists], ids.shape),
        ),
        (
            lambda **kw: masking(
                tf.RaggedTensor.from_tensor(ids),
                mask=tf.RaggedTensor.from_tensor(ids > -1),
                **kw,
            ),
            tf.RaggedTensor.from_tensor(bad),
        ),
    ):
        assert_close(each(), expected)
        assert_close(each(weights=with_weights), weighted)


@EVERY_COMBINER
def test_equals_keras_rs(combiner):
    keras_rs = pytest.importorskip("keras_rs")
    layer = fill(codes(combiner=combiner))
    theirs = keras_rs.layers.EmbedReduce(ROWS, WIDTH, combiner=combiner)
    theirs.build()
    theirs.embeddings.assign(np.asarray(layer.embeddings))
    ids, weights = draw()
    for arguments in ((ids, weights[:, 0]), (ids[:, 0], weights[:, 0])):
        assert_close(layer(*arguments), theirs(*arguments))


@EITHER
@EVERY_COMBINER
def test_empty_rows(make, combiner):
    layer = fill(make(combiner=combiner, mask_zero=True, empty_value=3))
    ids, weights = draw()
    empty = np.full(WIDTH, 0 if combiner == "sum" else 3)
    ragged = tf.RaggedTensor.from_row_lengths(ids.ravel()[:3], [0, 3, 0])
    nothing = tf.RaggedTensor.from_row_lengths(ids.ravel()[:0], [0, 0])
    for outputs in (
        layer(ids)[1],
        layer(ids, 0 * weights)[2],
        layer(ids, weights[:, 0])[1],
        layer(ids[:, :0], weights[:, :0])[0],
        layer(ragged)[2],
        layer(nothing)[1],
        layer(tf.sparse.from_dense(np.zeros((2, 3), "int32")))[0],
    ):
        np.testing.assert_array_equal(outputs, empty)
    assert_close(
        layer(ids)[2],
        layer.embeddings[4]
        * LENGTH ** {"sum": 1, "sqrtn": 0.5}.get(combiner, 0),
    )
    assert layer(ids[:0]).shape == (0, WIDTH)
    assert layer.compute_mask(ids, ids > 0) is None


@EITHER
def test_half_precision_adds_up_exactly(make):
    layer = fill(make(dtype="float16", combiner="sum"))
    for weight in layer.trainable_weights:
        weight.assign(np.round(4 * weight.numpy()) / 1024)
    ids = np.random.default_rng(0).integers(1, ROWS, size=(2, 4000))
    table = np.asarray(layer.embeddings, "float64")
    expected = table[ids].sum(axis=1)
    # Rows of half precision, added up in half precision, are off by some 5 %.
    np.testing.assert_allclose(layer(ids), expected, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize(
    ("make", "combiner"),
    [(codes, "mean"), (anchors, "sum"), (rounded, "sqrtn")],
)
def test_one_long_row(make, combiner):
    """It is added up from parts; that others are not is in `test_memory`."""
    rng = np.random.default_rng(0)
    lengths = np.array([3, 2000, 0, 1, 9] + [5] * 40)
    ids = rng.integers(ROWS, size=lengths.sum(), dtype="int32")
    weights = rng.uniform(size=ids.shape).astype("float32")
    layer = fill(make(combiner=combiner, mask_zero=True, empty_value="nan"))
    dense = tf.RaggedTensor.from_row_lengths(ids, lengths).to_tensor()
    call = tf.function(layer)
    inputs = tf.RaggedTensor.from_row_lengths(ids, lengths)
    given = tf.RaggedTensor.from_row_lengths(weights, lengths)
    for got, expected in (
        (call(inputs), layer(dense)),
        (call(inputs, given), layer(dense, given.to_tensor())),
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_refused():
    for name, value in (("combiner", "max"), ("empty_value", np.ones(2))):
        with refused(name):
            codes(**{name: value})
    layer = codes()
    ids, weights = draw()
    ragged = tf.RaggedTensor.from_tensor(ids)
    for arguments, name, received in (
        ((ids[None],), "inputs", (1, 6, 7)),
        ((ids, weights[:, 1:]), "weights", (6, 6)),
        ((ids, None, ids[:, 0] > 0), "mask", (6,)),
        ((ragged, weights), "weights", None),
        ((ragged, None, ids > 0), "mask", None),
        ((ids, tf.RaggedTensor.from_tensor(weights)), "inputs", None),
    ):
        with refused(name, received):
            layer(*arguments)
    call = tf.function(layer, input_signature=[tf.TensorSpec(None, "int32")])
    with refused("inputs"):
        call(tf.constant(ids))
    invalid = tf.errors.InvalidArgumentError
    with pytest.raises(invalid, match="must not be negative"):
        tf.function(codes(combiner="sqrtn"))(ids, -weights)
    longer = tf.RaggedTensor.from_row_lengths(weights.ravel(), [8, 6] + [7] * 4)
    with pytest.raises(invalid, match="`weights` must"):
        layer(ragged, longer)


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (codes, {"composition": "concat"}),
        (codes, {"composition": "lstm"}),
        (codes, {"composition": ScaledComposition("linear")}),
        (codes, {"composition": ScaledComposition("concat")}),
        (codes, {"composition": ShiftedSum()}),
        (codes, {"num_codebooks": 3, "codebook_size": 200}),
        (codes, {"codes": "softmax"}),
        (anchors, {"transform": kc.anchors.Transform(num_sets=2)}),
        (anchors, {"transform": "sparse"}),
        (anchors, {"transform": "lazy"}),
        (rounded, {"learn_rows": True}),
    ],
)
def test_sums_are_those_of_vectors(make, arguments):
    """Values and all gradients are those of vectors read and added up."""
    layer = fill(make(**arguments))
    ids, weights = draw()
    if "codebook_size" in arguments:
        # Few ids for so many codewords.
        ids, weights = ids[:, :2], weights[:, :2]
    weights = tf.constant(weights)
    upstream = np.random.default_rng(2).normal(size=(6, WIDTH))

    def gradients(sum_rows):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            sums = sum_rows(tf.constant(ids), weights)
            total = tf.reduce_sum(sums * upstream)
        variables = [weights, *layer.trainable_variables]
        return [sums, *tape.gradient(total, variables)]

    def composed(ids, weights):
        rows = layer.embed(tf.reshape(ids, (-1,)))
        rows = tf.reshape(rows, (*ids.shape, WIDTH))
        return tf.einsum("gt,gtd->gd", weights, rows)

    found, expected = gradients(layer.store.sum_rows), gradients(composed)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            # Of ids that come twice, the sum.
            one, other = map(tf.convert_to_tensor, (one, other))
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    numpy_sums = np.einsum(
        "gt,gtd->gd", weights, np.asarray(layer.embeddings)[ids]
    )
    np.testing.assert_allclose(found[0], numpy_sums, rtol=1e-4, atol=1e-4)


def test_counts_are_not_many_more_than_ids():
    """Else a batch of few ids would take the memory of whole codebooks."""
    layer = codes(4, 65536)
    layer.build()
    ids = tf.TensorSpec((64, 8), "int32")
    assert largest_tensor(layer, ids) <= layer.codebooks.shape.num_elements()


def test_codes_are_learned_as_they_are_by_rows():
    """Padding counts in no statistics."""
    ids, _ = draw()
    layers = [
        fill(codes(combiner=x, codes="nearest", mask_zero=True))
        for x in ("mean", None)
    ]
    sums = layers[0](ids, training=True)
    vectors = layers[1](ids, training=True)
    expected = reduced(
        np.asarray(vectors).reshape(-1, WIDTH),
        np.arange(ids.size).reshape(ids.shape),
        (ids != 0).astype(float),
        "mean",
    )
    assert_close(sums, expected)
    for one, other in zip(*(layer.weights for layer in layers), strict=True):
        assert_close(one, other)
    layer = layers[0]
    before = layer(ids)
    assert_close(kc.strip(layer)(ids), before)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_no_row_is_read_where_there_is_no_id(is_sparse):
    ids = tf.ragged.constant([[3, 4], [7], [9, 11, 12]])
    inputs = ids.to_sparse() if is_sparse else ids
    layer = fill(codes(codes="softmax"))
    with tf.GradientTape() as tape:
        outputs = layer(inputs, training=True)
    gradients = tape.gradient(outputs, layer.trainable_weights)
    (of_rows,) = (x for x in gradients if isinstance(x, tf.IndexedSlices))
    np.testing.assert_array_equal(np.sort(of_rows.indices), ids.flat_values)
