"""Models that take texts, cut to the tokens of some texts."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import write

import keras_compembed as kc

pytest.importorskip("tensorflow_text")
layers = keras.layers
prune = kc.compression.prune_vocabulary
TEXTS = ["the red cat", "a cat sat", "the dog sat on a red mat"]
OTHERS = ["green birds sing", "the bird is green", "the red dog"]


def words():
    return kc.text.WordTokenizer.train(TEXTS + OTHERS)


def pieces():
    return kc.text.SentencePieceTokenizer.train((TEXTS + OTHERS) * 4, 60)


def two_tables(tokenizer, size):
    """A model in which two tables, one of them in a model within, read ids."""
    text = keras.Input((), dtype="string")
    ids = tokenizer(text)
    inner = keras.Sequential(
        [
            keras.Input((None,), dtype=ids.dtype),
            layers.Embedding(size, 4, mask_zero=True, name="inner"),
        ]
    )
    outer = layers.Embedding(size + 5, 4, mask_zero=True, name="outer")
    vectors = layers.Concatenate()([inner(ids), outer(ids)])
    scores = layers.Dense(3)(layers.GlobalAveragePooling1D()(vectors))
    return keras.Model(text, scores)


# What trains pieces leaves memory behind.
@pytest.mark.parametrize(
    "make", [words, pytest.param(pieces, marks=pytest.mark.slow)]
)
def test_same_outputs(make, tmp_path):
    tokenizer = make()
    size = len(tokenizer.get_vocabulary())
    model = two_tables(tokenizer, size)
    model.compile("sgd", "mse")
    small = prune(model, TEXTS)
    texts = tf.constant(TEXTS)
    np.testing.assert_allclose(small(texts), model(texts), atol=1e-6)
    assert small.compiled and model(tf.constant(OTHERS)).shape == (3, 3)
    new_size = small.layers[1].vocabulary_size
    assert new_size < size
    shapes = [weight.shape for weight in small.weights]
    assert shapes == [(new_size, 4), (new_size, 4), (8, 3), (3,)]
    small.save(tmp_path / "small.keras")
    loaded = keras.saving.load_model(tmp_path / "small.keras")
    np.testing.assert_allclose(loaded(texts), small(texts), atol=1e-6)
    # Unknown words, or smaller pieces.
    assert np.isfinite(small(tf.constant(OTHERS))).all()


def test_file_gets_smaller(tmp_path):
    model = keras.Sequential(
        [
            keras.Input((), dtype="string"),
            kc.text.WordTokenizer([f"word{i}" for i in range(500)]),
            layers.Embedding(502, 16),
            layers.GlobalAveragePooling1D(),
        ]
    )
    model.layers[1].trainable = False
    small = prune(model, [" ".join(f"word{i}" for i in range(100))])
    assert not small.layers[1].trainable
    path = tmp_path / "model.tflite"
    before, after = (
        write(each, path, runtime="tf-text").file_bytes
        for each in (model, small)
    )
    assert after < before / 2


def test_limits():
    tokenizer = words()
    model = two_tables(tokenizer, tokenizer.vocabulary_size)
    often = prune(model, TEXTS, min_count=2)
    assert set(often.layers[1].vocabulary) == {"the", "red", "cat", "a", "sat"}
    few = prune(model, TEXTS + OTHERS, vocabulary_size=4)
    assert few.layers[1].vocabulary_size == 4


def ids_elsewhere(tokenizer):
    text = keras.Input((), dtype="string")
    return keras.Model(text, tokenizer(text) + 1)


def with_table(table):
    text = keras.Input((), dtype="string")
    return lambda tokenizer: keras.Sequential([text, tokenizer, table])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (ids_elsewhere, "Received: ids"),
        (with_table(layers.Embedding(3, 4)), "tokens=15, input_dim=3"),
    ],
)
def test_what_cannot_be_pruned(make, message):
    model = make(words())
    with pytest.raises(ValueError, match=message):
        prune(model, TEXTS)
