"""The groups of letters of words, and the rows of their vectors."""

import dataclasses

import numpy as np

from keras_compembed.utils.validation import check_positive_int

# Those of FNV-1a with 32 bits.
_OFFSET, _PRIME = 2166136261, 16777619
_BLOCK_WORDS = 1 << 10
_MOST_BUCKETS = 2**31 - 1


@dataclasses.dataclass(frozen=True, eq=False)
class NgramBuckets:
    """Finds the rows of a word's groups of letters, as fastText does."""

    min_n: int
    max_n: int
    bucket: int
    kept: np.ndarray | None = None

    def __post_init__(self):
        numbers = {
            "min_n": check_positive_int("min_n", self.min_n),
            "max_n": check_positive_int("max_n", self.max_n, self.min_n),
            "bucket": check_positive_int(
                "bucket", self.bucket, maximum=_MOST_BUCKETS
            ),
        }
        for name, number in numbers.items():
            object.__setattr__(self, name, number)
        if self.kept is None:
            return
        kept = np.asarray(self.kept)
        if kept.ndim != 1 or kept.dtype.kind not in "iu" or not kept.size:
            raise ValueError(
                "`kept` must be a list of buckets. Received: an array of shape "
                f"{kept.shape} and dtype {kept.dtype}."
            )
        kept = kept.astype("int64")
        if (
            kept[0] < 0
            or kept[-1] >= self.bucket
            or (kept[1:] <= kept[:-1]).any()
        ):
            raise ValueError(
                "`kept` must hold different buckets from 0 to "
                f"{self.bucket - 1} in rising order. Received: kept={kept}."
            )
        object.__setattr__(self, "kept", kept)

    def __len__(self):
        return self.bucket if self.kept is None else len(self.kept)

    def rows(self, words):
        """Rows of the groups of letters of words, those that are kept."""
        rows, counts = _hashes(words, self.min_n, self.max_n)
        rows = rows % self.bucket
        if self.kept is None:
            return rows, counts
        places = np.searchsorted(self.kept, rows)
        places[places == len(self.kept)] = 0
        found = self.kept[places] == rows
        owners = np.repeat(np.arange(len(counts)), counts)[found]
        return places[found], np.bincount(owners, minlength=len(counts))

    def blocks(self, words):
        """Yields some words at a time, as a slice, and their `rows`."""
        for start in range(0, len(words), _BLOCK_WORDS):
            part = slice(start, start + _BLOCK_WORDS)
            yield part, *self.rows(words[part])

    def add_up(self, words, read):
        """Yields sums of rows, and how many they are, some words at a time."""
        for part, rows, counts in self.blocks(words):
            # Words have groups of letters in common.
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
        parts = list(self.add_up(words, read))
        counts = np.concatenate([counts for _, _, counts in parts])
        sums = np.concatenate([sums for _, sums, _ in parts])
        return sums / np.maximum(counts, 1).astype("float32")[:, None], counts

    def uses(self, words):
        """How many groups of letters of some words each row stands for."""
        total = np.zeros(len(self), "int64")
        for _, rows, _ in self.blocks(words):
            np.add.at(total, rows, 1)
        return total

    def most_used(self, words, most):
        """The same, with those buckets only that words use most."""
        uses = self.uses(words)
        used = np.flatnonzero(uses)
        if not len(used):
            raise ValueError(
                "Words must have groups of letters. Received: "
                f"{len(words)} words, none with one of {self.min_n} to "
                f"{self.max_n} letters."
            )
        if len(used) > most:
            order = np.argsort(-uses[used], kind="stable")
            used = np.sort(used[order[:most]])
        kept = used if self.kept is None else self.kept[used]
        return dataclasses.replace(self, kept=kept)

    def weights(self, words, sample_weight=None):
        """How much rows count, if words of them do."""
        total = np.zeros(len(self))
        for part, rows, counts in self.blocks(words):
            share = 1 / np.maximum(counts, 1) ** 2
            if sample_weight is not None:
                share *= sample_weight[part]
            np.add.at(total, rows, np.repeat(share, counts))
        return total


def _hashes(words, min_n, max_n):
    """Hashes of the groups of letters of words, and how many each has."""
    texts = [f"<{word}>".encode("utf-8", "surrogatepass") for word in words]
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
        # Neither `<` nor `>` is a group by itself.
        edge = (letters == 1) & ((starts == end - sizes[owners]) | (at == end))
        taken = whole & (letters >= min_n) & ~edge
        found.append(hashes[taken])
        whose.append(owners[taken])
        on = (at < end) & ~(whole & (letters == max_n))
        at, starts, owners = at[on], starts[on], owners[on]
        letters, hashes = letters[on], hashes[on]
    whose = np.concatenate(whose)
    order = np.argsort(whose, kind="stable")
    counts = np.bincount(whose, minlength=len(texts))
    return np.concatenate(found)[order].astype("int64"), counts
