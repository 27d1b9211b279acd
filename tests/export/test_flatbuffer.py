"""Flatbuffers, and what is written into them: tables, int8, offsets."""

import numpy as np
import pytest
import tensorflow as tf
from export_models import ROWS
from export_models import code_embedding
from export_models import convert as convert_to_bytes
from export_models import towers
from export_models import write

from keras_compembed.export import LiteRTModel
from keras_compembed.litert import flatbuffer
from keras_compembed.litert.compressed_rows import CompressedRows
from keras_compembed.litert.compressed_rows import PackedOffsets
from keras_compembed.litert.flatbuffer import StoredTable
from keras_compembed.litert.flatbuffer import quantize_matrices
from keras_compembed.litert.flatbuffer import read_model


def convert(function):
    return read_model(convert_to_bytes(function))


class Int4Rows:
    """Rows of a table of int4, which the converter takes as int8."""

    def __init__(self):
        rng = np.random.default_rng(4)
        # Five numbers, and one of padding.
        rows = rng.integers(-8, 8, size=(ROWS, 6)).astype("int8")
        rows[:, 5] = 0
        low, high = rows[:, 0::2] & 15, rows[:, 1::2] & 15
        packed = (low | high << 4).astype("uint8")
        self.table = StoredTable("rows", rows, packed, 4)

    def __call__(self, ids):
        rows = tf.gather(self.table.converted, ids)
        return tf.cast(rows, tf.float32)


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "model.tflite"
    model = towers(*([code_embedding(codebook_size=k)] for k in (3, 16, 200)))
    write(model, path)
    return path.read_bytes()


def test_buffers_are_aligned(content):
    model = flatbuffer.schema.Model.GetRootAs(content, 0)
    checked = 0
    for index in range(model.BuffersLength()):
        buffer = model.Buffers(index)
        if buffer.DataLength():
            start = buffer._tab.Vector(buffer._tab.Offset(4))
            assert start % 16 == 0
            checked += 1
    assert checked > 3


def test_codes_read_another_way_are_refused():
    traced = Int4Rows()
    codes = traced.table.converted
    model = convert(lambda ids: tf.gather(codes, ids))
    with pytest.raises(RuntimeError, match="cannot be packed"):
        flatbuffer.pack_tables(model, [traced.table])
    wide = codes.astype("int32")
    model = convert(lambda ids: tf.gather(wide, ids))
    with pytest.raises(RuntimeError, match="not in the file as it is"):
        flatbuffer.pack_tables(model, [traced.table])
    # Codes of a layer that the model does not use, or of ids known before.
    flatbuffer.pack_tables(convert(lambda ids: ids + 1), [traced.table])


def test_other_tensors_keep_the_bytes_that_they_share():
    """The converter gives constants of equal bytes one buffer."""
    table = StoredTable(
        "rows", np.zeros((4, 1), "int8"), np.zeros((4, 1), "uint8"), 4
    )
    content = np.zeros((4, 1), "int8")
    other = np.zeros((2, 2), "int8")

    def function(ids):
        rows = tf.cast(tf.gather(content, ids), tf.float32)
        return rows, tf.gather(other, ids)

    model = convert(function)
    (graph,) = model.subgraphs
    tables = [x for x in graph.tensors if x.type == 9 and len(x.shape) == 2]
    constants = [x for x in tables if model.buffers[x.buffer].data is not None]
    for tensor in constants:
        tensor.buffer = constants[0].buffer
    table.packed[:] = 0x11
    flatbuffer.pack_tables(model, [table])
    (kept,) = [x for x in graph.tensors if x.type == 9 and x in constants]
    assert tuple(kept.shape) == other.shape
    assert not np.any(model.buffers[kept.buffer].data)


def test_int8_matrices_of_equal_bytes_and_other_shapes():
    """The converter gives constants of equal bytes one buffer."""
    numbers = np.random.default_rng(1).normal(size=48).astype("float32")
    matrices = [numbers.reshape(6, 8).T, numbers.reshape(8, 6).T]

    def function(ids):
        numbers = tf.expand_dims(tf.cast(ids, tf.float32), 1)
        features = [numbers + tf.range(float(len(x))) for x in matrices]
        return tuple(map(tf.matmul, features, matrices))

    model = convert(function)
    quantize_matrices(model, matrices)
    (graph,) = model.subgraphs
    kind = flatbuffer.schema.TensorType.INT8
    weights = [tensor for tensor in graph.tensors if tensor.type == kind]
    assert sorted(tensor.shape[0] for tensor in weights) == [6, 8]
    for tensor in weights:
        assert len(tensor.quantization.scale) == tensor.shape[0]


def lengths_of(share_present, num_rows=5000):
    rng = np.random.default_rng(0)
    present = rng.random(num_rows) < share_present
    return present * rng.integers(1, 5, size=num_rows)


LENGTHS = {
    # Lengths, bytes a row, dtype of what a row has.
    "plain": ([2, 0, 1, 3] * 1250, 1, "uint8"),
    "long": ([200, 100] * 2500, 2, "int16"),
    "longest": ([40_000, 2] * 2500, 4, "int32"),
    # A bit, a place for each eight of them, and a byte where there is a row.
    "no_rows": ([0] * 5000, 0.25, "int32"),
    "few_rows": (lengths_of(0.05), 0.30, "uint8"),
    "some_rows": (lengths_of(0.20), 0.45, "uint8"),
    "first": ([3] + [0] * 4999, 0.25, "uint8"),
    "one": ([3], 6, "uint8"),
    "one_empty": ([0], 6, "uint8"),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_offsets_of_rows(path, name):
    lengths, bytes_a_row, dtype = LENGTHS[name]
    places = np.concatenate([[0], np.cumsum(lengths)])
    offsets = PackedOffsets(places)
    # What blocks have in common, and the numbers of bits, come on top.
    assert offsets.nbytes <= 1.05 * bytes_a_row * len(lengths) + 160
    assert offsets.tables[-1].dtype == dtype
    path.write_bytes(
        convert_to_bytes(lambda ids: tf.stack(offsets(ids), axis=1))
    )
    ids = np.random.default_rng(0).permutation(len(lengths))
    got = LiteRTModel(path)(ids)
    # Where an empty row begins does not matter.
    np.testing.assert_array_equal(
        got[:, 1] - got[:, 0], np.asarray(lengths)[ids]
    )
    present = np.asarray(lengths)[ids] > 0
    np.testing.assert_array_equal(got[present, 0], places[ids][present])


@pytest.mark.parametrize(
    ("num_columns", "dtype"),
    [
        (256, "uint8"),
        (2**15, "int16"),
        (2**15 + 1, "int16"),
        (2**16, "int16"),
        (2**16 + 1, "int32"),
    ],
)
def test_columns_are_as_narrow_as_can_be(num_columns, dtype, path):
    columns = np.random.default_rng(0).permutation(num_columns)
    rows = CompressedRows(
        PackedOffsets(np.arange(num_columns + 1)),
        np.ones(num_columns, int),
        np.append(columns, 0),
        np.append(np.ones(num_columns, "float32"), 0),
        num_columns,
    )
    assert rows.columns.dtype == dtype
    path.write_bytes(convert_to_bytes(lambda ids: rows.windows(ids)[0]))
    ids = np.concatenate([np.arange(9), num_columns - 1 - np.arange(9)])
    np.testing.assert_array_equal(LiteRTModel(path)(ids), columns[ids][None])
