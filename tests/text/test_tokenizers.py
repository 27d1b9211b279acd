"""What all tokenizers are: layers of Keras."""

import copy
import json
import pickle
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused
from text_pages import make_model

import keras_compembed as kc

tensorflow_text = pytest.importorskip("tensorflow_text")
# What trains pieces leaves memory behind.
pytestmark = pytest.mark.apart
TEXTS = ["the red cat sat.", "The CAT", "", "a dog! a dog! a dog!", "nothing"]
LABELS = np.array([0, 1, 1, 0, 1])


@pytest.fixture(scope="module")
def pieces():
    return kc.text.SentencePieceTokenizer.train(TEXTS * 3, 40)


@pytest.fixture(params=["words", "pieces"])
def tokenizer(request, pieces):
    if request.param == "pieces":
        return pieces
    return kc.text.WordTokenizer(["the", "cat", "a", "dog", "sat"])


def classifier(tokenizer):
    return make_model(2, tokenizer, mask_zero=True)


def test_inputs(tokenizer):
    ids = tokenizer(tf.constant(TEXTS))
    assert ids.dtype == tf.int32 and ids.shape[0] == len(TEXTS)
    # The empty text is one unknown token.
    assert ids[2, 0] == 1 and not ids[2, 1:].numpy().any()
    for texts in (
        TEXTS,
        np.array(TEXTS, object),
        np.array([text.encode() for text in TEXTS]),
        np.array(TEXTS)[:, None],
    ):
        np.testing.assert_array_equal(tokenizer(texts), ids)
    one = tokenizer(TEXTS[0])
    np.testing.assert_array_equal(one, ids[0, : len(one)])
    assert tokenizer(tf.constant([], "string")).shape == (0, 1)
    assert tokenizer([""]).shape == (1, 1)


def test_padding(tokenizer):
    config = {**tokenizer.get_config(), "sequence_length": 3}
    short = type(tokenizer).from_config(config)
    ids = short(TEXTS)
    assert ids.shape == (5, 3)
    np.testing.assert_array_equal(ids, tokenizer(TEXTS)[:, :3])
    assert short(["the"]).shape == (1, 3)
    text = keras.Input((1,), dtype="string")
    assert short(text).shape == (None, 3)
    assert tokenizer(text).shape == (None, None)
    config = {**tokenizer.get_config(), "unknown_if_empty": False}
    assert type(tokenizer).from_config(config)([""]).numpy() == [[0]]


@pytest.mark.parametrize(
    ("inputs", "received"),
    [
        (np.array([["a", "b"]]), (1, 2)),
        (np.array([1]), "int64"),
        (tf.ragged.constant([["a"], ["a", "b"]]), "RaggedTensor"),
        (keras.Input((2,), dtype="string"), (None, 2)),
    ],
)
def test_wrong_inputs(inputs, received):
    with refused("WordTokenizer", received):
        kc.text.WordTokenizer(["a"])(inputs)


def test_copies(tokenizer):
    ids = tokenizer(TEXTS)
    config = json.loads(json.dumps(tokenizer.get_config()))
    for same in (
        type(tokenizer).from_config(config),
        copy.deepcopy(tokenizer),
        pickle.loads(pickle.dumps(tokenizer)),
        keras.models.clone_model(classifier(tokenizer)).layers[0],
    ):
        np.testing.assert_array_equal(same(TEXTS), ids)
        assert same.get_vocabulary() == tokenizer.get_vocabulary()
    assert tokenizer.weights == []
    assert len(tokenizer.get_vocabulary()) == tokenizer.vocabulary_size


def test_model(tokenizer, tmp_path):
    model = classifier(tokenizer)
    # Strings are not for XLA: Keras says so, and goes on.
    with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
        model.compile("sgd", "mse", jit_compile=True)
    model.compile("sgd", "sparse_categorical_crossentropy")
    data = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(2)
    model.fit(data, shuffle=False, verbose=0)
    model.fit(np.array(TEXTS, object), LABELS, shuffle=False, verbose=0)
    wanted = model.predict(np.array(TEXTS, object), verbose=0)
    assert np.isfinite(wanted).all()
    model.save(tmp_path / "m.keras")
    model.export(tmp_path / "saved", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(served.serve(tf.constant(TEXTS)), wanted, 1e-5)
    # Its own dtype is that of ids, whatever that of the model.
    policy = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        loaded = keras.saving.load_model(tmp_path / "m.keras")
        mixed = classifier(type(tokenizer).from_config(tokenizer.get_config()))
    finally:
        keras.config.set_dtype_policy(policy)
    found = loaded.predict(np.array(TEXTS, object), verbose=0)
    np.testing.assert_allclose(found, wanted, 1e-5)
    assert mixed.layers[0](TEXTS).dtype == tf.int32
    # Without an input.
    model = keras.Sequential(classifier(tokenizer).layers)
    assert model(tf.constant(TEXTS)).shape == (5, 2)


@pytest.mark.parametrize("module", ["tensorflow_text", "sentencepiece"])
def test_without_the_extra(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, f"{module}.sentencepiece_model_pb2", None)
    with pytest.raises(ImportError, match="text"):
        kc.text.WordTokenizer(["a"])
    with pytest.raises(ImportError, match="text"):
        kc.text.SentencePieceTokenizer.train(["a b c"], 10)


def test_prune_words():
    tokenizer = kc.text.WordTokenizer(["the", "cat", "a", "dog", "sat"])
    small = tokenizer.prune(TEXTS[:2])
    assert small.get_vocabulary() == ["", "[UNK]", "the", "cat", "sat"]
    assert tokenizer.prune(TEXTS, min_count=2).vocabulary == [
        *("the", "cat", "a", "dog")
    ]
    few = tokenizer.prune(TEXTS, vocabulary_size=4)
    assert few.vocabulary == ["a", "dog"]
    with pytest.raises(ValueError, match="word"):
        tokenizer.prune(["none of these"])
