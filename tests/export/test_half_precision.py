"""Models with variables of half precision, as keras-hub loads them."""

import functools

import keras
import numpy as np
import pytest
from compressing import compress
from export_models import ROWS
from export_models import anchor_embedding
from export_models import code_embedding
from export_models import error_of
from export_models import ids_input
from export_models import random_ids
from export_models import write

import keras_compembed as kc

L = keras.layers
WIDTH = 6
# Rounding of Keras's own numbers, in some sums.
BOUND = 2.0**-4
# In bfloat16, TensorFlow has no orthogonal matrices.
LOOP = {"recurrent_initializer": "glorot_uniform"}


def positions(**kwargs):
    hub = pytest.importorskip("keras_hub")
    return hub.layers.PositionEmbedding(40, **kwargs)


# Those that failed in ways of their own.
LAYERS = {
    "convolution": functools.partial(L.Conv1D, 4, 3),
    "gru": functools.partial(L.GRU, 4, **LOOP),
    "positions": positions,
}


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_behind_codes_and_a_table(kind, path):
    keras.utils.set_random_seed(0)
    dtype, ids = "bfloat16", ids_input(7)
    words = L.Embedding(ROWS, WIDTH, dtype=dtype, name="words")
    marks = L.Embedding(ROWS, WIDTH, dtype=dtype, name="marks")
    model = keras.Model(ids, LAYERS[kind](dtype=dtype)(words(ids) + marks(ids)))
    small = compress(model, layers=["words"], seed=0)
    before = small.get_weights()
    made = write(small, path)
    assert made.max_error < 2e-6 and made.held_layers == ("words",)
    assert error_of(path, small, random_ids(2, 7)) < BOUND
    # The model is left as it is.
    assert {x.dtype for x in small.layers[1].variables} == {dtype, "uint8"}
    for array, old in zip(small.get_weights(), before, strict=True):
        assert array.dtype == old.dtype
        np.testing.assert_array_equal(array, old)


OWN = {
    "lstm": functools.partial(code_embedding, composition="lstm"),
    "rank": functools.partial(
        kc.QuantizedEmbedding, ROWS, WIDTH, bits=4, rank=3
    ),
    "anchors": anchor_embedding,
}


@pytest.mark.parametrize("kind", OWN)
def test_own_layers(kind, path):
    keras.utils.set_random_seed(0)
    dtype, ids = "bfloat16", ids_input()
    vectors = OWN[kind](dtype=dtype)(ids)
    outputs = {
        "folded": L.Conv1D(4, 3, dtype=dtype)(vectors),
        "pooled": L.GlobalAveragePooling1D(dtype=dtype)(vectors),
    }
    head = kc.CANESoftmax(30, dtype=dtype)
    model = keras.Model(ids, {**outputs, "head": head(outputs["pooled"])})
    made = write(model, path)
    assert made.max_error < 1e-6 and made.max_row_error < 1e-6
    assert error_of(path, kc.top_k_model(model, None)) < BOUND


def test_inputs_of_bfloat16_are_float32(path):
    """NumPy has none, nor have apps."""
    inputs = keras.Input((4,), dtype="bfloat16")
    model = keras.Model(inputs, L.Dense(3, dtype="bfloat16")(inputs))
    assert write(model, path).max_error < 1e-6
    (tensor,) = kc.export.inspect_litert(path).inputs
    assert tensor.dtype == "float32"


def test_dtypes_by_name_are_refused(path):
    dtype = "float16"

    class Sum(L.Layer):
        def call(self, inputs):
            return keras.ops.sum(keras.ops.cast(inputs, dtype), axis=1)

    model = keras.Sequential(
        [ids_input(), code_embedding(dtype=dtype), Sum(name="total")]
    )
    message = f"in the layers? 'total'.*{dtype}.*`self.compute_dtype`"
    with pytest.raises(ValueError, match=message):
        write(model, path)
