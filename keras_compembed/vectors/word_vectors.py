"""Words and their vectors."""

import dataclasses

import numpy as np

from keras_compembed.utils.validation import check_order
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import require
from keras_compembed.vectors.subwords import Subwords


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class WordVectors:
    """Words and their vectors, as files hold them.

    Example:

    >>> vectors = WordVectors(["cat", "dog"], np.eye(2))
    >>> vectors.vectors[vectors.words.index("dog")].tolist()
    [0.0, 1.0]

    Args:
        words: List of strings, each once, frequent ones first where that is
            known.
        vectors: Array of finite numbers `(words, columns)`, a row a word.
        subwords: Optional `Subwords`, for unknown words.
    """

    words: list
    vectors: np.ndarray
    subwords: Subwords | None = None

    def __post_init__(self):
        words = check_words(self.words)
        vectors = check_table(self.vectors, "vectors")
        require(
            len(words) == len(vectors),
            "`words` must have a word for each row of `vectors`.",
            words=len(words),
            rows=len(vectors),
        )
        if self.subwords is not None:
            if not isinstance(self.subwords, Subwords):
                raise TypeError("`subwords` must be `Subwords`.")
            check_table(self.subwords.vectors, "subwords", vectors.shape[1])
        object.__setattr__(self, "words", words)
        object.__setattr__(self, "vectors", vectors)

    def __len__(self):
        return len(self.words)

    def __repr__(self):
        size = describe_size(len(self), self.subwords, self.vectors.shape[1])
        return f"<WordVectors of {size}>"


def describe_size(num_words, ngrams, columns):
    """Text such as `"500 words and 200 n-grams x 16"`."""
    more = "" if ngrams is None else f" and {len(ngrams):,} n-grams"
    return f"{num_words:,} words{more} x {columns}"


def check_words(words):
    """Returns a list of strings, or raises unless each is there once."""
    if isinstance(words, str):
        raise TypeError(f"`words` must be a list. Received: words={words!r}.")
    words = check_order("words", words)
    places = {}
    for row, word in enumerate(words):
        if not isinstance(word, str):
            raise TypeError(f"`words` must be strings. Received: {word!r}.")
        require(
            places.setdefault(word, row) == row,
            "`words` must hold each word once.",
            **{f"row {row}": word},
        )
    return words
