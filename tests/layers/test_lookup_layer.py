"""What layers that turn ids into vectors share with Keras's `Embedding`."""

import keras
import numpy as np
import pytest
from layer_checks import check_id_types
from layer_checks import check_policy
from layer_checks import check_ragged_training

import keras_compembed as kc

IDS = np.array([[0, 29, 3], [3, 3, 7]], dtype="int32")


@keras.saving.register_keras_serializable(package="test_lookup_layer")
class MaxComposition(kc.Composition):
    def call(self, codewords):
        return keras.ops.max(codewords, axis=1)


def embedding(**kwargs):
    return keras.layers.Embedding(300, 7, **kwargs)


def coded(learn_codes=None, composition="sum", **kwargs):
    if learn_codes is not None and "dtype" in kwargs:
        kwargs["teacher"] = np.ones((300, 7))
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


def sparsified(**kwargs):
    layer = anchored("lazy", **kwargs)
    layer.build()
    layer.sparsify()
    return layer


LAYERS = {
    "keras": embedding,
    "fixed-lstm": lambda **kwargs: coded(None, "lstm", **kwargs),
    "softmax-sum": lambda **kwargs: coded("softmax", "sum", **kwargs),
    "nearest-concat": lambda **kwargs: coded("nearest", "concat", **kwargs),
    "follow-linear": lambda **kwargs: coded("follow", "linear", **kwargs),
    "dense": lambda **kwargs: anchored("dense", **kwargs),
    "lazy": lambda **kwargs: anchored("lazy", **kwargs),
    "sparse": lambda **kwargs: anchored("sparse", **kwargs),
    "sparsified": sparsified,
}


@pytest.mark.parametrize("name", LAYERS)
def test_ids(name):
    check_id_types(LAYERS[name]())
    check_ragged_training(LAYERS[name]())


@pytest.mark.parametrize("name", [*LAYERS, "own"])
@pytest.mark.parametrize("policy", ["float16", "bfloat16", "float64"])
def test_policies(name, policy, tmp_path):
    make = LAYERS.get(name) or (
        lambda **kwargs: coded("softmax", MaxComposition(), **kwargs)
    )
    model = check_policy(make(dtype=policy), IDS, tmp_path)
    layer = model.layers[0]
    vectors = np.asarray(layer(np.arange(300)), "float64")
    # Vectors of size 1, as they are stored.
    epsilon = {"float16": 2.0**-10, "bfloat16": 2.0**-7}.get(policy, 1e-6)
    table = np.asarray(layer.embeddings, "float64")
    np.testing.assert_allclose(table, vectors, atol=epsilon)


def test_losses_of_anchors_in_half_precision(tmp_path):
    layer = anchored(
        "lazy",
        dtype="float16",
        activation="softmax",
        num_mixtures=2,
        negative_weight=0.1,
        target_nonzeros=500,
        orthogonality=1e-3,
    )
    check_policy(layer, IDS, tmp_path)


@pytest.mark.parametrize("name", ["softmax-sum", "lazy"])
def test_masks(name):
    layer = LAYERS[name](mask_zero=True)
    for dtype in ("int8", "int32", "float32"):
        mask = layer.compute_mask(IDS.astype(dtype))
        np.testing.assert_array_equal(mask, IDS != 0)


def test_masks_of_vectors():
    layer = anchored("dense", mask_zero=True)
    mask = np.array([True, False])
    assert layer.compute_mask(np.zeros((2, 7), "float32"), mask) is mask
