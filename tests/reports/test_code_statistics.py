import json

import numpy as np
import pytest
from errors import refused

import keras_compembed as kc
from keras_compembed.reports import words_sharing_codes
from keras_compembed.reports.code_statistics import code_usage

CODES = np.array([[0, 3], [0, 1], [2, 3], [0, 3], [2, 1], [0, 3], [2, 3]])
WORDS = ["nba", "dog", "yo", "nfl", "cat", "mlb", "ya"]


def layer_of(codes, codebook_size):
    codes = np.asarray(codes)
    return kc.CodeEmbedding(
        len(codes), 2, codes.shape[1], codebook_size, codes=codes
    )


def test_usage():
    codes = [[0, 2], [0, 1], [1, 2], [1, 2]]
    usage = code_usage(codes, codebook_size=3)
    entropy = 2 - 0.75 * np.log2(3)
    assert usage["entropy_bits"] == pytest.approx([1, entropy])
    assert usage["perplexity"] == pytest.approx([2, 2**entropy])
    assert usage["largest_share"] == [0.5, 0.75]
    assert usage["unused"] == [[0, 2], [1, 0]]
    assert usage["num_unused"] == 2
    assert json.loads(json.dumps(usage)) == usage
    assert code_usage(layer_of(codes, 3)) == usage
    # Equal shares, and a single subcode.
    codes = np.stack([np.arange(8), np.zeros(8, int)], axis=1)
    usage = code_usage(codes, codebook_size=8)
    assert usage["entropy_bits"] == [3, 0]
    assert usage["perplexity"] == [8, 1]
    assert usage["num_unused"] == 7


def test_words_sharing_codes():
    assert words_sharing_codes(CODES, WORDS, 4) == [
        ("0 3", ["nba", "nfl", "mlb"]),
        ("2 3", ["yo", "ya"]),
    ]
    assert words_sharing_codes(layer_of(CODES, 4)) == [
        ("0 3", [0, 3, 5]),
        ("2 3", [2, 6]),
    ]
    assert words_sharing_codes([[0], [1], [2]], codebook_size=3) == []


def sharing(codes, size=None):
    return words_sharing_codes(codes, WORDS, size)


@pytest.mark.parametrize("function", [code_usage, sharing])
def test_codes_that_are_refused(function):
    with refused("codebook_size", None):
        function(CODES)
    with refused("codebook_size", None):
        function(kc.QuantizedEmbedding(10, 4))
    with refused("codes", 3):
        function(CODES, 3)
    with refused("codebook_size", 8):
        function(layer_of(CODES, 4), 8)
    with refused("codes", (0, 4)):
        function(np.zeros((0, 4), int), 8)
    with pytest.raises(AttributeError, match="build"):
        function(kc.CodeEmbedding(7, 2, 2, 4))


def test_vocabularies_that_are_refused():
    for vocabulary, received in ((WORDS[:3], 3), (set(WORDS), "set")):
        with refused("vocabulary", received):
            words_sharing_codes(CODES, vocabulary, 4)
