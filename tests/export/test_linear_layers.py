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
    if issubclass(cls, kc.CodeEmbedding):
        shape = {"num_codebooks": 5, "codebook_size": 16}
    else:
        shape = {"num_anchors": 20}
    keras.utils.set_random_seed(4)
    kwargs = {"combiner": "mean", **shape, **kwargs}
    layer = cls(ROWS, 24, name=name, **kwargs)
    layer.build()
    weight = layer.codebooks if "num_codebooks" in shape else layer.anchors
    rng = np.random.default_rng(1)
    weight.assign(rng.normal(size=weight.shape))
    return layer


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
        lambda name: codes(codebook_size=2, name=name),
        lambda name: codes(3, 256, name=name),
        lambda name: codes(5, 20, name=name, mask_zero=True),
        lambda name: codes(composition="concat", name=name),
        lambda name: codes(composition="linear", name=name),
    ],
    "anchors": [
        lambda name: anchors(name, mask_zero=True),
        lambda name: anchors(name),
        lambda name: anchors(name, mixture="softmax", mask_zero=True),
    ],
    "layers": [
        lambda name: reduced(name=name),
        lambda name: reduced(
            name=name,
            mask_zero=True,
            combiner=kc.Combiner("sqrtn", float("nan")),
        ),
        lambda name: reduced(name=name, combiner="sum", mask_zero=True),
        lambda name: reduced(kc.ANTEmbedding, name, mask_zero=True),
    ],
}


@pytest.mark.parametrize(
    ("kind", "length"),
    [
        ("codes", None),
        ("anchors", None),
        ("anchors", 7),
        ("layers", None),
        pytest.param("codes", 7, marks=pytest.mark.slow),
        pytest.param("layers", 7, marks=pytest.mark.slow),
    ],
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
    assert "'table_0'" in str(made) and "are added up as stored" in str(made)
    assert "'last_0'" in str(made) and "folded into tables" in str(made)
    assert (2, 24) not in [shape for _, shape, _ in read_tensors(path)]


def of_operation(operation, axis):
    ids = ids_input()
    return keras.Model(ids, dense()(operation(codes()(ids), axis=axis)))


def nested():
    ids = ids_input()
    inner = keras.Sequential([ids_input(), codes(mask_zero=True), mean()])
    return keras.Model(ids, dense()(L.Dropout(0.5)(inner(ids))))


def pages():
    ids = ids_input(5)
    inputs = keras.Input((None, 5), dtype="int32")
    inner = keras.Model(ids, dense()(mean()(codes()(ids))))
    return keras.Model(inputs, L.TimeDistributed(inner)(inputs))


def twice():
    encoder = keras.Sequential([ids_input(), codes(), mean(), dense()])
    pair = [ids_input(), ids_input()]
    return keras.Model(pair, L.Dot(-1)([encoder(ids) for ids in pair]))


MODELS = {
    "mean": (lambda: of_operation(keras.ops.mean, 1), {"min_runtime": "2.17"}),
    "sum": (lambda: of_operation(keras.ops.sum, -2), {}),
    "nested": (nested, {}),
    "pages": (pages, {}),
    "twice": (twice, {}),
}


@pytest.mark.parametrize("kind", MODELS)
def test_wherever_layers_are(kind, path):
    make, options = MODELS[kind]
    inputs = {"pages": texts(4, 3, 5), "twice": [texts(4, 5), texts(4, 3)]}
    ids = inputs.get(kind, texts(4, 5))
    model = make()
    model(ids)
    made = export(model, path, ids, **options)
    assert made.pooled_layers == made.held_layers == ("table",)
    # Not from one model into another.
    assert made.folded_layers == (() if kind == "nested" else ("last",))
    assert made.not_held_layers == ()


CONVOLVED = [
    {},
    {"padding": "same", "kernel_size": 4},
    {"padding": "causal", "dilation_rate": 2},
    {"strides": 2, "activation": "relu"},
    {"strides": 4, "kernel_size": 2, "use_bias": False},
    {"kernel_size": 1},
]


@pytest.mark.parametrize(
    "length", [None, pytest.param(8, marks=pytest.mark.slow)]
)
def test_folded_convolution(length, path):
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
        [anchors("table_6", mixture="softmax"), L.Conv1D(4, 3, name="last_6")]
    )
    model = towers(*rows, length=length)
    made = export(model, path, texts(3, length or 9))
    assert made.pooled_layers == ()
    assert set(made.folded_layers) == {f"last_{x}" for x in range(7)}
    assert set(made.held_layers) == {f"table_{x}" for x in range(7)}


@pytest.mark.parametrize(
    ("units", "options", "is_folded"),
    [
        # Of 24 columns and 80 codewords: a kernel of 24 x units and 80 x 24
        # codewords become 80 x units.
        (34, {}, True),
        (35, {}, False),
        (34, {"optimize_for": "size"}, True),
        (35, {"optimize_for": "memory"}, False),
        (34, {"quantize": "int8_codebooks"}, True),
    ],
)
def test_layers_are_folded_where_that_pays(units, options, is_folded, path):
    model = towers([codes(), mean(), dense(units)])
    made = export(model, path, texts(4, 5), **options)
    assert made.folded_layers == (("last",) if is_folded else ())
    assert made.pooled_layers == ("table",)


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

    model = towers(
        rows(0, mean(), L.ReLU(), dense(name="a")),
        rows(1, mean(), lora("b")),
        rows(2, mean(), OwnDense(4)),
        rows(3, mean(keepdims=True), dense(name="c")),
        [
            reduced(
                name="table_4",
                mask_zero=True,
                combiner=kc.Combiner("mean", 2.0),
            ),
            dense(name="d"),
        ],
    )
    made = export(model, path, texts(4, 5))
    assert set(made.pooled_layers) == {f"table_{x}" for x in range(5)}
    assert set(made.held_layers) == set(made.pooled_layers)
    assert made.folded_layers == ("c",) and made.not_held_layers == ()


def test_layers_of_two_tables_or_beside_other_readers_are_not_folded(path):
    ids = ids_input()
    pooled = [mean()(codes(name=name)(ids)) for name in "ab"]
    outputs = {
        "both": dense()(L.Concatenate()(pooled)),
        "mean": pooled[0],
        "last": dense(name="other")(pooled[0]),
    }
    made = export(keras.Model(ids, outputs), path)
    assert made.pooled_layers == made.held_layers == ("a", "b")
    assert made.folded_layers == ()


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


def test_tables_pooled_and_read_as_rows_are_there_once(path):
    inputs = [ids_input(name=name) for name in "abc"]
    # Large enough that one-hot vectors of bytes are worth their space.
    first, second = (
        code_embedding(32, 16, 24, input_dim=20_000, name=name)
        for name in ("first", "second")
    )
    outputs = [
        dense()(mean()(first(inputs[0]))),
        mean()(second(inputs[1])),
        first(inputs[2]),
    ]
    model = keras.Model(inputs, outputs)
    made = export(
        model, path, [random_ids(3, 5), random_ids(2, 4), random_ids(2, 7)]
    )
    # Not one that is read as rows as well.
    assert made.pooled_layers == ("second",)
    assert set(made.held_layers) == {"first", "second"}
    # What each byte of codes stands for is in the file once for both.
    shapes = [shape for _, shape, _ in read_tensors(path)]
    assert shapes.count((257, 32)) == 1 and "DEQUANTIZE" in made.ops
    types = {kind for kind, shape, _ in read_tensors(path) if 20_000 in shape}
    assert types == {"UINT8"}
    assert made.file_bytes < 2 * 20_000 * 16 + 2 * 32 * 16 * 24 * 4 + 40_000


@pytest.mark.parametrize("combiner", ["mean", "sqrtn"])
def test_weights_and_masks_of_others(combiner, path):
    ids, weights = ids_input(), keras.Input((None,))
    mask = keras.Input((None,), dtype="bool")
    outputs = [
        dense()(reduced(combiner=combiner)(ids, weights=weights)),
        mean()(codes(name="other")(ids), mask=mask),
    ]
    model = keras.Model([ids, weights, mask], outputs)
    rng = np.random.default_rng(0)
    given = [
        random_ids(3, 5),
        rng.random((3, 5), "f4"),
        rng.random((3, 5)) < 0.7,
    ]
    made = export(model, path, given)
    assert made.pooled_layers == ("table",)
    assert made.folded_layers == ("last",)
    assert set(made.held_layers) == {"table", "other"}


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
