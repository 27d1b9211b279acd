"""What layers that turn ids into vectors share with Keras's `Embedding`."""

import keras
import numpy as np
import pytest
from layer_checks import check_policy

import keras_compembed as kc

IDS = np.array([[0, 29, 3], [3, 3, 7]], dtype="int32")


@keras.saving.register_keras_serializable(package="test_lookup_layer")
class MaxComposition(kc.compositions.Composition):
    def call(self, codewords):
        return keras.ops.max(codewords, axis=1)


def coded(learn_codes=None, composition="sum", **kwargs):
    if learn_codes == "softmax" and "dtype" in kwargs:
        learn_codes = kc.learners.SoftmaxCodes(teacher=np.ones((300, 7)))
    return kc.CodeEmbedding(
        300,
        7,
        4,
        8,
        composition,
        learn_codes=learn_codes,
        seed=0,
        **kwargs,
    )


def anchored(storage, **kwargs):
    return kc.ANTEmbedding(
        300, 7, num_anchors=8, storage=storage, seed=0, **kwargs
    )


@pytest.mark.parametrize("policy", ["float16", "bfloat16", "float64"])
def test_own_composition(policy, tmp_path):
    layer = coded("softmax", MaxComposition(), dtype=policy)
    check_policy(layer, IDS, tmp_path)


def test_losses_of_anchors_in_half_precision(tmp_path):
    layer = anchored(
        "lazy",
        dtype="float16",
        l1=kc.transforms.L1(target_nonzeros=500),
        mixture=kc.transforms.Mixture(2, "softmax"),
        negative_weight=0.1,
        anchors_regularizer=kc.anchors.Orthogonality(1e-3),
    )
    check_policy(layer, IDS, tmp_path)


@pytest.mark.parametrize("kind", ["codes", "anchors"])
def test_masks(kind):
    if kind == "codes":
        layer = coded("softmax", mask_zero=True)
    else:
        layer = anchored("lazy", mask_zero=True)
    for dtype in ("int8", "int32", "float32"):
        mask = layer.compute_mask(IDS.astype(dtype))
        np.testing.assert_array_equal(mask, IDS != 0)


EVERY_KIND = pytest.mark.parametrize(
    "make",
    [coded, lambda **k: anchored("dense", **k)],
    ids=["codes", "anchors"],
)


@EVERY_KIND
def test_masks_of_vectors(make):
    layer = make(mask_zero=True)
    mask = np.array([True, False])
    assert layer.compute_mask(np.zeros((2, 7), "float32"), mask) is mask
    vectors = layer(np.array([[3, 0]]))
    logits = layer(vectors, reverse=True)
    np.testing.assert_array_equal(logits._keras_mask, [[True, False]])


@EVERY_KIND
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_masks_of_ids_as_many_as_columns(make, dtype):
    """`keras.Input` makes ids floats: they look like vectors."""
    inputs = keras.Input((7,), dtype=dtype)
    layer = make(mask_zero=True)
    pooled = keras.layers.GlobalAveragePooling1D()(layer(inputs))
    ids = np.array([[5, 6, 0, 0, 0, 0, 0]])
    got = keras.Model(inputs, pooled)(ids)
    np.testing.assert_allclose(
        got[0], np.mean(layer(ids[:, :2])[0], axis=0), atol=1e-6
    )


@EVERY_KIND
@pytest.mark.parametrize(
    "inputs",
    [
        np.zeros((2, 6), "float32"),
        np.zeros((2, 7), "int32"),
        np.zeros((), "float32"),
    ],
)
def test_reverse_takes_vectors(make, inputs):
    message = "`inputs` with `reverse=True` must be float vectors of width"
    layer = make()
    with pytest.raises(ValueError, match=message):
        layer(inputs, reverse=True)
    with pytest.raises(ValueError, match=message):
        layer(keras.KerasTensor(inputs.shape, inputs.dtype.name), reverse=True)


@pytest.mark.parametrize("layer", [coded(), anchored("dense")])
def test_embed_with(layer):
    vectors = layer(IDS).numpy()
    zeros = lambda ids: keras.ops.zeros((len(ids), 7))  # noqa: E731
    with layer.embed_with(lambda ids: zeros(ids) + 1):
        assert (layer(IDS).numpy() == 1).all()
        with layer.embed_with(zeros):
            assert not layer(IDS).numpy().any()
        assert (layer.embed(IDS[0]).numpy() == 1).all()
    np.testing.assert_array_equal(layer(IDS), vectors)
    with pytest.raises(RuntimeError), layer.embed_with(zeros):
        raise RuntimeError
    np.testing.assert_array_equal(layer(IDS), vectors)
