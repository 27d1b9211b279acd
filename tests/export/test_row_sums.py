import os
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import ROWS
from export_models import anchor_embedding
from export_models import code_embedding
from export_models import convert
from export_models import ids_input
from export_models import random_ids
from export_models import read_tensors

from keras_compembed.codes.codeword_sums import decode_codes
from keras_compembed.export import flatbuffer
from keras_compembed.export.export_litert import export_litert
from keras_compembed.export.export_options import ExportOptions
from keras_compembed.export.int8_matrices import quantize_matrices
from keras_compembed.export.int8_matrices import round_to_int8
from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.export.row_costs import estimate
from keras_compembed.export.row_graphs import Gathers
from keras_compembed.export.row_graphs import Product
from keras_compembed.export.row_sums import RowSums
from keras_compembed.export.stored_codes import StoredCodes

WIDTH = 6


def make(num_codebooks, codebook_size):
    """Codes in a file, codewords, and the rows that they name."""
    layer = code_embedding(num_codebooks, codebook_size, WIDTH)
    layer.build()
    rng = np.random.default_rng(1)
    shape = num_codebooks, codebook_size, WIDTH
    codewords = rng.normal(size=shape).astype("float32")
    rows = decode_codes(layer.codes, codewords)
    return StoredCodes(layer), codewords, rows, layer.codes


@pytest.fixture
def run(tmp_path):
    def run(function, *inputs):
        path = tmp_path / "model.tflite"
        path.write_bytes(convert(function))
        model = flatbuffer.read_model(path.read_bytes())
        assert not any("CUSTOM" in op for op in flatbuffer.list_ops(model))
        return LiteRTModel(path)(*inputs)

    return run


@pytest.mark.parametrize("codebook_size", [2, 3, 4, 8, 9, 16, 20, 256, 300])
@pytest.mark.parametrize("num_codebooks", [1, 5, 8])
def test_every_graph_gives_the_sums(run, num_codebooks, codebook_size):
    codes, codewords, rows, subcodes = make(num_codebooks, codebook_size)
    graphs = RowSums(codewords, codes=codes).candidates()
    assert {graph.together for graph in graphs} == {1, codes.per_byte}

    def look_up(ids):
        outputs = {
            str(place): graph(codewords, codes.read(ids, graph.together))
            for place, graph in enumerate(graphs)
        }
        return outputs | {"subcodes": codes.read(ids)}

    ids = np.arange(ROWS, dtype="int32")[::-1]
    got = run(look_up, ids)
    np.testing.assert_array_equal(got["subcodes"], subcodes[ids])
    for place, graph in enumerate(graphs):
        np.testing.assert_allclose(
            got[str(place)],
            rows[ids],
            rtol=0,
            # A rounding of each sum of up to eight numbers below four.
            atol=8 * 8 * 4 * 2**-24,
            err_msg=str(graph),
        )


def test_groups_keep_values_that_are_not_finite(run):
    """What groups wait for has no part in which codewords are read."""
    codes, codewords, _, subcodes = make(5, 20)
    codewords[0, 0] = np.nan
    codewords[1] = 1e38
    rows = decode_codes(subcodes, codewords)
    ids = np.arange(ROWS, dtype="int32")
    graph = Gathers(group=1)
    got = run(lambda ids: graph(codewords, codes.read(ids)), ids)
    assert np.isnan(got).any() and not np.isnan(got).all()
    np.testing.assert_allclose(got, rows, rtol=1e-6)


def sums_of(shape, quantize=None, goal=None, rows=100_000, per_byte=2):
    num_codebooks = shape[0]
    packed = np.zeros((rows, num_codebooks // per_byte), "uint8")
    codes = types.SimpleNamespace(
        per_byte=per_byte, table=types.SimpleNamespace(packed=packed)
    )
    options = ExportOptions(quantize, optimize_for=goal)
    return RowSums(np.zeros(shape, "float32"), options, codes)


def costs_of(sums, num_ids, quantize=None):
    graph = sums.choose(num_ids)
    return estimate(graph, sums.codewords.shape, num_ids, quantize)


@pytest.mark.parametrize("quantize", [None, "int8", "int8_codebooks"])
@pytest.mark.parametrize("num_ids", [1, 64, 512])
@pytest.mark.parametrize("shape", [(32, 16, 256), (16, 16, 64)])
def test_goals_are_met(shape, num_ids, quantize):
    costs = {
        goal: costs_of(sums_of(shape, quantize, goal), num_ids, quantize)
        for goal in (None, "latency", "size", "memory")
    }
    codes = 100_000 * shape[0] // 2
    least = min(each.file_bytes for each in costs.values()) + codes
    assert costs["latency"].nanoseconds == min(
        each.nanoseconds for each in costs.values()
    )
    assert costs["size"].file_bytes + codes <= 1.001 * least
    assert costs[None].file_bytes + codes <= 1.02 * least
    assert costs["memory"].file_bytes + costs["memory"].arena_bytes == min(
        each.file_bytes + each.arena_bytes for each in costs.values()
    )


def test_products_for_many_ids_and_gathers_for_few():
    assert sums_of((32, 16, 256)).choose(512) == Product(2)
    assert isinstance(sums_of((32, 16, 256)).choose(1), Gathers)
    assert isinstance(sums_of((8, 256, 256), per_byte=1).choose(512), Gathers)


@pytest.mark.parametrize(
    "shape, per_byte, rows",
    [
        ((32, 16, 256), 2, 16_000),
        ((32, 16, 256), 2, 100_000),
        ((16, 64, 256), 1, 100_000),
        ((16, 256, 256), 1, 100_000),
    ],
)
def test_memory_is_at_most_that_of_int4_tables(shape, per_byte, rows):
    sums = sums_of(shape, rows=rows, per_byte=per_byte, goal="latency")
    costs = estimate(sums.choose(), shape, 512)
    codes = rows * shape[0] // per_byte
    table = rows * shape[2] // 2 + 4 * 512 * shape[2]
    used = costs.file_bytes + costs.arena_bytes + codes
    assert used <= table


def test_subcodes_of_any_codewords(run):
    _, codewords, rows, subcodes = make(5, 16)
    sums = RowSums(codewords)
    got = run(
        lambda ids: sums(tf.gather(tf.cast(subcodes, "int32"), ids)),
        np.arange(ROWS, dtype="int32"),
    )
    np.testing.assert_allclose(got, rows, rtol=0, atol=1e-5)


def model_of(layer):
    return keras.Sequential(
        [ids_input(), layer, keras.layers.Dense(50, name="dense")]
    )


@pytest.mark.parametrize(
    "make_layer",
    [
        lambda: code_embedding(8, 16, 64),
        lambda: code_embedding(8, 40, 64),
        lambda: code_embedding(8, 16, 64, composition="concat"),
        lambda: code_embedding(3, 16, 64, composition="lstm"),
        lambda: anchor_embedding(90, 64),
    ],
    ids=["product", "gathers", "concat", "lstm", "anchors"],
)
def test_codebooks_alone_become_int8(tmp_path, make_layer):
    path = tmp_path / "model.tflite"
    model = model_of(make_layer())
    export = export_litert(
        model,
        path,
        quantize="int8_codebooks",
        optimize_for="size",
        fold=False,
        verbose=0,
    )
    assert export.max_row_error < 0.02
    tensors = read_tensors(path)
    kinds = {shape[::-1] for kind, shape, _ in tensors if kind == "INT8"}
    kinds |= {shape for kind, shape, _ in tensors if kind == "INT8"}
    floats = [shape for kind, shape, _ in tensors if kind == "FLOAT32"]
    # The kernel of the layer behind, which keeps every digit.
    assert (50, 64) in floats or (64, 50) in floats
    assert any(64 in shape or 8 in shape for shape in kinds)
    ids = random_ids(2, 5)
    expected = np.asarray(model(ids))
    np.testing.assert_allclose(
        LiteRTModel(path)(ids), expected, atol=0.03 * np.abs(expected).max()
    )


def test_rounding_to_int8():
    values = np.array([[1.0, -127.0], [0.0, 0.0], [0.5, 0.25]], "float32")
    rounded, scales = round_to_int8(values, axis=0)
    np.testing.assert_array_equal(rounded, [[1, -127], [0, 0], [127, 64]])
    np.testing.assert_allclose(scales, [1, 1, 0.5 / 127])
    rounded, scales = round_to_int8(values)
    np.testing.assert_array_equal(rounded, [[1, -127], [0, 0], [0, 0]])
    np.testing.assert_allclose(scales, [1])


@pytest.mark.parametrize("goal", ["latency", "size", "memory"])
@pytest.mark.parametrize("length", [None, 7])
def test_files_for_each_goal(tmp_path, goal, length):
    path = tmp_path / "model.tflite"
    ids = ids_input(length, batch_size=1 if length else None)
    layers = [code_embedding(9, size) for size in (4, 16, 20)]
    model = keras.Model(ids, [layer(ids) for layer in layers])
    export = export_litert(model, path, optimize_for=goal, verbose=0)
    assert export.max_row_error < 1e-6
    assert len(export.held_layers) == 3


def test_one_id_and_many_read_the_same_codewords(tmp_path):
    embed = code_embedding(16, 16, 256)
    one, many = (ids_input(length, batch_size=1) for length in (1, 512))
    model = keras.Model([one, many], [embed(one), embed(many)])
    path = tmp_path / "model.tflite"
    export = export_litert(model, path, optimize_for="latency", verbose=0)
    assert export.max_row_error < 1e-6
    large = [
        shape
        for kind, shape, content in read_tensors(path)
        if kind == "FLOAT32" and len(content) >= 16 * 16 * 256 * 4
    ]
    assert len(large) == 1


def test_compiled_model(tmp_path):
    module = pytest.importorskip("ai_edge_litert.compiled_model")
    ids = ids_input(7, batch_size=1)
    model = keras.Model(ids, code_embedding(9, 40)(ids))
    path = tmp_path / "model.tflite"
    # In groups that wait for one another.
    export_litert(model, path, optimize_for="memory", verbose=0)
    compiled = module.CompiledModel.from_file(os.fspath(path))
    inputs = compiled.create_input_buffers(0)
    outputs = compiled.create_output_buffers(0)
    ids = random_ids(1, 7)
    inputs[0].write(ids.reshape(-1))
    compiled.run_by_index(0, inputs, outputs)
    got = outputs[0].read(7 * WIDTH, np.float32).reshape(1, 7, WIDTH)
    np.testing.assert_allclose(got, model(ids), rtol=0, atol=1e-6)


def test_bad_words(tmp_path):
    path = tmp_path / "model.tflite"
    model = model_of(code_embedding())
    with pytest.raises(ValueError, match="`optimize_for` must be .*'speed'"):
        export_litert(model, path, optimize_for="speed")
    with pytest.raises(ValueError, match="`quantize` must be .*'int4'"):
        export_litert(model, path, quantize="int4")
    layer = model.layers[0]
    layer.codebooks.assign(np.full(layer.codebooks.shape, np.nan))
    with pytest.raises(ValueError, match="`quantize='int8_codebooks'` needs"):
        export_litert(model, path, quantize="int8_codebooks")
    assert not path.exists()


def test_int8_matrices_of_equal_bytes_and_other_shapes():
    """The converter gives constants of equal bytes one buffer."""
    numbers = np.random.default_rng(1).normal(size=48).astype("float32")
    matrices = [numbers.reshape(6, 8).T, numbers.reshape(8, 6).T]

    def function(ids):
        numbers = tf.expand_dims(tf.cast(ids, tf.float32), 1)
        features = [numbers + tf.range(float(len(x))) for x in matrices]
        return tuple(map(tf.matmul, features, matrices))

    model = flatbuffer.read_model(convert(function))
    assert quantize_matrices(model, matrices) == 2
    (graph,) = model.subgraphs
    kind = flatbuffer.schema.TensorType.INT8
    weights = [tensor for tensor in graph.tensors if tensor.type == kind]
    assert sorted(tensor.shape[0] for tensor in weights) == [6, 8]
    for tensor in weights:
        assert len(tensor.quantization.scale) == tensor.shape[0]
