"""Files whose tables are wrong are refused, whatever the outputs say."""

import contextlib
import importlib
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import ROWS
from export_models import anchor_embedding
from export_models import code_embedding
from export_models import ids_input

from keras_compembed.compositions import LinearComposition
from keras_compembed.compositions import ScaledComposition
from keras_compembed.export import code_lookup
from keras_compembed.export import conversion
from keras_compembed.export import row_check
from keras_compembed.export.export_litert import export_litert
from keras_compembed.export.marks import _END
from keras_compembed.export.marks import _FIRST_OF_IDS
from keras_compembed.export.row_check import check_rows
from keras_compembed.layers.reversible_code_embedding import (
    ReversibleCodeEmbedding,
)

L = keras.layers
module = importlib.import_module(export_litert.__module__)


@pytest.fixture
def path(tmp_path):
    return os.fspath(tmp_path / "model.tflite")


LAYERS = {
    "sum": lambda: code_embedding(8, 16, 64),
    "two": lambda: code_embedding(8, 2, 64),
    "four": lambda: code_embedding(5, 4, 64),
    "bytes": lambda: code_embedding(3, 256, 64),
    "stream": lambda: code_embedding(5, 40, 64),
    "concat": lambda: code_embedding(5, 16, 64, composition="concat"),
    "linear": lambda: code_embedding(5, 20, 64, composition="linear"),
    "narrow": lambda: code_embedding(
        7, 16, 64, composition=LinearComposition(4)
    ),
    "lstm": lambda: code_embedding(3, 4, 24, composition="lstm"),
    "anchors": lambda: anchor_embedding(40, 64),
    "mixture": lambda: anchor_embedding(40, 64, mixture="softmax"),
}


@pytest.fixture(scope="module")
def model():
    ids = ids_input()
    layers = {name: make() for name, make in LAYERS.items()}
    outputs = {name: layer(ids) for name, layer in layers.items()}
    model = keras.Model(ids, outputs)
    model.layers_by_kind = layers
    return model


@pytest.fixture(scope="module", params=[None, "float16", "int8"])
def exported(request, model, tmp_path_factory):
    """A file, and what its rows were checked by."""
    path = tmp_path_factory.mktemp("export") / "model.tflite"
    arguments = []

    def check(*args):
        arguments.extend(args)
        return check_rows(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "check_rows", check)
        export = export_litert(model, path, quantize=request.param, verbose=0)
    return export, arguments


def test_right_rows_pass(model, exported):
    export, (*_, quantize, _) = exported
    bound = {None: 1e-6, "float16": 1e-3, "int8": 0.03}[quantize]
    assert 0 < export.max_row_error < bound
    names = [layer.name for layer in model.layers_by_kind.values()]
    assert sorted(export.held_layers) == sorted(names)
    assert export.not_held_layers == ()
    assert "all rows within" in str(export)


@pytest.mark.parametrize("kind", LAYERS)
def test_rows_of_other_ids_are_refused(model, exported, kind):
    _, (content, lookups, *rest) = exported
    layer = model.layers_by_kind[kind]
    (lookup,) = (x for x in lookups if x.layer is layer and x.calls)
    right = layer.embed
    with contextlib.ExitStack() as stack:
        if lookup.codes is None:
            wrong = layer.embed_with(lambda ids: right((ids + 1) % ROWS))
            stack.enter_context(wrong)
        else:
            content = roll(bytes(content), lookup.codes)
        with pytest.raises(RuntimeError, match=f"'{layer.name}'.*at id"):
            check_rows(content, lookups, *rest)


def roll(content, codes):
    """The content with each id's code in place of the next one's."""
    assert content.count(codes.tobytes()) == 1
    return content.replace(codes.tobytes(), np.roll(codes, 1, 0).tobytes())


@pytest.fixture
def rolled(monkeypatch):
    """Makes files with each id's code in place of the next one's."""
    pack_tables = conversion.pack_tables

    def pack_wrongly(model, tables):
        pack_tables(model, tables)
        for buffer in model.buffers:
            for table in tables:
                codes = table.packed
                if np.array_equal(buffer.data, codes.reshape(-1)):
                    buffer.data = np.roll(codes, 1, axis=0).reshape(-1)

    monkeypatch.setattr(conversion, "pack_tables", pack_wrongly)


def pages(inner):
    inputs = keras.Input((None, 5), dtype="int32")
    return keras.Model(inputs, L.TimeDistributed(inner)(inputs))


class LookingCell(keras.Layer):
    """A recurrent cell that looks ids up itself."""

    state_size = output_size = 6

    def build(self, input_shape):
        self.embed = code_embedding(name="inner")
        self.embed.build()

    def call(self, ids, states):
        ids = keras.ops.cast(ids[:, 0], "int32")
        output = keras.ops.tanh(self.embed(ids) * 0.5 + states[0])
        return output, [output]


def in_a_loop():
    steps = keras.Input((None, 1))
    return keras.Model(steps, L.RNN(LookingCell())(steps))


def classifier(layer):
    """A model whose probabilities hardly depend on the ids."""
    small = keras.initializers.RandomNormal(stddev=1e-3, seed=0)
    return keras.Sequential(
        [
            layer,
            L.GlobalAveragePooling1D(),
            L.Dense(3, "softmax", kernel_initializer=small),
        ]
    )


def scaled(factor):
    """A model whose factor the converter would move into the codebooks."""
    model = classifier(code_embedding(name="inner"))
    return keras.Sequential(
        [ids_input(), model.layers[0], L.Rescaling(factor), *model.layers[1:]]
    )


MODELS = {
    "softmax": lambda: keras.Sequential(
        [ids_input(), classifier(code_embedding(name="inner"))]
    ),
    "rescaling": lambda: scaled(8.0),
    "time distributed": lambda: pages(classifier(code_embedding(name="inner"))),
    "loop": in_a_loop,
}


@pytest.mark.parametrize("quantize", [None, "float16", "int8"])
@pytest.mark.parametrize("kind", MODELS)
def test_no_file_is_left(path, rolled, kind, quantize):
    with pytest.raises(RuntimeError, match="'inner'.*at id"):
        export_litert(MODELS[kind](), path, quantize=quantize, verbose=0)
    assert not os.listdir(os.path.dirname(path))


@pytest.mark.parametrize("kind", MODELS)
def test_marks_leave_no_trace(path, kind):
    model = MODELS[kind]()
    export = export_litert(model, path, verbose=0)
    assert export.held_layers == ("inner",)
    assert export.max_error < 1e-6
    assert "MAXIMUM" not in export.ops
    with open(path, "rb") as file:
        content = file.read()
    for mark in (_END, _FIRST_OF_IDS):
        dtype = "float32" if isinstance(mark, float) else "int32"
        assert np.array(mark, dtype).tobytes() not in content


class ReadsTable(keras.Layer):
    """Logits by the table of another layer."""

    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding

    def call(self, vectors):
        table = keras.ops.convert_to_tensor(self.embedding.embeddings)
        return keras.ops.matmul(vectors, keras.ops.transpose(table))


def tied(kind):
    vectors = keras.Input((None, 64))
    if kind == "host":
        embedding = code_embedding(8, 16, 64, name="inner")
        embedding.build()
        return keras.Model(vectors, ReadsTable(embedding)(vectors))
    if kind == "tied":
        layer = code_embedding(8, 16, 64, name="inner")
    else:
        layer = ReversibleCodeEmbedding(
            ROWS, 64, 8, 16, tie_weights=False, seed=1, name="inner"
        )
        layer.build()
    return keras.Model(vectors, layer(vectors, reverse=True))


@pytest.mark.parametrize("kind", ["tied", "untied", "host"])
def test_logits_of_other_ids_are_refused(path, monkeypatch, request, kind):
    monkeypatch.setattr(code_lookup, "_CHUNK_ELEMENTS", 128 * 40)
    model = tied(kind)
    for quantize in (None, "float16", "int8"):
        export = export_litert(
            model, path, quantize=quantize, overwrite=True, verbose=0
        )
        assert export.held_layers and not export.not_held_layers
    os.remove(path)
    request.getfixturevalue("rolled")
    for quantize in (None, "float16", "int8"):
        with pytest.raises(RuntimeError, match="look-up.*at id"):
            export_litert(model, path, quantize=quantize, verbose=0)
        assert not os.path.exists(path)


def test_looser_tolerance(path, rolled):
    model = MODELS["softmax"]()
    export = export_litert(model, path, tolerance=3.0, verbose=0)
    assert 0.1 < export.max_row_error < 3


def test_every_place_of_a_layer_is_held(path):
    """Places that are the same bytes are run once."""
    embed = code_embedding(name="inner")
    left, right = ids_input(), ids_input(7)
    model = keras.Model(
        [left, right], [embed(left), embed(right), embed(left // 2)]
    )
    export = export_litert(model, path, verbose=0)
    assert export.held_layers == ("inner",)


def test_wrong_logits_are_refused(path, monkeypatch):
    layer = anchor_embedding(40, 64)
    vectors = keras.Input((None, 64))
    model = keras.Model(vectors, layer(vectors, reverse=True))
    export = export_litert(model, path, quantize="int8", verbose=0)
    assert export.held_layers == (layer.name,)

    def roll(*args):
        right = layer.logits
        with monkeypatch.context() as patch:
            patch.setitem(
                vars(layer), "logits", lambda x: tf.roll(right(x), 1, axis=-1)
            )
            return check_rows(*args)

    monkeypatch.setattr(module, "check_rows", roll)
    os.remove(path)
    with pytest.raises(RuntimeError, match=f"'{layer.name}'.*at id"):
        export_litert(model, path, quantize="int8", verbose=0)
    assert not os.path.exists(path)


class WithPositions(keras.Layer):
    def build(self, input_shape):
        self.positions = code_embedding(name="positions")
        self.positions.build()

    def call(self, vectors):
        return vectors + self.positions(keras.ops.arange(ROWS))


def test_layers_that_the_converter_looks_up_are_named(path, capsys):
    ids = ids_input(ROWS)
    vectors = WithPositions()(code_embedding(name="tokens")(ids))
    model = keras.Model(ids, vectors)
    export = export_litert(model, path)
    assert export.held_layers == ("tokens",)
    assert export.not_held_layers == ("positions",)
    assert "rows of 'positions' were not compared" in capsys.readouterr().out


class SumOfFirst(keras.Layer):
    def build(self, input_shape):
        self.embed = code_embedding(name="embed")
        self.embed.build()
        # Below the numbers of marks.
        self.embed.codebooks.assign(-1e6 + 1e6 * self.embed.codebooks)

    def call(self, ids):
        first = self.embed(np.arange(5, dtype="int32"))
        return self.embed(ids) + keras.ops.sum(first, axis=0)


def test_marks_are_not_in_rows_that_the_converter_looks_up(path):
    model = keras.Sequential([ids_input(), SumOfFirst()])
    export = export_litert(model, path, verbose=0)
    assert export.max_row_error < 1e-6
    assert export.not_held_layers == ("embed",)


class Vectorized(keras.Layer):
    def build(self, input_shape):
        self.embed = code_embedding(name="inner")
        self.embed.build()

    def call(self, ids):
        return tf.vectorized_map(self.embed, ids)


def test_look_ups_that_cannot_be_cut_out_are_named(path):
    """The converter merges what `vectorized_map` makes of the marks."""
    model = keras.Sequential([ids_input(7), Vectorized()])
    export = export_litert(model, path, verbose=0)
    assert export.held_layers == ()
    assert export.not_held_layers == ("inner",)


@pytest.mark.parametrize("composition", ["sum", "concat"])
def test_rows_that_are_nan_in_keras_too(path, composition):
    layer = code_embedding(3, 40, 6, composition=composition)
    model = keras.Sequential([ids_input(), layer])
    codebooks = layer.codebooks.numpy()
    codebooks[0, 0] = np.nan
    layer.codebooks.assign(codebooks)
    assert export_litert(model, path, verbose=0).max_row_error < 1e-6
    with pytest.raises(ValueError, match="codebooks.*NaN"):
        export_litert(model, path, quantize="int8", overwrite=True, verbose=0)


def half_model(dtype):
    ids = ids_input()
    layer = code_embedding(31, 16, 64, dtype=dtype)
    return keras.Model(ids, L.Activation("softmax")(layer(ids)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("quantize", [None, "int8"])
def test_variables_of_16_bits(path, dtype, quantize):
    export = export_litert(half_model(dtype), path, quantize=quantize)
    assert export.held_layers


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_wrong_rows_beside_variables_of_16_bits(path, rolled, dtype):
    with pytest.raises(RuntimeError, match="The look-up of the layer"):
        export_litert(half_model(dtype), path, quantize="int8")


def test_no_tables(path):
    model = keras.Sequential([keras.Input((4,)), L.Dense(2)])
    export = export_litert(model, path, verbose=0)
    assert export.max_row_error is None
    assert export.held_layers == export.not_held_layers == ()


def test_rows_that_take_long_are_sampled(path, monkeypatch):
    monkeypatch.setattr(row_check, "_SPREAD", 10)
    layer = code_embedding(3, 16, 6, input_dim=5000, composition="lstm")
    compared = []
    monkeypatch.setattr(
        row_check,
        "_rows",
        lambda layer, ids, functions: compared.append(ids) or (),
    )
    export_litert(keras.Sequential([ids_input(), layer]), path, verbose=0)
    codes = layer.codes[compared[0]]
    assert len(codes) < 100
    assert all(len(np.unique(part)) == 16 for part in codes.T)


@pytest.mark.parametrize("quantize", [None, "int8"])
def test_parts_of_vectors_in_units(path, quantize):
    """A trained offset is added to parts, which stay as short as they are."""
    table = code_embedding(7, 64, 63, composition=ScaledComposition("concat"))
    table.build()
    rng = np.random.default_rng(0)
    for weight in table.trainable_weights:
        weight.assign(rng.normal(size=weight.shape))
    table.composition.scale.assign(3.0)
    model = keras.Sequential([ids_input(), table])
    export = export_litert(model, path, quantize=quantize, verbose=0)
    assert export.held_layers == (table.name,)
    # Codes, codewords and the graph.
    assert export.file_bytes < 8 * ROWS + 4 * 64 * 63 + 8_000
