"""`ANTEmbedding` all the way from Keras into a LiteRT file."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import ROWS
from export_models import anchor_embedding
from export_models import compiled
from export_models import error_of
from export_models import export
from export_models import ids_input
from export_models import random_ids
from export_models import read_tensors
from export_models import towers
from export_models import write

import keras_compembed as kc
from keras_compembed.anchors.transform import Mixture
from keras_compembed.litert import compressed_rows

EVERY_ID = np.random.default_rng(0).permutation(ROWS).astype("int32")[None]
# Rows of an anchor embedding: none at both ends, and next to each other.
EMPTY = [0, 1, 5, ROWS - 1]


def layer_of(
    num_anchors=50, width=6, density=0.05, longest=0, extreme=False, **kwargs
):
    """A layer whose rows and numbers are chosen."""
    layer = anchor_embedding(num_anchors, width, **kwargs)
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(layer.input_dim, num_anchors)).astype("float32")
    rows[rng.random(rows.shape) > density] = 0
    rows[EMPTY] = 0
    rows[2, :longest] = 1 + rng.random(longest)
    if extreme:
        # Where plain exponentials are infinite, or all zero.
        rows[6:9, :3] = [[1000, 0, -1000], [1000, 999, 1000], [-1000, 1e-6, 0]]
        rows[9] = -1000
    layer.assign_transform(rows)
    return layer


LAYERS = {
    "product": {},
    "sums": {"num_anchors": 300, "density": 0.01, "input_dim": 301},
    "long row": {"longest": 50},
    "softmax": {"mixture": Mixture(2, "softmax"), "extreme": True},
    "softmax sums": {
        "num_anchors": 300,
        "density": 0.01,
        "input_dim": 301,
        "mixture": Mixture(3, "softmax"),
    },
    "sparsemax": {"mixture": Mixture(3, "sparsemax")},
}


@pytest.mark.parametrize(
    ("kind", "length"),
    [
        *((kind, None) for kind in LAYERS),
        *((kind, ROWS) for kind in ("product", "softmax sums")),
    ],
)
def test_every_row_is_that_of_keras(kind, length, path):
    layer = layer_of(**LAYERS[kind])
    made = export(towers([layer], length=length), path, EVERY_ID)
    assert made.max_row_error < 2e-6
    assert made.held_layers == (layer.name,)
    got = kc.export.LiteRTModel(path)(EVERY_ID)[0]
    places = np.argsort(EVERY_ID[0])
    expected = np.asarray(layer.embeddings)[:ROWS]
    np.testing.assert_allclose(got[places], expected, atol=2e-5)
    if layer.activation is None:
        np.testing.assert_array_equal(got[places][EMPTY], np.zeros((4, 6)))
        # By themselves, and between others.
        for ids in ([5, 0, 1, 96, 5], [0, 2, 1, 5, 3, 96]):
            ids = np.resize(np.array(ids, "int32"), (1, length or len(ids)))
            assert error_of(path, towers([layer]), ids) < 2e-6


@pytest.mark.parametrize(
    ("mixture", "quantize"), [(None, "int8"), ("softmax", None)]
)
def test_no_numbers_at_all(mixture, quantize, path):
    layer = anchor_embedding(mixture=mixture)
    layer.assign_transform(np.zeros((ROWS, 20), "float32"))
    for length in (None, 7):
        if length:
            layer = kc.strip(layer)
        export(towers([layer], length=length), path, quantize=quantize)
        got = kc.export.LiteRTModel(path)(random_ids(2, 7))
        np.testing.assert_allclose(got, layer(random_ids(2, 7)), atol=1e-6)


@pytest.mark.parametrize(
    ("quantize", "positive", "levels"),
    [
        ("float16", False, 2**15 - 1),
        ("int8", True, 2**8 - 1),
    ],
)
def test_numbers_are_rounded_to_steps(quantize, positive, levels, path):
    layer = layer_of(density=0.2)
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(ROWS, 50)) * (rng.random((ROWS, 50)) < 0.2)
    rows = np.abs(rows) if positive else rows
    layer.assign_transform(rows.astype("float32"))
    write(towers([layer]), path, quantize=quantize)
    tensors = read_tensors(path)
    kind = {"float16": "INT16", "int8": "UINT8" if positive else "INT8"}
    assert (kind[quantize], (layer.nnz + 1,)) in [x[:2] for x in tensors]
    got = kc.export.LiteRTModel(path)(np.arange(ROWS, dtype="int32")[None])[0]
    # Half a step of each number's column; anchors stay as they are but for
    # what float16 rounds off.
    anchors = np.abs(layer.anchors)
    steps = np.abs(rows).max(axis=0) / levels / 2
    bound = (rows != 0) * steps @ anchors
    bound += 1e-5 if quantize == "int8" else 2**-11 * (np.abs(rows) @ anchors)
    difference = np.abs(got - rows @ layer.anchors.numpy())
    assert (difference <= bound).all()
    assert difference.max() > 0.05 * bound.max()


@pytest.mark.parametrize("kind", ["sums", "softmax"])
def test_compiled_model(kind, path):
    layer = layer_of(**LAYERS[kind])
    model = towers([layer], length=32)
    signature = tf.TensorSpec((1, 32), "int32")
    made = write(model, path, input_signature=signature)
    if kind == "sums":
        # What gives a shape that only the run knows.
        assert not {"RANGE", "SHAPE"} & set(made.ops)
    run = compiled(path)
    # Rows of several lengths, one call after another.
    for ids in EVERY_ID[:, :96].reshape(3, 1, 32):
        (got,) = run(ids, (32 * 6, np.float32))
        np.testing.assert_allclose(
            got.reshape(1, 32, 6), model(ids), rtol=0, atol=2e-5
        )


@pytest.mark.parametrize(
    ("sparsified", "mixture", "length"),
    [(False, None, None), (True, "softmax", 5)],
)
def test_tied_outputs(path, sparsified, mixture, length):
    layer = anchor_embedding(input_dim=2000, mixture=mixture)
    if sparsified:
        layer = kc.strip(layer)
    ids = ids_input(length)
    vectors = keras.layers.Dense(6)(layer(ids))
    model = keras.Model(ids, layer(vectors, reverse=True))
    signature = tf.TensorSpec((length and 2, length), "int32")
    export(model, path, random_ids(2, 5, high=2000), input_signature=signature)
    # The rows are there once, and are all that grows with their number.
    nnz = layer.get_transform().nnz
    large = [len(data) for *_, data in read_tensors(path) if len(data) > 1000]
    assert sorted(large) == [2001, nnz + 1, 4 * (nnz + 1)]


@pytest.mark.parametrize(
    ("number", "dtype"),
    [(256, "uint8"), (2**15, "int16"), (2**16, "int16"), (2**17, "int32")],
)
def test_files_count_anchors_in_few_bytes(number, dtype):
    columns = np.array([0, 5, number - 1])
    stored, offset = compressed_rows._narrow_columns(columns, number)
    assert stored.dtype == dtype
    np.testing.assert_array_equal(stored.astype("int64") + offset, columns)
