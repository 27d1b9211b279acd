import json

import numpy as np
import pytest

from keras_compembed.reports.code_statistics import code_usage
from keras_compembed.reports.code_statistics import words_sharing_codes

CODES = np.array([[0, 3], [0, 1], [2, 3], [0, 3], [2, 1], [0, 3], [2, 3]])
WORDS = ["nba", "dog", "yo", "nfl", "cat", "mlb", "ya"]


def test_usage():
    codes = np.array([[0, 2], [0, 1], [1, 2], [1, 2]])
    usage = code_usage(codes, codebook_size=3)
    entropy = 2 - 0.75 * np.log2(3)
    assert usage["entropy_bits"] == pytest.approx([1, entropy])
    assert usage["perplexity"] == pytest.approx([2, 2**entropy])
    assert usage["largest_share"] == [0.5, 0.75]
    assert usage["unused"] == [[0, 2], [1, 0]]
    assert usage["num_unused"] == 2
    assert json.loads(json.dumps(usage)) == usage


def test_words_sharing_codes():
    assert words_sharing_codes(CODES, WORDS, 4) == [
        ("0 3", ["nba", "nfl", "mlb"]),
        ("2 3", ["yo", "ya"]),
    ]
    assert words_sharing_codes(CODES, None, 4)[1] == ("2 3", [2, 6])
    assert words_sharing_codes(np.array([[0], [1], [2]]), None, 3) == []
