"""How codes are used: balance, and words that share a code."""

import numpy as np

from keras_compembed.codes.packing import check_codes
from keras_compembed.utils.validation import MAX_CODEBOOK_SIZE
from keras_compembed.utils.validation import check_order
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require


def code_balance(codes, codebook_size=None):
    """Share of each subcode (columns) in each codebook (rows)."""
    codes, codebook_size = _read_codes(codes, codebook_size)
    counts = [
        np.bincount(subcodes, minlength=codebook_size) for subcodes in codes.T
    ]
    return np.stack(counts) / len(codes)


def code_usage(codes, codebook_size=None):
    """How evenly codes use codebooks."""
    balance = code_balance(codes, codebook_size)
    logarithms = np.log2(np.where(balance > 0, balance, 1))
    entropy = np.abs(np.sum(balance * logarithms, axis=1))
    unused = np.argwhere(balance == 0)
    return {
        "entropy_bits": entropy.tolist(),
        "perplexity": (2**entropy).tolist(),
        "largest_share": balance.max(axis=1).tolist(),
        "unused": unused.tolist(),
        "num_unused": len(unused),
    }


def words_sharing_codes(codes, vocabulary=None, codebook_size=None):
    """Groups of words that have the same code (Table 6 of the paper).

    Codes are written as in the paper: hexadecimal numbers of equal width.

    Example:

    >>> words_sharing_codes(
    ...     [[6, 6], [4, 7], [6, 6]], ["nba", "motel", "nfl"], codebook_size=8
    ... )
    [('6 6', ['nba', 'nfl'])]

    Args:
        codes: Integer array `(rows, num_codebooks)`, or a built
            `CodeEmbedding`.
        vocabulary: Optional list of words, the word of each row. Defaults
            to `None`: ids stand for words.
        codebook_size: Integer from 2 to 65536, needed with an array.

    Returns:
        List of `(code, words)` for each code of two words or more, the
        largest groups first.

    References:
        - [Shu & Nakayama, 2018](https://arxiv.org/abs/1711.01068)
    """
    codes, codebook_size = _read_codes(codes, codebook_size)
    if vocabulary is None:
        vocabulary = range(len(codes))
    vocabulary = check_order("vocabulary", vocabulary)
    require(
        len(vocabulary) == len(codes),
        f"`vocabulary` must have a word for each of the {len(codes)} rows.",
        words=len(vocabulary),
    )
    distinct, group, counts = np.unique(
        codes, axis=0, return_inverse=True, return_counts=True
    )
    # Stable sorts: words stay in the order of rows, equal groups in that of
    # codes.
    members = np.split(
        np.argsort(group.ravel(), kind="stable"), np.cumsum(counts)[:-1]
    )
    largest_first = np.argsort(-counts, kind="stable")
    width = len(f"{codebook_size - 1:X}")
    return [
        (
            " ".join(f"{subcode:0{width}X}" for subcode in distinct[place]),
            [vocabulary[row] for row in members[place]],
        )
        for place in largest_first[counts[largest_first] > 1]
    ]


def _read_codes(codes, codebook_size):
    # A layer of codes.
    if hasattr(codes, "codebook_size"):
        require(
            codebook_size in (None, codes.codebook_size),
            "`codebook_size` must be left out or be the layer's, "
            f"{codes.codebook_size}.",
            codebook_size=codebook_size,
        )
        return codes.codes, codes.codebook_size
    codebook_size = check_positive_int(
        "codebook_size", codebook_size, 2, MAX_CODEBOOK_SIZE
    )
    codes = check_codes(codes, codebook_size)
    require(codes.size, "`codes` must not be empty.", shape=codes.shape)
    return codes, codebook_size
