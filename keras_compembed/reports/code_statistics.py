"""How codes are used: balance, words that share a code, codes in print."""

import numpy as np

from keras_compembed.codes.packing import check_codes
from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.utils.validation import MAX_CODEBOOK_SIZE
from keras_compembed.utils.validation import check_order
from keras_compembed.utils.validation import check_positive_int


def code_balance(codes, codebook_size=None):
    """Share of each subcode in each codebook.

    Example:

    >>> code_balance([[0, 1], [0, 0], [1, 1], [0, 1]], codebook_size=2)
    array([[0.75, 0.25],
           [0.25, 0.75]])

    Args:
        codes: Integer array `(rows, num_codebooks)`, or a built
            `CodeEmbedding`.
        codebook_size: Integer from 2 to 65536, needed with an array.

    Returns:
        float64 array `(num_codebooks, codebook_size)`; each row sums to 1.

    Raises:
        ValueError: if the codes are no matrix of subcodes below
            `codebook_size`, or there are none.

    References:
        - [Shu & Nakayama, 2018](https://arxiv.org/abs/1711.01068), Figure 3
    """
    codes, codebook_size = _read_codes(codes, codebook_size)
    counts = [
        np.bincount(subcodes, minlength=codebook_size) for subcodes in codes.T
    ]
    return np.stack(counts) / len(codes)


def code_usage(codes, codebook_size=None):
    """Summary of the code balance.

    Example:

    >>> usage = code_usage([[0, 1], [0, 0], [1, 0], [1, 0]], codebook_size=4)
    >>> usage["perplexity"][0], usage["num_unused"]
    (2.0, 4)

    Args:
        codes: Integer array `(rows, num_codebooks)`, or a built
            `CodeEmbedding`.
        codebook_size: Integer from 2 to 65536, needed with an array.

    Returns:
        Dict that `json` can write: `"entropy_bits"`, a number for each
        codebook, at most log2(codebook_size); `"perplexity"`, 2 to that
        power, how many equally used codewords would be as varied;
        `"largest_share"`, of the subcode used most in each codebook;
        `"unused"`, a list of `[codebook, subcode]` that no row uses, and
        `"num_unused"`, its length.

    Raises:
        ValueError: as `code_balance`.
    """
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


def format_codes(codes, codebook_size=None):
    """Codes as strings, one per row, as in Table 5 of the paper.

    Subcodes are hexadecimal numbers of equal width with spaces between: one
    character each for `codebook_size` up to 16.

    Example:

    >>> format_codes([[0, 7, 11], [14, 1, 7]], codebook_size=16)
    ['0 7 B', 'E 1 7']

    Args:
        codes: Integer array `(rows, num_codebooks)`, or a built
            `CodeEmbedding`.
        codebook_size: Integer from 2 to 65536, needed with an array.

    Returns:
        List of strings.

    Raises:
        ValueError: as `code_balance`.
    """
    codes, codebook_size = _read_codes(codes, codebook_size)
    width = len(f"{codebook_size - 1:X}")
    return [
        " ".join(f"{subcode:0{width}X}" for subcode in row)
        for row in codes.tolist()
    ]


def codes_of_words(words, vocabulary, codes, codebook_size=None):
    """Codes of given words in print (Table 5 of the paper).

    Example:

    >>> codes_of_words(["dog"], ["cat", "dog"], [[7, 0], [0, 7]], 8)
    {'dog': '0 7'}

    Args:
        words: List of words, each in `vocabulary`.
        vocabulary: List of words, the word of each row.
        codes: Integer array `(rows, num_codebooks)`, or a built
            `CodeEmbedding`.
        codebook_size: Integer from 2 to 65536, needed with an array.

    Returns:
        Dict from word to string, as `format_codes` writes it.

    Raises:
        ValueError: if a word is not in the vocabulary, the vocabulary does
            not have a word for each row, or as `code_balance`.
    """
    codes, codebook_size = _read_codes(codes, codebook_size)
    vocabulary = _check_vocabulary(vocabulary, len(codes))
    if isinstance(words, str):
        raise ValueError(
            f"`words` must be a list of words. Received: words={words!r}."
        )
    words = list(words)
    places = {word: place for place, word in enumerate(vocabulary)}
    missing = [word for word in words if word not in places]
    if missing:
        raise ValueError(
            "`words` must be in the vocabulary. "
            f"Received: {missing[:10]} (not in it: {len(missing)})."
        )
    if not words:
        return {}
    rows = codes[[places[word] for word in words]]
    return dict(zip(words, format_codes(rows, codebook_size), strict=True))


def words_sharing_codes(codes, vocabulary=None, codebook_size=None):
    """Groups of words that have the same code (Table 6 of the paper).

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
        largest groups first, the code as `format_codes` writes it.

    Raises:
        ValueError: if the vocabulary does not have a word for each row, or
            as `code_balance`.
    """
    codes, codebook_size = _read_codes(codes, codebook_size)
    if vocabulary is None:
        vocabulary = range(len(codes))
    vocabulary = _check_vocabulary(vocabulary, len(codes))
    distinct, group, counts = np.unique(
        codes, axis=0, return_inverse=True, return_counts=True
    )
    # Stable sorts: words stay in the order of rows, equal groups in that of
    # codes.
    members = np.split(
        np.argsort(group.ravel(), kind="stable"), np.cumsum(counts)[:-1]
    )
    largest_first = np.argsort(-counts, kind="stable")
    shared = largest_first[counts[largest_first] > 1]
    if not len(shared):
        return []
    names = format_codes(distinct[shared], codebook_size)
    return [
        (name, [vocabulary[row] for row in members[place]])
        for name, place in zip(names, shared, strict=True)
    ]


def _read_codes(codes, codebook_size):
    if isinstance(codes, CodeEmbedding):
        if codebook_size not in (None, codes.codebook_size):
            raise ValueError(
                "`codebook_size` must be left out or be the layer's, "
                f"{codes.codebook_size}. "
                f"Received: codebook_size={codebook_size!r}."
            )
        return codes.codes, codes.codebook_size
    codebook_size = check_positive_int(
        "codebook_size", codebook_size, 2, MAX_CODEBOOK_SIZE
    )
    codes = check_codes(codes, codebook_size)
    if not codes.size:
        raise ValueError(
            "`codes` must not be empty. "
            f"Received: an array of shape {codes.shape}."
        )
    return codes, codebook_size


def _check_vocabulary(vocabulary, num_rows):
    vocabulary = check_order("vocabulary", vocabulary)
    if len(vocabulary) != num_rows:
        raise ValueError(
            f"`vocabulary` must have a word for each of the {num_rows} rows "
            f"of codes. Received: {len(vocabulary)} words."
        )
    return vocabulary
