"""Logits of all ids, and tables read in a call, in LiteRT files."""

import keras
import numpy as np
import pytest
from export_models import random_ids

import keras_compembed as kc
from keras_compembed.export import code_lookup

V, D = 3000, 24


@keras.saving.register_keras_serializable(package="test_export_reverse")
class ReadsTable(keras.layers.Layer):
    """Logits by the table of another layer, as a host may compute them."""

    def __init__(self, embedding, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding

    def call(self, inputs):
        table = keras.ops.convert_to_tensor(self.embedding.embeddings)
        return keras.ops.matmul(inputs, keras.ops.transpose(table))


def language_model(kind="tied", shape=(V, D, 4, 16), **kwargs):
    arguments, width = shape, shape[1]
    kwargs["codebooks_initializer"] = keras.initializers.RandomNormal(seed=3)
    if kind == "tied":
        layer = kc.CodeEmbedding(*arguments, seed=4, **kwargs)
    else:
        layer = kc.ReversibleCodeEmbedding(
            *arguments, seed=4, tie_weights=kind != "untied", **kwargs
        )
    ids = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Dense(width)(layer(ids))
    if kind == "host":
        return keras.Model(ids, ReadsTable(layer)(hidden))
    return keras.Model(ids, layer(hidden, reverse=True))


@pytest.mark.parametrize("kind", ["tied", "untied", "host"])
@pytest.mark.parametrize("quantize", [None, "float16", "int8"])
def test_rows_are_composed_when_the_file_runs(
    kind, quantize, tmp_path, monkeypatch
):
    # Several chunks, and a last one that is smaller.
    monkeypatch.setattr(code_lookup, "_CHUNK_ELEMENTS", 64 * 701)
    model = language_model(kind)
    path = tmp_path / "model.tflite"
    export = kc.export.export_litert(model, path, quantize=quantize, verbose=0)
    ids = random_ids(2, 5, high=V)
    expected = np.asarray(model(ids))
    got = kc.export.LiteRTModel(path)(ids)
    scale = np.abs(expected).max()
    bound = {None: 1e-6, "float16": 2e-3, "int8": 0.1}[quantize]
    np.testing.assert_allclose(got, expected, atol=bound * scale)
    # Two bytes a row and table, the codebooks, a kernel, and some 30 KB of
    # ops. The composed table has 288 KB.
    assert export.file_bytes < 2 * 2 * V + 4 * (2 * 64 * D + D * D) + 30_000


@pytest.mark.parametrize("min_runtime", [None, "2.17"])
def test_every_code(min_runtime, tmp_path, monkeypatch):
    monkeypatch.setattr(code_lookup, "_CHUNK_ELEMENTS", 1 << 10)
    ids = keras.Input((3,), dtype="int32")
    outputs = {}
    for num_codebooks, codebook_size, composition in (
        (3, 2, "sum"),
        (5, 4, "sum"),
        (5, 4, "concat"),
        (3, 16, "linear"),
        (3, 16, "lstm"),
        (4, 300, "sum"),
        (4, 300, "concat"),
    ):
        layer = kc.CodeEmbedding(
            45, 6, num_codebooks, codebook_size, composition, seed=4
        )
        name = f"{composition}_{codebook_size}"
        outputs[name] = layer(layer(ids), reverse=True)
    model = keras.Model(ids, outputs)
    path = tmp_path / "model.tflite"
    kc.export.export_litert(model, path, min_runtime=min_runtime, verbose=0)
    inputs = random_ids(2, 3, high=45)
    got = kc.export.LiteRTModel(path)(inputs)
    for name, logits in model(inputs).items():
        np.testing.assert_allclose(got[name], logits, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_is_for_training(dtype, tmp_path):
    shape = (50, 8, 4, 16)
    model = language_model("reversible", shape, dtype=dtype, logit_soft_cap=2.0)
    half = language_model(
        "reversible", shape, reverse_dtype=dtype.removeprefix("mixed_")
    )
    for number, each in enumerate((model, half)):
        path = tmp_path / f"{number}.tflite"
        kc.export.export_litert(each, path, verbose=0)
        got = kc.export.LiteRTModel(path)(random_ids(2, 3, high=50))
        assert got.dtype == "float32"
