"""Vectors of groups of letters, for words that have none of their own."""

import dataclasses

import numpy as np

from keras_compembed.utils.validation import check_table
from keras_compembed.vectors.ngram_buckets import NgramBuckets


@dataclasses.dataclass(frozen=True, eq=False)
class Subwords:
    """Vectors of groups of letters, as fastText has them.

    A word without a vector gets the mean of those of its groups of letters:
    those of `min_n` to `max_n` letters of `<word>`. Groups share as many
    vectors as there are buckets, by a hash of their letters.

    Of gensim's `FastText`, these are `Subwords(wv.min_n, wv.max_n,
    wv.vectors_ngrams)`.

    Example:

    >>> subwords = Subwords(3, 6, np.random.default_rng(0).normal(size=(50, 4)))
    >>> subwords.vectors_of(["cat", "never seen"]).shape
    (2, 4)

    Args:
        min_n: Integer, letters of the shortest group.
        max_n: Integer, letters of the longest.
        vectors: Array of finite numbers `(buckets, columns)`.
        bucket: Optional integer, how many buckets there are. Defaults to the
            rows of `vectors`.
        kept: Optional array of the buckets that `vectors` has rows of, in
            rising order. Defaults to all. Groups of letters of other buckets
            are left out, as if the word had none.

    Raises:
        ValueError: if a number is out of range, or there is not a row for each
            bucket that is kept.
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
        if len(ngrams) != len(vectors):
            raise ValueError(
                "`vectors` must have a row for each bucket. Received: "
                f"{len(vectors)} rows, {len(ngrams)} buckets."
            )
        object.__setattr__(self, "vectors", vectors)
        object.__setattr__(self, "bucket", bucket)
        object.__setattr__(self, "kept", ngrams.kept)
        object.__setattr__(self, "ngrams", ngrams)

    def __len__(self):
        return len(self.vectors)

    def vectors_of(self, words):
        """Means `(words, columns)` of the vectors of groups of letters.

        Args:
            words: List of strings. A word without a group gets zeros.
        """
        means, _ = self.ngrams.means(words, self.vectors.__getitem__)
        return means
