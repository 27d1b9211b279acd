"""`WordVectors`."""

import numpy as np
import pytest

import keras_compembed as kc


@pytest.mark.parametrize(
    "words, rows, error, message",
    [
        (["a"], 2, ValueError, "a word for each row.*1 words, 2 rows"),
        (["a", "b", "a"], 3, ValueError, "'a' in rows 0 and 2"),
        (["a", 5], 2, TypeError, r"words\[1\]=5"),
        (
            {"a": 1, "b": 0},
            2,
            ValueError,
            "rows. Received: .*type dict. .*key=wor",
        ),
        ({"a", "b"}, 2, ValueError, "order of the rows. Received: .*type set"),
    ],
)
def test_wrong_words(words, rows, error, message):
    with pytest.raises(error, match=message):
        kc.vectors.WordVectors(words, np.ones((rows, 3)))


def test_vectors_must_be_finite():
    with pytest.raises(ValueError, match="`vectors` must be finite.*row 1"):
        kc.vectors.WordVectors(["a", "b"], np.array([[1.0], [np.nan]]))


def test_repr_is_short():
    words = [f"word{row}" for row in range(5000)]
    table = np.eye(5000, 4)
    assert (
        repr(kc.vectors.WordVectors(words, table))
        == "<WordVectors of 5,000 words x 4>"
    )
    subwords = kc.vectors.Subwords(3, 6, np.eye(10, 4))
    found = repr(kc.vectors.WordVectors(words, table, subwords))
    assert found == "<WordVectors of 5,000 words and 10 groups of letters x 4>"
