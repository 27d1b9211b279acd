"""Files in which codes are pooled, and layers are part of codebooks."""

import keras
import numpy as np
import pytest
from export_models import ROWS
from export_models import anchor_embedding
from export_models import code_embedding
from export_models import export
from export_models import ids_input
from export_models import random_ids
from export_models import read_tensors
from export_models import towers

import keras_compembed as kc

L = keras.layers


def codes(num_codebooks=5, codebook_size=16, name="table", **kwargs):
    return code_embedding(num_codebooks, codebook_size, 24, name=name, **kwargs)


def anchors(name="table", **kwargs):
    return anchor_embedding(20, 24, name=name, **kwargs)


def reduced(cls=kc.CodeEmbedding, name="table", **kwargs):
    keras.utils.set_random_seed(4)
    kwargs.setdefault("combiner", "mean")
    shape = (20,) if cls is kc.ANTEmbedding else (5, 16)
    return cls(ROWS, 24, *shape, name=name, **kwargs)


def dense(units=4, name="last", **kwargs):
    return L.Dense(units, name=name, bias_initializer="normal", **kwargs)


def mean(**kwargs):
    return L.GlobalAveragePooling1D(**kwargs)


def texts(*shape):
    """Ids with zeros at the end, and one text of them alone."""
    ids = random_ids(*shape)
    ids[0] = 0
    ids[1, ..., 2:] = 0
    return ids


# Tables that are pooled: settings of each.
TABLES = {
    "codes": [
        lambda name: codes(name=name, mask_zero=True),
        lambda name: codes(3, 256, name=name),
        lambda name: codes(5, 20, name=name, mask_zero=True),
        lambda name: codes(composition="concat", name=name),
    ],
    "anchors": [
        lambda name: anchors(name, mask_zero=True),
        lambda name: anchors(name, mixture="softmax", mask_zero=True),
    ],
    "layers": [
        lambda name: reduced(
            name=name,
            mask_zero=True,
            combiner=kc.Combiner("sqrtn", float("nan")),
        ),
        lambda name: reduced(name=name, combiner="sum"),
        lambda name: reduced(kc.ANTEmbedding, name, mask_zero=True),
    ],
}


@pytest.mark.parametrize(
    ("kind", "length"),
    [("codes", None), ("anchors", 7), ("layers", None)],
)
def test_pooled_and_folded(kind, length, path):
    number = len(TABLES[kind])
    rows = [
        [make(f"table_{x}"), mean(), dense(2, name=f"last_{x}")]
        for x, make in enumerate(TABLES[kind])
    ]
    if kind == "layers":
        rows = [[table, last] for table, _, last in rows]
    model = towers(*rows, length=length)
    ids = texts(4, length or 5)
    made = export(model, path, ids)
    tables = {f"table_{place}" for place in range(number)}
    assert set(made.pooled_layers) == set(made.held_layers) == tables
    assert set(made.folded_layers) == {f"last_{x}" for x in range(number)}
    assert made.not_held_layers == ()
    assert made.max_row_error < 2e-6
    assert "'table_0'" in str(made) and "before decoding" in str(made)
    assert "'last_0'" in str(made) and "folded into tables" in str(made)
    assert (2, 24) not in [shape for _, shape, _ in read_tensors(path)]


def by_an_operation():
    ids = ids_input()
    return keras.Model(ids, dense()(keras.ops.sum(codes()(ids), axis=-2)))


def nested():
    ids = ids_input()
    inner = keras.Sequential([ids_input(), codes(mask_zero=True), mean()])
    return keras.Model(ids, dense()(L.Dropout(0.5)(inner(ids))))


def twice():
    encoder = keras.Sequential([ids_input(), codes(), mean(), dense()])
    pair = [ids_input(), ids_input()]
    return keras.Model(pair, L.Dot(-1)([encoder(ids) for ids in pair]))


@pytest.mark.parametrize("make", [by_an_operation, nested, twice])
def test_wherever_layers_are(make, path):
    ids = [texts(4, 5), texts(4, 3)] if make is twice else texts(4, 5)
    made = export(make(), path, ids)
    assert made.pooled_layers == made.held_layers == ("table",)
    # Not from one model into another.
    assert made.folded_layers == (() if make is nested else ("last",))
    assert made.not_held_layers == ()


CONVOLVED = [
    {},
    {"padding": "same", "kernel_size": 4},
    {"padding": "causal", "dilation_rate": 2},
    {"strides": 2, "activation": "relu"},
    {"strides": 4, "kernel_size": 2, "use_bias": False},
]


def test_folded_convolution(path):
    rows = []
    for place, settings in enumerate(CONVOLVED):
        layer = L.Conv1D(
            4,
            name=f"last_{place}",
            bias_initializer="normal",
            **{"kernel_size": 3, **settings},
        )
        table = codes(name=f"table_{place}")
        rows.append([table, L.Dropout(0.3), layer])
    rows.append(
        [anchors("table_5", mixture="softmax"), L.Conv1D(4, 3, name="last_5")]
    )
    made = export(towers(*rows), path, texts(3, 9))
    assert made.pooled_layers == ()
    assert set(made.folded_layers) == {f"last_{x}" for x in range(6)}
    assert set(made.held_layers) == {f"table_{x}" for x in range(6)}


@pytest.mark.parametrize(
    ("units", "options", "is_folded"),
    [
        # Of 24 columns and 80 codewords: a kernel of 24 x units and 80 x 24
        # codewords become 80 x units.
        (34, {}, True),
        (35, {"optimize_for": "memory"}, False),
        (34, {"quantize": "int8_codebooks"}, True),
    ],
)
def test_layers_are_folded_where_that_pays(units, options, is_folded, path):
    model = towers([codes(), mean(), dense(units)])
    made = export(model, path, texts(4, 5), **options)
    assert made.folded_layers == (("last",) if is_folded else ())
    assert made.pooled_layers == ("table",)


@pytest.mark.parametrize("quantize", ["int8", "int8_codebooks"])
@pytest.mark.parametrize("reader", ["pooled", "rows", "convolution"])
@pytest.mark.parametrize(
    ("make", "units"),
    # Gathered and multiplied, and matrices large enough for int8.
    [(codes, 13), (lambda: codes(5, 4), 60), (anchors, 60)],
    ids=["gathered", "multiplied", "anchors"],
)
def test_one_long_row_leaves_int8_outputs_of_others_as_they_are(
    make, units, reader, quantize, path
):
    readers = {
        "pooled": [mean(), dense(units)],
        "rows": [dense(units)],
        "convolution": [L.Conv1D(units, 2, padding="same", name="last")],
    }
    table = make()
    model = towers([table, *readers[reader]])
    rows = table.anchors if make is anchors else table.codebooks
    ids = np.arange(ROWS)[:, None]
    before = np.abs(model(ids)).reshape(ROWS, -1).max(axis=1)
    rows.assign(rows.numpy() * (1 + 99 * np.eye(*rows.shape[-2:], k=-1)[:, :1]))
    after = np.abs(model(ids)).reshape(ROWS, -1).max(axis=1)
    is_short = np.isclose(after, before, rtol=1e-5)
    assert 0.2 * ROWS < is_short.sum() < ROWS
    # A hundred steps of 1/127 would be the size of the outputs.
    made = export(model, path, ids[is_short], quantize=quantize, bound=0.02)
    is_folded = (reader, quantize) != ("convolution", "int8_codebooks")
    assert made.folded_layers == (("last",) if is_folded else ())


def test_int8_files_of_one_output_are_the_smallest(path):
    # Later codebooks are shorter, as if learned.
    table, lengths = codes(8, 256), 0.8 ** np.arange(8)[:, None, None]
    table.codebooks.assign(table.codebooks * lengths)
    model = towers([table, mean(), dense(1)])
    int8, float16 = (
        export(model, path, texts(3, 5), quantize=x).file_bytes
        for x in ("int8", "float16")
    )
    assert int8 < float16


def lora(name):
    layer = dense(name=name)
    layer.build((None, 24))
    layer.enable_lora(2)
    return layer


class OwnDense(L.Dense):
    """May do anything."""


def test_what_is_pooled_but_not_folded(path):
    def rows(place, *layers, **kwargs):
        return [codes(name=f"table_{place}", **kwargs), *layers]

    combiner = kc.Combiner("mean", 2.0)
    model = towers(
        rows(0, mean(), L.ReLU(), dense(name="a")),
        rows(1, mean(), lora("b")),
        rows(2, mean(), OwnDense(4)),
        [
            reduced(name="table_3", mask_zero=True, combiner=combiner),
            dense(name="c"),
        ],
    )
    made = export(model, path, texts(4, 5))
    assert set(made.pooled_layers) == {f"table_{x}" for x in range(4)}
    assert set(made.held_layers) == set(made.pooled_layers)
    assert made.folded_layers == () and made.not_held_layers == ()


def test_what_is_neither_pooled_nor_folded(path):
    ids = ids_input(6)
    rows = codes(name="read")(ids)
    outputs = {
        "mean": mean()(rows),
        "most": L.GlobalMaxPooling1D()(rows),
        "lstm": mean()(codes(3, 4, "lstm", composition="lstm")(ids)),
        "first": mean(data_format="channels_first")(codes(name="first")(ids)),
        "groups": L.Conv1D(4, 3, groups=2)(codes(name="groups")(ids)),
        "other": keras.ops.mean(codes(name="other")(ids), axis=-1),
    }
    made = export(keras.Model(ids, outputs), path, texts(4, 6), bound=1e-5)
    assert (made.pooled_layers, made.folded_layers) == ((), ())
    assert len(made.held_layers) == 5


class Doubled(kc.CodeEmbedding):
    def call(self, inputs, scale=2.0, **kwargs):
        return scale * super().call(inputs, **kwargs)


class Shifted(kc.CodeEmbedding):
    combiner = "of a user"

    def look_up(self, inputs, embed):
        return super().look_up(inputs, embed) + 1.0


def test_subclasses_that_do_more_than_add_up(path):
    model = towers(
        [reduced(Doubled, "a", mask_zero=True), dense(name="x")],
        [Shifted(ROWS, 24, name="table"), mean(), dense(name="z")],
    )
    made = export(model, path, texts(4, 5))
    assert "table" not in made.pooled_layers


def test_weights(path):
    ids, weights = ids_input(), keras.Input((None,))
    sums = reduced(combiner="sqrtn")(ids, weights=weights)
    given = [random_ids(3, 5), np.random.default_rng(0).random((3, 5), "f4")]
    made = export(keras.Model([ids, weights], dense()(sums)), path, given)
    assert made.pooled_layers == made.held_layers == ("table",)
    assert made.folded_layers == ("last",)
