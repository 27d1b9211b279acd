"""Quantized tables in LiteRT files, and layers without a form of their own."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import ROWS
from export_models import export
from export_models import ids_input
from export_models import random_ids
from export_models import read_tensors
from export_models import towers
from export_models import write

import keras_compembed as kc
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.rounding.rounded_table import pack_integers
from keras_compembed.stores.store import Store

# What float32 sums are off by, of the largest number.
EXACT = 1e-6
TYPES = {8: "INT8", 4: "INT4", 2: "INT2"}
RUNTIMES = {8: (2, 8), 4: (2, 18), 2: (2, 21)}


def rounded(
    bits=4, width=7, block_size=None, rank=None, size=1.0, rows=ROWS, **kwargs
):
    """A layer whose numbers are of about some size."""
    kwargs.setdefault("name", "words")
    keras.utils.set_random_seed(4)
    layer = kc.QuantizedEmbedding(rows, width, bits, block_size, rank, **kwargs)
    layer.build()
    rng = np.random.default_rng(3)
    highest = np.iinfo(layer.scales.dtype).max
    layer.scales.assign(rng.integers(highest + 1, size=layer.scales.shape))
    # A number that float16 would round, or does not hold.
    layer.scale_unit.assign(size / 3 / highest)
    return layer


@pytest.mark.parametrize(
    ("bits", "quantize"),
    [
        (8, None),
        (4, None),
        (2, None),
        (8, "int8"),
        (4, "float16"),
        (2, "int8_codebooks"),
    ],
)
def test_integers_and_scales_are_stored_as_they_are(bits, quantize, path):
    # Smaller units than float16 has; rows that end within a byte.
    layer = rounded(bits, size=1e-6)
    made = export(towers([layer]), path, bound=EXACT, quantize=quantize)
    assert made.max_row_error <= EXACT
    assert made.held_layers == ("words",) and not made.not_held_layers
    runtime = tuple(map(int, made.min_runtime.split(".")))[:2]
    assert runtime == RUNTIMES[bits]
    columns = 8 // bits * layer.packed_rows.shape[1]
    packed = pack_integers(layer.numpy_integers(), bits).tobytes()
    found = read_tensors(path)
    assert (TYPES[bits], (ROWS, columns), packed) in found
    assert ("INT8", (ROWS, 1), layer.scales.numpy().tobytes()) in found
    names = {c.name: c.bytes for c in kc.export.inspect_litert(path).constants}
    assert names["words/rows"] == len(packed)
    assert names["words/scales"] == ROWS


@pytest.mark.parametrize("size", [0.0, 1e-36])
def test_units_that_the_runtime_takes_for_no_tensor(size, path):
    export(towers([rounded(size=size)]), path, bound=EXACT)


def test_units_are_those_of_tensors(path):
    layer = rounded(scale_dtype="int16")
    made = export(towers([layer]), path, bound=EXACT, quantize="float16")
    assert "CAST" not in made.ops and "DEQUANTIZE" in made.ops


@pytest.mark.parametrize(
    ("bits", "min_runtime", "is_packed"),
    [
        (4, "2.17", False),
        (4, "2.18", True),
        # Which unpacks int4 alone.
        (2, "2.18", False),
        (2, "2.21", True),
    ],
)
def test_older_runtimes_read_packed_bytes(bits, min_runtime, is_packed, path):
    layer = rounded(bits)
    made = export(towers([layer]), path, bound=EXACT, min_runtime=min_runtime)
    assert ("EMBEDDING_LOOKUP" in made.ops) == is_packed
    if not is_packed:
        packed = pack_integers(layer.numpy_integers(), bits)
        found = read_tensors(path)
        assert ("UINT8", packed.shape, packed.tobytes()) in found


@pytest.mark.parametrize(
    ("settings", "quantize"),
    [
        ({"block_size": 3}, "int8"),
        ({"width": 8, "block_size": 4, "scale_dtype": "int16"}, "float16"),
        ({"bits": 8, "width": 12, "rank": 5}, "int8"),
        ({"bits": 2, "width": 12, "rank": 7, "block_size": 3}, "float16"),
        ({"width": 12, "rank": 4, "learn_rows": True}, None),
    ],
)
def test_blocks_and_projections(settings, quantize, path):
    layer = rounded(**settings)
    # Float16 projections; with int8 the converter leaves small ones alone.
    bound = 2e-3 if quantize == "float16" and layer.rank else EXACT
    made = export(towers([layer]), path, bound=bound, quantize=quantize)
    assert made.held_layers == ("words",)


@pytest.mark.parametrize(
    ("rank", "quantize"),
    [
        (None, "int8"),
        # A projection that stays float32 with int8, and one of 1,024 numbers.
        (15, "int8"),
        (16, "int8"),
        (15, "int8_codebooks"),
        (16, "float16"),
        (16, None),
    ],
)
def test_bytes_are_those_of_the_method(rank, quantize, path):
    block_size = 3 if rank is None else None
    method = kc.methods.Quantized(4, block_size, rank)
    layer = kc.QuantizedEmbedding(ROWS, 64, 4, block_size, rank, name="words")
    made = export(towers([layer]), path, quantize=quantize)
    constants = kc.export.inspect_litert(path).constants
    # The rest are shapes and the like.
    floats = sum(c.bytes for c in constants if c.dtype != "int32")
    assert floats == method.litert_bytes(ROWS, 64, quantize)
    assert 0 < made.file_bytes - floats < 6000


def of_constants():
    layer, ids = rounded(), ids_input()
    return keras.Model(ids, layer(ids) + layer(keras.ops.arange(7)))


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


@pytest.mark.parametrize(
    ("make", "quantize"),
    [
        (of_constants, None),
        (of_positions, None),
        (of_several_tables, "float16"),
    ],
)
def test_look_ups_anywhere_in_a_model(make, quantize, path):
    made = export(
        make(), path, bound=1e-3 if quantize else EXACT, quantize=quantize
    )
    table = [each for each in read_tensors(path) if each[0] == "INT4"]
    # Once, however often it is read.
    assert len({content for *_, content in table}) == 1
    assert made.file_bytes < 18_000


@pytest.mark.parametrize(("rank", "mask_zero"), [(None, True), (5, False)])
def test_pooled_rows_are_weighed_by_their_scales(rank, mask_zero, path):
    layer = rounded(width=12, rank=rank, mask_zero=mask_zero)
    pool = keras.layers.GlobalAveragePooling1D()
    model = towers([layer, pool, keras.layers.Dense(3, name="classes")])
    made = export(model, path, bound=EXACT)
    assert made.held_layers == made.pooled_layers == ("words",)
    assert made.folded_layers == (("classes",) if rank else ())
    # One of the rows, and for masks of the ids that count.
    ops = kc.export.inspect_litert(path).ops
    assert ops.get("SUM", 0) + ops.get("MEAN", 0) == 1 + mask_zero
    if rank:
        shapes = {shape for _, shape, _ in read_tensors(path)}
        assert (3, 5) in shapes and (12, 5) not in shapes
        # The projection is too small for the converter to round.
        export(towers([layer, pool]), path, bound=EXACT, quantize="int8")


@pytest.mark.parametrize(
    ("combiner", "settings"),
    [("sum", {}), ("mean", {"rank": 5}), ("sqrtn", {"block_size": 2})],
)
def test_layers_that_sum(combiner, settings, path):
    keras.utils.set_random_seed(4)
    settings |= {"combiner": combiner, "mask_zero": True, "name": "words"}
    layer = kc.QuantizedEmbedding(ROWS, 12, 4, **settings)
    made = export(towers([layer]), path, bound=EXACT)
    assert made.pooled_layers == made.held_layers == ("words",)
    ids, weights = ids_input(), keras.Input((None,))
    model = keras.Model([ids, weights], layer(ids, weights=weights))
    given = random_ids(3, 7), np.random.default_rng(0).random((3, 7), "f4")
    made = export(model, path, list(given), bound=EXACT)
    assert made.pooled_layers == made.held_layers == ("words",)


@pytest.mark.parametrize(
    ("make", "rank"),
    [
        (lambda: keras.layers.Dense(3, name="behind"), 5),
        (lambda: keras.layers.Conv1D(3, 2, padding="same", name="behind"), 5),
        (lambda: keras.layers.Dense(3, name="behind"), None),
    ],
    ids=["dense", "convolution", "no projection"],
)
def test_layers_become_part_of_a_projection_only(make, rank, path):
    model = towers([rounded(width=12, rank=rank), make()])
    # By which an int8 kernel would be smaller.
    for options in ({}, {"optimize_for": "size", "quantize": "int8_codebooks"}):
        made = export(model, path, bound=0.02 if options else EXACT, **options)
        is_folded = rank is not None and (
            not options or model.layers[-1].kernel.ndim == 2
        )
        assert made.folded_layers == (("behind",) if is_folded else ())


def vectors_of(width, rows=2):
    vectors = np.random.default_rng(6).normal(size=(rows, width))
    return vectors.astype("float32")


@pytest.mark.parametrize(
    ("settings", "quantize"),
    [
        ({"bits": 8}, None),
        ({"bits": 4, "block_size": 3}, "float16"),
        ({"bits": 2, "rank": 5}, "float16"),
        # Several chunks, and a last one that is smaller.
        ({"bits": 4, "width": 1200, "rows": 2003}, None),
    ],
)
def test_all_ids_are_scored(settings, quantize, path):
    layer = rounded(**{"width": 12, **settings})
    vectors = keras.Input((layer.output_dim,))
    model = keras.Model(vectors, layer(vectors, reverse=True))
    bound = 2e-3 if quantize and layer.rank else EXACT
    made = export(
        model,
        path,
        vectors_of(layer.output_dim),
        bound=bound,
        quantize=quantize,
    )
    assert made.max_row_error <= bound
    assert made.held_layers == ("words",)
    # No table of floats.
    shape = layer.input_dim, layer.output_dim
    assert ("FLOAT32", shape) not in [each[:2] for each in read_tensors(path)]


@pytest.mark.parametrize(("width", "rows"), [(12, ROWS), (1200, 2003)])
def test_best_ids(width, rows, path):
    layer = rounded(width=width, rows=rows)
    inputs = keras.Input((width,), batch_size=1)
    model = keras.Model(inputs, layer(inputs, reverse=True))
    write(model, path, top_k=5)
    vectors = vectors_of(width, 1)
    got = kc.export.LiteRTModel(path)(vectors)
    scores, ids = layer.top_k(vectors, 5)
    np.testing.assert_array_equal(got["ids"], ids)
    np.testing.assert_allclose(got["scores"], scores, rtol=1e-5)


@keras.saving.register_keras_serializable(package="test_export_quantized")
class Hashed(Store):
    """A store without a form of its own."""

    def make_variables(self, add):
        self.table = add("table", shape=(11, self.output_dim))
        self.signs = add("signs", shape=(self.input_dim, 1))

    def read(self, ids, training=False, counts=None):
        rows = tf.gather(self.table.value, ids % 11)
        return rows * tf.gather(self.signs.value, ids)

    def get_config(self):
        return {"input_dim": self.input_dim, "output_dim": self.output_dim}


def test_tables_of_other_stores_are_not_written_down(path):
    # Several chunks, and a last one that is smaller.
    layer = LookupLayer(Hashed(2003, 1200), name="words")
    hidden = keras.Input((1200,), batch_size=1)
    model = keras.Model(hidden, layer(hidden, reverse=True))
    # Sums of 1,200 products.
    made = export(model, path, vectors_of(1200, 1), bound=1e-5)
    assert made.held_layers == ("words",)
    for k in (None, 3):
        assert (2003, 1200) not in [shape for _, shape, _ in read_tensors(path)]
        if k is None:
            write(model, path, top_k=3)
