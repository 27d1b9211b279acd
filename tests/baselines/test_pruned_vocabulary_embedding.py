"""Rows for some ids, and a few that all others share."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.baselines import PrunedVocabularyEmbedding
from keras_compembed.baselines.kept_ids import KeptIds
from keras_compembed.methods import Rounded
from keras_compembed.methods import Vocabulary

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(150, 6)).astype("float32")
COUNTS = RNG.permutation(150) ** 2 + 1


def rows_of(layer):
    return keras.ops.convert_to_numpy(layer.embeddings)


@pytest.mark.parametrize("number", [1, 70, 150])
def test_kept_ids(number):
    ids = np.sort(RNG.permutation(150)[:number])
    arrays = KeptIds.pack(ids, 150)
    is_kept, ranks = KeptIds(*arrays)(tf.range(150))
    np.testing.assert_array_equal(np.flatnonzero(is_kept), ids)
    np.testing.assert_array_equal(ranks, np.searchsorted(ids, np.arange(150)))
    assert sum(x.nbytes for x in arrays) + 256 == KeptIds.count_bytes(150)


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


def test_without_scores_rows_far_from_the_mean_are_kept():
    layer = PrunedVocabularyEmbedding.from_table(TABLE, 40)
    far = np.square(TABLE - TABLE.mean(axis=0)).sum(axis=1)
    same = (rows_of(layer) == TABLE).all(axis=1)
    assert set(np.flatnonzero(same)) == set(np.argsort(-far)[:40])


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
    assert large._index == "int32"


@pytest.mark.parametrize("sharing", ["modulo", "nearest"])
def test_rows_of_another_layer(sharing, tmp_path):
    model = keras.Sequential(
        [
            keras.Input((4,), dtype="int32"),
            keras.layers.Embedding(150, 6, weights=[TABLE], name="words"),
            keras.layers.ReLU(),
        ]
    )
    method = Vocabulary(60, 4, sharing, COUNTS, rows=Rounded(4))
    small = kc.compression.compress_model(
        model, method=method, min_bytes=0, verbose=0
    )
    layer = small.get_layer("words")
    assert isinstance(layer.rows, kc.QuantizedEmbedding)
    kept = np.argsort(-COUNTS)[:60]
    error = np.square(rows_of(layer)[kept] - TABLE[kept]).sum()
    assert error < 0.02 * np.square(TABLE[kept]).sum()
    # The layer of rows is part of it.
    (row,) = kc.reports.size_report(small).embeddings
    assert row.stored_bytes == sum(x.numpy().nbytes for x in layer.weights)
    small.save(tmp_path / "small.keras")
    again = keras.saving.load_model(tmp_path / "small.keras")
    ids = np.resize(np.arange(150), (38, 4))
    np.testing.assert_array_equal(again(ids), small(ids))
    export = kc.export.export_litert(again, tmp_path / "small.tflite")
    assert export.max_error < 1e-6
    found = kc.export.inspect_litert(tmp_path / "small.tflite").constant_bytes
    assert abs(found - method.litert_bytes(150, 6)) < 400


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_rows": 0}, "`num_rows` must be an integer from 1 to 10"),
        ({"num_rows": 11}, "`num_rows` must be an integer from 1 to 10"),
        ({"num_shared_rows": 0}, "`num_shared_rows` must be a positive"),
        ({"sharing": "hash"}, "`sharing` must be one of 'modulo', 'nearest'"),
        ({"kept_ids": [1]}, "`kept_ids` must hold num_rows=2 integers"),
        ({"kept_ids": [1, 1]}, "1 different ones"),
        ({"kept_ids": [1, 10]}, "ids below input_dim=10"),
        ({"rows": kc.CodeEmbedding(2, 4)}, r"sizes \(2, 4\)"),
        ({"rows": keras.layers.Dense(4)}, "Received: a Dense"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        PrunedVocabularyEmbedding(10, 4, **{"num_rows": 2, **arguments})


def test_bad_scores():
    with pytest.raises(ValueError, match="`scores` must hold one number"):
        PrunedVocabularyEmbedding.from_table(TABLE, 4, scores=COUNTS[1:])
    with pytest.raises(TypeError, match="`rows` must be a"):
        Vocabulary(4, rows=kc.CodeEmbedding)


def test_method():
    assert Vocabulary(40, 3).name == "vocabulary of 40, 3 shared"
    name = "vocabulary of 40, 3 near, int4"
    assert Vocabulary(40, 3, "nearest", rows=Rounded(4)).name == name
    assert Vocabulary(40, 3).reason_against(43, 6) is None
    assert "40 + 3 rows" in Vocabulary(40, 3).reason_against(42, 6)
    assert "150 ids" in Vocabulary(40, scores=COUNTS).reason_against(151, 6)
    codes = kc.methods.Codes(8, 16, "concat")
    assert "narrower" in Vocabulary(40, rows=codes).reason_against(150, 6)
