"""Tables in NumPy's `.npy` and `.npz` files and in safetensors."""

import json
import math
import os
import re
import zipfile

import numpy as np

from keras_compembed.utils.extras import import_extra
from keras_compembed.vectors.formats.streams import open_stream
from keras_compembed.vectors.formats.words import find_words

_BLOCK_BYTES = 1 << 20
# Dtypes of safetensors that NumPy has, with ml_dtypes.
_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "bfloat16",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1",
}  # fmt: skip
# Names of the scales that are stored next to a quantized table.
_SCALES = re.compile("scale|zero|absmax|quant|scb", re.IGNORECASE)
WORD_FILES = ("tokenizer.json", "vocab.txt", "vocab.json")


def read_header(stream):
    """Shape, whether columns come first, and dtype of a NumPy file."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    return np.lib.format.read_array_header_2_0(stream)


def check_table(shape, dtype):
    if dtype.kind == "O":
        raise ValueError(
            "its array is a pickle of objects, which is unsafe to open: save "
            "numbers as float32, and words as strings"
        )
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"a table has rows and columns, not the shape {shape}")
    if dtype.kind not in "fiub" and dtype.name != "bfloat16":
        raise ValueError(f"a table has real numbers, not {dtype}")


def read_blocks(stream, shape, dtype):
    """Yields rows from a stream in parts, with their places."""
    width = math.prod(shape[1:])
    step = max(1, _BLOCK_BYTES // (width * dtype.itemsize))
    for start in range(0, shape[0], step):
        size = min(step, shape[0] - start)
        data = stream.read(size * width * dtype.itemsize)
        if len(data) < size * width * dtype.itemsize:
            raise ValueError("its array is cut off")
        part = np.frombuffer(data, dtype).reshape(size, *shape[1:])
        yield slice(start, start + size), part


def read_table(stream, shape, dtype, rows, is_fortran=False):
    """The first rows of a table, as float32."""
    check_table(shape, dtype)
    table = np.empty((rows, shape[1]), "float32")
    with np.errstate(over="ignore", invalid="ignore"):
        if is_fortran:
            for place, part in read_blocks(stream, shape[::-1], dtype):
                table[:, place] = part[:, :rows].T
        else:
            for place, part in read_blocks(stream, (rows, shape[1]), dtype):
                table[place] = part
    return table


def read_numpy(path, options):
    """Words and table of a `.npy` or `.npz` file."""
    if zipfile.is_zipfile(path) and is_npz(path):
        return _read_npz(path, options)
    with open_stream(path) as stream:
        return _read_npy(stream, options)


def is_npz(path):
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    return bool(names) and all(name.endswith(".npy") for name in names)


def _read_npy(stream, options, words=None):
    shape, is_fortran, dtype = read_header(stream)
    check_table(shape, dtype)
    words = find_words(options, shape[0], words)
    rows = options.rows_of(shape[0])
    return words, read_table(stream, shape, dtype, rows, is_fortran)


def _read_npz(path, options):
    with zipfile.ZipFile(path) as archive:
        headers = {}
        for name in archive.namelist():
            with archive.open(name) as stream:
                headers[name.removesuffix(".npy")] = read_header(stream)
        if {"header", "words"} <= headers.keys():
            raise ValueError(
                "its vectors are compressed: use `CompressedVectors.load`"
            )
        shapes = {name: shape for name, (shape, *_) in headers.items()}
        lists = [x for x, (*_, dtype) in headers.items() if dtype.kind in "US"]
        words = None
        if options.words is None and len(lists) == 1:
            with archive.open(f"{lists[0]}.npy") as stream:
                array = np.lib.format.read_array(stream, allow_pickle=False)
            words = array.ravel().tolist()
            if array.dtype.kind == "S":
                words = [options.decode(word) for word in words]
        for name in lists:
            del shapes[name]
        name = choose_tensor(shapes, options.tensor)
        with archive.open(f"{name}.npy") as stream:
            return _read_npy(stream, options, words)


def choose_tensor(shapes, tensor):
    """The name of the table: `tensor`, or the only one."""
    tables = [name for name, shape in shapes.items() if len(shape) == 2]
    if tensor is None and len(tables) == 1:
        return tables[0]
    if tensor not in shapes:
        raise ValueError(
            f"`tensor` must name its table, one of {tables[:12]}, not {tensor}"
        )
    return tensor


def tensor_shapes(path):
    """Shapes of tensors by their names."""
    # The library checks the header, but gives no offsets.
    safetensors = import_extra("safetensors", "vectors")
    with safetensors.safe_open(path, framework="numpy") as file:
        return {x: tuple(file.get_slice(x).get_shape()) for x in file.keys()}


def find_tensor(path, name, others=()):
    """Shape, dtype and place of a tensor in a file."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    entry = header[name]
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"{name!r} has unsupported dtype {entry['dtype']}")
    import_extra("ml_dtypes", "vectors")  # Adds bfloat16 to NumPy.
    dtype = np.dtype(_DTYPES[entry["dtype"]])
    part = name.rpartition(".")[0] or name
    beside = [x for x in {*header, *others} if x.startswith(part) and x != name]
    scales = [x for x in beside if _SCALES.search(x[len(part) :])]
    if dtype.kind in "iu" and scales:
        raise ValueError(
            f"the tensor {name!r} is quantized, with its scales in "
            f"{min(scales)!r}: use the original model"
        )
    start = 8 + length + entry["data_offsets"][0]
    return tuple(entry["shape"]), dtype, start


def read_tensor(path, name, options, words=None, others=()):
    """Words and table of one tensor of a file."""
    shape, dtype, start = find_tensor(path, name, others)
    check_table(shape, dtype)
    words = find_words(options, shape[0], words)
    with open(path, "rb") as stream:
        stream.seek(start)
        rows = options.rows_of(shape[0])
        return words, read_table(stream, shape, dtype, rows)


def read_safetensors(path, options):
    """Words and table of a safetensors file."""
    folder = os.path.dirname(path)
    beside = [os.path.join(folder, name) for name in WORD_FILES]
    words = next(filter(os.path.isfile, beside), None)
    name = choose_tensor(tensor_shapes(path), options.tensor)
    return read_tensor(path, name, options, words)
