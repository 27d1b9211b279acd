"""Ways to store a table: what they fit, their bytes, what they refuse."""

import keras
import numpy as np
import pytest
from errors import refused
from export_models import write

import keras_compembed as kc
from keras_compembed.methods import Anchors
from keras_compembed.methods import Codes
from keras_compembed.methods import Pruned
from keras_compembed.methods import Quantized
from keras_compembed.methods import Tiered

layers = keras.layers
TABLE = np.random.default_rng(0).normal(size=(400, 12)).astype("float32")
# Each with how its file is stored.
METHODS = [
    (Codes(4, 8, rank=3, effort=0.05), "int8"),
    (Anchors(30, 2, iterations=1), "int8"),
    (Anchors(30, 2, 2, iterations=1), None),
    (Pruned(0.8, bits=8), None),
    (Tiered(150, None, 7, "nearest", np.arange(400) % 7), None),
    (Tiered(150, Pruned(0.5), 7), None),
    (Tiered(90, Quantized(4), Codes(4, 8, effort=0.05)), "int8"),
    (Tiered(90, rest=Anchors(30, 2, 2, iterations=1)), "int8"),
]


def compress(model, method):
    return kc.compress_model(model, {"words": method}, seed=0, verbose=0)


@pytest.mark.parametrize(
    "method, quantize", METHODS, ids=lambda value: getattr(value, "name", None)
)
def test_fitted_layers(method, quantize, tmp_path):
    inputs = keras.Input((5,), dtype="int32")
    table = layers.Embedding(400, 12, name="words")
    model = keras.Model(inputs, keras.ops.tanh(table(inputs)))
    table.embeddings.assign(TABLE)
    small = compress(model, method)
    layer = small.get_layer("words")
    assert isinstance(layer, method.rows)
    rows = keras.ops.convert_to_numpy(layer.embeddings)
    assert ((rows - TABLE) ** 2).sum() < 0.9 * (TABLE**2).sum()
    # A new layer has the shapes of a fitted one.
    fit = method.start(seed=0)
    new = method.new_layer(fit, 400, 12)
    fitted = fit.from_table(TABLE, sample_weight=np.arange(1, 401))
    assert [w.shape for w in new.weights] == [w.shape for w in fitted.weights]
    new.set_weights(fitted.get_weights())
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(new.embeddings),
        keras.ops.convert_to_numpy(fitted.embeddings),
    )
    path = tmp_path / "model.tflite"
    write(small, path, quantize=quantize)
    sizes = kc.export.inspect_litert(path).constant_bytes
    wanted = method.litert_bytes(400, 12, quantize)
    # Constants of ops, and floats too few to be worth eight bits.
    assert abs(sizes - wanted) < 400 + (1200 if quantize else 0)


@pytest.mark.parametrize(
    "sharing, quantize", [("modulo", None), ("nearest", "int8")]
)
def test_bytes_of_a_vocabulary_at_several_sizes(sharing, quantize, tmp_path):
    table = np.random.default_rng(0).normal(size=(9000, 16)).astype("float32")
    for rows, ids, inner in (
        (100, 3000, None),
        (2000, 9000, Quantized(4)),
    ):
        method = Tiered(rows, inner, 7, sharing)
        layer = method.start(seed=0).from_table(table[:ids])
        inputs = keras.Input((5,), dtype="int32")
        model = keras.Model(inputs, layer(inputs))
        path = tmp_path / "model.tflite"
        # Of ids that share rows alone, the largest output is small.
        made = write(model, path, quantize=quantize, tolerance=1.0)
        wanted = method.litert_bytes(ids, 16, quantize)
        found = kc.export.inspect_litert(path).constant_bytes
        assert abs(found - wanted) < 500
        # What the docstring says that the graph takes.
        assert 0 < made.file_bytes - wanted < 11_000


@pytest.mark.parametrize(
    "method, tie_weights",
    [
        (Quantized(8, rank=16, learn_rows=True), True),
        (Quantized(8, rank=16, learn_rows=True), False),
        (Tiered(20, Quantized(8), Quantized(8)), False),
    ],
)
def test_rounded_rows_of_a_table_that_is_read_both_ways(method, tie_weights):
    inputs = keras.Input((5,), dtype="int32")
    table = layers.ReversibleEmbedding(
        60, 16, name="words", tie_weights=tie_weights
    )
    logits = table(layers.Dense(16)(table(inputs)), reverse=True)
    model = keras.Model(inputs, logits)
    small = compress(model, method)
    layer = small.get_layer("words")
    assert type(layer) is method.rows
    assert layer.reverse.tie_weights is tie_weights
    ids = np.random.default_rng(0).integers(1, 60, size=(4, 5), dtype="int32")
    expected = np.asarray(model(ids))
    np.testing.assert_allclose(
        small(ids), expected, atol=0.03 * np.abs(expected).max()
    )


@pytest.mark.parametrize(
    "method, name",
    [
        (Codes(4, 8, rank=3), "codes 4x8 rank 3"),
        (Anchors(30, 2), "30 anchors, 2 a row, 8 at most"),
        (Anchors(30, 0.25), "30 anchors, 0.25 a row, 1 at most"),
        (Anchors(30, 2, 2), "30 anchors, 2 a row"),
        (Quantized(), "int4"),
        (Quantized(2, 8, 16), "int2 rank 16 blocks of 8"),
        (Tiered(9, Quantized(), 3), "9 rows int4, 3 shared"),
    ],
)
def test_names(method, name):
    assert method.name == name


@pytest.mark.parametrize(
    "method, shape, reason",
    [
        (Codes(4, 8, rank=13), (400, 12), "fewer columns"),
        (Anchors(30, 2), (29, 12), "fewer rows"),
        (Quantized(4, 9), (10, 8), "block_size=9"),
        (Quantized(rank=9), (10, 8), "rank=9"),
        (Quantized(4, 9), (10, 9), None),
        (Tiered(40, rest=3), (43, 6), None),
        (Tiered(40, rest=3), (42, 6), "40 + 3 rows"),
        (Tiered(40, rest=Codes(4, 8)), (40, 6), "40 + 1 rows"),
        (Tiered(40, scores=np.ones(150)), (151, 6), "150 ids"),
        (
            Tiered(40, Codes(8, 16, "concat")),
            (150, 6),
            "fewer columns",
        ),
        (Pruned(0.5), (2**28, 256), "32-bit"),
        *((method, (400, 12), None) for method, _ in METHODS),
    ],
)
def test_tables_that_are_too_small(method, shape, reason):
    found = method.reason_against(*shape)
    assert found is None if reason is None else reason in found


@pytest.mark.parametrize(
    "cls, arguments, name",
    [
        (Anchors, (3, 4), "mean_nonzeros"),
        (Anchors, (9, 4, 10), "max_nonzeros"),
        (Anchors, (0, 1), "num_anchors"),
        (Quantized, (1,), "bits"),
        (Quantized, (4, 5, 4), "block_size"),
        (Codes, (4, 8, "linear", None, 3), "rank"),
        (Codes, (4, 8, None, "additive"), "learner"),
    ],
)
def test_bad_arguments(cls, arguments, name):
    with refused(name):
        cls(*arguments)


def test_anchors_give_numbers_to_rows_that_count():
    weight = np.where(np.arange(400) < 100, 100.0, 1.0)
    errors, numbers = [], []
    for method in (Anchors(30, 2, 2), Anchors(30, 2)):
        layer = method.start(seed=0).from_table(TABLE, sample_weight=weight)
        rows = keras.ops.convert_to_numpy(layer.embeddings)
        errors.append(np.average(((rows - TABLE) ** 2).sum(1), weights=weight))
        numbers.append(layer.get_transform().row_lengths)
    assert numbers[1].sum() == numbers[0].sum() == layer.nnz == 800
    assert numbers[1].max() == 8
    assert numbers[1][:100].mean() > 3 * numbers[1][100:].mean()
    assert errors[1] < 0.6 * errors[0]
    # Rows that need fewer numbers have zeros in their places.
    table = np.repeat(TABLE[:20], 20, axis=0)
    table[5:50] = 0
    layer = Anchors(30, 2).start(seed=0).from_table(table)
    assert layer.storage.num_nonzeros == 800 > layer.nnz
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(layer.embeddings), table, atol=1e-4
    )
