import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.utils.text_tensors import with_text_tensors


@pytest.mark.parametrize(
    "texts",
    [
        ["one", "\u00e9t\u00e9"],
        np.array(["one", "\u00e9t\u00e9"]),
        np.array([["one"], ["\u00e9t\u00e9"]], object),
        np.array([b"one", "\u00e9t\u00e9".encode()], object),
    ],
)
def test_texts_become_tensors(texts):
    inputs, labels = with_text_tensors(({"text": texts}, [1, 2]))
    assert inputs["text"].dtype == tf.string
    assert inputs["text"].shape == np.shape(texts)
    decoded = [text.decode() for text in inputs["text"].numpy().ravel()]
    assert decoded == ["one", "\u00e9t\u00e9"]
    assert labels == [1, 2]


def test_others_stay_as_they_are():
    for data in (np.ones(2), np.array(["one", None], object), tf.ones(2)):
        assert with_text_tensors(data) is data
