"""`CodeEmbedding` in files: every kind of code, composition and graph."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import ROWS
from export_models import anchor_embedding
from export_models import code_embedding
from export_models import compiled
from export_models import export
from export_models import random_ids
from export_models import read_tensors
from export_models import towers
from export_models import write

import keras_compembed as kc
from keras_compembed.compositions.composition import ScaledComposition
from keras_compembed.litert.flatbuffer import schema

# Numbers of codebooks and their sizes: bits that share bytes, fill them, cross
# them, and take two; codes that end within a byte; sizes that bits exceed.
CODES = [
    (1, 2),
    (9, 2),
    (2, 3),
    (5, 4),
    (4, 5),
    (7, 8),
    (13, 16),
    (8, 17),
    (5, 20),
    (1, 32),
    (2, 64),
    (3, 256),
    (4, 257),
    (7, 1000),
]
EVERY_ID = np.arange(ROWS, dtype="int32").reshape(1, -1)


@pytest.mark.parametrize(
    ("length", "options"),
    [
        (None, {}),
        pytest.param(None, {"min_runtime": "2.12"}, marks=pytest.mark.slow),
        (None, {"optimize_for": "memory"}),
        pytest.param(None, {"optimize_for": "latency"}, marks=pytest.mark.slow),
        (ROWS, {"optimize_for": "size"}),
    ],
)
def test_every_code_gives_what_keras_gives(length, options, path):
    layers = [code_embedding(*shape) for shape in CODES]
    model = towers(*([layer] for layer in layers), length=length)
    made = export(model, path, EVERY_ID, EVERY_ID[:, ::-1], **options)
    assert made.max_row_error < 2e-6
    assert set(made.held_layers) == {layer.name for layer in layers}
    assert "all rows within" in str(made)
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
        ("concat", [(5, 2), (5, 4), (5, 16), (5, 20)]),
        ("linear", [(5, 4), (5, 20)]),
        ("lstm", [(5, 2), (3, 16)]),
        (("linear", 2), [(5, 2), (5, 16)]),
        (("lstm", 3), [(5, 20)]),
    ],
    ids=["concat", "linear", "lstm", "narrow linear", "narrow lstm"],
)
def test_compositions(composition, shapes, path):
    layers = [
        code_embedding(*shape, composition=composition) for shape in shapes
    ]
    export(towers(*([layer] for layer in layers)), path, bound=1e-5)


@pytest.mark.parametrize(
    ("composition", "values"),
    [
        ("sum", 12 * 16 * 96),
        # Side by side: 16 codewords of 96 columns in parts.
        ("concat", 16 * 96),
        # Folded into a plain sum, or not, whichever is smaller.
        ("linear", 12 * 16 * 96),
        (("linear", 8), 12 * 16 * 8 + 8 * 96),
    ],
    ids=["sum", "concat", "linear", "narrow"],
)
def test_files_are_as_small_as_codes_and_codebooks(composition, values, path):
    layer = code_embedding(
        12, 16, 96, composition=composition, input_dim=20_000
    )
    made = export(towers([layer]), path, bound=1e-5)
    exact = 20_000 * 6 + 4 * values
    assert exact < made.file_bytes < exact + 12_000
    assert made.file_bytes == path.stat().st_size


@pytest.mark.parametrize("quantize", [None, "int8"])
def test_parts_of_vectors_in_units(path, quantize):
    """A trained offset is added to parts, which stay as short as they are."""
    composition = ScaledComposition("concat")
    layer = code_embedding(7, 64, 63, composition=composition)
    layer.build()
    rng = np.random.default_rng(0)
    for weight in layer.trainable_weights:
        weight.assign(rng.normal(size=weight.shape))
    layer.composition.scale.assign(3.0)
    made = export(towers([layer]), path, quantize=quantize)
    assert made.held_layers == (layer.name,)
    assert made.file_bytes < 8 * ROWS + 4 * 64 * 63 + 8_000


@pytest.mark.parametrize(
    ("quantize", "kind", "number_bytes"),
    [("float16", "FLOAT16", 2), ("int8", "INT8", 1)],
)
def test_codebooks_have_fewer_bits_and_codes_stay(
    quantize, kind, number_bytes, path
):
    layers = [code_embedding(8, size, 64) for size in (4, 8, 16, 32, 64)]
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
    layers = [
        code_embedding(8, 16, 64),
        code_embedding(8, 40, 64),
        code_embedding(8, 16, 64, composition="concat"),
        code_embedding(3, 16, 64, composition="lstm"),
        anchor_embedding(90, 64),
    ]
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
    assert sum(shape in ((50, 64), (64, 50)) for shape in floats) == 5
    assert not {(128, 64), (64, 128), (320, 64), (90, 64)} & set(floats)


@pytest.mark.parametrize(
    ("shape", "quantize", "composed", "counted"),
    [
        ((8, 256), None, 16, 128),
        ((8, 256), "int8", 16, 48),
        ((32, 16), None, 1, 16),
    ],
)
def test_short_texts_are_composed_and_long_ones_counted(
    shape, quantize, composed, counted, path
):
    """By what was measured, for rows of 256 numbers."""
    for length in (composed, counted):
        layer = code_embedding(*shape, 256, input_dim=4000, name="table")
        pool = keras.layers.GlobalAveragePooling1D()
        model = towers([layer, pool], length=length)
        made = write(model, path, quantize=quantize)
        assert made.pooled_layers == (("table",) if length == counted else ())


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


def test_int8_weights_are_no_codes(path):
    """As many as there are ids, where codes are stored column by column."""
    queries = keras.Input((17,))
    table = code_embedding(16, 4, 17, input_dim=17)
    model = keras.Model(queries, table(queries, reverse=True))
    queries = np.random.default_rng(0).normal(size=(2, 17)).astype("float32")
    made = export(model, path, queries, quantize="int8")
    assert made.not_held_layers == ()


def test_compiled_model(path):
    layer = code_embedding(9, 40)
    signature = tf.TensorSpec((1, 7), "int32")
    # In groups that wait for one another.
    model = towers([layer], length=7)
    write(model, path, input_signature=signature, optimize_for="memory")
    run = compiled(path)
    for ids in random_ids(2, 1, 7):
        (got,) = run(ids, (7 * 6, np.float32))
        np.testing.assert_allclose(
            got.reshape(1, 7, 6), model(ids), rtol=0, atol=1e-6
        )
