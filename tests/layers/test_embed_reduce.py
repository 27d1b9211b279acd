"""Layers that sum or average the vectors of each row of ids."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_checks import check_layer

import keras_compembed as kc

ROWS, WIDTH, LENGTH = 50, 12, 7
COMBINERS = ("mean", "sum", "sqrtn")


@keras.saving.register_keras_serializable(package="test_embed_reduce")
class MaxComposition(kc.compositions.Composition):
    def call(self, codewords):
        return keras.ops.max(codewords, axis=1)


@keras.saving.register_keras_serializable(package="test_embed_reduce")
class ShiftedSum(kc.compositions.Composition):
    """Linear, and more than a sum: compositions of users may be."""

    def call(self, codewords):
        return keras.ops.sum(codewords, axis=1) + 1.0

    def fold(self, codebooks):
        return codebooks + 1.0 / self.num_codebooks


def codes(cls=kc.CodeEmbedReduce, num_codebooks=5, codebook_size=8, **kwargs):
    return cls(ROWS, WIDTH, num_codebooks, codebook_size, seed=0, **kwargs)


def anchors(cls=kc.ANTEmbedReduce, **kwargs):
    return cls(ROWS, WIDTH, num_anchors=10, seed=0, **kwargs)


def rounded(cls=kc.QuantizedEmbedReduce, **kwargs):
    return cls(ROWS, WIDTH, 4, block_size=3, rank=7, seed=0, **kwargs)


CODES = {
    "sum": {},
    "concat": {"composition": "concat"},
    "linear": {"composition": kc.compositions.LinearComposition(3)},
    "lstm": {"composition": "lstm"},
    "scaled": {"composition": kc.compositions.ScaledComposition("linear")},
    "scaled concat": {
        "composition": kc.compositions.ScaledComposition("concat")
    },
    "not linear": {"composition": MaxComposition()},
    "shifted": {"composition": ShiftedSum()},
    "large": {"num_codebooks": 3, "codebook_size": 200},
    "softmax": {"learn_codes": "softmax"},
    "follow": {"learn_codes": "follow"},
}
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


@pytest.mark.parametrize(
    ("cls", "arguments", "weights"),
    [
        (
            kc.CodeEmbedReduce,
            {"num_codebooks": 4, "codebook_size": 8, "combiner": "sqrtn"},
            (1, 1),
        ),
        (
            kc.ANTEmbedReduce,
            {"num_anchors": 9, "storage": "dense", "empty_value": "nan"},
            (2, 1),
        ),
        (
            kc.QuantizedEmbedReduce,
            {"bits": 2, "rank": 5, "combiner": "sum", "learn_rows": True},
            (2, 4),
        ),
    ],
)
def test_is_a_keras_layer(cls, arguments, weights, tmp_path):
    check_layer(
        cls,
        {"input_dim": ROWS, "output_dim": WIDTH, "seed": 0, **arguments},
        draw(low=1)[0],
        (6, WIDTH),
        *weights,
        tmp_path,
    )


@EITHER
@EVERY_COMBINER
def test_equals_keras_rs(make, combiner):
    keras_rs = pytest.importorskip("keras_rs")
    layer = fill(make(combiner=combiner))
    theirs = keras_rs.layers.EmbedReduce(ROWS, WIDTH, combiner=combiner)
    theirs.build()
    theirs.embeddings.assign(np.asarray(layer.embeddings))
    ids, weights = draw()
    lengths = [7, 0, 3, 2, 1, 7]
    ragged = tf.RaggedTensor.from_tensor(ids, lengths)
    ragged_weights = tf.RaggedTensor.from_tensor(weights, lengths)
    for arguments in (
        (ids,),
        (ids.astype("uint8"),),
        (ids.astype("float32"),),
        (ids, weights),
        (ids, weights[:, 0]),
        (ids, np.where(ids == 0, 0, weights)),
        (ids[:, 0],),
        (ids[:, 0], weights[:, 0]),
        (ragged,),
        (ragged, ragged_weights),
        (ragged, weights[:, 0]),
    ):
        assert_close(layer(*arguments), theirs(*arguments))


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
        (lambda **kw: layer(ids, mask=exists.tolist(), **kw), bad),
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


@EITHER
def test_masks_that_keras_hands_on(make):
    ids, weights = draw()
    layer = fill(make())
    mask = ids % 2 == 0
    by_mask = reduced(layer.embeddings, ids, mask.astype(float), "mean")
    weighted = reduced(layer.embeddings, ids, mask * weights, "mean")
    tensor = tf.constant(ids)
    tensor._keras_mask = tf.constant(mask)
    assert_close(layer(tensor), by_mask)
    assert_close(layer(tensor, weights), weighted)
    inputs = keras.Input((LENGTH,), dtype="int32")
    masking = make(mask_zero=True)
    assert getattr(masking(inputs), "_keras_mask", None) is None
    assert getattr(masking(tensor), "_keras_mask", None) is None
    assert masking.compute_mask(tensor, tensor._keras_mask) is None


@EITHER
@pytest.mark.parametrize("masked", [False, True])
def test_equals_global_average_pooling(make, masked):
    ids, _ = draw()
    layer = fill(make(mask_zero=masked, empty_value=float("nan")))
    table = keras.layers.Embedding(ROWS, WIDTH, mask_zero=masked)
    table.build()
    table.embeddings.assign(np.asarray(layer.embeddings))
    pooling = keras.layers.GlobalAveragePooling1D()
    vectors = table(ids)
    expected = pooling(vectors, mask=getattr(vectors, "_keras_mask", None))
    assert np.isnan(expected[1]).all() == masked
    assert_close(layer(ids), expected)
    assert np.isnan(layer(ids[:, :0])).all()


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
        layer(ids, weights)[1],
        layer(ids, 0 * weights)[2],
        layer(ids, weights[:, 0])[1],
        layer(ids, 0 * weights[:, 0])[2],
        layer(ids[:, :0])[0],
        layer(ids[:, :0], weights[:, :0])[0],
        layer(ragged)[0],
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


@EITHER
def test_graphs_of_open_shape(make):
    layer = fill(make(mask_zero=True, empty_value="nan"))
    ids, weights = draw()
    call = tf.function(
        layer,
        input_signature=[
            tf.TensorSpec((None, None), "int64"),
            tf.TensorSpec((None, None), "float64"),
        ],
    )
    assert_close(
        call(ids.astype("int64"), weights.astype("float64")),
        layer(ids, weights),
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="`weights` must"):
        call(ids.astype("int64"), weights[:, 1:].astype("float64"))


@EITHER
def test_weights_in_a_functional_model(make):
    """Weights that are learned, as those of an attention, get gradients."""
    ids, weights = draw()
    inputs = keras.Input((LENGTH,), dtype="int32")
    given = keras.Input((LENGTH,))
    scores = keras.layers.Dense(LENGTH, "softmax", name="scores")(given)
    outputs = make(mask_zero=True)(inputs, weights=scores)
    model = keras.Model([inputs, given], keras.layers.Dense(2)(outputs))
    again = keras.Model.from_config(model.get_config())
    again.set_weights(model.get_weights())
    assert_close(again([ids, weights]), model([ids, weights]))
    model.compile(kc.optimizers.SparseRowOptimizer("adam"), "mse")
    before = model.get_layer("scores").get_weights()
    model.fit([ids, weights], np.ones((6, 2)), verbose=0)
    for old, new in zip(
        before, model.get_layer("scores").get_weights(), strict=True
    ):
        assert not np.array_equal(old, new)


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


@EITHER
@EVERY_COMBINER
def test_one_long_row(make, combiner):
    """It makes no others as long, and is added up from parts."""
    rng = np.random.default_rng(0)
    lengths = np.array([3, 2000, 0, 1, 9] + [5] * 40)
    ids = rng.integers(ROWS, size=lengths.sum(), dtype="int32")
    weights = rng.uniform(size=ids.shape).astype("float32")
    layer = fill(make(combiner=combiner, mask_zero=True, empty_value="nan"))
    groups = layer._combiner.groups(
        tf.RaggedTensor.from_row_lengths(ids, lengths), None, None, "float32"
    )
    assert tf.size(groups.ids) < 3 * len(ids) + len(lengths)
    dense = tf.RaggedTensor.from_row_lengths(ids, lengths).to_tensor()
    of_rows = weights[: len(lengths)]
    call = tf.function(layer)
    for given in (weights, None):
        ragged, padded = {}, {}
        if given is not None:
            given = tf.RaggedTensor.from_row_lengths(given, lengths)
            ragged, padded = {"weights": given}, {"weights": given.to_tensor()}
        inputs = tf.RaggedTensor.from_row_lengths(ids, lengths)
        expected = layer(dense, **padded)
        np.testing.assert_allclose(
            call(inputs, **ragged), expected, rtol=1e-4, atol=1e-4
        )
    np.testing.assert_allclose(
        call(inputs, of_rows), layer(dense, of_rows), rtol=1e-4, atol=1e-3
    )


@EITHER
def test_reverse_calls(make):
    layer = fill(make())
    vectors = np.random.default_rng(0).normal(size=(3, WIDTH)).astype("float32")
    logits = layer(vectors, reverse=True)
    expected = vectors @ np.asarray(layer.embeddings).T
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    assert layer(keras.Input((WIDTH,)), reverse=True).shape == (None, ROWS)


@EITHER
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"combiner": "max"}, "`combiner` must be one of 'mean', 'sum'"),
        ({"combiner": ["mean"]}, "`combiner` must be one of"),
        ({"empty_value": "zero"}, "`empty_value` must be a number"),
        ({"empty_value": True}, "`empty_value` must be a number"),
        ({"empty_value": None}, "`empty_value` must be a number"),
        ({"empty_value": np.ones(2)}, "`empty_value` must be a number"),
        ({"mask_zero": "yes"}, "`mask_zero` must be"),
    ],
)
def test_refuses_arguments(make, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)


@EITHER
def test_refuses_inputs(make):
    layer = make()
    ids, weights = draw()
    ragged = tf.RaggedTensor.from_tensor(ids)
    for arguments, message in (
        ((ids[None],), r"`inputs` must be ids of rank 1.*\(1, 6, 7\)"),
        ((ids[0, 0],), r"`inputs` must be ids of rank 1.*\(\)"),
        ((ids, weights[:, 1:]), r"`weights` must have.*\(6, 6\).*\(6, 7\)"),
        ((ids, weights[1:]), r"`weights` must have the shape"),
        ((ids, weights[1:, 0]), r"`weights` must have the shape"),
        ((ids, weights[None]), r"`weights` must have the shape"),
        ((ids, tf.constant(1.0)), r"`weights` must have the shape"),
        ((ids, None, ids[:, 1:] > 0), r"`mask` must have the shape"),
        ((ids, None, ids[:, 0] > 0), r"`mask` must have the shape"),
        ((ragged, weights), "`weights` of rank 2 must be ragged"),
        ((ragged, None, ids > 0), "`mask` of rank 2 must be ragged"),
        ((ids, tf.RaggedTensor.from_tensor(weights)), "must be ragged"),
    ):
        with pytest.raises(ValueError, match=message):
            layer(*arguments)
    for shapes in (((2, 7), None), ((7,), (6,))):
        inputs, given = (shape and keras.Input(shape) for shape in shapes)
        with pytest.raises(ValueError, match="must"):
            layer(inputs, given)
    call = tf.function(layer, input_signature=[tf.TensorSpec(None, "int32")])
    with pytest.raises(ValueError, match="`inputs` must be ids of rank 1"):
        call(tf.constant(ids))
    negative = make(combiner="sqrtn")
    for call in (negative, tf.function(negative)):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="must not be negative"
        ):
            call(ids, -weights)
    longer = tf.RaggedTensor.from_row_lengths(weights.ravel(), [8, 6] + [7] * 4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`weights` must"):
        layer(ragged, longer)


@pytest.mark.parametrize("name", CODES)
def test_codes_give_the_sums_of_their_vectors(name):
    """Values and all gradients are those of vectors composed and added up."""
    arguments = CODES[name]
    layer = fill(codes(**arguments))
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

    found, expected = gradients(layer.sum_rows), gradients(composed)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert not isinstance(one, tf.IndexedSlices)
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    numpy_sums = np.einsum(
        "gt,gtd->gd", weights, np.asarray(layer.embeddings)[ids]
    )
    np.testing.assert_allclose(found[0], numpy_sums, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("learn_codes", [None, "follow"])
@pytest.mark.parametrize("composition", ["sum", "concat", "linear"])
def test_no_vector_is_composed(learn_codes, composition, monkeypatch):
    layer = codes(learn_codes=learn_codes, composition=composition)

    def compose(*args):
        raise AssertionError("A vector is composed.")

    monkeypatch.setattr(type(layer.composition), "compose_codes", compose)
    model = keras.Sequential([layer, keras.layers.Dense(2)])
    model.compile(kc.optimizers.SparseRowOptimizer("adam"), "mse")
    model.fit(draw()[0], np.ones((6, 2)), verbose=0)


def test_counts_are_not_many_more_than_ids():
    """Else a batch of few ids would take the memory of whole codebooks."""
    layer = kc.CodeEmbedReduce(ROWS, 8, 4, 65536, seed=0)
    layer.build()
    function = tf.function(layer.sum_rows).get_concrete_function(
        tf.TensorSpec((64, 8), "int32"), tf.TensorSpec((64, 8), "float32")
    )
    for operation in function.graph.get_operations():
        for output in operation.outputs:
            if output.dtype != tf.resource:
                elements = output.shape.num_elements() or 0
                assert elements <= layer.codebooks.shape.num_elements()


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        ("sgd", {"composition": "concat"}),
        ("adam", {}),
        ("sparse rows", {}),
        ("sparse rows", {"teacher": np.ones((ROWS, WIDTH))}),
    ],
    ids=["sgd", "adam", "sparse rows", "teacher"],
)
def test_codes_follow_as_they_do_by_rows(optimizer, settings):
    """Ids that come twice, and padding, move latent vectors alike."""
    settings = dict(settings)
    learn_codes = kc.learners.FollowingCodes(
        teacher=settings.pop("teacher", None)
    )
    ids, _ = draw()
    targets = np.random.default_rng(3).normal(size=(6, 2))
    weights = {}
    for cls, behind in (
        (kc.CodeEmbedReduce, []),
        (kc.CodeEmbedding, [keras.layers.GlobalAveragePooling1D()]),
    ):
        layer = fill(codes(cls, learn_codes=learn_codes, **settings))
        head = keras.layers.Dense(
            2, kernel_initializer=keras.initializers.GlorotUniform(0)
        )
        model = keras.Sequential([layer, *behind, head])
        model.compile(
            kc.optimizers.SparseRowOptimizer("adam")
            if optimizer == "sparse rows"
            else optimizer,
            "mse",
            run_eagerly=True,
        )
        model.fit(
            ids, targets, epochs=3, batch_size=3, shuffle=False, verbose=0
        )
        weights[cls] = layer.get_weights()
    for one, other in zip(*weights.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("learn_codes", ["softmax", "nearest"])
def test_codes_are_learned_as_they_are_by_rows(learn_codes):
    """Padding counts in no statistics."""
    ids, _ = draw()
    layers = [
        fill(codes(cls, learn_codes=learn_codes, mask_zero=True))
        for cls in (kc.CodeEmbedReduce, kc.CodeEmbedding)
    ]
    pooled = layers[0](ids, training=True)
    vectors = layers[1](ids, training=True)
    expected = reduced(
        np.asarray(vectors).reshape(-1, WIDTH),
        np.arange(ids.size).reshape(ids.shape),
        (ids != 0).astype(float),
        "mean",
    )
    assert_close(pooled, expected)
    for one, other in zip(*(layer.weights for layer in layers), strict=True):
        assert_close(one, other)
    layer = layers[0]
    before = layer(ids)
    layer.freeze_codes()
    assert_close(layer(ids), before)
    with pytest.raises(ValueError, match="must be called once"):
        layer.freeze_codes()


def test_codes_that_were_frozen_after_tracing():
    layer = codes(learn_codes="follow")
    step = tf.function(lambda ids: layer(ids, training=True))
    step(tf.constant(draw()[0]))
    layer.recode()
    layer.freeze_codes()
    with pytest.raises(tf.errors.InvalidArgumentError, match="freeze_codes"):
        step(tf.constant(draw()[0]))


def test_recode_every_without_the_callback_warns():
    layer = codes(learn_codes=kc.learners.FollowingCodes(recode_every=2))
    with pytest.warns(UserWarning, match="RecodeEmbeddings"):
        layer(draw()[0], training=True)


@pytest.mark.parametrize(
    "arguments",
    [
        {"storage": "dense"},
        {"storage": kc.transforms.SparseRows(4)},
        {"mixture": "softmax", "storage": "lazy"},
        {"mixture": kc.transforms.Mixture(2, "entmax")},
        {"storage": "lazy", "negative_weight": 0.1},
    ],
    ids=["dense", "sparse", "softmax", "entmax", "negative pairs"],
)
def test_anchors_give_the_sums_of_their_vectors(arguments):
    ids, _ = draw()
    targets = np.random.default_rng(3).normal(size=(6, 2))
    weights = []
    for cls, behind in (
        (kc.ANTEmbedReduce, []),
        (kc.ANTEmbedding, [keras.layers.GlobalAveragePooling1D()]),
    ):
        if "num_sets" in str(arguments):
            arguments["anchors_initializer"] = ["dynamic", "dynamic"]
        layer = anchors(cls, mask_zero=False, l1=1e-2, **arguments)
        head = keras.layers.Dense(
            2, kernel_initializer=keras.initializers.GlorotUniform(0)
        )
        model = keras.Sequential([layer, *behind, head])
        model.compile(
            kc.optimizers.SparseRowOptimizer(keras.optimizers.SGD(0.1)),
            "mse",
            run_eagerly=True,
        )
        history = model.fit(
            ids, targets, epochs=3, batch_size=3, shuffle=False, verbose=0
        )
        weights.append([history.history["loss"], *layer.get_weights()])
        layer.sparsify()
        outputs = model(ids)
        vectors = np.asarray(layer.embeddings)[ids].mean(axis=1)
        assert_close(outputs, head(vectors))
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@EITHER
def test_from_table(make):
    table = np.random.default_rng(0).normal(size=(ROWS, WIDTH))
    kind, settings = {
        codes: (kc.CodeEmbedReduce, {"num_codebooks": 4}),
        anchors: (kc.ANTEmbedReduce, {"num_anchors": 10}),
        rounded: (kc.QuantizedEmbedReduce, {"bits": 4}),
    }[make]
    layer = kind.from_table(
        table,
        **settings,
        combiner="sum",
        empty_value="nan",
        seed=0,
        verbose=0,
    )
    assert type(layer) is kind and layer.combiner == "sum"
    ids, weights = draw()
    expected = reduced(layer.embeddings, ids, weights, "sum")
    assert_close(layer(ids, weights), expected)
    with pytest.raises(ValueError, match="`combiner` must be one of"):
        kind.from_table(table, **settings, combiner="max", verbose=0)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_no_row_is_read_where_there_is_no_id(is_sparse):
    ids = tf.ragged.constant([[3, 4], [7], [9, 11, 12]])
    inputs = ids.to_sparse() if is_sparse else ids
    layer = fill(codes(learn_codes="softmax"))
    with tf.GradientTape() as tape:
        outputs = layer(inputs, training=True)
    gradients = tape.gradient(outputs, layer.trainable_weights)
    (of_rows,) = (x for x in gradients if isinstance(x, tf.IndexedSlices))
    np.testing.assert_array_equal(np.sort(of_rows.indices), ids.flat_values)
