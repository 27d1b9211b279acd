"""The ways to store a table that are tuned by default."""

from keras_compembed.methods.anchors import Anchors
from keras_compembed.methods.codes import Codes
from keras_compembed.methods.rounded import Rounded


def method_families():
    """Ways to store a table, in families whose members differ in size.

    A starting point: take out or put in what you like, and pass it to
    `CompressedHyperModel`.

    Example:

    >>> families = method_families()
    >>> list(families)
    ['rounded', 'narrow', 'codes', 'narrow codes', 'anchors']
    >>> del families["anchors"]
    >>> families["concat"] = [
    ...     kc.methods.Codes(number, 16, "concat") for number in (8, 16, 32)
    ... ]

    Returns:
        Dict from the name of a family to a list of
        `keras_compembed.methods.Method`: rows of few bits; narrow rows of few
        bits, times a matrix; codes; codes whose codewords are narrow; sparse
        combinations of anchors.
    """
    bits = (2, 4, 8)
    return {
        "rounded": [
            *(Rounded(number) for number in bits),
            *(Rounded(number, 32) for number in bits[:2]),
        ],
        "narrow": [
            Rounded(number, rank=rank)
            for rank in (2, 4, 8, 12, 16, 24, 32, 48, 64, 96)
            for number in bits
        ],
        "codes": [
            Codes(number, size)
            for number in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
            for size in (4, 16, 256)
        ],
        "narrow codes": [
            Codes(number, 16, rank=rank)
            for number in (2, 4, 8, 16, 32)
            for rank in (8, 16, 32)
        ],
        "anchors": [
            Anchors(number, nonzeros)
            for number in (50, 100, 200)
            for nonzeros in (1, 2, 4, 8, 16)
        ],
    }
