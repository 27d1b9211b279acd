"""Quantized tables in LiteRT files, and layers without a form of their own."""

import keras
import numpy as np
import pytest
from export_models import ROWS
from export_models import export
from export_models import ids_input
from export_models import random_ids
from export_models import read_tensors
from export_models import towers

import keras_compembed as kc

# What float32 sums are off by, of the largest number.
EXACT = 1e-6


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
    if size == 1 and bits < 8:
        layer.mean_row.assign(rng.normal(size=layer.width))
    return layer


def packed_columns(layer):
    """Bytes of one column of each half, quarter by quarter for two bits."""
    fields = 8 // layer.bits
    integers = layer.numpy_integers().astype(int)
    blocks = np.zeros((fields, ROWS, layer.packed_rows.shape[1]), int)
    for column in range(layer.width):
        block, place = divmod(column, blocks.shape[2])
        blocks[block, :, place] = integers[:, column]
    total = 0
    # Quarters 0 and 2 make a number of four bits.
    for block in [0, 2, 1, 3] if layer.bits == 2 else range(fields):
        total = 2**layer.bits * total + blocks[block]
    # The second of two fields has no sign: its lowest integer is 0.
    total += {8: 0, 4: 8, 2: 2 * 16 + 8 + 2}[layer.bits]
    return total.astype("int8")


@pytest.mark.parametrize(
    ("bits", "quantize"),
    [(8, None), (4, "float16"), (2, "int8_codebooks")],
)
def test_integers_and_scales_are_stored_as_they_are(bits, quantize, path):
    # Smaller units than float16 has; rows that end within a byte.
    layer = rounded(bits, size=1e-6)
    made = export(towers([layer]), path, bound=EXACT, quantize=quantize)
    assert made.max_row_error <= EXACT
    assert made.held_layers == ("words",) and not made.not_held_layers
    # Runtimes of every age read them.
    assert tuple(map(int, made.min_runtime.split("."))) < (2, 9)
    packed = packed_columns(layer)
    found = read_tensors(path)
    assert ("INT8", packed.shape, packed.tobytes()) in found
    assert ("INT8", (ROWS, 1), layer.scales.numpy().tobytes()) in found
    names = {c.name: c.bytes for c in kc.export.inspect_litert(path).constants}
    assert names["words/rows"] == packed.size
    assert names["words/scales"] == ROWS


@pytest.mark.parametrize("size", [0.0, 1e-36])
def test_units_that_the_runtime_takes_for_no_tensor(size, path):
    export(towers([rounded(size=size)]), path, bound=EXACT)


@pytest.mark.parametrize(
    ("rank", "quantize"),
    [
        (None, "int8"),
        # A projection that stays float32 with int8, and one of 1,024 numbers.
        (15, "int8"),
        (16, "int8"),
        (16, "float16"),
    ],
)
def test_bytes_are_those_of_the_method(rank, quantize, path):
    block_size = 3 if rank is None else None
    method = kc.methods.Quantized(4, block_size, rank)
    layer = kc.QuantizedEmbedding(ROWS, 64, 4, block_size, rank, name="words")
    layer.build()
    layer.mean_row.assign(np.ones(layer.width))
    made = export(towers([layer]), path, quantize=quantize)
    constants = kc.export.inspect_litert(path).constants
    # The rest are shapes, and numbers of ops.
    floats = sum(c.bytes for c in constants if c.dtype != "int32" and c.shape)
    assert floats == method.litert_bytes(ROWS, 64, quantize)
    assert 0 < made.file_bytes - floats < 6000


def test_several_tables(path):
    ids = ids_input()
    shared, other = rounded(), rounded(2, name="other")
    rest = rounded(8, name="rest")
    outputs = shared(ids) + shared(ids // 2) * other(ids) + rest(ids)
    model = keras.Model(ids, outputs)
    made = export(model, path, bound=1e-3, quantize="float16")
    packed = packed_columns(shared).tobytes()
    # Once, however often it is read.
    assert [each[2] for each in read_tensors(path)].count(packed) == 1
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


def test_convolutions_become_part_of_a_projection(path):
    convolution = keras.layers.Conv1D(3, 2, padding="same", name="behind")
    model = towers([rounded(width=12, rank=5), convolution])
    assert export(model, path, bound=EXACT).folded_layers == ("behind",)


def vectors_of(width, rows=2):
    vectors = np.random.default_rng(6).normal(size=(rows, width))
    return vectors.astype("float32")


@pytest.mark.parametrize(
    ("settings", "quantize"),
    [
        ({"bits": 8, "block_size": 3}, None),
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
