"""Whole words: the ids of a TextVectorization."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused
from text_references import hard_texts
from text_references import with_wrong_bytes
from text_references import word_ids

import keras_compembed as kc
from keras_compembed.text.word_tokenizer import as_tokenizer

pytest.importorskip("tensorflow_text")
WordTokenizer = kc.text.WordTokenizer
WORDS = [
    *("a", "the", "there", "thereby", "e", "b", "c", "ab", "abc", "re"),
    *("\u00e9", "\u00c9t\u00e9", "the\u2019s", "na\u00efve", "\u65e5\u672c"),
    *("\U0001f600", "x\u2581y", "\u2581", "cat", "Cat", ".", "=", "-", "==="),
    *("it's", "its", "\u00a0", "\u0301", "0", "a.b"),
]


@pytest.mark.parametrize(
    "standardize",
    [
        None,
        "lower",
        "strip_punctuation",
        "lower_and_strip_punctuation",
        "lower_and_split_punctuation",
    ],
)
def test_ids(standardize):
    tokenizer = WordTokenizer(WORDS, standardize)
    texts = hard_texts(WORDS, 300)
    found = tokenizer.tokenize(tf.constant(texts)).to_list()
    assert found == [word_ids(text, WORDS, standardize) for text in texts]
    if standardize != "lower_and_split_punctuation":
        layer = keras.layers.TextVectorization(
            vocabulary=WORDS, standardize=standardize
        )
        wanted = layer(tf.constant(texts)).numpy()
        same = as_tokenizer(layer)
        ids = same(texts).numpy()
        np.testing.assert_array_equal(ids, wanted[:, : ids.shape[1]])
        assert not wanted[:, ids.shape[1] :].any()
        # Whatever the bytes are.
        wrong = tf.constant(with_wrong_bytes(texts))
        wanted, ids = layer(wrong).numpy(), same(wrong).numpy()
        np.testing.assert_array_equal(ids, wanted[:, : ids.shape[1]])


def test_long_texts():
    tokenizer = WordTokenizer(["a", "b"])
    texts = ["a b " * 30_000, "z" * 200_000 + " a", "a" * 100_000]
    found = tokenizer.tokenize(tf.constant(texts)).to_list()
    assert found == [[2, 3] * 30_000, [1, 2], [1]]


def test_train():
    texts = ["The cat sat.", "the cat!", "the x\u2581y", "a\u0000b"]
    tokenizer = WordTokenizer.train(texts, sequence_length=4)
    words = ["the", "cat", "sat", "x\u2581y"]
    assert tokenizer.get_vocabulary() == ["", "[UNK]", *words]
    assert tokenizer.vocabulary_size == 6
    assert tokenizer(texts).numpy()[2].tolist() == [2, 5, 0, 0]
    data = tf.data.Dataset.from_tensor_slices(texts).batch(3)
    few = WordTokenizer.train(data, vocabulary_size=4)
    assert few.vocabulary == words[:2]
    assert WordTokenizer.train(np.array(texts)).vocabulary == words


@pytest.mark.parametrize(
    ("vocabulary", "received"),
    [
        (["a", "b", "a"], "word='a', times=2"),
        (["a b"], "word='a b'"),
        (["a\u0000"], "a\\x00"),
        (["\U0010ffff"], "\\U0010ffff"),
        ([b"a"], "b'a'"),
        ([], None),
        ("ab", None),
    ],
)
def test_wrong_vocabulary(vocabulary, received):
    with refused("vocabulary", received):
        WordTokenizer(vocabulary)


def test_wrong_arguments():
    with refused("standardize", "upper"):
        WordTokenizer(["a"], standardize="upper")
    with refused("vocabulary_size", 2):
        WordTokenizer.train(["a"], vocabulary_size=2)
    with refused("texts", "none"):
        WordTokenizer.train(["  "])
    with refused("layer", "empty"):
        as_tokenizer(keras.layers.TextVectorization(name="empty"))


def test_words_of_characters_that_are_many_bytes():
    """No beginning of a character is taken for a space."""
    tokenizer = WordTokenizer(["the", "\u2019s"], standardize=None)
    found = tokenizer.tokenize(tf.constant(["the\u2019s the \u2019s"]))
    assert found.to_list() == [[1, 2, 3]]
