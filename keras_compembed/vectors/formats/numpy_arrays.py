"""NumPy's `.npy` and `.npz`, with a list of words."""

import io
import math
import sys

import numpy as np

from keras_compembed.vectors.formats import tables
from keras_compembed.vectors.formats.format import Format
from keras_compembed.vectors.formats.word_lists import find_words

_MAGIC = b"\x93NUMPY"
# Lengths of headers are written in as many bytes.
_VERSIONS = {
    b"\x01\x00": (2, np.lib.format.read_array_header_1_0),
    b"\x02\x00": (4, np.lib.format.read_array_header_2_0),
}
_HEADER_BYTES = 1 << 16


def _looks_like(source):
    return _is_npz(source) or is_npy(source)


def is_npy(source):
    """Whether a `Source` begins as an array that `numpy.save` wrote."""
    return source.head.startswith(_MAGIC)


def map_array(source):
    """The table of a `.npy` file, memory-mapped."""
    with source.open() as stream:
        return _Array(source, "an array", stream).map()


def _is_npz(source):
    names = source.members
    # One that is alone may be a `.npy` that was zipped.
    return bool(names) and all(name.endswith(".npy") for name in names)


def _read(source, request):
    if not _is_npz(source):
        with source.open() as stream:
            array = _Array(source, "an array", stream)
            words = find_words(source, request, array.count)
            return array.read(words, request)
    arrays, lists = {}, {}
    for member in source.members:
        with source.open(member) as stream:
            name = member.removesuffix(".npy")
            array = _Array(source, f"the array {name!r}", stream)
        group = lists if array.dtype.kind in "US" else arrays
        group[name] = (member, array)
    if {"header", "words"} <= arrays.keys():
        raise ValueError(
            "`path` must be a file of vectors as they are. Received: "
            f"{source}, in which they are compressed: it is for "
            "`keras_compembed.vectors.CompressedVectors.load`, whose "
            "`save_word2vec_format` writes one."
        )
    member = _choose(source, arrays, request.tensor)
    with source.open(member) as stream:
        array = _Array(source, f"the array {member[:-4]!r}", stream)
        default = None
        if request.words is None:
            default = _own_words(source, request, arrays, lists)
        words = find_words(source, request, array.count, default)
        return array.read(words, request)


def _choose(source, arrays, name):
    """The file of the table within a `.npz`."""
    shapes = ", ".join(f"{n!r} {a.shape}" for n, (_, a) in arrays.items())
    if name is None:
        fit = [n for n, (_, a) in arrays.items() if len(a.shape) == 2]
        if len(fit) != 1:
            raise ValueError(
                "`tensor` must name the table in a file without or with "
                f"several arrays of two axes. Received: {source} with "
                f"{shapes or 'no array of numbers'}."
            )
        name = fit[0]
    if name not in arrays:
        raise ValueError(
            f"`tensor` must name an array of numbers in {source}: {shapes}. "
            f"Received: tensor={name!r}."
        )
    return arrays[name][0]


def _check_no_pickles(source, arrays):
    """Raises if one array may hold the words, but is not opened."""
    for name, (_, array) in arrays.items():
        if array.dtype.kind == "O":
            raise ValueError(
                f"{source} must hold its words as strings. Received: the "
                f"array {name!r} of objects, a pickle, which is not opened. "
                "Save it as `np.array(words, dtype=str)`, or pass `words`."
            )


def _own_words(source, request, arrays, lists):
    """The words that a `.npz` holds, None if it has no array of strings."""
    if not lists:
        return _check_no_pickles(source, arrays)
    if len(lists) > 1:
        raise ValueError(
            "`words` must be given for a file with several arrays of "
            f"strings. Received: {source} with {sorted(lists)}. Pass the "
            "one that holds a word for each row, "
            f"`words=np.load(path)[{min(lists)!r}].tolist()`."
        )
    return _read_strings(source, request, *lists.popitem())


def _read_strings(source, request, name, entry):
    """The words in an array of strings."""
    member, array = entry
    with source.open(member) as stream:
        array = _Array(source, f"the array {name!r}", stream)
        if len(array.shape) != 1 or not array.dtype.itemsize:
            raise ValueError(
                f"{source} must hold a list of words with one axis. Received: "
                f"{array.name} of shape {array.shape}."
            )
        data = array.read_bytes(array.shape[0])
    if array.dtype.kind == "S":
        return _decode(source, request, array, data)
    codes = np.frombuffer(data, array.dtype.byteorder + "u4")
    if codes.size and codes.max() > sys.maxunicode:
        raise ValueError(
            f"{source} must hold words. Received: {array.name} with numbers "
            "of no characters. Fetch or make the file again."
        )
    return np.frombuffer(data, array.dtype).tolist()


def _decode(source, request, array, data):
    words = []
    for number, word in enumerate(np.frombuffer(data, array.dtype).tolist()):
        try:
            words.append(request.decode(word))
        except UnicodeDecodeError:
            raise ValueError(
                f"{source} must hold words written in {request.encoding}. "
                f"Received: {array.name} with {word[:60]!r} as its number "
                f"{number}. Perhaps another `encoding=` such as 'latin-1' "
                "serves."
            ) from None
    return words


class _Array:
    """An array as `numpy.save` writes it: what its header says, its bytes."""

    def __init__(self, source, name, stream):
        self.source = source
        self.name = name
        self._stream = stream
        start = stream.read(8)
        length, parse = _VERSIONS.get(start[6:8], (None, None))
        if not start.startswith(_MAGIC) or not parse:
            raise ValueError(
                f"{source} must be written by `numpy.save` or `numpy.savez`. "
                f"Received: {name} that begins with {start!r}. `format=` names "
                "other formats."
            )
        size = stream.read(length)
        header = stream.read(min(int.from_bytes(size, "little"), _HEADER_BYTES))
        try:
            self.shape, self.is_fortran, self.dtype = parse(
                io.BytesIO(size + header)
            )
        except Exception as error:  # It parses Python.
            raise ValueError(
                f"{source} must be written by `numpy.save` or `numpy.savez`. "
                f"Received: {name} with a header that breaks its rules: "
                f"{' '.join(str(error).split())[:200]}"
            ) from error

    @property
    def count(self):
        """The rows of a table; raises if it is none."""
        count, _ = tables.check_shape(self.source, self.name, self.shape)
        if self.dtype.kind not in "fiub":
            hint = ""
            if self.dtype.kind == "O":
                hint = " Those are a pickle, which is not opened."
            raise ValueError(
                f"{self.source} must hold real numbers. Received: {self.name} "
                f"of dtype {self.dtype}.{hint} Save them as float32."
            )
        return count

    def read(self, words, request):
        return tables.join(
            self.source, words, self._blocks(request.rows_of(self.count))
        )

    def _blocks(self, rows):
        count, columns = self.shape
        if self.is_fortran:
            data = self.read_bytes(count * columns)
            table = np.frombuffer(data, self.dtype).reshape(columns, count).T
            yield table[:rows]
            return
        step = tables.block_rows(columns, self.dtype.itemsize)
        for start in range(0, rows, step):
            some = min(step, rows - start)
            data = self.read_bytes(some * columns)
            yield np.frombuffer(data, self.dtype).reshape(some, columns)

    def map(self):
        """The table where it lies in a file that is not compressed."""
        count, columns = self.count, self.shape[1]
        start, end = self._stream.position, self.source.size
        if end - start < count * columns * self.dtype.itemsize:
            raise self._cut(end)
        order = "F" if self.is_fortran else "C"
        return np.memmap(
            self.source.path, self.dtype, "r", start, self.shape, order
        )

    def read_bytes(self, numbers):
        """The bytes of so many numbers."""
        before = self._stream.position
        size = numbers * self.dtype.itemsize
        data = self._stream.read(size)
        if len(data) < size:
            raise self._cut(before + len(data))
        return data

    def _cut(self, end):
        return ValueError(
            f"{self.source} must be whole. Received: {self.name} that ends "
            f"at byte {end}, where its header, with the shape {self.shape}, "
            f"has {math.prod(self.shape) * self.dtype.itemsize} bytes of "
            "numbers. Fetch or make the file again."
        )


NUMPY = Format("numpy", _looks_like, _read, ("words", "tensor"))
