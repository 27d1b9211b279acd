"""fastText's `.bin`: words, and rows of words and of groups of letters."""

import struct

import numpy as np

from keras_compembed.vectors.formats import tables
from keras_compembed.vectors.formats.format import Format
from keras_compembed.vectors.formats.progress import Progress
from keras_compembed.vectors.ngram_buckets import NgramBuckets

_MAGIC = struct.pack("<i", 793712314)
_OPTIONS = (
    "dim", "ws", "epoch", "min_count", "neg", "word_ngrams", "loss", "model",
    "bucket", "minn", "maxn", "lr_update_rate",
)  # fmt: skip
_SENTENCE_END = "</s>"  # fastText gives it no groups of letters.
# More are a sign of damage, and take time.
_MOST_LETTERS = 100
_WORD_BYTES = 1 << 14
_READ_BYTES = 1 << 20


def _looks_like(source):
    return source.head.startswith(_MAGIC)


def _read(source, request):
    with source.open() as stream:
        file = _File(source, stream)
        options = file.read_options()
        words = file.read_words(request)
        file.read_shape(len(words), options)
        kept = words[: request.rows_of(len(words))]
        ngrams, used = _ngrams(options), None
        if request.subwords:
            if ngrams is None:
                raise ValueError(
                    "`subwords` must not be given for models without groups "
                    f"of letters. Received: subwords={request.subwords}, and "
                    f"{source} of minn={options['minn']}, "
                    f"maxn={options['maxn']}, bucket={options['bucket']}."
                )
            # Also words beyond the limit tell which letters are frequent.
            most = request.most_subwords(len(kept))
            used = ngrams.most_used(_with_letters(words), most)
        if source.compression is None:
            table = file.map_rows(len(words))
        else:
            ids = _rows_to_read(words, kept, ngrams, used)
            table = file.read_rows(len(words), ids, request.verbose)
    subwords = None
    if used is not None:
        subwords = tables.read_subwords(source, used, table.buckets)
    blocks = _compose(table, kept, ngrams, request.verbose)
    return tables.join(source, kept, blocks)._replace(subwords=subwords)


def _ngrams(options):
    """`NgramBuckets`, or None if words have no rows but their own."""
    shortest, longest = max(options["minn"], 1), options["maxn"]
    if not options["bucket"] or longest < shortest:
        return None
    return NgramBuckets(shortest, longest, options["bucket"])


def _rows_to_read(words, kept, ngrams, used):
    """Rows of the words that are kept, of their letters, and of those used."""
    ids = np.arange(len(kept))
    if ngrams is None:
        return ids
    buckets = np.flatnonzero(ngrams.uses(_with_letters(kept)))
    if used is not None:
        buckets = np.union1d(buckets, used.kept)
    return np.concatenate([ids, len(words) + buckets])


def _with_letters(words):
    return [word for word in words if word != _SENTENCE_END]


def _compose(table, words, ngrams, verbose):
    """Yields vectors: means of the rows of a word and of its letters."""
    progress = Progress(4 * len(words) * table.columns, verbose)
    for part, sums, counts in _sums(table, words, ngrams):
        own = table.words(np.arange(len(words))[part])
        with np.errstate(over="ignore", invalid="ignore"):
            yield (own + sums) / (1 + counts.astype("float32"))[:, None]
        progress.update(4 * min(part.stop, len(words)) * table.columns)
    progress.finish()


def _sums(table, words, ngrams):
    """Yields sums of the rows of letters, see `NgramBuckets.add_up`."""
    if ngrams is None:
        size = tables.block_rows(table.columns, 4)
        for start in range(0, len(words), size):
            part = slice(start, start + size)
            yield part, 0, np.zeros(len(words[part]))
        return
    for part, sums, counts in ngrams.add_up(words, table.buckets):
        ends = [word == _SENTENCE_END for word in words[part]]
        sums[ends], counts[ends] = 0, 0
        yield part, sums, counts


class _Table:
    """Rows of words, and behind them those of buckets of letters."""

    def __init__(self, rows, num_words, ids=None):
        self._rows = rows
        self._num_words = num_words
        self._ids = ids
        self.columns = rows.shape[1]

    def words(self, words):
        if self._ids is not None:
            words = np.searchsorted(self._ids, words)
        return self._rows[words]

    def buckets(self, buckets):
        return self.words(self._num_words + buckets)


class _File:
    """Reads the parts of a file, one behind the other."""

    def __init__(self, source, stream):
        self._source = source
        self._stream = stream
        # Read, and from `_at` on not used.
        self._data = b""
        self._at = 0
        self._shape = None

    @property
    def _position(self):
        return self._stream.position - len(self._data) + self._at

    def _have(self, size):
        """Whether so many bytes follow; reads on if need be."""
        if len(self._data) - self._at < size:
            self._data = self._data[self._at :] + self._stream.read(_READ_BYTES)
            self._at = 0
        return len(self._data) - self._at >= size

    def _fault(self, what):
        return ValueError(
            f"{self._source} must be a model of words that fastText's "
            f"`save_model` wrote. Received: at byte {self._position}, {what}."
        )

    def _numbers(self, form, what):
        """The next numbers, see `struct.unpack`."""
        size = struct.calcsize(form)
        if not self._have(size):
            raise self._fault(
                f"the file ends, where {what} should be. It was cut short: "
                "fetch it again"
            )
        numbers = struct.unpack_from(form, self._data, self._at)
        self._at += size
        return numbers

    def read_options(self):
        magic, version = self._numbers("<2i", "its mark")
        if struct.pack("<i", magic) != _MAGIC:
            raise self._fault(
                "other bytes than its mark stand before. `format=` names "
                "other formats; models of fastText before 0.1 have none"
            )
        if version not in (11, 12):
            raise self._fault(f"version {version}, which is not known")
        numbers = self._numbers(f"<{len(_OPTIONS)}id", "the options")
        options = dict(zip(_OPTIONS, numbers, strict=False))
        if (
            options["dim"] < 1
            or options["bucket"] < 0
            or not 0 <= options["minn"] <= _MOST_LETTERS
            or not 0 <= options["maxn"] <= _MOST_LETTERS
        ):
            raise self._fault(f"options that cannot be: {options}")
        return options

    def read_words(self, request):
        """The words of all rows."""
        count, words, labels, _, pruned = self._numbers("<3i2q", "the words")
        if labels:
            raise self._fault(
                f"a classifier, with {labels} labels. Only models of words are "
                "read"
            )
        if pruned >= 0:
            raise self._fault("a pruned model. Take the one it was made from")
        if count < 1 or words != count:
            raise self._fault(f"{words} words of {count} entries")
        found = []
        while len(found) < count:
            found.append(self._word(request, len(found)))
        return found

    def _word(self, request, row):
        what = f"word {row + 1}"
        self._have(_WORD_BYTES)
        end = self._data.find(b"\0", self._at, self._at + _WORD_BYTES)
        if end < 0:
            raise self._fault(
                f"no zero byte ends {what} in {_WORD_BYTES} bytes. The file "
                "is damaged: fetch it again"
            )
        word = self._data[self._at : end]
        try:
            text = request.decode(word)
        except UnicodeDecodeError:
            raise self._fault(
                f"{what} is not written in {request.encoding}: {word[:40]!r}. "
                "`unicode_errors='backslashreplace'` reads it as gensim does"
            ) from None
        self._at = end + 1
        _, kind = self._numbers("<qb", f"the count of {what}")
        if kind:
            raise self._fault(f"{what} is of the kind {kind}, no word")
        return text

    def read_shape(self, words, options):
        """The shape of the rows of words and of groups of letters."""
        quantized, rows, columns = self._numbers("<?2q", "the table")
        if quantized:
            raise self._fault(
                "a quantized table (.ftz). Take the model it was made from"
            )
        if columns != options["dim"] or rows != words + options["bucket"]:
            raise self._fault(
                f"a table of {rows} rows and {columns} columns, where the "
                f"options have {words} words, {options['bucket']} groups of "
                f"letters and {options['dim']} columns. The file is damaged: "
                "fetch it again"
            )
        self._shape = rows, columns
        if (
            self._source.compression is None
            and self._source.size < self._position + self._size
        ):
            raise self._cut_short()

    @property
    def _size(self):
        rows, columns = self._shape
        return 4 * rows * columns

    def map_rows(self, words):
        """A `_Table` of a file that is not compressed, read where needed."""
        start = self._position
        table = np.memmap(self._source.path, "<f4", "r", start, self._shape)
        return _Table(table, words)

    def read_rows(self, words, ids, verbose):
        """A `_Table` of some rows, those of `ids` in rising order."""
        parts = list(self._parts(ids, verbose))
        return _Table(np.concatenate(parts), words, ids)

    def _parts(self, ids, verbose):
        progress = Progress(self._source.size, verbose)
        rows, columns = self._shape
        size = tables.block_rows(columns, 4)
        for start in range(0, rows, size):
            end = min(start + size, rows)
            left = 4 * (end - start) * columns
            data = self._data[self._at : self._at + left]
            self._at += len(data)
            data += self._stream.read(left - len(data))
            if len(data) < left:
                raise self._cut_short()
            first, last = np.searchsorted(ids, (start, end))
            part = np.frombuffer(data, "<f4").reshape(-1, columns)
            yield part[ids[first:last] - start]
            progress.update(self._stream.raw_position)
        progress.finish()

    def _cut_short(self):
        return self._fault(
            f"the {self._size} bytes of the table begin, and the file has not "
            "so many. It was cut short: fetch it again"
        )


FASTTEXT = Format("fasttext", _looks_like, _read, ("subwords",))
