import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_checks import check_layer

import keras_compembed as kc
from keras_compembed.codes import coded_rows
from keras_compembed.codes import codeword_sums
from keras_compembed.codes.codeword_sums import sum_codewords
from keras_compembed.learners import task_codes


@keras.saving.register_keras_serializable(package="test_code_embedding")
class MaxComposition(kc.compositions.Composition):
    def call(self, codewords):
        return keras.ops.max(codewords, axis=1)


FOLLOWS_ANOTHER = kc.learners.FollowingCodes(teacher=np.ones((3, 30)))


def random_layer(num_codebooks=5, codebook_size=7, rows=50, width=6, **kwargs):
    rng = np.random.default_rng(0)
    codes = rng.integers(codebook_size, size=(rows, num_codebooks))
    codebooks = rng.normal(size=(num_codebooks, codebook_size, width))
    layer = kc.CodeEmbedding(
        rows,
        width,
        num_codebooks,
        codebook_size,
        codes=codes,
        codebooks=codebooks,
        **kwargs,
    )
    return layer, reference_table(codes, codebooks)


def reference_table(codes, codebooks):
    """Shu & Nakayama, equation 1, id by id."""
    table = np.zeros((len(codes), codebooks.shape[2]))
    for row, code in zip(table, codes, strict=True):
        for codebook, subcode in zip(codebooks, code, strict=True):
            row += codebook[subcode]
    return table


def test_layer_checks(tmp_path):
    check_layer(
        kc.CodeEmbedding,
        {
            "input_dim": 30,
            "output_dim": 6,
            "num_codebooks": 5,
            "codebook_size": 8,
            "seed": 1,
        },
        np.array([[0, 29, 3], [3, 3, 7]], dtype="int32"),
        expected_output_shape=(2, 3, 6),
        expected_trainable_weights=1,
        expected_non_trainable_weights=1,
        tmp_path=tmp_path,
    )


@pytest.mark.parametrize("codebook_size", [2, 3, 4, 7, 16, 100, 256, 300])
@pytest.mark.parametrize("num_codebooks", [1, 7, 33])
def test_vectors_equal_the_reference(num_codebooks, codebook_size):
    layer, table = random_layer(num_codebooks, codebook_size)
    ids = np.array([[0, 49, 7], [7, 7, 20]])
    # A sum of M float32 numbers of size about 1 is off by a few M * 2**-24.
    np.testing.assert_allclose(layer(ids), table[ids], atol=1e-5)
    np.testing.assert_allclose(layer.embeddings, table, atol=1e-5)


@pytest.mark.parametrize("codebook_size", [3, 16])
def test_gathers_as_on_a_gpu(codebook_size, monkeypatch):
    monkeypatch.setattr(codeword_sums, "_sums_by_product", lambda size: False)
    layer, table = random_layer(33, codebook_size)
    np.testing.assert_allclose(layer(np.arange(50)), table, atol=1e-5)


def test_largest_codebook_size():
    layer, table = random_layer(2, 65536, rows=300, width=2)
    assert layer.packed_codes.shape == (300, 4)
    np.testing.assert_allclose(layer(np.arange(300)), table, atol=1e-6)


def test_weights_and_codes():
    layer, _ = random_layer(num_codebooks=5, codebook_size=7)
    assert layer.packed_codes.shape == (50, 2)
    assert layer.packed_codes.dtype == "uint8"
    assert not layer.packed_codes.trainable
    assert layer.codebooks.shape == (5, 7, 6)
    expected = np.random.default_rng(0).integers(7, size=(50, 5))
    np.testing.assert_array_equal(layer.codes, expected)


@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 4), (0, 3), (2, 0)])
def test_any_shape_of_ids(shape):
    layer, table = random_layer()
    ids = np.random.default_rng(1).integers(50, size=shape)
    outputs = layer(tf.constant(ids))
    assert outputs.shape == (*shape, 6)
    np.testing.assert_allclose(outputs, table[ids], atol=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32"])
def test_dtypes_of_ids(dtype):
    layer, table = random_layer()
    ids = np.array([[1, 49]])
    np.testing.assert_allclose(layer(ids.astype(dtype)), table[ids], atol=1e-5)


@pytest.mark.parametrize("codebook_size", [8, 100])
def test_gradient_counts_repeated_ids(codebook_size):
    rng = np.random.default_rng(0)
    codebooks = tf.constant(rng.normal(size=(6, codebook_size, 3)), "float32")
    subcodes = tf.constant(rng.integers(codebook_size, size=(20, 6)), "int32")
    weight = rng.normal(size=(20, 3)).astype("float32")
    with tf.GradientTape() as tape:
        tape.watch(codebooks)
        loss = tf.reduce_sum(sum_codewords(codebooks, subcodes) * weight)
    expected = np.zeros(codebooks.shape)
    for row, codes in zip(weight, subcodes.numpy(), strict=True):
        for m, subcode in enumerate(codes):
            expected[m, subcode] += row
    gradient = tape.gradient(loss, codebooks)
    assert isinstance(gradient, tf.Tensor)
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_lookup_memory_follows_the_ids():
    # 3 ids of a million: nothing in the graph has a million rows but the
    # packed codes themselves.
    layer = kc.CodeEmbedding(1_000_000, 16, 8, 16, seed=0)
    layer.build()
    function = tf.function(layer).get_concrete_function(
        tf.TensorSpec((3,), "int32")
    )
    sizes = {
        tensor.shape.num_elements() or 0
        for op in function.graph.get_operations()
        for tensor in op.outputs
        if tensor.dtype != tf.resource and op.type != "ReadVariableOp"
    }
    assert max(sizes) <= 8 * 16 * 16


def test_mask():
    layer, _ = random_layer(mask_zero=True)
    ids = np.array([[0, 3, 0]])
    np.testing.assert_array_equal(
        layer.compute_mask(ids), [[False, True, False]]
    )
    model = keras.Sequential([layer, keras.layers.GlobalAveragePooling1D()])
    np.testing.assert_allclose(model(ids)[0], layer(ids)[0, 1], rtol=1e-6)
    assert random_layer()[0].compute_mask(ids) is None


def test_frozen_codebooks():
    layer, _ = random_layer(trainable=False)
    assert not layer.trainable_weights


def test_random_codes_follow_the_seed():
    first, same, other = (
        kc.CodeEmbedding(100, 4, 4, 10, seed=seed) for seed in (1, 1, 2)
    )
    for layer in (first, same, other):
        layer.build()
    np.testing.assert_array_equal(first.codes, same.codes)
    assert (first.codes != other.codes).any()
    assert first.codes.max() == 9

    keras.utils.set_random_seed(5)
    one = kc.CodeEmbedding(100, 4, 4, 10)
    one.build()
    keras.utils.set_random_seed(5)
    two = kc.CodeEmbedding(100, 4, 4, 10)
    two.build()
    np.testing.assert_array_equal(one.codes, two.codes)


def test_from_table():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(8, 10))
    table = centres[rng.integers(8, size=200)]
    layer = kc.CodeEmbedding.from_table(
        table, 2, 8, seed=0, verbose=0, mask_zero=True, name="words"
    )
    assert (layer.input_dim, layer.output_dim) == (200, 10)
    assert layer.mask_zero and layer.name == "words"
    error = np.mean((layer.embeddings - table) ** 2) / np.mean(table**2)
    assert error < 0.01


def test_from_table_with_another_learner():
    table = np.random.default_rng(0).normal(size=(40, 4))
    learner = kc.learners.AdditiveQuantizer(2, 4, seed=0, verbose=0)
    layer = kc.CodeEmbedding.from_table(table, 2, 4, learner=learner)
    np.testing.assert_array_equal(layer.codes, learner.codes)
    np.testing.assert_array_equal(layer.codebooks, learner.codebooks)
    with pytest.raises(ValueError, match="`learner` must have the layer's"):
        kc.CodeEmbedding.from_table(table, 3, 4, learner=learner)
    learner = kc.learners.AdditiveQuantizer(2, 4, verbose=0)
    with pytest.raises(ValueError, match=r"`AdditiveQuantizer\(..., seed=3"):
        kc.CodeEmbedding.from_table(table, 2, 4, learner=learner, seed=3)
    assert learner.codes is None


def test_ids_out_of_range():
    layer, _ = random_layer()
    for ids in ([[50]], [[-1]]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="not in"):
            layer(np.array(ids))


def test_regularizer_and_constraint():
    layer = kc.CodeEmbedding(
        10,
        4,
        2,
        4,
        codebooks_regularizer="l2",
        codebooks_constraint="non_neg",
    )
    layer(np.array([1]))
    assert len(layer.losses) == 1
    check = kc.CodeEmbedding.from_config(layer.get_config())
    assert isinstance(check.codebooks_constraint, keras.constraints.NonNeg)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"input_dim": 0}, "`input_dim` must be a positive integer"),
        ({"output_dim": 2.0}, "`output_dim` must be a positive integer"),
        ({"num_codebooks": True}, "`num_codebooks` must be a positive integer"),
        ({"codebook_size": 1}, "`codebook_size` must be an integer from 2 to"),
        ({"codebook_size": 65537}, "Received: codebook_size=65537"),
        ({"composition": "mean"}, "`composition` must be 'sum', 'concat'"),
        ({"codes": np.full((10, 2), 4)}, "below `codebook_size`"),
        ({"codes": np.zeros((9, 2), int)}, r"must have shape \(10, 2\)"),
        ({"codes": np.zeros((10, 2))}, "`codes` must be integers"),
        ({"codebooks": np.zeros((2, 4, 4))}, "`codebooks` must have shape"),
        ({"codebooks": np.full((2, 4, 3), np.nan)}, "must be finite"),
        ({"mask_zero": "yes"}, "`mask_zero` must be True or False"),
        ({"mask_zero": None}, "`mask_zero` must be True or False"),
        ({"seed": -1}, "`seed` must be None or an integer of at least 0"),
        ({"seed": 1.0}, "`seed` must be None or an integer of at least 0"),
        ({"seed": True}, "`seed` must be None or an integer of at least 0"),
    ],
)
def test_bad_arguments(arguments, message):
    settings = {
        "input_dim": 10,
        "output_dim": 3,
        "num_codebooks": 2,
        "codebook_size": 4,
    }
    with pytest.raises(ValueError, match=message):
        kc.CodeEmbedding(**{**settings, **arguments})


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"mask_zero": "yes"}, "`mask_zero` must be"),
        ({"learn_codes": "kmeans"}, "`learn_codes` must be"),
        ({"learn_codes": FOLLOWS_ANOTHER}, "`teacher` must have the shape"),
        ({"mask_zeros": True}, "mask_zeros"),
        ({"codes": np.zeros((30, 2), int)}, "codes"),
    ],
)
def test_from_table_refuses_before_it_learns(arguments, message):
    learner = kc.learners.AdditiveQuantizer(2, 4, verbose=0)
    with pytest.raises((TypeError, ValueError), match=message):
        kc.CodeEmbedding.from_table(
            np.eye(30), 2, 4, learner=learner, **arguments
        )
    assert learner.codebooks is None


def every_kind(composition, learn_codes=None, **kwargs):
    """A layer of 50 ids with numbers of size 1."""
    layer = kc.CodeEmbedding(
        50, 6, 4, 8, composition, learn_codes=learn_codes, seed=0, **kwargs
    )
    layer.build()
    rng = np.random.default_rng(3)
    for weight in layer.trainable_weights:
        weight.assign(0.5 * rng.normal(size=weight.shape))
    return layer


COMPOSITIONS = {
    "sum": "sum",
    "concat": "concat",
    "linear": kc.compositions.LinearComposition(3),
    "lstm": kc.compositions.LSTMComposition(3),
    "scaled": kc.compositions.ScaledComposition("lstm"),
    "own": MaxComposition(),
}
HIDDEN = np.random.default_rng(4).normal(size=(2, 3, 6)).astype("float32")


@pytest.mark.parametrize("part", [1 << 22, 7 * 4 * 6])
@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_reverse_equals_the_reference(composition, part, monkeypatch):
    """Whole and in parts, logits are products with the rows looked up."""
    monkeypatch.setattr(coded_rows, "_CHUNK_ELEMENTS", part)
    layer = every_kind(COMPOSITIONS[composition])
    upstream = np.random.default_rng(5).normal(size=(2, 3, 50))
    hidden = tf.constant(HIDDEN)

    def run(logits):
        with tf.GradientTape() as tape:
            tape.watch(hidden)
            found = logits()
            loss = tf.reduce_sum(found * upstream)
        sources = [hidden, *layer.trainable_weights]
        return [
            found,
            *tape.gradient(loss, [getattr(x, "value", x) for x in sources]),
        ]

    # A row at a time, in NumPy, and gradients of look-ups.
    table = np.stack(
        [np.asarray(layer(np.array(number))) for number in range(50)]
    )
    np.testing.assert_allclose(layer.embeddings, table, atol=1e-5)
    expected = run(
        lambda: tf.einsum("btd,vd->btv", hidden, layer(np.arange(50)))
    )
    products = np.zeros((2, 3, 50))
    for place in np.ndindex(2, 3, 50):
        products[place] = HIDDEN[place[:2]] @ table[place[2]]
    np.testing.assert_allclose(expected[0], products, atol=1e-5)
    # Whole in a graph; in parts eagerly and by XLA.
    for jit_compile in (False,) if part == 1 << 22 else (None, True):
        function = lambda: run(lambda: layer(hidden, reverse=True))  # noqa: E731
        if jit_compile is not None:
            function = tf.function(function, jit_compile=jit_compile)
        for got, wanted in zip(function(), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@keras.saving.register_keras_serializable(package="test_code_embedding")
class Shared(keras.layers.Layer):
    """Logits by the table of a layer that it holds."""

    def __init__(self, embedding, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding

    def build(self, shape):
        self.embedding.build()

    def call(self, inputs):
        table = keras.ops.transpose(self.embedding.embeddings)
        return keras.ops.matmul(inputs, table)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_table_read_in_a_layer(dtype):
    """It is tied, trains the codebooks, and is cast as a weight is."""
    kind = every_kind("sum", dtype=dtype)
    shared = Shared(kind, dtype=dtype)
    hidden = tf.cast(HIDDEN, shared.compute_dtype)
    logits = shared(hidden)
    assert logits.dtype == shared.compute_dtype
    np.testing.assert_allclose(
        np.asarray(logits, "float32"),
        np.asarray(kind(hidden, reverse=True), "float32"),
        # Eight bits of some six products of size 1.
        atol=1e-5 if dtype == "float32" else 6 * 2.0**-6,
    )
    assert kind.embeddings.dtype == "float32"
    model = keras.Sequential(
        [keras.Input((3, 6), dtype=hidden.dtype.name), shared]
    )
    model.compile("sgd", "mse")
    before = kind.codebooks.numpy()
    model.fit(hidden, np.ones((2, 3, 50)), verbose=0)
    assert not np.isclose(kind.codebooks, before).all(axis=-1).any()


@pytest.mark.parametrize("learn_codes", ["softmax", "nearest", "follow"])
def test_reverse_while_codes_are_learned(learn_codes, monkeypatch):
    monkeypatch.setattr(task_codes, "_CHUNK_ELEMENTS", 7 * 4 * 8)
    layer = every_kind("concat", learn_codes=learn_codes)
    table = layer(np.arange(50))
    for function in (layer, tf.function(layer, jit_compile=True)):
        logits = function(HIDDEN, reverse=True, training=True)
        np.testing.assert_allclose(logits, HIDDEN @ table.numpy().T, atol=1e-5)
    codes = layer.codes
    layer.freeze_codes()
    np.testing.assert_array_equal(layer.codes, codes)
    np.testing.assert_allclose(layer(HIDDEN, reverse=True), logits, atol=1e-5)


@pytest.mark.parametrize("name", ["codes", "embeddings"])
def test_arrays_of_an_unbuilt_layer(name):
    with pytest.raises(AttributeError, match="You must build the layer"):
        getattr(kc.CodeEmbedding(10, 4), name)
