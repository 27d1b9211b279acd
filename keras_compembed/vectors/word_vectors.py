"""Word vectors, and vectors of character n-grams."""

import dataclasses

import numpy as np

from keras_compembed.utils.validation import check_order
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import require

# Constants of the hash FNV-1a with 32 bits.
_OFFSET, _PRIME = 2166136261, 16777619
_BLOCK_WORDS = 1 << 10
_MOST_BUCKETS = 2**31 - 1


@dataclasses.dataclass(frozen=True, eq=False)
class Subwords:
    """Vectors of character n-grams, as in fastText."""

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


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class WordVectors:
    """Uncompressed word vectors.

    Example:

    >>> vectors = WordVectors(["cat", "dog"], np.eye(2))
    >>> vectors.vectors[vectors.words.index("dog")].tolist()
    [0.0, 1.0]

    Args:
        words: List of different strings, the most frequent first if known.
        vectors: Finite float array `(words, columns)`, a row for each word.
        subwords: Optional tuple `(min_n, max_n, vectors)`, to give an unknown
            word the mean vector of its n-grams. As in fastText, these are the
            n-grams of `<word>` with `min_n` to `max_n` characters. A hash of
            its UTF-8 gives the row of an n-gram in `vectors`, `(buckets,
            columns)`. With gensim's `FastText`, pass
            `(wv.min_n, wv.max_n, wv.vectors_ngrams)`. If `vectors` has rows of
            some buckets only, append the number of all buckets and the
            ascending array of those with rows. Defaults to `None`.

    Attributes:
        subwords: `None`, or an object with `min_n`, `max_n`, `vectors`,
            `bucket` and `kept`.

    Raises:
        ValueError: If a word is repeated, or `vectors` do not match.
    """

    words: list
    vectors: np.ndarray
    subwords: Subwords | None = None

    def __post_init__(self):
        words = check_words(self.words)
        vectors = check_table(self.vectors, "vectors")
        require(
            len(words) == len(vectors),
            "`words` must have one word for each row of `vectors`.",
            words=len(words),
            rows=len(vectors),
        )
        if self.subwords is not None:
            if isinstance(self.subwords, (tuple, list)):
                object.__setattr__(self, "subwords", Subwords(*self.subwords))
            if not isinstance(self.subwords, Subwords):
                raise TypeError("`subwords` must be a tuple or None.")
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
    """Returns a list of different strings, or raises."""
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


class NgramBuckets:
    """Finds the rows of a word's n-grams, as fastText does."""

    def __init__(self, min_n, max_n, bucket, kept=None):
        self.min_n = check_positive_int("min_n", min_n)
        self.max_n = check_positive_int("max_n", max_n, self.min_n)
        self.bucket = check_positive_int("bucket", bucket, 1, _MOST_BUCKETS)
        self.kept = None
        if kept is not None:
            kept = np.asarray(kept)
            require(
                kept.ndim == 1
                and kept.dtype.kind in "iu"
                and kept.size
                and (np.diff(np.r_[-1, kept, bucket].astype(int)) > 0).all(),
                f"`kept` must be integers from 0 to {bucket - 1} in ascending "
                "order.",
                kept=kept,
            )
            self.kept = kept.astype("int64")

    def __len__(self):
        return self.bucket if self.kept is None else len(self.kept)

    def rows(self, words):
        """Rows of the kept n-grams of words, and their counts."""
        hashes, owners = _hashes(words, self.min_n, self.max_n)
        rows = hashes % self.bucket
        if self.kept is not None:
            places = np.searchsorted(self.kept, rows)
            places[places == len(self.kept)] = 0
            found = self.kept[places] == rows
            rows, owners = places[found], owners[found]
        return rows, np.bincount(owners, minlength=len(words))

    def _blocks(self, words):
        for start in range(0, len(words), _BLOCK_WORDS):
            part = slice(start, start + _BLOCK_WORDS)
            yield part, *self.rows(words[part])

    def add_up(self, words, read):
        """Yields sums of rows and their counts, some words at a time."""
        for part, rows, counts in self._blocks(words):
            # Words have n-grams in common.
            different, places = np.unique(rows, return_inverse=True)
            vectors = np.asarray(read(different), "float32")
            sums = np.zeros((len(counts), vectors.shape[1]), "float32")
            firsts = np.cumsum(counts) - counts
            some = counts > 0
            with np.errstate(over="ignore", invalid="ignore"):
                sums[some] = np.add.reduceat(vectors[places], firsts[some])
            yield part, sums, counts

    def means(self, words, read):
        """Means of rows (0 for words without any), and their counts."""
        _, sums, counts = zip(*self.add_up(words, read), strict=True)
        counts = np.concatenate(counts)
        divisors = np.maximum(counts, 1).astype("float32")
        return np.concatenate(sums) / divisors[:, None], counts

    def most_used(self, words, most):
        """The same with only the buckets that most words use."""
        uses = np.zeros(len(self), "int64")
        for _, rows, _ in self._blocks(words):
            np.add.at(uses, rows, 1)
        used = np.flatnonzero(uses)
        require(len(used), "Words must have n-grams.", words=len(words))
        order = np.argsort(-uses[used], kind="stable")
        used = np.sort(used[order[:most]])
        kept = used if self.kept is None else self.kept[used]
        return NgramBuckets(self.min_n, self.max_n, self.bucket, kept)

    def weights(self, words, sample_weight):
        """Weights of rows, from weights of words."""
        total = np.zeros(len(self))
        for part, rows, counts in self._blocks(words):
            share = sample_weight[part] / np.maximum(counts, 1) ** 2
            np.add.at(total, rows, np.repeat(share, counts))
        return total


def _hashes(words, min_n, max_n):
    """Hashes of the n-grams of words, and the index of each one's word."""
    texts = [
        b"<%b>"
        % (x if isinstance(x, bytes) else x.encode(errors="surrogatepass"))
        for x in words
    ]
    sizes = np.fromiter(map(len, texts), "int64", len(texts))
    ends, owners = np.cumsum(sizes), np.repeat(np.arange(len(texts)), sizes)
    data = np.frombuffer(b"".join(texts), "uint8")
    is_first = np.append(data & 0xC0 != 0x80, True)
    # fastText's bytes are signed.
    values = data.view("int8").astype("int32").view("uint32")

    at = starts = np.flatnonzero(is_first[:-1])
    owners = owners[starts]
    letters = np.zeros(len(starts), "int64")
    hashes = np.full(len(starts), _OFFSET, "uint32")
    found, whose = [hashes[:0]], [owners[:0]]
    while len(at):
        hashes = (hashes ^ values[at]) * np.uint32(_PRIME)
        at = at + 1
        end = ends[owners]
        whole = is_first[at]
        letters = letters + whole
        # Neither `<` nor `>` is an n-gram by itself.
        edge = (letters == 1) & ((starts == end - sizes[owners]) | (at == end))
        taken = whole & (letters >= min_n) & ~edge
        found.append(hashes[taken])
        whose.append(owners[taken])
        on = (at < end) & ~(whole & (letters == max_n))
        at, starts, owners = at[on], starts[on], owners[on]
        letters, hashes = letters[on], hashes[on]
    whose = np.concatenate(whose)
    order = np.argsort(whose, kind="stable")
    return np.concatenate(found)[order].astype("int64"), whose[order]
