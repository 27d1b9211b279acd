"""Tables of models exchanged for rounded ones."""

import keras
import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.methods import Rounded

layers = keras.layers
IDS = np.random.default_rng(0).integers(1, 60, size=(4, 5), dtype="int32")


def compress(model, method):
    return kc.compression.compress_model(
        model, method=method, min_bytes=100, seed=0, verbose=0
    )


def words(model):
    (layer,) = (x for x in model._flatten_layers() if x.name == "words")
    return layer


def models():
    ids = keras.Input((5,), dtype="int32")
    embedding = layers.Embedding(60, 16, name="words")
    rows = layers.Flatten()(embedding(ids))
    yield kc.QuantizedEmbedding, keras.Model(ids, rows)
    embedding = layers.Embedding(60, 16, name="words", mask_zero=True)
    pooled = layers.GlobalAveragePooling1D()(embedding(ids))
    yield kc.QuantizedEmbedReduce, keras.Model(ids, pooled)
    for tie_weights in (True, False):
        table = layers.ReversibleEmbedding(
            60, 16, name="words", tie_weights=tie_weights
        )
        logits = table(layers.Dense(16)(table(ids)), reverse=True)
        yield kc.ReversibleQuantizedEmbedding, keras.Model(ids, logits)


def test_every_place_of_a_table():
    for cls, model in models():
        for method, most in (
            (Rounded(8), 0.02),
            (Rounded(8, rank=16, learn_rows=True), 0.03),
        ):
            small = compress(model, method)
            layer = words(small)
            assert type(layer) is cls
            assert layer.learn_rows is method.learn_rows
            expected = np.asarray(model(IDS))
            np.testing.assert_allclose(
                small(IDS), expected, atol=most * np.abs(expected).max()
            )


def test_instead_of_embed_reduce():
    keras_rs = pytest.importorskip("keras_rs")
    layer = keras_rs.layers.EmbedReduce(60, 16, combiner="sum", name="words")
    model = keras.Sequential([keras.Input((5,), dtype="int32"), layer])
    small = compress(model, Rounded(8))
    assert words(small).combiner == "sum"
    np.testing.assert_allclose(small(IDS), model(IDS), atol=0.005)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        (Rounded(), "int4"),
        (Rounded(8), "int8"),
        (Rounded(4, block_size=32), "int4 blocks of 32"),
        (Rounded(2, rank=16), "int2 rank 16"),
        (Rounded(2, 8, 16), "int2 rank 16 blocks of 8"),
    ],
    ids=["default", "int8", "blocks", "rank", "both"],
)
def test_name(method, name):
    assert method.name == name


def test_what_is_too_narrow():
    assert Rounded(4).reason_against(10, 1) is None
    for method, name in (
        (Rounded(4, 9), "block_size"),
        (Rounded(rank=9), "rank"),
    ):
        assert f"`{name}`=9" in method.reason_against(10, 8)
        assert method.reason_against(10, 9) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bits": 1}, "`bits` must be one of"),
        ({"rank": 0.5}, "`rank` must be a positive integer"),
        ({"rank": 4, "block_size": 5}, "`block_size` must be an integer"),
        ({"learn_rows": None}, "`learn_rows` must be True or False"),
    ],
    ids=["bits", "rank", "blocks", "learn_rows"],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Rounded(**arguments)
