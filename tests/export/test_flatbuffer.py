import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import ROWS
from export_models import code_embedding
from export_models import ids_input

from keras_compembed.export import flatbuffer
from keras_compembed.export.export_litert import export_litert
from keras_compembed.export.flatbuffer import StoredTable
from keras_compembed.export.flatbuffer import read_model


def convert(function):
    module = tf.Module()
    module.function = tf.function(
        function, input_signature=[tf.TensorSpec((None,), "int32")]
    )
    concrete = module.function.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [concrete], module
    )
    return read_model(converter.convert())


class Int4Rows:
    """Rows of a table of int4, which the converter takes as int8."""

    def __init__(self, seed=4):
        rng = np.random.default_rng(seed)
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
    ids = ids_input()
    outputs = [code_embedding(codebook_size=k)(ids) for k in (3, 16, 200)]
    export_litert(keras.Model(ids, outputs), path, verbose=0)
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


def test_writing_what_was_read_changes_nothing(content):
    again = flatbuffer.write_model(read_model(content))
    assert len(again) == len(content)
    assert again[4:8] == content[4:8] == b"TFL3"
    old, new = read_model(content), read_model(again)
    assert flatbuffer.list_ops(old) == flatbuffer.list_ops(new)
    for before, after in zip(old.buffers, new.buffers, strict=True):
        np.testing.assert_array_equal(before.data, after.data)


def test_min_runtime(content):
    model = read_model(content)
    assert flatbuffer.get_min_runtime(model) == (2, 18, 0)
    flatbuffer.raise_min_runtime(model, (2, 21, 0))
    flatbuffer.raise_min_runtime(model, (2, 18, 0))
    assert flatbuffer.get_min_runtime(model) == (2, 21, 0)
    flatbuffer.raise_min_runtime(model, (3, 1, 0))
    assert flatbuffer.get_min_runtime(model) == (3, 1, 0)
    assert re.search(rb"3\.1\.0\0", bytes(flatbuffer.write_model(model)))


def test_unused_op_codes_are_dropped(content):
    model = read_model(content)
    used = {
        operator.opcodeIndex
        for graph in model.subgraphs
        for operator in graph.operators
    }
    assert used == set(range(len(model.operatorCodes)))


def test_codes_read_another_way_are_refused():
    traced = Int4Rows()
    codes = traced.table.converted
    model = convert(lambda ids: tf.gather(codes, ids))
    with pytest.raises(RuntimeError, match="cannot be packed"):
        flatbuffer.pack_tables(model, [traced.table])


def test_unpacked_codes_are_refused():
    traced = Int4Rows()
    codes = traced.table.converted.astype("int32")
    model = convert(lambda ids: tf.gather(codes, ids))
    with pytest.raises(RuntimeError, match="not in the file as it is"):
        flatbuffer.pack_tables(model, [traced.table])


def test_absent_codes_are_no_error():
    """Codes of a layer that the model does not use, or of ids known before."""
    model = convert(lambda ids: ids + 1)
    flatbuffer.pack_tables(model, [Int4Rows().table])


def test_equal_tables_share_a_buffer():
    first, second = Int4Rows(), Int4Rows()
    model = convert(lambda ids: first(ids) - 2 * second(ids + 1))
    flatbuffer.pack_tables(model, [first.table, second.table])
    packed = first.table.packed.reshape(-1)
    copies = [
        buffer
        for buffer in model.buffers
        if buffer.data is not None and np.array_equal(buffer.data, packed)
    ]
    assert len(copies) == 1


def test_custom_ops_are_listed():
    model = convert(lambda ids: ids + 1)
    code = model.operatorCodes[0]
    code.builtinCode = flatbuffer.schema.BuiltinOperator.CUSTOM
    code.customCode = b"FlexAdd"
    assert flatbuffer.list_ops(model) == ["CUSTOM FlexAdd"]


def test_codes_of_another_layer_are_no_unpacked_ones():
    """A layer that is not used, beside one with as many rows."""
    used, unused = Int4Rows(), Int4Rows(seed=7)
    model = convert(used)
    flatbuffer.pack_tables(model, [unused.table, used.table])
    assert "EMBEDDING_LOOKUP" in flatbuffer.list_ops(model)


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


def test_int8_weights_are_no_unpacked_codes(tmp_path):
    """As many as there are ids, where codes are stored column by column."""
    queries = keras.Input((17,))
    table = code_embedding(16, 4, 17, input_dim=17)
    model = keras.Model(queries, table(queries, reverse=True))
    export = export_litert(
        model, tmp_path / "model.tflite", quantize="int8", verbose=0
    )
    assert export.held_layers == (table.name,)
