"""Reads what is in a LiteRT file."""

import os
import struct
import zipfile

import numpy as np

from keras_compembed.export.file_metadata import FileMetadata
from keras_compembed.export.litert_file import LiteRTConstant
from keras_compembed.export.litert_file import LiteRTFile
from keras_compembed.export.litert_file import LiteRTSignature
from keras_compembed.export.litert_file import LiteRTTensor
from keras_compembed.export.model_metadata import AXIS_LABELS
from keras_compembed.export.model_metadata import ENTRY
from keras_compembed.export.model_metadata import VALUE_LABELS
from keras_compembed.export.model_metadata import read_metadata
from keras_compembed.litert import flatbuffer
from keras_compembed.utils.validation import require


def inspect_litert(path):
    """Reads what is in a LiteRT (TFLite) file.

    It takes any such file, with tables of any size: what they hold is not
    read. `print` the result, or take its `to_dict()`.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> export = kc.export.export_litert(model, "dense.tflite", verbose=0)
    >>> file = inspect_litert("dense.tflite")
    >>> file.inputs[0].shape
    (None, 4)
    >>> file.ops
    {'FULLY_CONNECTED': 1}

    Args:
        path: String or path-like, the `.tflite` file.

    Returns:
        An object with `file_bytes`, `min_runtime` (the oldest runtime that runs
        the file, or `None` if it does not say), `inputs` and `outputs`,
        `signatures`, `ops` (how many there are of each; those that no runtime
        has by itself begin with `"CUSTOM "`), `constants` (largest first),
        `metadata` (bytes of each), `file_metadata` and `labels`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is no LiteRT file, or not a whole one.
    """
    path = os.fspath(path)
    with open(path, "rb") as file:
        beginning = file.read(8)
    require(
        beginning[4:] == flatbuffer.IDENTIFIER,
        "`path` must be a LiteRT file, which `kc.export.export_litert` makes "
        "of a Keras model.",
        path=path,
        beginning=beginning,
    )
    try:
        # Pages of tables are not read, so that files may exceed memory.
        return _read(path, np.memmap(path, mode="r"))
    except _SIGNS_OF_DAMAGE as error:
        raise ValueError(
            "`path` must be a whole LiteRT file. Received one that is cut "
            f"short or damaged: {path!r}."
        ) from error


# What reading beyond the end, or what is no object there, leads to.
_SIGNS_OF_DAMAGE = (
    AttributeError,
    IndexError,
    KeyError,
    OverflowError,
    TypeError,
    ValueError,
    struct.error,
)


def _read(path, content):
    model = flatbuffer.read_model(content)
    constants = {}
    for graph in model.subgraphs:
        for tensor in graph.tensors or ():
            place, size = _place(model.buffers[tensor.buffer], content)
            if size and place not in constants:
                constants[place] = LiteRTConstant(
                    _text(tensor.name),
                    flatbuffer.name_type(tensor.type),
                    _shape(tensor),
                    size,
                )
    metadata, file_metadata, files, labels = {}, FileMetadata(), [], {}
    for entry in model.metadata or ():
        buffer = model.buffers[entry.buffer]
        place, size = _place(buffer, content)
        if place not in constants:
            metadata[_text(entry.name)] = size
        if entry.name == ENTRY and buffer.data is not None:
            file_metadata, files = read_metadata(bytes(buffer.data))
    signatures = tuple(_signatures(model))
    if zipfile.is_zipfile(path):
        # Labels and the like are a zip file behind the graph.
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                metadata[entry.filename] = entry.compress_size
            labels = _read_labels(archive, signatures[0].outputs, files)
    return LiteRTFile(
        path=path,
        file_bytes=len(content),
        min_runtime=flatbuffer.get_min_runtime_text(model),
        signatures=signatures,
        ops=flatbuffer.count_ops(model),
        constants=tuple(sorted(constants.values(), key=lambda c: -c.bytes)),
        metadata=metadata,
        file_metadata=file_metadata,
        labels=labels,
    )


def _read_labels(archive, outputs, files):
    """Dict from names of outputs to labels, where they have a file of them."""
    names, kinds, labels = archive.namelist(), (AXIS_LABELS, VALUE_LABELS), {}
    for tensor, found in zip(outputs, files, strict=False):
        for name, kind in found:
            # The first is that of names, others translate them.
            if kind in kinds and name in names and tensor.name not in labels:
                lines = archive.read(name).decode(errors="replace")
                lines = lines.replace("\r\n", "\n").removesuffix("\n")
                labels[tensor.name] = tuple(lines.split("\n"))
    return labels


def _place(buffer, content):
    """Where the bytes of a buffer begin in the file, and how many."""
    # Files beyond 2 GB hold tables behind the graph.
    if buffer.offset > 1:
        if buffer.offset + buffer.size > len(content):
            raise IndexError
        return buffer.offset, buffer.size
    if buffer.data is None:
        return None, 0
    start = np.asarray(content).ctypes.data
    return buffer.data.ctypes.data - start, len(buffer.data)


def _signatures(model):
    for signature in model.signatureDefs or (None,):
        graph = model.subgraphs[signature.subgraphIndex if signature else 0]
        yield LiteRTSignature(
            signature and _text(signature.signatureKey),
            _ends(graph, signature, "inputs"),
            _ends(graph, signature, "outputs"),
        )


def _ends(graph, signature, side):
    """Tensors in the order of the graph, by names of the signature, if any."""
    ends = [(index, None) for index in getattr(graph, side)]
    if signature is not None:
        places = {index: place for place, (index, _) in enumerate(ends)}
        entries = getattr(signature, side) or ()
        ends = [(entry.tensorIndex, _text(entry.name)) for entry in entries]
        ends.sort(key=lambda end: places.get(end[0], len(places)))
    return tuple(_tensor(graph.tensors[index], name) for index, name in ends)


def _tensor(tensor, name):
    quantization = tensor.quantization
    scale = zero_point = None
    if quantization is not None and quantization.scale is not None:
        scale, zero_point = float(quantization.scale[0]), 0
        if quantization.zeroPoint is not None:
            zero_point = int(quantization.zeroPoint[0])
    return LiteRTTensor(
        _text(tensor.name) if name is None else name,
        flatbuffer.name_type(tensor.type),
        _shape(tensor),
        scale,
        zero_point,
    )


def _shape(tensor):
    shape = tensor.shapeSignature
    shape = tensor.shape if shape is None else shape
    sizes = () if shape is None else shape
    return tuple(None if size < 0 else int(size) for size in sizes)


def _text(name):
    return "" if name is None else name.decode(errors="replace")
