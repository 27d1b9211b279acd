"""safetensors: one table out of a file, with words beside it."""

import contextlib
import json
import os

import numpy as np

from keras_compembed.utils.extras import require
from keras_compembed.vectors.formats import tables
from keras_compembed.vectors.formats.foreign import refuse
from keras_compembed.vectors.formats.format import Format
from keras_compembed.vectors.formats.word_lists import find_words

_WORD_FILES = ("tokenizer.json", "vocab.txt")
# Of safetensors: the dtypes that NumPy, with ml_dtypes, has.
_NUMBERS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "bfloat16",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1",
}  # fmt: skip


class TensorFile:
    """An open file of safetensors."""

    def __init__(self, source, file):
        self._source = source
        self._file = file
        self._slices = {name: file.get_slice(name) for name in file.keys()}
        self.shapes = {
            name: tuple(part.get_shape()) for name, part in self._slices.items()
        }

    def blocks(self, name, rows=None):
        """Yields the first rows of a tensor, a part at a time."""
        part = self._slices[name]
        count, *others = self.shapes[name]
        itemsize = self.dtype(name).itemsize
        step = tables.block_rows(int(np.prod(others)), itemsize)
        rows = count if rows is None else min(rows, count)
        for start in range(0, rows, step):
            yield part[start : min(start + step, rows)]

    def dtype(self, name):
        """The NumPy dtype of a tensor, or raises."""
        dtype = self._slices[name].get_dtype()
        if dtype not in _NUMBERS:
            raise ValueError(
                f"{self._source} must hold numbers of {', '.join(_NUMBERS)}. "
                f"Received: the tensor {name!r} of {dtype}."
            )
        return np.dtype(_NUMBERS[dtype])

    def read(self, name):
        """A whole tensor."""
        return np.concatenate(list(self.blocks(name)))


@contextlib.contextmanager
def open_tensors(source):
    """Yields the `TensorFile` of a `Source`."""
    refuse(source)
    # They tell numbers of bfloat16 to NumPy.
    safetensors = require("safetensors", "vectors")
    require("ml_dtypes", "vectors")
    try:
        with safetensors.safe_open(source.path, framework="numpy") as file:
            yield TensorFile(source, file)
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{source} must be a whole safetensors file. Received: "
            f"{' '.join(str(error).split())}. Fetch the file again."
        ) from error


def choose_tensor(source, shapes, name):
    """Returns the name of the table: `name`, or that of the only one."""
    found = [n for n, shape in shapes.items() if len(shape) == 2]
    if name is None and len(found) == 1:
        return found[0]
    if name not in shapes:
        known = ", ".join(f"{n!r} {shapes[n]}" for n in found[:12])
        more = f" and {len(found) - 12} more" if len(found) > 12 else ""
        raise ValueError(
            f"`tensor` must name the table in {source}, one of "
            f"{known or 'none: it has no tensor of two axes'}{more}. "
            f"Received: tensor={name!r}."
        )
    return name


def looks_like(source):
    """Whether a `Source` begins as a safetensors file."""
    length = int.from_bytes(source.head[:8], "little")
    return (
        not source.is_folder
        and source.compression is None
        and source.head[8:9] == b"{"
        and length <= source.size - 8
    )


def map_tensor(source, name):
    """A table of a safetensors file, memory-mapped."""
    with open_tensors(source) as tensors:
        name = choose_tensor(source, tensors.shapes, name)
        shape, dtype = tensors.shapes[name], tensors.dtype(name)
    tables.check_shape(source, f"the tensor {name!r}", shape)
    # The library, which has checked the header, does not tell places.
    with open(source.path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    start = 8 + length + header[name]["data_offsets"][0]
    return np.memmap(source.path, dtype, "r", start, shape)


def _read(source, request):
    if source.compression is not None:
        # The library maps files into memory.
        raise ValueError(
            f"{source} must be a safetensors file. Received: a "
            f"{source.compression} file. Decompress it first."
        )
    folder = os.path.dirname(source.path)
    beside = [os.path.join(folder, name) for name in _WORD_FILES]
    words = next(filter(os.path.isfile, beside), None)
    with open_tensors(source) as tensors:
        name = choose_tensor(source, tensors.shapes, request.tensor)
        return read_table(source, request, tensors, name, words)


def read_table(source, request, tensors, name, words):
    """Returns `Rows` of a tensor."""
    count, _ = tables.check_shape(
        source, f"the tensor {name!r}", tensors.shapes[name]
    )
    words = find_words(source, request, count, words)
    blocks = tensors.blocks(name, request.rows_of(count))
    return tables.join(source, words, blocks)


SAFETENSORS = Format("safetensors", looks_like, _read, ("words", "tensor"))
