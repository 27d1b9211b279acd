"""`ANTEmbedding` all the way from Keras into a LiteRT file."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import ROWS
from export_models import anchor_embedding
from export_models import code_embedding
from export_models import ids_input
from export_models import random_ids
from export_models import read_tensors

from keras_compembed.export.export_litert import export_litert
from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.transforms import FixedRows
from keras_compembed.transforms import Mixture

# Sums of some tens of float32 products of numbers around one.
ROUNDING = dict(rtol=0, atol=1e-5)


@pytest.fixture
def path(tmp_path):
    return os.fspath(tmp_path / "model.tflite")


def classifier(layer, length=None):
    return keras.Sequential(
        [
            ids_input(length),
            layer,
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(3),
        ]
    )


@pytest.mark.parametrize("storage", ["dense", "lazy", "sparse"])
def test_trained_models(path, storage):
    layer = anchor_embedding(storage=storage, l1=1e-3)
    model = classifier(layer)
    model.compile("adam", "mse")
    ids = random_ids(200, 7)
    model.fit(ids, ids[:, :3] % 2, epochs=2, verbose=0)
    assert 0 < layer.density < 0.9
    for sparsified in (False, True):
        if sparsified:
            layer.sparsify()
        export = export_litert(model, path, overwrite=True, verbose=0)
        assert export.max_error < 1e-6
        values = layer.get_transform().values.tobytes()
        assert any(content[:-4] == values for *_, content in read_tensors(path))
        for shape in ((1, 1), (5, 11)):
            ids = random_ids(*shape)
            got = LiteRTModel(path)(ids)
            np.testing.assert_allclose(got, model(ids), **ROUNDING)


@pytest.mark.parametrize(
    "activation, num_mixtures, sparsified",
    [
        ("softmax", 1, True),
        ("softmax", 3, False),
        ("sparsemax", 3, True),
        ("entmax", 1, False),
    ],
)
def test_activations(path, activation, num_mixtures, sparsified):
    layer = anchor_embedding(mixture=Mixture(num_mixtures, activation))
    model = keras.Sequential([ids_input(), layer])
    ids = np.arange(ROWS)[None]
    expected = model(ids)
    if sparsified:
        layer.sparsify()
    export_litert(model, path, verbose=0)
    np.testing.assert_allclose(LiteRTModel(path)(ids), expected, **ROUNDING)


def test_unknown_words_are_zero(path):
    model = keras.Sequential([ids_input(), anchor_embedding()])
    export_litert(model, path, verbose=0)
    got = LiteRTModel(path)([[0, ROWS - 1], [0, 0]])
    np.testing.assert_array_equal(got, np.zeros((2, 2, 6)))


def test_no_non_zeros_at_all(path):
    layer = anchor_embedding()
    layer.assign_transform(np.zeros((ROWS, 20)))
    model = classifier(layer)
    for _ in range(2):
        export_litert(model, path, overwrite=True, verbose=0)
        got = LiteRTModel(path)(random_ids(2, 3))
        np.testing.assert_allclose(got, np.zeros((2, 3)))
        if not isinstance(layer.storage, FixedRows):
            layer.sparsify()


@pytest.mark.parametrize("quantize, error", [("float16", 1e-3), ("int8", 3e-2)])
@pytest.mark.parametrize("num_anchors", [40, 400])
def test_quantize(path, quantize, error, num_anchors):
    # As many anchors as the converter takes for worth quantizing.
    layer = anchor_embedding(
        num_anchors, width=64, density=0.05, input_dim=2000
    )
    model = keras.Sequential([ids_input(), layer])
    export = export_litert(model, path, quantize=quantize, verbose=0)
    assert 1e-6 < export.max_error < error
    nnz = layer.nnz
    tensors = read_tensors(path)
    size = {"float16": 2, "int8": 1}[quantize]
    kind = {"float16": "INT16", "int8": "INT8"}[quantize]
    assert [(nnz + 1,), kind] in [[shape, kind] for kind, shape, _ in tensors]
    total = sum(len(content) for *_, content in tensors)
    columns = 1 if num_anchors <= 256 else 2
    exact = (columns + size) * nnz + size * num_anchors * 64
    # Less than two bytes for where a row begins.
    assert exact < total < exact + 2 * 2000 + 600
    assert not any(
        kind == "FLOAT32" and len(content) > 64 * 4
        for kind, _, content in tensors
    )


def test_functional_models_with_masks_codes_and_shared_layers(path):
    anchors = anchor_embedding(mask_zero=True)
    left, right = ids_input(name="left"), ids_input(name="right")
    pool = keras.layers.GlobalAveragePooling1D()
    model = keras.Model(
        {"left": left, "right": right},
        {
            "pooled": pool(anchors(left)) - pool(anchors(right)),
            "vectors": anchors(left) + code_embedding()(left),
        },
    )
    export_litert(model, path, verbose=0)
    litert_model = LiteRTModel(path)
    inputs = {"left": random_ids(4, 5), "right": random_ids(4, 8)}
    inputs["left"][:, 3:] = 0
    got, expected = litert_model(inputs), model(inputs)
    for name in ("pooled", "vectors"):
        np.testing.assert_allclose(got[name], expected[name], **ROUNDING)
    codes = read_tensors(path)
    codes = [content for kind, _, content in codes if kind == "UINT8"]
    assert len(set(codes)) == len(codes)
    # Both look-ups read the same numbers.
    values = anchors.get_transform().values.tobytes()
    with open(path, "rb") as file:
        assert file.read().count(values) == 1


def test_files_are_as_small_as_their_rows_and_anchors(path):
    layer = anchor_embedding(50, width=64, density=0.04, input_dim=20_000)
    export = export_litert(
        keras.Sequential([ids_input(), layer]), path, verbose=0
    )
    rows = 4 * 20_001 + 5 * layer.nnz
    assert export.file_bytes <= 1.05 * (rows + 4 * 50 * 64)


def test_mixed_precision(path):
    layer = anchor_embedding(dtype="mixed_float16")
    model = keras.Sequential([ids_input(), layer])
    export_litert(model, path, verbose=0)
    got = LiteRTModel(path)(np.arange(ROWS)[None])[0]
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, layer.embeddings, **ROUNDING)
    assert "embed" not in vars(layer)


def test_compiled_model(path):
    module = pytest.importorskip("ai_edge_litert.compiled_model")
    model = keras.Sequential(
        [
            ids_input(8),
            anchor_embedding(),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(3),
        ]
    )
    signature = tf.TensorSpec((2, 8), "int32")
    export_litert(model, path, input_signature=signature, verbose=0)
    compiled = module.CompiledModel.from_file(path)
    inputs = compiled.create_input_buffers(0)
    outputs = compiled.create_output_buffers(0)
    for ids in random_ids(3, 2, 8):
        inputs[0].write(ids.reshape(-1))
        compiled.run_by_index(0, inputs, outputs)
        got = outputs[0].read(6, np.float32).reshape(2, 3)
        np.testing.assert_allclose(got, model(ids), **ROUNDING)


@pytest.mark.parametrize(
    "sparsified, activation, length",
    [
        (False, None, None),
        (True, None, 5),
        (False, "softmax", 5),
        (True, "softmax", None),
    ],
)
def test_tied_outputs(path, sparsified, activation, length):
    layer = anchor_embedding(input_dim=2000, mixture=activation)
    if sparsified:
        layer.sparsify()
    ids = ids_input(length)
    vectors = keras.layers.Dense(6)(layer(ids))
    model = keras.Model(ids, layer(vectors, reverse=True))
    signature = tf.TensorSpec((length and 2, length), "int32")
    export_litert(model, path, input_signature=signature, verbose=0)
    ids = random_ids(2, 5, high=2000)
    logits = LiteRTModel(path)(ids)
    assert logits.shape == (2, 5, 2000)
    # Some 32 operations on numbers up to the largest logit.
    expected = model(ids)
    atol = 32 * 2**-23 * np.abs(expected).max()
    np.testing.assert_allclose(logits, expected, rtol=0, atol=atol)
    # The rows are there once, and are all that grows with their number.
    values = layer.get_transform()
    large = [
        len(content)
        for *_, content in read_tensors(path)
        if len(content) > 1000
    ]
    assert sorted(large) == [2001, values.nnz + 1, 4 * (values.nnz + 1)]


def test_compiled_model_of_tied_outputs(path):
    module = pytest.importorskip("ai_edge_litert.compiled_model")
    layer = anchor_embedding()
    vectors = keras.Input((4, 6), batch_size=1)
    model = keras.Model(vectors, layer(vectors, reverse=True))
    export_litert(model, path, verbose=0)
    compiled = module.CompiledModel.from_file(path)
    inputs = compiled.create_input_buffers(0)
    outputs = compiled.create_output_buffers(0)
    for vectors in np.random.default_rng(0).normal(size=(2, 1, 4, 6)):
        inputs[0].write(vectors.astype("float32").reshape(-1))
        compiled.run_by_index(0, inputs, outputs)
        got = outputs[0].read(4 * ROWS, np.float32).reshape(1, 4, ROWS)
        np.testing.assert_allclose(got, model(vectors), **ROUNDING)
