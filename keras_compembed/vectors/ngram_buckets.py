"""The character n-grams of words, and the rows of their vectors."""

import numpy as np

from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

# Those of FNV-1a with 32 bits.
_OFFSET, _PRIME = 2166136261, 16777619
_BLOCK_WORDS = 1 << 10
_MOST_BUCKETS = 2**31 - 1


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
                f"`kept` must be integers from 0 to {bucket - 1} in rising "
                "order.",
                kept=kept,
            )
            self.kept = kept.astype("int64")

    def __len__(self):
        return self.bucket if self.kept is None else len(self.kept)

    def rows(self, words):
        """Rows of the n-grams of words that are kept, and their counts."""
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
        """Yields sums of rows, and how many they are, some words at a time."""
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
        """Means of rows, 0 for words without, and how many they are."""
        _, sums, counts = zip(*self.add_up(words, read), strict=True)
        counts = np.concatenate(counts)
        divisors = np.maximum(counts, 1).astype("float32")
        return np.concatenate(sums) / divisors[:, None], counts

    def most_used(self, words, most):
        """The same, with those buckets only that words use most."""
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
        """How much rows count, if words of them do."""
        total = np.zeros(len(self))
        for part, rows, counts in self._blocks(words):
            share = sample_weight[part] / np.maximum(counts, 1) ** 2
            np.add.at(total, rows, np.repeat(share, counts))
        return total


def _hashes(words, min_n, max_n):
    """Hashes of the n-grams of words, and the places of their words."""
    texts = [
        b"<%b>"
        % (x if isinstance(x, bytes) else x.encode(errors="surrogatepass"))
        for x in words
    ]
    sizes = np.fromiter(map(len, texts), "int64", len(texts))
    ends, owners = np.cumsum(sizes), np.repeat(np.arange(len(texts)), sizes)
    data = np.frombuffer(b"".join(texts), "uint8")
    is_first = np.append(data & 0xC0 != 0x80, True)
    # fastText's bytes have a sign.
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
