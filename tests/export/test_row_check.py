"""Files whose tables are wrong are refused, whatever the outputs say."""

import os

import keras
import numpy as np
import pytest
from export_models import ROWS
from export_models import anchor_embedding
from export_models import code_embedding
from export_models import ids_input
from export_models import towers
from export_models import write

import keras_compembed as kc
from keras_compembed.export import export_litert

L = keras.layers
LAYERS = {
    "sum": lambda: code_embedding(8, 16, 64),
    "bytes": lambda: code_embedding(3, 256, 64),
    "stream": lambda: code_embedding(5, 40, 64),
    "concat": lambda: code_embedding(5, 16, 64, composition="concat"),
    "linear": lambda: code_embedding(5, 20, 64, composition="linear"),
    "narrow": lambda: code_embedding(
        7, 16, 64, composition=kc.compositions.LinearComposition(4)
    ),
    "lstm": lambda: code_embedding(3, 4, 24, composition="lstm"),
    "anchors": lambda: anchor_embedding(40, 64),
    "mixture": lambda: anchor_embedding(40, 64, mixture="softmax"),
}


def roll(layer):
    """Gives each id the row of the one before."""
    if isinstance(layer, kc.CodeEmbedding):
        codes = layer.packed_codes
        codes.assign(np.roll(codes, 1, axis=0))
    else:
        transform = layer.get_transform()
        dense = np.zeros((layer.input_dim, transform.num_columns), "float32")
        rows = np.repeat(np.arange(layer.input_dim), transform.row_lengths)
        dense[rows, transform.columns] = transform.values
        layer.assign_transform(np.roll(dense, 1, axis=0))


def classifier(layer):
    """Layers whose probabilities hardly depend on the ids."""
    small = keras.initializers.RandomNormal(stddev=1e-3, seed=0)
    return [
        layer,
        L.GlobalAveragePooling1D(),
        L.Dense(3, "softmax", kernel_initializer=small),
    ]


@pytest.mark.parametrize("kind", LAYERS)
def test_rows_of_other_ids_are_refused(kind, path, meanwhile):
    layer = LAYERS[kind]()
    model = towers(classifier(layer))
    meanwhile(lambda: roll(layer))
    quantize = "int8" if kind in ("sum", "mixture", "narrow") else None
    with pytest.raises(RuntimeError, match=f"'{layer.name}'.*at id"):
        write(model, path, quantize=quantize)
    assert not os.listdir(path.parent)


def pages(layer):
    inputs = keras.Input((None, 5), dtype="int32")
    inner = keras.Sequential(classifier(layer))
    return keras.Model(inputs, L.TimeDistributed(inner)(inputs))


class LookingCell(keras.Layer):
    """A recurrent cell that looks ids up itself."""

    state_size = output_size = 6

    def __init__(self, embed):
        super().__init__()
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


def scaled(layer):
    """A model whose factor the converter would move into the codebooks."""
    layer, *rest = classifier(layer)
    return towers([layer, L.Rescaling(8.0), *rest])


@pytest.mark.parametrize("make", [scaled, pages, in_a_loop])
def test_look_ups_are_held_wherever_they_are(path, make, meanwhile):
    layer = code_embedding(name="inner")
    model = make(layer)
    made = write(model, path)
    assert made.held_layers == ("inner",) and made.max_error < 1e-6
    # What look-ups are found by is not in the file.
    assert "MAXIMUM" not in made.ops
    os.remove(path)
    meanwhile(lambda: roll(layer))
    with pytest.raises(RuntimeError, match="'inner'.*at id"):
        write(model, path, quantize="float16")
    assert not os.listdir(path.parent)


@pytest.mark.parametrize(
    ("row", "quantize"),
    [(0, None), (4095, None), (4096, None), (5000, None), (5000, "int8")],
)
def test_a_single_wrong_row_is_named(path, row, quantize, meanwhile):
    layer = code_embedding(8, 256, input_dim=5001, name="inner")
    model = towers(classifier(layer))

    def change():
        codes = layer.packed_codes.numpy()
        codes[row] += 1
        layer.packed_codes.assign(codes)

    meanwhile(change)
    with pytest.raises(RuntimeError, match=f"'inner'.*at id {row}\\."):
        write(model, path, quantize=quantize)


@pytest.mark.parametrize(
    ("quantize", "passes", "fails"),
    [(None, 5e-7, 1e-5), ("float16", 3e-4, 2e-3), ("int8", 2e-3, 2e-2)],
)
def test_sums_are_off_by_rounding_at_most(
    path, quantize, passes, fails, meanwhile
):
    """Of two codewords: not what a file may be off by elsewhere."""
    layer = code_embedding(2, 16, 64, name="inner")
    layer.build()
    model = towers([layer])
    # Powers of two are not rounded.
    signs = np.random.default_rng(0).integers(2, size=(2, 16, 64)) * 2 - 1.0
    layer.codebooks.assign(signs)
    factors = iter([1 + passes, 1 + fails])
    meanwhile(lambda: layer.codebooks.assign(signs * next(factors)))
    made = write(model, path, quantize=quantize)
    assert made.max_row_error == pytest.approx(passes, rel=0.5, abs=1e-6)
    layer.codebooks.assign(signs)
    with pytest.raises(RuntimeError, match="'inner'"):
        write(model, path, quantize=quantize)


@pytest.mark.parametrize("kind", ["tied", "untied", "anchors"])
def test_logits_of_other_ids_are_refused(path, meanwhile, kind):
    vectors = keras.Input((None, 64))
    if kind == "untied":
        layer = kc.ReversibleCodeEmbedding(
            ROWS, 64, 8, 16, tie_weights=False, name="inner"
        )
    elif kind == "anchors":
        layer = anchor_embedding(40, 64, name="inner")
    else:
        layer = code_embedding(8, 16, 64, name="inner")
    layer.build()
    model = keras.Model(vectors, layer(vectors, reverse=True))

    def change():
        if kind != "untied":
            return roll(layer)
        # The table of logits, too, which is not that of look-ups.
        for weight in layer.weights:
            if tuple(weight.shape)[:1] == (ROWS,):
                weight.assign(np.roll(weight, 1, axis=0))

    quantize = "int8" if kind == "anchors" else None
    made = write(model, path, quantize=quantize)
    assert made.held_layers and not made.not_held_layers
    os.remove(path)
    meanwhile(change)
    with pytest.raises(RuntimeError, match="look-up.*at id"):
        write(model, path, quantize=quantize)
    assert not path.exists()
    if kind == "tied":
        made = write(model, path, tolerance=3.0)
        assert 0.1 < made.max_row_error < 3


class WithPositions(keras.Layer):
    def build(self, input_shape):
        self.positions = code_embedding(codebook_size=8, name="positions")
        self.positions.build()
        # Below the numbers of marks.
        codebooks = self.positions.codebooks
        codebooks.assign(-1e6 + 1e6 * codebooks)

    def call(self, vectors):
        return vectors + self.positions(keras.ops.arange(ROWS))


def test_layers_that_the_converter_looks_up_are_named(path, capsys):
    ids = ids_input(ROWS)
    vectors = WithPositions()(code_embedding(name="tokens")(ids))
    made = export_litert(keras.Model(ids, vectors), path)
    assert made.held_layers == ("tokens",)
    assert made.not_held_layers == ("positions",)
    assert made.max_error < 1e-6 and made.max_row_error < 1e-6
    assert "rows of 'positions' were not compared" in capsys.readouterr().out
