"""Vectors of character n-grams, for unknown words."""

import dataclasses

import numpy as np

from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import require
from keras_compembed.vectors.ngram_buckets import NgramBuckets


@dataclasses.dataclass(frozen=True, eq=False)
class Subwords:
    """Vectors of character n-grams, as fastText has them.

    An unknown word gets the mean vector of its n-grams: those of `min_n` to
    `max_n` characters of `<word>`. N-grams share as many vectors as there are
    buckets, by a hash of their UTF-8.

    Of gensim's `FastText`, these are `Subwords(wv.min_n, wv.max_n,
    wv.vectors_ngrams)`.

    Example:

    >>> subwords = Subwords(3, 6, np.random.default_rng(0).normal(size=(50, 4)))
    >>> subwords.vectors_of(["cat", "never seen"]).shape
    (2, 4)

    Args:
        min_n: Integer, characters of the shortest n-gram.
        max_n: Integer, characters of the longest.
        vectors: Array of finite numbers `(buckets, columns)`.
        bucket: Optional integer, how many buckets there are. Defaults to the
            rows of `vectors`.
        kept: Optional array of the buckets that `vectors` has rows of, in
            rising order. Defaults to all. N-grams of other buckets are left
            out of means.
    """

    min_n: int
    max_n: int
    vectors: np.ndarray
    bucket: int | None = None
    kept: np.ndarray | None = None

    def __post_init__(self):
        vectors = check_table(self.vectors, "vectors")
        bucket = len(vectors) if self.bucket is None else self.bucket
        ngrams = NgramBuckets(self.min_n, self.max_n, bucket, self.kept)
        require(
            len(ngrams) == len(vectors),
            "`vectors` must have a row for each bucket.",
            rows=len(vectors),
            buckets=len(ngrams),
        )
        object.__setattr__(self, "vectors", vectors)
        object.__setattr__(self, "bucket", bucket)
        object.__setattr__(self, "kept", ngrams.kept)
        object.__setattr__(self, "ngrams", ngrams)

    def __len__(self):
        return len(self.vectors)

    def vectors_of(self, words):
        """Means `(words, columns)` for a list of words; 0 without n-grams."""
        means, _ = self.ngrams.means(words, self.vectors.__getitem__)
        return means
