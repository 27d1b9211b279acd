"""Rounded tables in LiteRT files."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import ROWS
from export_models import ids_input
from export_models import random_ids
from export_models import read_tensors

import keras_compembed as kc
from keras_compembed.export import row_chunks
from keras_compembed.export.export_options import ExportOptions
from keras_compembed.export.stored_rows import StoredRows
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.rounding.rounded_table import pack_integers

# What float32 sums are off by, of the largest number.
EXACT = 1e-6
TYPES = {8: "INT8", 4: "INT4", 2: "INT2"}
RUNTIMES = {8: (2, 8), 4: (2, 18), 2: (2, 21)}
QUANTIZE = [None, "float16", "int8", "int8_codebooks"]


def rounded(bits=4, width=7, block_size=None, rank=None, size=1.0, **kwargs):
    """A layer whose numbers are of about some size."""
    kwargs.setdefault("name", "words")
    layer = kc.QuantizedEmbedding(
        ROWS, width, bits, block_size, rank, seed=4, **kwargs
    )
    layer.build()
    rng = np.random.default_rng(3)
    highest = np.iinfo(layer.scales.dtype).max
    layer.scales.assign(rng.integers(highest + 1, size=layer.scales.shape))
    # A number that float16 would round, or does not hold.
    layer.scale_unit.assign(size / 3 / highest)
    return layer


def export(model, path, **options):
    """Exports a model, and returns what was made and the largest error."""
    made = kc.export.export_litert(
        model, path, verbose=0, overwrite=True, **options
    )
    ids = random_ids(3, 7)
    expected = np.asarray(model(ids))
    got = kc.export.LiteRTModel(path)(ids)
    scale = np.abs(expected).max()
    return made, np.abs(got - expected).max() / scale


def of_rows(layer, *behind):
    ids = ids_input()
    outputs = layer(ids)
    for each in behind:
        outputs = each(outputs)
    return keras.Model(ids, outputs)


@pytest.mark.parametrize(
    ("bits", "quantize"),
    [
        *(
            (bits, quantize)
            for bits in (8, 4, 2)
            for quantize in (None, "int8")
        ),
        (4, "float16"),
        (2, "int8_codebooks"),
    ],
)
def test_integers_and_scales_are_stored_as_they_are(bits, quantize, tmp_path):
    # Smaller units than float16 has; rows that end within a byte.
    layer = rounded(bits, size=1e-6)
    path = tmp_path / "model.tflite"
    made, error = export(of_rows(layer), path, quantize=quantize)
    assert error <= EXACT
    assert made.max_row_error <= EXACT
    assert made.held_layers == ("words",) and not made.not_held_layers
    runtime = tuple(map(int, made.min_runtime.split(".")))[:2]
    assert runtime == RUNTIMES[bits]
    columns = 8 // bits * layer.packed_rows.shape[1]
    packed = pack_integers(layer.numpy_integers(), bits).tobytes()
    scales = layer.scales.numpy().tobytes()
    found = read_tensors(path)
    assert (TYPES[bits], (ROWS, columns), packed) in found
    assert ("INT8", (ROWS, 1), scales) in found
    names = {c.name: c.bytes for c in kc.export.inspect_litert(path).constants}
    assert names["words/rows"] == len(packed)
    assert names["words/scales"] == ROWS


@pytest.mark.parametrize("bits", [4, 2])
def test_older_runtimes_read_packed_bytes(bits, tmp_path):
    layer = rounded(bits)
    path = tmp_path / "model.tflite"
    made, error = export(of_rows(layer), path, min_runtime="2.17")
    assert error <= EXACT
    assert "EMBEDDING_LOOKUP" not in made.ops
    packed = pack_integers(layer.numpy_integers(), bits)
    assert ("UINT8", packed.shape, packed.tobytes()) in read_tensors(path)
    if bits == 2:
        # Which unpacks int4 alone.
        made, _ = export(of_rows(layer), path, min_runtime="2.18")
        assert "EMBEDDING_LOOKUP" not in made.ops


@pytest.mark.parametrize(
    ("settings", "quantize"),
    [
        ({"block_size": 3}, None),
        ({"block_size": 3}, "int8"),
        ({"width": 8, "block_size": 4, "scale_dtype": "int16"}, "float16"),
        ({"bits": 8, "width": 12, "rank": 5}, None),
        ({"bits": 8, "width": 12, "rank": 5}, "int8"),
        ({"bits": 2, "width": 12, "rank": 7, "block_size": 3}, "float16"),
        ({"width": 12, "rank": 4, "learn_rows": True}, None),
    ],
)
def test_blocks_and_projections(settings, quantize, tmp_path):
    layer = rounded(**settings)
    path = tmp_path / "model.tflite"
    made, error = export(of_rows(layer), path, quantize=quantize)
    is_rounded = quantize == "float16" and layer.rank
    # Float16 projections; with int8 the converter leaves small ones alone.
    assert error <= (2e-3 if is_rounded else EXACT)
    assert made.held_layers == ("words",)


@pytest.mark.parametrize("quantize", QUANTIZE)
@pytest.mark.parametrize("rank", [None, 15, 16])
def test_bytes_are_those_of_the_method(rank, quantize, tmp_path):
    # A projection of 1,024 numbers, and one that stays float32 with int8.
    block_size = 3 if rank is None else None
    method = kc.methods.Rounded(4, block_size, rank)
    layer = kc.QuantizedEmbedding(ROWS, 64, 4, block_size, rank, name="words")
    path = tmp_path / "model.tflite"
    made, _ = export(of_rows(layer), path, quantize=quantize, tolerance=0.1)
    constants = kc.export.inspect_litert(path).constants
    # The rest are shapes and the like.
    floats = sum(c.bytes for c in constants if c.dtype != "int32")
    assert floats == method.litert_bytes(ROWS, 64, quantize)
    rest = made.file_bytes - method.litert_bytes(ROWS, 64, quantize)
    assert 0 < rest < 6000


class Steps(keras.layers.Layer):
    """A cell of an RNN that looks ids up."""

    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding
        self.state_size = self.output_size = embedding.output_dim

    def build(self, input_shape):
        self.built = True

    def call(self, inputs, states):
        state = 0.5 * states[0] + self.embedding(inputs[:, 0])
        return state, [state]


def in_a_loop():
    ids = ids_input()
    column = keras.layers.Reshape((-1, 1))(ids)
    return keras.Model(ids, keras.layers.RNN(Steps(rounded()))(column))


def of_constants():
    layer, ids = rounded(), ids_input()
    positions = keras.ops.arange(7)
    return keras.Model(ids, layer(ids) + layer(positions))


def of_positions():
    """Ids that only the converter knows."""
    layer, ids = rounded(), ids_input(7)
    places = keras.ops.cumsum(keras.ops.ones_like(ids), axis=1) - 1
    return keras.Model(ids, layer(ids) * layer(places))


def of_several_tables():
    ids = ids_input()
    shared, other = rounded(), rounded(2, name="other")
    rest = rounded(8, name="rest")
    outputs = shared(ids) + shared(ids // 2) * other(ids) + rest(ids)
    return keras.Model(ids, outputs)


def of_rank_one():
    ids = keras.Input((), dtype="int32")
    return keras.Model(ids, rounded()(ids))


@pytest.mark.parametrize(
    "make", [in_a_loop, of_constants, of_positions, of_several_tables]
)
@pytest.mark.parametrize("quantize", [None, "float16"])
def test_look_ups_anywhere_in_a_model(make, quantize, tmp_path):
    path = tmp_path / "model.tflite"
    made, error = export(make(), path, quantize=quantize)
    assert error <= (1e-3 if quantize else EXACT)
    table = [each for each in read_tensors(path) if each[0] == "INT4"]
    # Once, however often it is read.
    assert len({content for *_, content in table}) == 1
    assert made.file_bytes < 18_000


def test_one_id_an_example(tmp_path):
    made, _ = export_of_vector(of_rank_one(), tmp_path / "model.tflite")
    assert made.held_layers == ("words",)


def export_of_vector(model, path):
    made = kc.export.export_litert(model, path, verbose=0)
    ids = random_ids(5)
    got = kc.export.LiteRTModel(path)(ids)
    np.testing.assert_allclose(got, np.asarray(model(ids)), rtol=1e-6)
    return made, got


class TestPooling:
    @pytest.mark.parametrize("rank", [None, 5])
    @pytest.mark.parametrize("mask_zero", [False, True])
    def test_rows_are_weighed_by_their_scales(self, rank, mask_zero, tmp_path):
        layer = rounded(width=12, rank=rank, mask_zero=mask_zero)
        pooling = keras.layers.GlobalAveragePooling1D()
        dense = keras.layers.Dense(3, name="classes")
        path = tmp_path / "model.tflite"
        made, error = export(of_rows(layer, pooling, dense), path)
        assert error <= EXACT
        assert made.held_layers == ("words",)
        assert made.pooled_layers == ("words",)
        assert made.folded_layers == (("classes",) if rank else ())
        # One of the rows, and for masks of the ids that count.
        ops = kc.export.inspect_litert(path).ops
        assert ops.get("SUM", 0) + ops.get("MEAN", 0) == 1 + mask_zero
        if rank:
            shapes = {shape for _, shape, _ in read_tensors(path)}
            assert (3, 5) in shapes and (12, 5) not in shapes
        made, error = export(
            of_rows(layer, pooling, dense), path, fold=False, quantize="int8"
        )
        # The projection is too small for the converter to round.
        assert error <= EXACT and not made.folded_layers

    @pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
    @pytest.mark.parametrize("settings", [{}, {"rank": 5, "block_size": 2}])
    def test_layers_that_sum(self, combiner, settings, tmp_path):
        layer = kc.QuantizedEmbedReduce(
            ROWS,
            12,
            4,
            combiner=combiner,
            mask_zero=True,
            seed=4,
            name="words",
            **settings,
        )
        path = tmp_path / "model.tflite"
        made, error = export(of_rows(layer), path)
        assert error <= EXACT
        assert made.pooled_layers == made.held_layers == ("words",)

    def test_weights_that_come_from_elsewhere(self, tmp_path):
        layer = kc.QuantizedEmbedReduce(ROWS, 12, 4, seed=4, name="words")
        ids, weights = ids_input(), keras.Input((None,))
        model = keras.Model([ids, weights], layer(ids, weights=weights))
        path = tmp_path / "model.tflite"
        made = kc.export.export_litert(model, path, verbose=0)
        assert made.pooled_layers == made.not_held_layers == ("words",)
        assert made.max_error <= EXACT

    def test_rows_that_others_read_are_not_pooled(self, tmp_path):
        ids = ids_input()
        rows = rounded(width=12, rank=5)(ids)
        pooled = keras.layers.GlobalAveragePooling1D()(rows)
        outputs = rows + keras.ops.expand_dims(pooled, 1)
        made, error = export(keras.Model(ids, outputs), tmp_path / "m.tflite")
        assert error <= EXACT and made.pooled_layers == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.layers.Dense(3, name="behind"),
        lambda: keras.layers.Conv1D(3, 2, padding="same", name="behind"),
    ],
)
@pytest.mark.parametrize("rank", [None, 5])
def test_layers_become_part_of_a_projection_only(make, rank, tmp_path):
    path = tmp_path / "model.tflite"
    model = of_rows(rounded(width=12, rank=rank), make())
    # By which an int8 kernel would be smaller.
    for options in ({}, {"optimize_for": "size", "quantize": "int8_codebooks"}):
        made, error = export(model, path, **options)
        is_folded = rank is not None and (
            not options or model.layers[-1].kernel.ndim == 2
        )
        assert made.folded_layers == (("behind",) if is_folded else ())
        assert error <= (0.02 if options else EXACT)


class TestLogits:
    @pytest.mark.parametrize(
        "settings",
        [
            {"bits": 8},
            {"bits": 4, "block_size": 3},
            {"bits": 2, "rank": 5},
        ],
    )
    @pytest.mark.parametrize("quantize", [None, "float16"])
    def test_all_ids_are_scored(
        self, settings, quantize, tmp_path, monkeypatch
    ):
        # Several chunks, and a last one that is smaller.
        monkeypatch.setattr(row_chunks, "_CHUNK_ELEMENTS", 5 * 40)
        layer = rounded(width=12, **settings)
        vectors = keras.Input((12,))
        model = keras.Model(vectors, layer(vectors, reverse=True))
        path = tmp_path / "model.tflite"
        made = kc.export.export_litert(
            model, path, quantize=quantize, verbose=0
        )
        bound = 2e-3 if quantize and layer.rank else EXACT
        assert made.max_error <= bound and made.max_row_error <= bound
        assert made.held_layers == ("words",)
        shapes = [shape for kind, shape, _ in read_tensors(path)]
        # No table of floats.
        assert shapes.count((ROWS, 12)) <= 1

    def test_best_ids(self, tmp_path, monkeypatch):
        monkeypatch.setattr(row_chunks, "_CHUNK_ELEMENTS", 12 * 40)
        layer = rounded(width=12)
        inputs = keras.Input((12,), batch_size=1)
        model = keras.Model(inputs, layer(inputs, reverse=True))
        path = tmp_path / "model.tflite"
        kc.export.export_litert(model, path, top_k=5, verbose=0)
        vectors = np.random.default_rng(6).normal(size=(1, 12)).astype("f4")
        got = kc.export.LiteRTModel(path)(vectors)
        scores, ids = layer.top_k(vectors, 5)
        np.testing.assert_array_equal(got["ids"], ids)
        np.testing.assert_allclose(got["scores"], scores, rtol=1e-5)

    @pytest.mark.parametrize("tie_weights", [True, False])
    def test_reversible_layers(self, tie_weights, tmp_path):
        layer = kc.ReversibleQuantizedEmbedding(
            ROWS, 12, 4, tie_weights=tie_weights, seed=4, name="words"
        )
        ids = ids_input()
        hidden = keras.layers.Dense(12)(layer(ids))
        model = keras.Model(ids, layer(hidden, reverse=True))
        made, error = export(model, tmp_path / "model.tflite")
        assert error <= EXACT and made.max_row_error <= EXACT

    def test_tables_that_others_read(self, tmp_path):
        layer = rounded(width=12, rank=5)

        class Reads(keras.layers.Layer):
            def call(self, inputs):
                table = keras.ops.convert_to_tensor(layer.embeddings)
                return keras.ops.matmul(inputs, keras.ops.transpose(table))

        model = of_rows(layer, Reads())
        made, error = export(model, tmp_path / "model.tflite")
        assert error <= EXACT
        assert made.file_bytes < 16_000


def test_wrong_rows_are_refused(tmp_path, monkeypatch):
    layer = rounded()
    right = StoredRows.scales

    def wrong(self, ids):
        return right(self, ids) + tf.cast(ids == 3, tf.float32)[:, None] / 2

    monkeypatch.setattr(StoredRows, "scales", wrong)
    with pytest.raises(RuntimeError, match="'words'.* at id 3"):
        export(of_rows(layer), tmp_path / "model.tflite")


def test_a_row_is_held_within_the_rounding_of_a_scale(tmp_path, monkeypatch):
    """Not within what a float16 or int8 file is allowed elsewhere."""
    layer = rounded()
    right = StoredRows.scales
    monkeypatch.setattr(
        StoredRows, "scales", lambda self, ids: 1.0001 * right(self, ids)
    )
    with pytest.raises(RuntimeError, match="'words'"):
        export(of_rows(layer), tmp_path / "model.tflite", quantize="int8")


@keras.saving.register_keras_serializable(package="test_export_quantized")
class Hashed(LookupLayer):
    """A look-up layer without a form of its own."""

    def __init__(self, input_dim=ROWS, output_dim=6, mask_zero=False, **kwargs):
        super().__init__(**kwargs)
        self.input_dim, self.output_dim = input_dim, output_dim
        self.mask_zero = mask_zero

    def build(self, input_shape=None):
        self.table = self.add_weight(shape=(11, self.output_dim))
        self.signs = self.add_weight(shape=(self.input_dim, 1))

    def embed(self, ids):
        rows = tf.gather(self.table.value, ids % 11)
        return rows * tf.gather(self.signs.value, ids)


class TestOtherLayers:
    @pytest.mark.parametrize("quantize", [None, "int8"])
    def test_rows_are_held_to_keras(self, quantize, tmp_path):
        path = tmp_path / "model.tflite"
        model = of_rows(Hashed(name="words"))
        made, error = export(model, path, quantize=quantize)
        assert made.held_layers == ("words",)
        assert error <= (0.02 if quantize else EXACT)

    def test_their_tables_are_not_written_down(self, tmp_path, monkeypatch):
        monkeypatch.setattr(row_chunks, "_CHUNK_ELEMENTS", 6 * 40)
        layer = Hashed(name="words")
        hidden = keras.Input((6,), batch_size=1)
        model = keras.Model(hidden, layer(hidden, reverse=True))
        path = tmp_path / "model.tflite"
        made = kc.export.export_litert(model, path, verbose=0)
        assert made.held_layers == ("words",) and made.max_error <= EXACT
        assert (ROWS, 6) not in [shape for _, shape, _ in read_tensors(path)]
        kc.export.export_litert(model, path, top_k=3, verbose=0, overwrite=True)
        assert (ROWS, 6) not in [shape for _, shape, _ in read_tensors(path)]

    def test_what_they_do_in_their_own_way_is_kept(self, tmp_path):
        class Scores(Hashed):
            def score(self, vectors):
                parts = tf.matmul(vectors, self.table.value, transpose_b=True)
                ids = tf.range(self.input_dim) + 0 * tf.cast(
                    tf.reduce_max(vectors) > 0, tf.int32
                )
                parts = tf.gather(parts, ids % 11, axis=1)
                return parts * tf.transpose(self.signs.value)

        vectors = keras.Input((6,), batch_size=1)
        model = keras.Model(vectors, Scores(name="w")(vectors, reverse=True))
        path = tmp_path / "model.tflite"
        made = kc.export.export_litert(model, path, verbose=0)
        assert made.held_layers == ("w",) and made.max_error <= EXACT


def test_a_trace_takes_known_sizes():
    stored = StoredRows(rounded(), dataclasses.replace(ExportOptions()))
    assert stored.read(tf.zeros(3, tf.int32)).shape == (3, 7)
