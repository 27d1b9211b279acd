"""fastText's `.bin`: words, and rows of words and of groups of letters.

gensim's reader does not end on a file that is cut within a word. Its hashes
of groups of letters are taken.
"""

import struct

import numpy as np

from keras_compembed.utils.extras import require
from keras_compembed.vectors.formats import tables
from keras_compembed.vectors.formats.format import Format
from keras_compembed.vectors.formats.progress import Progress

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
_BLOCK_WORDS = 1 << 10


def _looks_like(source):
    return source.head.startswith(_MAGIC)


def _read(source, request):
    hash_groups = require("gensim.models.fasttext", "vectors").ft_ngram_hashes
    with source.open() as stream:
        file = _File(source, stream)
        options = file.read_options()
        words = file.read_words(request)
        table = file.read_table(len(words), options)
    rows = request.rows_of(len(words))
    letters = options["minn"], options["maxn"], options["bucket"]

    def groups_of(word):
        if not options["bucket"] or word == _SENTENCE_END:
            return []
        return hash_groups(word, *letters)

    blocks = _compose(table, words, rows, groups_of, request.verbose)
    return tables.join(source, words[:rows], blocks)


def _compose(table, words, rows, groups_of, verbose):
    """Yields vectors: means of the rows of a word and of its letters."""
    progress = Progress(4 * rows * table.shape[1], verbose)
    for start in range(0, rows, _BLOCK_WORDS):
        end = min(start + _BLOCK_WORDS, rows)
        ids, firsts = [], []
        for row in range(start, end):
            firsts.append(len(ids))
            ids.append(row)
            ids += [len(words) + group for group in groups_of(words[row])]
        counts = np.diff(firsts, append=len(ids))
        with np.errstate(over="ignore", invalid="ignore"):
            sums = np.add.reduceat(table[ids], firsts, axis=0)
        yield sums / counts[:, None].astype("float32")
        progress.update(4 * end * table.shape[1])
    progress.finish()


class _File:
    """Reads the parts of a file, one behind the other."""

    def __init__(self, source, stream):
        self._source = source
        self._stream = stream
        # Read, and from `_at` on not used.
        self._data = b""
        self._at = 0

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

    def read_table(self, words, options):
        """The rows of words and of groups of letters."""
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
        size = 4 * rows * columns
        start = self._position
        if self._source.compression is None:
            if self._source.size >= start + size:
                return np.memmap(
                    self._source.path, "<f4", "r", start, (rows, columns)
                )
            data = b""
        else:
            data = self._data[self._at : self._at + size]
            data += self._stream.read(size - len(data))
        if len(data) < size:
            raise self._fault(
                f"the {size} bytes of the table begin, and the file has not "
                "so many. It was cut short: fetch it again"
            )
        return np.frombuffer(data, "<f4").reshape(rows, columns)


FASTTEXT = Format("fasttext", _looks_like, _read)
