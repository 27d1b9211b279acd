"""Files in which codes are pooled, and layers are part of codebooks."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import ROWS
from export_models import anchor_embedding
from export_models import code_embedding
from export_models import ids_input
from export_models import random_ids
from export_models import read_tensors

from keras_compembed.export import conversion
from keras_compembed.export.export_litert import export_litert
from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.layers.ant_embed_reduce import ANTEmbedReduce
from keras_compembed.layers.code_embed_reduce import CodeEmbedReduce
from keras_compembed.layers.code_embedding import CodeEmbedding

L = keras.layers
BOUNDS = {None: 1e-5, "float16": 5e-3, "int8": 0.05}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "model.tflite")


def codes(num_codebooks=5, codebook_size=16, **kwargs):
    return code_embedding(
        num_codebooks, codebook_size, 24, name="table", **kwargs
    )


def anchors(**kwargs):
    return anchor_embedding(20, 24, name="table", **kwargs)


def reduced(cls=CodeEmbedReduce, **kwargs):
    if cls is CodeEmbedReduce:
        shape = {"num_codebooks": 5, "codebook_size": 16}
    else:
        shape = {"num_anchors": 20}
    layer = cls(ROWS, 24, seed=4, name="table", **shape, **kwargs)
    layer.build()
    weight = layer.codebooks if cls is CodeEmbedReduce else layer.anchors
    rng = np.random.default_rng(1)
    weight.assign(rng.normal(size=weight.shape))
    return layer


def dense(units=4, **kwargs):
    layer = L.Dense(units, name="last", bias_initializer="normal", **kwargs)
    return layer


def convolution(filters=4, size=3, **kwargs):
    return L.Conv1D(
        filters, size, name="last", bias_initializer="normal", **kwargs
    )


def in_a_row(*layers, length=None):
    return keras.Sequential([ids_input(length), *layers])


def mean(**kwargs):
    return L.GlobalAveragePooling1D(**kwargs)


def of_operation(operation, **kwargs):
    ids = ids_input()
    vectors = codes()(ids)
    return keras.Model(ids, dense()(operation(vectors, **kwargs)))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.table = codes(mask_zero=True)
        self.pool = mean()
        self.last = dense()

    def call(self, inputs):
        return self.last(self.pool(self.table(inputs)))


def subclassed():
    model = Subclassed()
    model(random_ids(2, 3))
    return model


def nested():
    ids = ids_input()
    inner = in_a_row(codes(mask_zero=True), mean())
    return keras.Model(ids, in_a_dense(inner(ids)))


def in_a_dense(vectors):
    return dense()(L.Dropout(0.5)(vectors))


def pages():
    ids = ids_input(5)
    inputs = keras.Input((None, 5), dtype="int32")
    inner = keras.Model(ids, dense()(mean()(codes()(ids))))
    return keras.Model(inputs, L.TimeDistributed(inner)(inputs))


def twice():
    encoder = in_a_row(codes(), mean(), dense())
    pair = [ids_input(), ids_input()]
    return keras.Model(pair, L.Dot(-1)([encoder(ids) for ids in pair]))


POOLED = {
    "mean": lambda: in_a_row(codes(), mean(), dense()),
    "dropout": lambda: in_a_row(codes(), L.Dropout(0.1), mean(), dense()),
    "mask": lambda: in_a_row(codes(mask_zero=True), mean(), dense()),
    "static": lambda: in_a_row(
        codes(mask_zero=True), mean(), dense(), length=7
    ),
    "bits": lambda: in_a_row(codes(codebook_size=2), mean(), dense()),
    "pairs of bits": lambda: in_a_row(codes(9, 3), mean(), dense()),
    "stream": lambda: in_a_row(
        codes(codebook_size=40, mask_zero=True), mean(), dense()
    ),
    "bytes": lambda: in_a_row(codes(3, 256), mean(), dense()),
    "concat": lambda: in_a_row(codes(composition="concat"), mean(), dense(2)),
    "linear": lambda: in_a_row(codes(composition="linear"), mean(), dense()),
    "anchors": lambda: in_a_row(anchors(mask_zero=True), mean(), dense()),
    "static anchors": lambda: in_a_row(anchors(), mean(), dense(), length=7),
    "softmax": lambda: in_a_row(
        anchors(mixture="softmax", mask_zero=True), mean(), dense()
    ),
    "keras.ops.mean": lambda: of_operation(keras.ops.mean, axis=1),
    "keras.ops.sum": lambda: of_operation(keras.ops.sum, axis=-2),
    "layer": lambda: in_a_row(reduced(), dense()),
    "layer, mask": lambda: in_a_row(reduced(mask_zero=True), dense()),
    "layer, sqrtn": lambda: in_a_row(
        reduced(mask_zero=True, combiner="sqrtn", empty_value=float("nan")),
        dense(),
    ),
    "layer, sum": lambda: in_a_row(reduced(combiner="sum"), dense()),
    "anchor layer": lambda: in_a_row(
        reduced(ANTEmbedReduce, mask_zero=True), dense()
    ),
    "subclassed": subclassed,
    "nested": nested,
    "pages": pages,
    "twice": twice,
}


def check_file(model, path, signature=None, quantize=None):
    """Holds a file to Keras on texts of other lengths, one of them empty."""
    kwargs = {} if signature is None else {"input_signature": signature}
    export = export_litert(model, path, quantize=quantize, verbose=0, **kwargs)
    shape = model.input_shape if signature is None else signature.shape
    single = not isinstance(shape, list)
    shapes = [shape] if single else shape
    inputs = [
        random_ids(*(5 if size is None else size for size in one))
        for one in shapes
    ]
    for ids in inputs:
        ids[0] = 0
        ids[1, ..., 2:] = 0
    inputs = inputs[0] if single else inputs
    got = LiteRTModel(path)(inputs)
    expected = np.asarray(model(inputs))
    size = np.nanmax(np.abs(expected))
    np.testing.assert_allclose(got, expected, atol=BOUNDS[quantize] * size)
    return export


@pytest.mark.parametrize("kind", POOLED)
def test_pooled_and_folded(kind, path):
    model = POOLED[kind]()
    signature = None
    if kind == "subclassed":
        signature = tf.TensorSpec((None, None), "int32")
    export = check_file(model, path, signature)
    assert export.pooled_layers == ("table",)
    assert export.folded_layers == ("last",)
    assert export.held_layers == ("table",)
    assert export.not_held_layers == ()
    assert 0 < export.max_row_error < 1e-6
    assert "rows of 'table' are added up as stored" in str(export)
    assert "'last' folded into tables" in str(export)
    shapes = [shape for _, shape, _ in read_tensors(path)]
    assert (4, 24) not in shapes


@pytest.mark.parametrize("quantize", ["float16", "int8"])
@pytest.mark.parametrize("kind", ["mask", "layer, sqrtn", "softmax"])
def test_in_fewer_bits(kind, quantize, path):
    table = {
        "mask": codes(num_codebooks=32, mask_zero=True),
        "layer, sqrtn": None,
        "softmax": anchors(mixture="softmax", mask_zero=True),
    }[kind]
    if table is None:
        model = POOLED[kind]()
    else:
        model = in_a_row(table, mean(), dense(8))
    export = check_file(model, path, quantize=quantize)
    assert export.folded_layers == ("last",)
    if quantize == "int8" and kind == "mask":
        kinds = {kind for kind, shape, _ in read_tensors(path) if 8 in shape}
        assert kinds == {"INT8", "FLOAT32"}  # The bias is small.


CONVOLVED = {
    "valid": {},
    "same": {"padding": "same", "size": 4},
    "causal": {"padding": "causal", "dilation_rate": 2},
    "strides": {"strides": 2, "activation": "relu"},
    "wide strides": {"strides": 4, "size": 2, "use_bias": False},
    "one": {"size": 1},
}


@pytest.mark.parametrize("length", [None, 8])
@pytest.mark.parametrize("kind", CONVOLVED)
def test_folded_convolution(kind, length, path):
    model = in_a_row(
        codes(),
        L.Dropout(0.3),
        convolution(**CONVOLVED[kind]),
        L.GlobalMaxPooling1D(),
        length=length,
    )
    export = check_file(model, path)
    assert export.pooled_layers == ()
    assert export.folded_layers == ("last",)
    assert export.held_layers == ("table",)


def test_folded_convolution_of_anchors(path):
    model = in_a_row(anchors(mixture="softmax"), convolution())
    assert check_file(model, path).folded_layers == ("last",)


@pytest.mark.parametrize("table", [codes, anchors])
@pytest.mark.parametrize("length", [None, 6])
def test_dense_behind_rows(table, length, path):
    model = in_a_row(table(), dense(), L.LSTM(3), length=length)
    export = check_file(model, path)
    assert (export.pooled_layers, export.folded_layers) == ((), ("last",))
    assert export.held_layers == ("table",)


def test_dense_behind_one_look_up(path):
    inputs = keras.Input((), dtype="int32")
    model = keras.Model(inputs, dense()(codes()(inputs)))
    export = export_litert(model, path, verbose=0)
    assert export.folded_layers == ("last",)
    ids = random_ids(9)
    np.testing.assert_allclose(LiteRTModel(path)(ids), model(ids), atol=1e-5)


@pytest.mark.parametrize("make_table", ["pooling", "layer"])
def test_short_texts_of_large_codebooks_are_composed(make_table, path):
    """Two ids of 256 codewords a codebook, and a wide layer behind them."""
    if make_table == "pooling":
        table = [code_embedding(3, 256, 24, name="table"), mean()]
    else:
        table = CodeEmbedReduce(ROWS, 24, 3, 256, seed=4, name="table")
        table.build()
        table = [table]
    export = check_file(in_a_row(*table, dense(600), length=2), path)
    assert (export.pooled_layers, export.folded_layers) == ((), ())
    assert export.held_layers == ("table",)


def lora():
    layer = dense()
    layer.build((None, 24))
    layer.enable_lora(2)
    return in_a_row(codes(), mean(), layer)


class OwnDense(L.Dense):
    """May do anything."""


def two_tables():
    ids = ids_input()
    tables = [codes(), code_embedding(width=24, name="other")]
    means = [mean()(table(ids)) for table in tables]
    return keras.Model(ids, dense()(L.Concatenate()(means)))


def read_twice():
    ids = ids_input()
    pooled = mean()(codes()(ids))
    return keras.Model(ids, {"mean": pooled, "last": dense()(pooled)})


# Pooled, but not folded.
NOT_FOLDED = {
    "activation": lambda: in_a_row(codes(), mean(), L.ReLU(), dense()),
    "wide": lambda: in_a_row(codes(), mean(), dense(60)),
    "lora": lora,
    "subclass": lambda: in_a_row(codes(), mean(), OwnDense(4)),
    "keepdims": lambda: in_a_row(codes(), mean(keepdims=True), dense()),
    "two tables": two_tables,
    "read twice": read_twice,
    "value of empty texts": lambda: in_a_row(
        reduced(mask_zero=True, empty_value=2.0), dense()
    ),
}


@pytest.mark.parametrize("kind", NOT_FOLDED)
def test_not_folded(kind, path):
    export = export_litert(NOT_FOLDED[kind](), path, verbose=0)
    assert export.pooled_layers[0] == "table"
    assert export.folded_layers == ()
    assert "table" in export.held_layers
    assert export.not_held_layers == ()


def test_fold_may_be_turned_off(path):
    export = export_litert(POOLED["mask"](), path, fold=False, verbose=0)
    assert export.pooled_layers == ("table",)
    assert export.folded_layers == ()
    with pytest.raises(ValueError, match="`fold` must be"):
        export_litert(POOLED["mask"](), path, fold=2, overwrite=True)


def other_axis():
    ids = ids_input(6)
    return keras.Model(ids, keras.ops.mean(codes()(ids), axis=-1))


def rows_and_mean():
    ids = ids_input()
    rows = codes()(ids)
    return keras.Model(ids, [mean()(rows), L.GlobalMaxPooling1D()(rows)])


# Neither pooled nor folded.
LEFT_ALONE = {
    "read as rows": rows_and_mean,
    "lstm": lambda: in_a_row(
        code_embedding(3, 4, 24, name="table", composition="lstm"), mean()
    ),
    "channels_first": lambda: in_a_row(
        codes(), mean(data_format="channels_first"), length=6
    ),
    "groups": lambda: in_a_row(codes(), convolution(groups=2), length=6),
    "other axis": other_axis,
}


@pytest.mark.parametrize("kind", LEFT_ALONE)
def test_left_alone(kind, path):
    export = export_litert(LEFT_ALONE[kind](), path, verbose=0)
    assert (export.pooled_layers, export.folded_layers) == ((), ())
    assert export.held_layers == ("table",)


def test_a_table_pooled_and_read_as_rows_is_there_once(path):
    ids, others = ids_input(name="ids"), ids_input(name="others")
    # Large enough that one-hot vectors of bytes are worth their space.
    table = code_embedding(16, 16, 64, input_dim=20_000, name="table")
    pooled = dense()(mean()(table(ids)))
    model = keras.Model([ids, others], [pooled, table(others)])
    export = export_litert(model, path, verbose=0)
    assert export.pooled_layers == export.held_layers == ("table",)
    assert export.file_bytes < 250_000
    types = {kind for kind, shape, _ in read_tensors(path) if 20_000 in shape}
    assert types == {"UINT8"}
    assert (257, 32) in {shape for _, shape, _ in read_tensors(path)}
    inputs = [random_ids(3, 5), random_ids(2, 4)]
    for got, expected in zip(
        LiteRTModel(path)(inputs).values(), model(inputs), strict=True
    ):
        np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize("combiner", ["mean", "sqrtn"])
def test_weights_and_masks_of_others(combiner, path):
    ids, weights = ids_input(), keras.Input((None,))
    outputs = dense()(reduced(combiner=combiner)(ids, weights=weights))
    model = keras.Model([ids, weights], outputs)
    export = export_litert(model, path, verbose=0)
    assert export.pooled_layers == ("table",)
    assert export.folded_layers == ("last",)
    assert export.held_layers == ()
    assert export.not_held_layers == ("table",)
    mask = keras.Input((None,), dtype="bool")
    outputs = mean()(codes()(ids), mask=mask)
    model = keras.Model([ids, mask], outputs)
    export = export_litert(model, path, overwrite=True, verbose=0)
    assert export.pooled_layers == export.not_held_layers == ("table",)


class Masked(keras.Model):
    def __init__(self, make_mask):
        super().__init__()
        self.table = codes(mask_zero=True)
        self.pool = mean()
        self.last = dense()
        self.make_mask = make_mask

    def call(self, inputs):
        mask = self.make_mask(inputs)
        return self.last(self.pool(self.table(inputs), mask=mask))


@pytest.mark.parametrize(
    "make_mask",
    [
        lambda ids: tf.range(tf.shape(ids)[1])[None] < 3,
        lambda ids: ids[:, :1] >= 0,
        lambda ids: tf.constant([[True]]),
    ],
    ids=["for all texts", "for all ids", "for all"],
)
def test_masks_that_are_for_more_than_one(make_mask, path):
    model = Masked(make_mask)
    model(random_ids(2, 5))
    signature = tf.TensorSpec((None, None), "int32")
    export = check_file(model, path, signature)
    assert export.pooled_layers == export.not_held_layers == ("table",)


def test_masks_of_numbers_are_left_to_keras(path):
    """Older versions of it weigh by them."""
    model = Masked(lambda ids: tf.cast(ids % 3 + 1, tf.float32))
    model(random_ids(2, 5))
    signature = tf.TensorSpec((None, None), "int32")
    export = check_file(model, path, signature)
    assert export.pooled_layers == ()
    assert export.held_layers == ("table",)


class Doubled(CodeEmbedReduce):
    def call(self, inputs, scale=2.0, **kwargs):
        return scale * super().call(inputs, **kwargs)


class DoubledAnchors(ANTEmbedReduce):
    def call(self, inputs, scale=2.0, **kwargs):
        return scale * super().call(inputs, **kwargs)


class Shifted(CodeEmbedding):
    combiner = "of a user"

    def look_up(self, inputs, embed):
        return super().look_up(inputs, embed) + 1.0


@pytest.mark.parametrize("cls", [Doubled, DoubledAnchors])
def test_subclasses_that_do_more_than_add_up(cls, path):
    shape = {} if cls is Doubled else {"num_anchors": 20}
    model = in_a_row(cls(ROWS, 24, mask_zero=True, **shape), dense())
    check_file(model, path)


def test_subclasses_that_change_rows(path):
    model = in_a_row(Shifted(ROWS, 24, name="table"), mean(), dense())
    export = check_file(model, path)
    assert export.pooled_layers == ()


@pytest.mark.parametrize("kind", ["mask", "layer", "valid"])
def test_wrong_codes_are_caught(kind, path, monkeypatch):
    pack_tables = conversion.pack_tables

    def pack_wrongly(model, tables):
        pack_tables(model, tables)
        packed = tables[0].packed
        for buffer in model.buffers:
            if np.array_equal(buffer.data, packed.reshape(-1)):
                buffer.data = np.roll(packed, 1, axis=0).reshape(-1)

    monkeypatch.setattr(conversion, "pack_tables", pack_wrongly)
    if kind == "valid":
        model = in_a_row(codes(), convolution())
    else:
        model = POOLED[kind]()
    with pytest.raises(RuntimeError, match="'table'.*at id"):
        export_litert(model, path, verbose=0, tolerance=0.1)


def test_older_runtimes(path):
    model = POOLED["mask"]()
    export = export_litert(model, path, min_runtime="2.17", verbose=0)
    assert export.folded_layers == ("last",)
    assert export.pooled_layers == ("table",)


def test_a_model_is_as_it_was(path):
    model = POOLED["mask"]()
    before = [dict(vars(layer)) for layer in model.layers]
    for _ in range(2):
        export_litert(model, path, overwrite=True, verbose=0)
    after = [dict(vars(layer)) for layer in model.layers]
    for one, other in zip(before, after, strict=True):
        assert one.keys() == other.keys()
        assert all(one[key] is other[key] for key in one)


def test_two_pooled_layers_of_one_codebook_size(path):
    """What each byte of codes stands for is in the file once for both."""
    inputs = [ids_input(), ids_input()]
    # Large enough for the table of bytes to be a small part of the file.
    pooled = [
        L.GlobalAveragePooling1D()(
            code_embedding(32, 16, 24, name=name, input_dim=20_000)(ids)
        )
        for name, ids in zip("ab", inputs, strict=True)
    ]
    model = keras.Model(inputs, L.Concatenate()(pooled))
    export = export_litert(model, path, verbose=0)
    assert export.pooled_layers == ("a", "b")
    assert "DEQUANTIZE" in export.ops
    assert export.max_error < BOUNDS[None]
