"""Tables of keras-rs, which pool by themselves."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from compressing import compress
from compressing import layers_of

import keras_compembed as kc

keras_rs = pytest.importorskip("keras_rs")
EmbedReduce = keras_rs.layers.EmbedReduce
ROWS, WIDTH = 60, 8
IDS = np.array([[1, 2, 0], [59, 0, 0]])
WEIGHTS = np.array([[1.0, 0.5, 2.0], [0.0, 3.0, 1.0]], "float32")


def functional(combiner="mean", ids=None, weights=None, **kwargs):
    layer = EmbedReduce(ROWS, WIDTH, combiner=combiner, name="bag", **kwargs)
    ids = keras.Input((None,), dtype="int32") if ids is None else ids
    inputs = ids if weights is None else [ids, weights]
    return keras.Model(inputs, layer(ids, weights))


def check(model, small, inputs):
    """The copy gives what the model gives with the copy's vectors."""
    (copy,), (layer,) = layers_of(small), layers_of(model, EmbedReduce)
    assert type(copy) is kc.CodeEmbedding and not copy.mask_zero
    assert copy.combiner.name == layer.combiner
    layer.set_weights([copy.embeddings])
    expected = keras.ops.convert_to_numpy(model(inputs))
    np.testing.assert_allclose(small(inputs), expected, atol=1e-6)


def with_weights():
    ids = keras.Input((3,), dtype="int32", name="ids")
    return ids, keras.Input((3,), name="weights")


@pytest.mark.parametrize(
    "combiner, kind",
    [("sum", "masked"), ("sqrtn", "weighted"), ("mean", "sparse")],
)
def test_ids_of_all_kinds(combiner, kind):
    inputs = IDS
    if kind == "weighted":
        model = functional(combiner, *with_weights())
        inputs = [IDS, WEIGHTS]
    elif kind == "sparse":
        ids = keras.Input((3,), dtype="int32", sparse=True)
        model, inputs = functional(combiner, ids), tf.sparse.from_dense(IDS)
    else:
        # The original reads id 0 as any other, whatever it masks.
        model = functional(combiner, mask_zero=True)
    check(model, compress(model, sample_inputs=inputs), inputs)


def test_rows_by_themselves_are_refused():
    how = kc.methods.Codes(2, 4).for_table(pooled=False)
    with pytest.raises(ValueError, match="'bag', but it pools its rows"):
        compress(functional(), {"bag": how})


def test_ragged_ids_and_single_ids():
    model = keras.Sequential([EmbedReduce(ROWS, WIDTH, name="bag")])
    ragged = tf.ragged.constant([[1, 2, 3], [], [59]], tf.int32)
    model(ragged)
    check(model, compress(model, sample_inputs=ragged), ragged)
    model = functional(ids=keras.Input((), dtype="int32"))
    check(model, compress(model), IDS[:, 0])
