"""Vectors composed of codes, and what other look-ups share with them."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused
from layer_checks import largest_tensor
from layer_checks import random_codes

import keras_compembed as kc
from keras_compembed.compositions.composition import ScaledComposition
from keras_compembed.learners.task_codes import FollowingCodes

IDS = np.array([[0, 29, 3], [3, 3, 7]], dtype="int32")
HIDDEN = np.random.default_rng(4).normal(size=(2, 3, 6)).astype("float32")
FOLLOWS_ANOTHER = FollowingCodes(teacher=np.ones((3, 30)))


@keras.saving.register_keras_serializable(package="test_code_embedding")
class MaxComposition(kc.compositions.Composition):
    def call(self, codewords):
        return keras.ops.max(codewords, axis=1)


def anchored(transform="dense", **kwargs):
    return kc.ANTEmbedding(50, 6, 8, transform=transform, **kwargs)


EITHER = pytest.mark.parametrize(
    "make",
    [lambda **kwargs: random_codes(5, 7, **kwargs)[0], anchored],
    ids=["codes", "anchors"],
)


@pytest.mark.parametrize(
    ("num_codebooks", "codebook_size"),
    [(1, 2), (5, 7), (33, 16), (1, 256), (33, 300), (2, 65536)],
)
def test_vectors_and_gradients_equal_the_reference(
    num_codebooks, codebook_size
):
    layer, _, table = random_codes(num_codebooks, codebook_size)
    ids = np.array([0, 49, 7, 7, 7, 20])
    weight = np.random.default_rng(0).normal(size=(6, 6))
    with tf.GradientTape() as tape:
        vectors = layer(ids)
        loss = tf.reduce_sum(vectors * weight)
    # A sum of M float32 numbers of size about 1 is off by a few M * 2**-24.
    np.testing.assert_allclose(vectors, table[ids], atol=1e-5)
    np.testing.assert_allclose(layer.embeddings, table, atol=1e-5)
    # Dense, so that ids that come twice count twice with every optimizer.
    gradient = tape.gradient(loss, layer.codebooks.value)
    assert isinstance(gradient, tf.Tensor)
    expected = np.zeros(gradient.shape)
    for row, code in zip(weight, layer.codes[ids], strict=True):
        expected[np.arange(num_codebooks), code] += row
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_lookup_memory_follows_the_ids():
    # 3 ids of a million: nothing in the graph has a million rows but the
    # packed codes themselves.
    layer = kc.CodeEmbedding(1_000_000, 16, 8, 16)
    layer.build()
    assert largest_tensor(layer, tf.TensorSpec((3,), "int32")) <= 8 * 16 * 16


@EITHER
def test_masks(make):
    layer = make(mask_zero=True)
    np.testing.assert_array_equal(layer.compute_mask(IDS), IDS != 0)
    assert make().compute_mask(IDS) is None
    pooling = keras.layers.GlobalAveragePooling1D()
    vectors = layer(np.array([[3, 0]]))
    np.testing.assert_allclose(pooling(vectors)[0], vectors[0, 0], rtol=1e-6)
    # Logits have the mask of their vectors.
    logits = layer(vectors, reverse=True)
    np.testing.assert_allclose(pooling(logits)[0], logits[0, 0], rtol=1e-6)
    mask = np.array([True, False])
    assert layer.compute_mask(np.zeros((2, 6), "float32"), mask) is mask


@EITHER
def test_masks_of_ids_as_many_as_columns(make):
    """`keras.Input` makes ids floats: they look like vectors."""
    inputs = keras.Input((6,))
    layer = make(mask_zero=True)
    pooled = keras.layers.GlobalAveragePooling1D()(layer(inputs))
    ids = np.array([[5, 6, 0, 0, 0, 0]])
    got = keras.Model(inputs, pooled)(ids)
    np.testing.assert_allclose(
        got[0], np.mean(layer(ids[:, :2])[0], axis=0), atol=1e-6
    )


@EITHER
@pytest.mark.parametrize(
    ("shape", "dtype"), [((2, 5), "float32"), ((2, 6), "int32")]
)
def test_reverse_takes_vectors(make, shape, dtype):
    layer = make()
    for inputs in (np.zeros(shape, dtype), keras.KerasTensor(shape, dtype)):
        with refused("inputs"):
            layer(inputs, reverse=True)


@EITHER
def test_ids_out_of_range(make):
    layer = make()
    for ids in ([[50]], [[-1]]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="not in"):
            layer(np.array(ids))


def test_from_table():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(8, 10))[rng.integers(8, size=200)]
    layer = kc.CodeEmbedding.from_table(
        table, 2, 8, seed=0, verbose=0, mask_zero=True, name="words"
    )
    assert (layer.input_dim, layer.output_dim) == (200, 10)
    assert layer.mask_zero and layer.name == "words"
    error = np.mean((layer.embeddings - table) ** 2) / np.mean(table**2)
    assert error < 0.01


@pytest.mark.parametrize(
    "kind", [kc.CodeEmbedding, kc.QuantizedEmbedding, kc.ANTEmbedding]
)
def test_from_table_has_the_defaults_of_the_layer(kind):
    defaults = inspect.signature(kind).parameters
    for name, given in inspect.signature(kind.from_table).parameters.items():
        if name in defaults and name not in ("kwargs", "composition"):
            assert given.default == defaults[name].default, name


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"mask_zero": "yes"}, "mask_zero"),
        ({"codes": FOLLOWS_ANOTHER}, "teacher"),
        ({"num_codebooks": 3}, "learner"),
        ({"composition": "lstm"}, "composition"),
        ({"seed": 3}, "AdditiveQuantizer(..., seed=3)"),
        ({"mask_zeros": True}, None),
        ({"codes": np.zeros((30, 2), int)}, "codes"),
        ({"codebooks": np.zeros((2, 4, 30))}, "codebooks"),
        ({"reverse_table": np.eye(29)}, "reverse_table"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_from_table_refuses_before_it_learns(arguments, name):
    learner = kc.learners.AdditiveQuantizer(2, 4, verbose=0)
    arguments = {"num_codebooks": 2, **arguments}
    with refused(name, error=(TypeError, ValueError)):
        kc.CodeEmbedding.from_table(
            np.eye(30), codebook_size=4, learner=learner, **arguments
        )
    assert learner.codebooks is None


def test_regularizer_and_constraint():
    spec = kc.WeightSpec(regularizer="l2", constraint="non_neg")
    layer = kc.CodeEmbedding(10, 4, 2, 4, codebooks=spec)
    learned = kc.CodeEmbedding.from_table(
        np.eye(10), 2, 4, codebooks=spec, verbose=0
    )
    check = kc.CodeEmbedding.from_config(layer.get_config())
    for each in (layer, learned, check):
        each(np.array([1]))
        assert len(each.losses) == 1
        assert isinstance(each.codebooks.constraint, keras.constraints.NonNeg)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input_dim", 0),
        ("codebook_size", 65537),
        ("composition", "mean"),
        ("codes", np.full((10, 2), 4)),
        ("codes", np.zeros((10, 2))),
        ("codebooks", np.zeros((2, 4, 4))),
        ("codebooks", np.full((2, 4, 3), np.nan)),
        ("mask_zero", "yes"),
    ],
)
def test_bad_arguments(name, value):
    settings = {"output_dim": 3, "num_codebooks": 2, "codebook_size": 4}
    with refused(name, None if isinstance(value, np.ndarray) else value):
        kc.CodeEmbedding(**{"input_dim": 10, **settings, name: value})


def test_arrays_of_an_unbuilt_layer():
    with pytest.raises(AttributeError, match="must build the layer"):
        _ = kc.CodeEmbedding(10, 4).codes


def every_kind(composition, rows=50, **kwargs):
    """A layer with numbers of size 1."""
    rng = np.random.default_rng(0)
    arguments = {"codes": rng.integers(8, size=(rows, 4)), **kwargs}
    layer = kc.CodeEmbedding(rows, 6, 4, 8, composition, **arguments)
    layer.build()
    rng = np.random.default_rng(3)
    for weight in layer.trainable_weights:
        weight.assign(0.5 * rng.normal(size=weight.shape))
    return layer


def linear_of_width(width):
    return ScaledComposition(("linear", width))


@pytest.mark.parametrize(
    ("composition", "rows"),
    [
        ("concat", 50),
        (("lstm", 3), 50),
        (MaxComposition(), 50),
        # Composed in two parts, of 256 rows and of 5; or just in one.
        (linear_of_width(4096), 261),
        (linear_of_width(4096), 256),
    ],
)
def test_reverse_equals_the_reference(composition, rows):
    """Logits are products with rows looked up, and so are gradients."""
    layer = every_kind(composition, rows)
    upstream = np.random.default_rng(5).normal(size=(2, 3, rows))
    hidden = tf.constant(HIDDEN)

    def run(logits):
        with tf.GradientTape() as tape:
            tape.watch(hidden)
            found = logits()
            loss = tf.reduce_sum(found * upstream)
        weights = [weight.value for weight in layer.trainable_weights]
        return [found, *tape.gradient(loss, [hidden, *weights])]

    table = np.stack([np.asarray(layer(np.array(row))) for row in range(rows)])
    np.testing.assert_allclose(layer.embeddings, table, rtol=1e-5, atol=1e-4)
    expected = run(
        lambda: tf.einsum("btd,vd->btv", hidden, layer(np.arange(rows)))
    )
    np.testing.assert_allclose(
        expected[0], HIDDEN @ table.T, rtol=1e-4, atol=1e-4
    )
    reverse = lambda: run(lambda: layer(hidden, reverse=True))  # noqa: E731
    for call in (reverse, tf.function(reverse)):
        for got, wanted in zip(call(), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=2e-3)
