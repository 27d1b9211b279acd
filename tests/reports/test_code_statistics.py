import json

import numpy as np
import pytest

from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.reports.code_statistics import code_balance
from keras_compembed.reports.code_statistics import code_usage
from keras_compembed.reports.code_statistics import codes_of_words
from keras_compembed.reports.code_statistics import format_codes
from keras_compembed.reports.code_statistics import words_sharing_codes

CODES = np.array([[0, 3], [0, 1], [2, 3], [0, 3], [2, 1], [0, 3], [2, 3]])
WORDS = ["nba", "dog", "yo", "nfl", "cat", "mlb", "ya"]


def layer_of(codes, codebook_size):
    codes = np.asarray(codes)
    return CodeEmbedding(
        len(codes), 2, codes.shape[1], codebook_size, codes=codes
    )


def test_balance():
    balance = code_balance(CODES, codebook_size=4)
    expected = [[4 / 7, 0, 3 / 7, 0], [0, 2 / 7, 0, 5 / 7]]
    np.testing.assert_allclose(balance, expected, rtol=1e-15)


def test_balance_of_layer():
    np.testing.assert_array_equal(
        code_balance(layer_of(CODES, 4)), code_balance(CODES, 4)
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


def test_usage_of_equal_and_of_single_subcodes():
    codes = np.stack([np.arange(8), np.zeros(8, int)], axis=1)
    usage = code_usage(codes, codebook_size=8)
    assert usage["entropy_bits"] == [3, 0]
    assert usage["perplexity"] == [8, 1]
    assert usage["num_unused"] == 7


@pytest.mark.parametrize(
    "codebook_size, expected",
    [
        (2, "0 1"),
        (16, "0 1"),
        (17, "00 01"),
        (256, "00 01"),
        (257, "000 001"),
        (65536, "0000 0001"),
    ],
)
def test_format_widths(codebook_size, expected):
    assert format_codes([[0, 1]], codebook_size) == [expected]


def test_format_digits():
    assert format_codes([[10, 15]], 16) == ["A F"]
    assert format_codes([[10, 200]], 256) == ["0A C8"]
    assert format_codes(layer_of([[7, 12]], 16)) == ["7 C"]


def test_codes_of_words():
    expected = {"cat": "2 1", "nba": "0 3"}
    assert codes_of_words(["cat", "nba"], WORDS, CODES, 4) == expected
    layer = layer_of(CODES, 4)
    assert codes_of_words(["cat", "nba"], WORDS, layer) == expected
    assert codes_of_words([], WORDS, layer) == {}


def test_words_sharing_codes():
    assert words_sharing_codes(CODES, WORDS, 4) == [
        ("0 3", ["nba", "nfl", "mlb"]),
        ("2 3", ["yo", "ya"]),
    ]
    assert words_sharing_codes(layer_of(CODES, 4)) == [
        ("0 3", [0, 3, 5]),
        ("2 3", [2, 6]),
    ]


def test_words_sharing_codes_against_a_dict():
    codes = np.random.default_rng(0).integers(3, size=(400, 5))
    groups = {}
    for row, code in enumerate(format_codes(codes, 3)):
        groups.setdefault(code, []).append(row)
    shared = {code: rows for code, rows in groups.items() if len(rows) > 1}
    result = words_sharing_codes(codes, codebook_size=3)
    assert dict(result) == shared
    sizes = [len(rows) for _, rows in result]
    assert sizes == sorted(sizes, reverse=True)


def test_no_words_share_a_code():
    assert words_sharing_codes([[0], [1], [2]], codebook_size=3) == []


FUNCTIONS = [
    code_balance,
    code_usage,
    format_codes,
    lambda codes, codebook_size=None: codes_of_words(
        ["dog"], WORDS, codes, codebook_size
    ),
    lambda codes, codebook_size=None: words_sharing_codes(
        codes, WORDS, codebook_size
    ),
]
all_functions = pytest.mark.parametrize(
    "function",
    FUNCTIONS,
    ids=["balance", "usage", "format", "of_words", "sharing"],
)


@all_functions
def test_array_needs_codebook_size(function):
    with pytest.raises(ValueError, match="`codebook_size` must be an integer"):
        function(CODES)


@all_functions
def test_subcodes_in_range(function):
    with pytest.raises(ValueError, match="`codes` must be from 0 to 2"):
        function(CODES, 3)


@all_functions
def test_layer_has_its_own_codebook_size(function):
    with pytest.raises(ValueError, match="must be left out or be the layer's"):
        function(layer_of(CODES, 4), 8)


@all_functions
def test_no_codes(function):
    with pytest.raises(ValueError, match="`codes` must not be empty"):
        function(np.zeros((0, 4), int), 8)


@all_functions
def test_layer_must_be_built(function):
    with pytest.raises(AttributeError, match="must build the layer"):
        function(CodeEmbedding(7, 2, 2, 4))


def test_unknown_words():
    with pytest.raises(ValueError, match=r"\['bird'\] \(not in it: 1\)"):
        codes_of_words(["dog", "bird"], WORDS, CODES, 4)


def test_words_must_be_a_list():
    with pytest.raises(ValueError, match="`words` must be a list"):
        codes_of_words("dog", WORDS, CODES, 4)


def test_vocabulary_must_fit():
    for function in FUNCTIONS[3:]:
        with pytest.raises(ValueError, match="each of the 3 rows of codes"):
            function(CODES[:3], 4)
    with pytest.raises(ValueError, match="`vocabulary` .*order of the rows"):
        codes_of_words(["dog"], set(WORDS), CODES, 4)
