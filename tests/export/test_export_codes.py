"""`CodeEmbedding` in files: every kind of code, composition and graph."""

import keras
import numpy as np
import pytest
from export_models import ROWS
from export_models import anchor_embedding
from export_models import code_embedding
from export_models import export
from export_models import read_tensors
from export_models import towers
from export_models import write

import keras_compembed as kc
from keras_compembed.litert.flatbuffer import schema

# Numbers of codebooks and their sizes: bits that share bytes, fill them, cross
# them, and take two; codes that end within a byte; sizes that bits exceed.
CODES = [
    (1, 2),
    (9, 2),
    (2, 3),
    (4, 5),
    (13, 16),
    (8, 17),
    (2, 64),
    (3, 256),
    (4, 257),
]
EVERY_ID = np.arange(ROWS, dtype="int32").reshape(1, -1)


@pytest.mark.parametrize(
    ("length", "options"),
    [
        (None, {"min_runtime": "2.12"}),
        (None, {"optimize_for": "memory"}),
        (ROWS, {"optimize_for": "size"}),
    ],
)
def test_every_code_gives_what_keras_gives(length, options, path):
    layers = [code_embedding(*shape) for shape in CODES]
    model = towers(*([layer] for layer in layers), length=length)
    made = export(model, path, EVERY_ID, EVERY_ID[:, ::-1], **options)
    assert made.max_row_error < 2e-6
    assert set(made.held_layers) == {layer.name for layer in layers}
    assert "table rows within" in str(made)
    assert set(made.ops) <= set(vars(schema.BuiltinOperator)) - {"CUSTOM"}
    tensors = read_tensors(path)
    for layer in layers:
        packed = layer.packed_codes.numpy().tobytes()
        (found,) = (tensor for tensor in tensors if tensor[2] == packed)
        bits = int(layer.codebook_size - 1).bit_length()
        assert found[:2] == (
            "UINT8",
            (ROWS, -(-layer.num_codebooks * bits // 8)),
        )


@pytest.mark.parametrize(
    ("composition", "shapes"),
    [
        (("linear", 2), [(5, 2), (5, 16)]),
        (("lstm", 3), [(5, 20)]),
    ],
    ids=["linear", "lstm"],
)
def test_narrow_compositions(composition, shapes, path):
    layers = [
        code_embedding(*shape, composition=composition) for shape in shapes
    ]
    export(towers(*([layer] for layer in layers)), path, bound=1e-5)


@pytest.mark.parametrize(
    ("quantize", "kind", "number_bytes"),
    [("float16", "FLOAT16", 2), ("int8", "INT8", 1)],
)
def test_codebooks_have_fewer_bits_and_codes_stay(
    quantize, kind, number_bytes, path
):
    layers = [code_embedding(8, size, 64) for size in (4, 16, 64)]
    model = towers(*([layer] for layer in layers))
    made = export(model, path, quantize=quantize)
    assert 0 < made.max_error < {"float16": 1e-3, "int8": 0.02}[quantize]
    tensors = read_tensors(path)
    contents = [content for *_, content in tensors]
    assert all(
        layer.packed_codes.numpy().tobytes() in contents for layer in layers
    )
    # All codewords have 64 numbers, one-hot rows fewer.
    weights = sum(
        len(content)
        for each, shape, content in tensors
        if each == kind and 64 in shape[-2:]
    )
    numbers = sum(layer.codebooks.numpy().size for layer in layers)
    assert weights == numbers * number_bytes
    assert not any(k == "FLOAT32" and len(c) > 1024 for k, _, c in tensors)


def test_codebooks_alone_become_int8(path):
    layers = [code_embedding(8, 40, 64), anchor_embedding(90, 64)]
    # Behind another layer, nothing is folded.
    model = towers(
        *(
            [each, keras.layers.ReLU(), keras.layers.Dense(50)]
            for each in layers
        )
    )
    options = {"quantize": "int8_codebooks", "optimize_for": "size"}
    made = export(model, path, **options)
    assert 1e-4 < made.max_row_error < 0.02
    floats = [shape for kind, shape, _ in read_tensors(path) if "FLOAT" in kind]
    # Kernels of the layers behind keep every digit; anchors are their own.
    assert sum(shape in ((50, 64), (64, 50)) for shape in floats) == 2
    assert not {(320, 64), (64, 320), (90, 64)} & set(floats)


def test_short_texts_are_composed_and_long_ones_counted(path):
    """By what was measured, for rows of 256 numbers."""
    for length, pooled in ((16, ()), (128, ("table",))):
        layer = code_embedding(8, 256, 256, input_dim=4000, name="table")
        pool = keras.layers.GlobalAveragePooling1D()
        made = write(towers([layer, pool], length=length), path)
        assert made.pooled_layers == pooled


@pytest.mark.parametrize("composition", ["sum", "concat"])
def test_rows_that_are_nan_in_keras_too(composition, path):
    """Others take nothing from them."""
    layer = code_embedding(
        3, 40, 6, composition=composition, input_dim=5000, name="words"
    )
    model = towers([layer])
    codebooks = layer.codebooks.numpy()
    codebooks[0, 0] = np.nan
    codebooks[1] = 1e38
    layer.codebooks.assign(codebooks)
    for goal in (None, "memory"):
        made = write(model, path, optimize_for=goal)
        assert made.max_row_error < 1e-6
    ids = np.arange(200, dtype="int32")[None]
    got = kc.export.LiteRTModel(path)(ids)
    assert np.isnan(got).any() and not np.isnan(got).all()
    np.testing.assert_allclose(got, model(ids), rtol=1e-6, atol=1e-6)
    for quantize in ("int8", "int8_codebooks"):
        with pytest.raises(ValueError, match="NaN.*words"):
            export(model, path, quantize=quantize)
