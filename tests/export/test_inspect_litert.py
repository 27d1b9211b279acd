import json
import math
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused
from export_models import ROWS
from export_models import code_embedding
from export_models import convert
from export_models import ids_input
from export_models import write

from keras_compembed.export import inspect_litert
from keras_compembed.litert.flatbuffer import read_model
from keras_compembed.litert.flatbuffer import schema
from keras_compembed.litert.flatbuffer import write_model

TABLE = np.arange(4.0 * ROWS, dtype="float32").reshape(ROWS, 4)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "model.tflite"
    embed = code_embedding(8, 16, 100)
    # Not in the order of their names.
    right, left = ids_input(name="right"), ids_input(5, "int64", name="left")
    outputs = {"score": embed(right), "again": embed(left)}
    model = keras.Model([right, left], outputs)
    return path, write(model, path), model


def table_file():
    """The object of a file with one look-up in `TABLE`, and its operator."""
    model = read_model(bytearray(convert(lambda ids: tf.gather(TABLE, ids))))
    (graph,) = model.subgraphs
    (gather,) = graph.operators
    return model, graph.tensors[gather.inputs[0]]


def inspect(path, model):
    path.write_bytes(write_model(model))
    return inspect_litert(path)


def test_inputs_outputs_and_ops(exported):
    path, export, model = exported
    file = inspect_litert(path)
    assert file.min_runtime == export.min_runtime == "2.18.0"
    assert sorted(file.ops) == list(export.ops)
    assert file.ops["CAST"] >= 2

    def told(tensors):
        return [(each.name, each.dtype, each.shape) for each in tensors]

    assert told(file.inputs) == [
        ("right", "int32", (None, None)),
        ("left", "int64", (None, 5)),
    ]
    assert told(file.outputs) == [
        ("again", "float32", (None, 5, 100)),
        ("score", "float32", (None, None, 100)),
    ]


def test_bytes_by_part(exported):
    path, export, model = exported
    file = inspect_litert(path)
    # Tables that two look-ups share are there once.
    largest, *rest = file.constants
    (codes,) = [part for part in rest if part.shape == (ROWS, 4)]
    assert (largest.dtype, largest.bytes) == ("float32", 8 * 16 * 100 * 4)
    assert codes.dtype == "uint8"
    assert codes.name == f"{model.layers[-1].name}/codes"
    assert codes.bytes == ROWS * 8 // 2
    sizes = [part.bytes for part in file.constants]
    assert sizes == sorted(sizes, reverse=True)
    assert 0 < file.graph_bytes < 8000
    assert file.file_bytes == export.file_bytes == path.stat().st_size
    assert export.file_bytes == (
        file.constant_bytes + file.graph_bytes + sum(file.metadata.values())
    )
    assert set(file.metadata) >= {"min_runtime_version"}
    figures = json.loads(json.dumps(file.to_dict()))
    assert [ROWS, 4] in [part["shape"] for part in figures["constants"]]


def test_foreign_ops(path):
    model, _ = table_file()
    (code,) = model.operatorCodes
    code.builtinCode = schema.BuiltinOperator.CUSTOM
    code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    code.customCode = b"MyOp"
    file = inspect(path, model)
    assert file.ops == {"CUSTOM MyOp": 1}
    assert "the app must add them" in str(file)
    code.customCode = b"FlexAdd"
    assert '"Select TF ops"' in str(inspect(path, model))
    # Newer than this TensorFlow.
    code.builtinCode, code.deprecatedBuiltinCode = 9999, 127
    assert inspect(path, model).ops == {"BUILTIN 9999": 1}


def test_what_is_no_litert_file(path, tmp_path):
    for missing in (path, tmp_path):
        with pytest.raises(OSError, match=missing.name):
            inspect_litert(missing)
    path.write_bytes(b"not what it should be")
    with refused(received="b'not what'"):
        inspect_litert(path)


def test_cut_files(exported, path):
    content = exported[0].read_bytes()
    step = math.ceil(len(content) / 100)
    for size in (*range(8, len(content), step), len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match="cut short"):
            inspect_litert(path)


def test_several_signatures(path):
    module, scalar = tf.Module(), tf.TensorSpec((), "int32", "x")
    module.less = tf.function(lambda x: {"out": x - 1}, [scalar])
    module.more = tf.function(lambda x: {"out": x + 1}, [scalar])
    functions = {"less": module.less, "more": module.more}
    tf.saved_model.save(module, path.parent / "saved", functions)
    converter = tf.lite.TFLiteConverter.from_saved_model(
        str(path.parent / "saved"), [*functions]
    )
    path.write_bytes(converter.convert())
    file = inspect_litert(path)
    assert [each.name for each in file.signatures] == ["less", "more"]
    assert file.ops == {"ADD": 1, "SUB": 1}
    assert "Inputs of more:" in str(file)


def test_subgraphs_and_files_behind_the_graph(path):
    def count(ids):
        return tf.while_loop(
            lambda total: tf.reduce_sum(total) < 9, lambda x: x + 1, [ids]
        )

    path.write_bytes(convert(count))
    before = inspect_litert(path)
    assert {"WHILE", "LESS", "ADD"} <= set(before.ops)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("labels.txt", "cat\ndog\n")
    file = inspect_litert(path)
    assert file.metadata == {**before.metadata, "labels.txt": 8}
    assert file.constants == before.constants


def test_quantized_input(path):
    model, _ = table_file()
    graph = model.subgraphs[0]
    tensor = graph.tensors[graph.inputs[0]]
    tensor.type = schema.TensorType.INT8
    tensor.quantization = schema.QuantizationParametersT()
    tensor.quantization.scale = np.array([0.5], "float32")
    tensor.quantization.zeroPoint = np.array([-3], "int64")
    file = inspect(path, model)
    (tensor,) = file.inputs
    assert (tensor.dtype, tensor.scale, tensor.zero_point) == ("int8", 0.5, -3)
    assert "(None,), 0.5 * (value + 3)" in str(file)
