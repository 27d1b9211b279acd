"""Tables of which a part is held: some rows, or the largest numbers."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

import keras_compembed as kc
from keras_compembed import PrunedVocabularyEmbedding
from keras_compembed import SparseEmbedding
from keras_compembed.methods import Pruned
from keras_compembed.methods import Tiered

CODES = kc.methods.Codes(2, 8)
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(150, 6)).astype("float32")
COUNTS = RNG.permutation(150) ** 2 + 1


def rows_of(layer):
    return keras.ops.convert_to_numpy(layer.embeddings)


def test_the_most_frequent_are_kept_and_others_share_means():
    layer = PrunedVocabularyEmbedding.from_table(
        TABLE, 40, 3, scores=COUNTS, sample_weight=COUNTS
    )
    expected = TABLE.astype("float64")
    rest = np.argsort(-COUNTS)[40:]
    for share in range(3):
        ids = rest[rest % 3 == share]
        mean = np.average(expected[ids], axis=0, weights=COUNTS[ids])
        expected[ids] = mean
    np.testing.assert_allclose(rows_of(layer), expected, atol=1e-6)


def test_the_nearest_row_is_shared():
    layer = PrunedVocabularyEmbedding.from_table(
        TABLE, 40, 5, "nearest", scores=COUNTS
    )
    rows, table = rows_of(layer), np.asarray(layer.table)
    rest = np.argsort(-COUNTS)[40:]
    kept = np.sort(np.argsort(-COUNTS)[:40])
    np.testing.assert_array_equal(table[:40], TABLE[kept])
    distances = np.square(TABLE[rest][:, None] - table).sum(axis=2)
    found = np.square(TABLE[rest] - rows[rest]).sum(axis=1)
    # Rounds end before all is settled.
    assert np.mean(found <= 1.001 * distances.min(axis=1)) > 0.9
    plain = PrunedVocabularyEmbedding.from_table(TABLE, 40, 5, scores=COUNTS)
    assert (
        np.square(rows - TABLE).sum() < np.square(rows_of(plain) - TABLE).sum()
    )
    assert layer.row_of_id.dtype == "int16"
    large = PrunedVocabularyEmbedding(40_000, 1, 32_768, sharing="nearest")
    large.build()
    assert large.row_of_id.dtype == "int32"


def test_tiers():
    """Exact rows of frequent ids; the others as in a layer of their own."""
    codes, ids = kc.methods.Codes(3, 8, effort=0.1), np.arange(150)
    method = Tiered(40, kc.methods.Quantized(8, learn_rows=True), codes)
    layer = method.start(seed=0).from_table(TABLE, sample_weight=COUNTS)
    kept = np.sort(np.argsort(-COUNTS)[:40])
    rest = np.setdiff1d(ids, kept)
    found = rows_of(layer)
    np.testing.assert_allclose(found[kept], TABLE[kept], atol=0.03)
    alone = codes.start(seed=0).from_table(
        TABLE[rest], sample_weight=COUNTS[rest]
    )
    np.testing.assert_allclose(found[rest], rows_of(alone), atol=1e-6)
    small = kc.strip(layer)
    np.testing.assert_array_equal(rows_of(small), found)
    assert small.count_params() < layer.count_params()
    sizes = [kc.size_report(x).embedding_bytes for x in (small, layer)]
    assert sizes[0] == sizes[1]
    with refused("vectors", "code_embedding"):
        kc.grow(layer, {layer.rest.name: TABLE[:2]})
    # Without weights, the first ids are frequent.
    layer = Tiered(40, rest=codes).start(seed=0).from_table(TABLE)
    np.testing.assert_array_equal(rows_of(layer)[:40], TABLE[:40])


def test_training_touches_only_rows_of_the_batch():
    exact = kc.QuantizedEmbedding(15, 4, bits=8, learn_rows=True)
    rest = kc.QuantizedEmbedding(25, 4, bits=8, learn_rows=True)
    layer = PrunedVocabularyEmbedding(40, 4, 15, rows=exact, rest=rest)
    layer.build()
    with tf.GradientTape() as tape:
        vectors = layer(np.array([[3, 20, 39, 3]]), training=True)
    gradients = tape.gradient(
        vectors, [x.latent_rows.value for x in (exact, rest)]
    )
    for gradient, touched in zip(gradients, ([3], [5, 24]), strict=True):
        assert set(gradient.indices.numpy()) == set(touched)


def make_table(rows=90, width=7, seed=0):
    rng = np.random.default_rng(seed)
    # Rows of very different lengths: some have no large number.
    lengths = rng.gamma(0.5, size=(rows, 1))
    return (lengths * rng.normal(size=(rows, width))).astype("float32")


def largest(table, sparsity):
    """The table with zeros for all but the largest numbers."""
    sizes = np.abs(table)
    number = max(1, round(table.size * (1 - sparsity)))
    threshold = np.sort(sizes, axis=None)[-number]
    return np.where(sizes >= threshold, table, 0)


# Rows of 256 columns are two parts, and of 511 three, the last one narrower.
@pytest.mark.parametrize(
    ("width", "sparsity"),
    [(1, 0.6), (7, 0.0), (7, 0.97), (255, 0.6), (256, 0.6), (511, 0.97)],
)
def test_largest_numbers_are_kept(width, sparsity):
    table = make_table(width=width)
    layer = SparseEmbedding.from_table(table, sparsity)
    np.testing.assert_array_equal(rows_of(layer), largest(table, sparsity))
    assert layer.columns.shape == (max(1, round(90 * width * (1 - sparsity))),)


def test_numbers_of_8_bits():
    table = make_table()
    layer = SparseEmbedding.from_table(table, 0.7, bits=8)
    expected = largest(table, 0.7)
    peaks = np.abs(expected).max(axis=0)
    assert (np.abs(rows_of(layer) - expected) <= 0.501 * peaks / 127).all()
    assert layer.values.dtype == "int8"
    assert [x.name for x in layer.trainable_weights] == ["scales"]


@pytest.mark.parametrize(
    ("quantize", "bits", "length"),
    [
        (None, None, None),
        ("float16", None, 6),
        ("int8", 8, 6),
    ],
)
def test_files(quantize, bits, length, tmp_path):
    """All rows of the file are those of Keras, rounded; ops are built in."""
    layer = SparseEmbedding.from_table(make_table(200, 300), 0.95, bits)
    model = keras.Sequential([keras.Input((length,), dtype="int32"), layer])
    path = tmp_path / "model.tflite"
    export = kc.export_litert(model, path, quantize=quantize, verbose=0)
    peak = np.abs(rows_of(layer)).max()
    step = {None: 1e-6, "float16": 2**-11, "int8": 1 / 250}[quantize]
    run = kc.export.LiteRTModel(path)
    ids = np.resize(np.arange(200, dtype="int32"), (34, 6))
    rows = np.concatenate([run(ids[i : i + 1]) for i in range(34)])
    expected = np.asarray(model(ids))
    np.testing.assert_allclose(rows, expected, atol=peak * step)
    assert export.max_error <= peak * step
    found = kc.export.inspect_litert(path)
    wanted = Pruned(0.95, bits).litert_bytes(200, 300, quantize)
    assert abs(found.constant_bytes - wanted) < 300


def test_bad_arguments():
    for argument, received, make in (
        ("sparsity", 1.0, lambda: SparseEmbedding(10, 4, 1.0)),
        ("bits", 4, lambda: SparseEmbedding(10, 4, bits=4)),
        ("num_rows", 11, lambda: PrunedVocabularyEmbedding(10, 4, 11)),
        (
            "num_rows",
            10,
            lambda: Tiered(10, rest=CODES).start().from_table(TABLE[:10]),
        ),
        ("rest", 0, lambda: Tiered(10, rest=0)),
        ("sharing", "a", lambda: PrunedVocabularyEmbedding(10, 4, 2, 1, "a")),
    ):
        with refused(argument, received):
            make()
    with refused("rest"):
        PrunedVocabularyEmbedding(10, 4, 2, rest=kc.CodeEmbedding(9, 4))
    with refused("rows"):
        PrunedVocabularyEmbedding(10, 4, 2, rows=kc.CodeEmbedding(2, 4))
    untied = kc.Reverse(tie_weights=False)
    for make in (
        functools.partial(SparseEmbedding, 10, 4),
        functools.partial(kc.ANTEmbedding, 10, 4, 2),
    ):
        with refused("reverse", untied):
            make(reverse=untied)
    with refused("scores"):
        PrunedVocabularyEmbedding.from_table(TABLE, 4, scores=COUNTS[1:])
    with refused("exact", None, TypeError):
        Tiered(4, exact=kc.CodeEmbedding)
