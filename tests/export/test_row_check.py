"""Files whose tables are wrong are refused, whatever the outputs say."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import ROWS
from export_models import anchor_embedding
from export_models import code_embedding
from export_models import ids_input
from export_models import towers
from export_models import write
from model_zoo import WithArgument

from keras_compembed import export_litert

L = keras.layers
LAYERS = {
    "sum": lambda: code_embedding(8, 16, 64),
    "stream": lambda: code_embedding(5, 40, 64),
    "narrow": lambda: code_embedding(7, 16, 64, composition=("linear", 4)),
    "lstm": lambda: code_embedding(3, 4, 24, composition="lstm"),
    "mixture": lambda: anchor_embedding(40, 64, mixture="softmax"),
}


def rolled(rows, ids):
    """For each id the row of the one before."""
    return rows((ids + ROWS - 1) % ROWS)


def classifier(layer):
    """Layers whose probabilities hardly depend on the ids."""
    small = keras.initializers.RandomNormal(stddev=1e-3, seed=0)
    return [
        layer,
        L.GlobalAveragePooling1D(),
        L.Dense(3, "softmax", kernel_initializer=small),
    ]


@pytest.mark.parametrize("kind", LAYERS)
def test_rows_of_other_ids_are_refused(kind, path, wrong_rows):
    layer = LAYERS[kind]()
    model = towers(classifier(layer))
    wrong_rows(layer, rolled)
    quantize = "int8" if kind in ("sum", "mixture", "narrow") else None
    with pytest.raises(RuntimeError, match=f"'{layer.name}'.*at id"):
        write(model, path, quantize=quantize)
    assert not os.listdir(path.parent)


def pages(layer):
    inputs = keras.Input((None, 5), dtype="int32")
    inner = keras.Sequential(classifier(layer))
    return keras.Model(inputs, L.TimeDistributed(inner)(inputs))


class LookingCell(WithArgument, keras.Layer):
    """A recurrent cell that looks ids up itself."""

    argument = "embed"
    state_size = output_size = 6

    def __init__(self, embed, **kwargs):
        super().__init__(**kwargs)
        self.embed = embed

    def build(self, input_shape):
        self.embed.build()

    def call(self, ids, states):
        ids = keras.ops.cast(ids[:, 0], "int32")
        output = keras.ops.tanh(self.embed(ids) * 0.5 + states[0])
        return output, [output]


def in_a_loop(layer):
    steps = keras.Input((None, 1))
    return keras.Model(steps, L.RNN(LookingCell(layer))(steps))


@pytest.mark.parametrize("make", [pages, in_a_loop])
def test_look_ups_are_held_wherever_they_are(path, make, wrong_rows):
    layer = code_embedding(name="inner")
    model = make(layer)
    made = write(model, path)
    assert made.held_layers == ("inner",) and made.max_error < 1e-6
    os.remove(path)
    wrong_rows(layer, rolled)
    with pytest.raises(RuntimeError, match="'inner'.*at id"):
        write(model, path, quantize="float16")
    assert not os.listdir(path.parent)


@pytest.mark.parametrize(
    ("row", "quantize"),
    [(4096, None), (5000, "int8")],
)
def test_a_single_wrong_row_is_named(path, row, quantize, wrong_rows):
    layer = code_embedding(8, 256, input_dim=5001, name="inner")
    model = towers(classifier(layer))

    wrong_rows(
        layer, lambda rows, ids: rows(tf.where(ids == row, row // 2 + 1, ids))
    )
    with pytest.raises(RuntimeError, match=f"'inner'.*at id {row}\\."):
        write(model, path, quantize=quantize)


@pytest.mark.parametrize(
    ("quantize", "passes", "fails"),
    [(None, 5e-7, 1e-5), ("int8", 2e-3, 2e-2)],
)
def test_sums_are_off_by_rounding_at_most(
    path, quantize, passes, fails, wrong_rows
):
    """Of two codewords: not what a file may be off by elsewhere."""
    layer = code_embedding(2, 16, 64, name="inner")
    layer.build()
    model = towers([layer])
    # Powers of two are not rounded.
    signs = np.random.default_rng(0).integers(2, size=(2, 16, 64)) * 2 - 1.0
    layer.codebooks.assign(signs)
    wrong_rows(layer, lambda rows, ids: rows(ids) * (1 + passes))
    made = write(model, path, quantize=quantize)
    assert made.max_row_error == pytest.approx(passes, rel=0.5, abs=1e-6)
    wrong_rows(layer, lambda rows, ids: rows(ids) * (1 + fails))
    with pytest.raises(RuntimeError, match="'inner'"):
        write(model, path, quantize=quantize)


class WithPositions(keras.Layer):
    def build(self, input_shape):
        self.positions = code_embedding(codebook_size=8, name="positions")
        self.positions.build()

    def call(self, vectors):
        return vectors + self.positions(keras.ops.arange(ROWS))


def test_layers_that_the_converter_looks_up_are_named(path, capsys):
    ids = ids_input(ROWS)
    vectors = WithPositions()(code_embedding(name="tokens")(ids))
    made = export_litert(keras.Model(ids, vectors), path, quantize=None)
    assert made.held_layers == ("tokens",)
    assert made.not_held_layers == ("positions",)
    assert made.max_error < 1e-6 and made.max_row_error < 1e-6
    assert "rows of 'positions' were not compared" in capsys.readouterr().out
