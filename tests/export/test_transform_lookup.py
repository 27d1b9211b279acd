import dataclasses

import numpy as np
import pytest
from export_models import convert

from keras_compembed.export.export_options import ExportOptions
from keras_compembed.export.flatbuffer import list_ops
from keras_compembed.export.flatbuffer import read_model
from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.export.transform_lookup import TracedTransform
from keras_compembed.export.transform_lookup import softmax_as_linear
from keras_compembed.transforms.sparse_transform import SparseTransform

FORMS = {"open": None, "static": 40}


@dataclasses.dataclass
class Layer:
    """What the look-up asks of an `ANTEmbedding`."""

    dense: np.ndarray
    anchors: np.ndarray
    activation: str | None = None
    segments: tuple = ()

    @property
    def output_dim(self):
        return self.anchors.shape[1]

    def get_transform(self):
        return SparseTransform.from_parts([self.dense], self.dense.shape[1])

    @property
    def table(self):
        """The whole table in float64."""
        weights = self.dense.astype("float64")
        if self.activation == "softmax":
            cuts = np.cumsum(self.segments)[:-1]
            weights = np.concatenate(
                [softmax(part) for part in np.split(weights, cuts, axis=1)],
                axis=1,
            )
        return weights @ self.anchors.astype("float64")

    @property
    def rounding(self):
        """What float32 sums of these sizes may be off by."""
        sums = np.abs(self.dense) @ np.abs(self.anchors)
        largest = max(sums.max(), np.abs(self.anchors).sum(axis=0).max())
        return (2 + np.count_nonzero(self.dense, axis=1).max()) * (
            2**-23 * largest
        )


def softmax(scores):
    exps = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exps / exps.sum(axis=1, keepdims=True)


def make_layer(
    num_rows=97, num_anchors=50, width=6, density=0.05, longest=None, **kwargs
):
    rng = np.random.default_rng(7)
    dense = rng.normal(size=(num_rows, num_anchors)).astype("float32")
    dense[rng.random(dense.shape) > density] = 0
    # Rows without a number at both ends, and next to each other.
    dense[[0, 1, 5, num_rows - 1]] = 0
    if longest:
        dense[2, :longest] = 1 + rng.random(longest)
    anchors = rng.normal(size=(num_anchors, width)).astype("float32")
    return Layer(dense, anchors, **kwargs)


@pytest.fixture
def run(tmp_path):
    """Runs a look-up from a file, on all the ids given."""

    def run(lookup, ids, num_ids=None, dtype="int32"):
        content = convert(lookup, num_ids, dtype)
        path = tmp_path / "lookup.tflite"
        path.write_bytes(content)
        model = LiteRTModel(path)
        if num_ids is None:
            return model(ids)
        padded = np.resize(ids, -(-len(ids) // num_ids) * num_ids)
        return model.predict(padded, batch_size=num_ids)[: len(ids)]

    return run


def constants(content):
    """Bytes of each constant of a file."""
    return sorted(
        len(buffer.data)
        for buffer in read_model(content).buffers
        if buffer.data is not None
    )


LAYERS = {
    "product": dict(),
    "sums": dict(num_anchors=300, density=0.01),
    "long_row": dict(longest=50),
    "softmax": dict(activation="softmax", segments=(20, 30)),
    "softmax_sums": dict(
        num_anchors=300,
        density=0.01,
        activation="softmax",
        segments=(100, 150, 50),
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LAYERS)
def test_every_row_is_that_of_the_table(run, name, form):
    layer = make_layer(**LAYERS[name])
    ids = np.random.default_rng(0).permutation(np.arange(97))
    got = run(TracedTransform(layer), ids, FORMS[form])
    np.testing.assert_allclose(
        got, layer.table[ids], rtol=0, atol=layer.rounding
    )


@pytest.mark.parametrize("form", FORMS)
def test_rows_without_a_number_are_zero(run, form):
    layer = make_layer()
    ids = np.array([5, 0, 1, 96, 5])
    got = run(TracedTransform(layer), ids, FORMS[form])
    np.testing.assert_array_equal(got, np.zeros((5, 6)))
    # Between others, they take nothing from their neighbours.
    ids = np.array([0, 2, 1, 5, 3, 96])
    got = run(TracedTransform(layer), ids, FORMS[form])
    np.testing.assert_allclose(
        got, layer.table[ids], rtol=0, atol=layer.rounding
    )


@pytest.mark.parametrize("quantize", [None, "float16", "int8"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("activation", [None, "softmax"])
@pytest.mark.parametrize("num_rows", [1, 20])
def test_no_numbers_at_all(run, num_rows, activation, form, quantize):
    anchors = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    dense = np.zeros((num_rows, 4), "float32")
    layer = Layer(dense, anchors, activation, (4,))
    ids = np.zeros(7, int) + num_rows - 1
    got = run(TracedTransform(layer, ExportOptions(quantize)), ids, FORMS[form])
    np.testing.assert_allclose(got, layer.table[ids], rtol=0, atol=2**-22)


@pytest.mark.parametrize("form", FORMS)
def test_single_row(run, form):
    dense = np.array([[0, 2, -1]], "float32")
    layer = Layer(dense, np.eye(3, dtype="float32"))
    got = run(TracedTransform(layer), np.zeros(2, int), FORMS[form])
    np.testing.assert_array_equal(got, [[0, 2, -1]] * 2)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_dtypes_of_ids(run, dtype):
    layer = make_layer()
    got = run(TracedTransform(layer), np.arange(97), dtype=dtype)
    np.testing.assert_allclose(got, layer.table, rtol=0, atol=layer.rounding)


def test_ids_out_of_range_are_errors_in_the_runtime(run):
    lookup = TracedTransform(make_layer())
    for ids in ([97], [-1]):
        for form in FORMS.values():
            with pytest.raises(RuntimeError, match="out of bounds"):
                run(lookup, np.array(ids), form)


@pytest.mark.parametrize("sign", [None, 1])
@pytest.mark.parametrize(
    "quantize, levels", [("float16", 2**15 - 1), ("int8", 2**7 - 1)]
)
def test_rounded_numbers(run, quantize, levels, sign):
    layer = make_layer(density=0.2)
    if sign:
        layer.dense = np.abs(layer.dense)
        if quantize == "int8":
            levels = 2**8 - 1
    lookup = TracedTransform(layer, ExportOptions(quantize))
    assert lookup.rows.values.itemsize == {"float16": 2, "int8": 1}[quantize]
    got = run(lookup, np.arange(97))
    # Half a step of each number's column.
    steps = np.abs(layer.dense).max(axis=0) / levels / 2
    bound = (layer.dense != 0) * steps @ np.abs(layer.anchors)
    difference = np.abs(got - layer.table)
    assert (difference <= bound + 2 * layer.rounding).all()
    assert difference.max() > 0.05 * bound.max()


@pytest.mark.parametrize(
    "num_anchors, dtype",
    [
        (256, "uint8"),
        (257, "int16"),
        (2**15, "int16"),
        (2**15 + 1, "int16"),
        (2**16, "int16"),
        (2**16 + 1, "int32"),
    ],
)
def test_columns_are_as_narrow_as_can_be(run, num_anchors, dtype):
    rng = np.random.default_rng(0)
    columns = rng.permutation(num_anchors)
    transform = SparseTransform(
        np.arange(num_anchors + 1),
        columns,
        np.ones(num_anchors, "float32"),
        num_anchors,
    )
    anchors = np.arange(num_anchors, dtype="float32")[:, None]
    layer = Layer(np.zeros((1, 1)), anchors)
    layer.get_transform = lambda: transform
    lookup = TracedTransform(layer)
    assert lookup.rows.columns.dtype == dtype
    ids = np.concatenate([np.arange(9), num_anchors - 1 - np.arange(9)])
    np.testing.assert_array_equal(run(lookup, ids)[:, 0], columns[ids])


def test_anchors_of_no_row_are_left_out(run):
    layer = make_layer()
    layer.dense[:, 10:] = 0
    lookup = TracedTransform(layer)
    assert lookup.anchors.shape == (10, 6)
    got = run(lookup, np.arange(97))
    np.testing.assert_allclose(got, layer.table, rtol=0, atol=layer.rounding)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "quantize, number_bytes", [(None, 4), ("float16", 2), ("int8", 1)]
)
def test_files_hold_compressed_rows_and_no_more(quantize, number_bytes, form):
    layer = make_layer(num_rows=5000, num_anchors=50, width=64)
    lookup = TracedTransform(layer, ExportOptions(quantize))
    content = convert(lookup, FORMS[form])
    transform = layer.get_transform()
    large = [size for size in constants(content) if size > 128]
    assert large == sorted(
        [
            *(table.nbytes for table in lookup.rows.offsets.tables),
            transform.nnz + 1,
            (transform.nnz + 1) * number_bytes,
            50 * 64 * 4,
        ]
    )
    rows = 4 * 5001 + (1 + number_bytes) * transform.nnz
    assert len(content) <= 1.05 * (rows + layer.anchors.nbytes)


def test_rows_without_a_number_take_a_quarter_of_a_byte(run):
    layer = make_layer(num_rows=20_000, num_anchors=50, density=0.001)
    layer.dense[2, :5] = 1
    lookup = TracedTransform(layer)
    full = np.count_nonzero(layer.dense.any(axis=1))
    assert full < 1200
    assert lookup.rows.offsets.nbytes < 1.1 * (0.25 * 20_000 + full)
    ids = np.concatenate(
        [np.flatnonzero(layer.dense.any(axis=1))[:80], np.arange(60)]
    )
    for num_ids in FORMS.values():
        got = run(lookup, ids, num_ids)
        np.testing.assert_allclose(
            got, layer.table[ids], rtol=0, atol=layer.rounding
        )


def test_many_ids_take_no_more_bytes():
    lookup = TracedTransform(make_layer())
    few, many = convert(lookup, 8), convert(lookup, 20_000)
    assert len(many) <= len(few) + 100


def test_ops():
    lookup = TracedTransform(make_layer())
    ops = list_ops(read_model(convert(lookup)))
    assert ops == [
        "ADD",
        "CAST",
        "CONCATENATION",
        "CUMSUM",
        "EXPAND_DIMS",
        "FLOOR_DIV",
        "FULLY_CONNECTED",
        "GATHER",
        "GREATER_EQUAL",
        "MUL",
        "RANGE",
        "RESHAPE",
        "SCATTER_ND",
        "SHAPE",
        "SPLIT",
        "STRIDED_SLICE",
        "SUB",
        "SUM",
    ]
    lookup = TracedTransform(make_layer(num_anchors=300, density=0.01))
    assert "UNSORTED_SEGMENT_SUM" in list_ops(read_model(convert(lookup)))


@pytest.mark.parametrize("name", ["product", "sums"])
def test_shapes_of_windows_are_known(name):
    model = read_model(convert(TracedTransform(make_layer(**LAYERS[name])), 8))
    (graph,) = model.subgraphs
    assert all(tensor.shape is not None for tensor in graph.tensors)
    assert not any(
        tensor.shapeSignature is not None and -1 in tensor.shapeSignature
        for tensor in graph.tensors
    )
    # What gives a shape that only the run knows.
    assert not {"RANGE", "SHAPE"} & set(list_ops(model))


@pytest.mark.parametrize("name", LAYERS)
def test_compiled_model_runs_static_files(name):
    module = pytest.importorskip("ai_edge_litert.compiled_model")
    layer = make_layer(**LAYERS[name])
    model = module.CompiledModel.from_buffer(
        convert(TracedTransform(layer), 32)
    )
    inputs = model.create_input_buffers(0)
    outputs = model.create_output_buffers(0)
    # Rows of several lengths, one call after another.
    for start in (0, 32, 64):
        ids = np.arange(start, start + 32, dtype="int32")
        inputs[0].write(ids)
        model.run_by_index(0, inputs, outputs)
        got = outputs[0].read(32 * 6, np.float32).reshape(32, 6)
        np.testing.assert_allclose(
            got, layer.table[ids], rtol=0, atol=layer.rounding
        )


@pytest.mark.parametrize("segments", [(5,), (2, 3), (1, 1, 3)])
def test_softmax_as_a_product(segments):
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(40, 5)).astype("float32")
    dense[rng.random(dense.shape) > 0.5] = 0
    # Where plain exponentials are infinite, or all zero.
    dense[:4] = [
        [1000, 0, -1000, 0, 0],
        [1000, 999, 1000, 0, 1],
        [-1000, -1001, -1000, -1000, -999],
        [-1000, 0, 0, 1e-6, -1e-6],
    ]
    anchors = rng.normal(size=(5, 3))
    layer = Layer(dense, anchors, "softmax", segments)
    transform = layer.get_transform()
    values, centred, bias = softmax_as_linear(transform, anchors, segments)
    weights = np.zeros(dense.shape)
    weights[dense != 0] = values
    # Some ten float64 operations on numbers of size one.
    np.testing.assert_allclose(
        weights @ centred + bias, layer.table, atol=1e-14
    )
