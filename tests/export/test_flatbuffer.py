"""Flatbuffers, and what is written into them: tables, int8, offsets."""

import numpy as np
import pytest
import tensorflow as tf
from export_models import ROWS
from export_models import code_embedding
from export_models import convert
from export_models import export
from export_models import towers
from export_models import write

import keras_compembed as kc
from keras_compembed.export import LiteRTModel
from keras_compembed.litert import flatbuffer
from keras_compembed.litert.compressed_rows import PackedOffsets


def test_buffers_are_aligned(path):
    write(towers([code_embedding()]), path)
    content = path.read_bytes()
    model = flatbuffer.schema.Model.GetRootAs(content, 0)
    buffers = map(model.Buffers, range(model.BuffersLength()))
    starts = [
        buffer._tab.Vector(buffer._tab.Offset(4))
        for buffer in buffers
        if buffer.DataLength()
    ]
    assert len(starts) > 3 and not any(start % 16 for start in starts)


@pytest.mark.parametrize("quantize", [None, "int8_codebooks"])
def test_tables_of_equal_bytes_and_other_shapes(quantize, path):
    """The converter gives constants of equal bytes one buffer."""
    numbers = np.random.default_rng(1).normal(size=768).astype("float32")
    layers = [
        code_embedding(num_codebooks, 16, width)
        for num_codebooks, width in ((8, 6), (16, 3))
    ]
    for layer in layers:
        layer.build()
        layer.codebooks.assign(numbers.reshape(layer.codebooks.shape))
    first = kc.QuantizedEmbedding(ROWS, 4, bits=4)
    other = kc.QuantizedEmbedding(2 * ROWS, 2, bits=4)
    first.build()
    other.build()
    other.packed_rows.assign(first.packed_rows.numpy().reshape(-1, 1))
    model = towers(*([layer] for layer in (*layers, first, other)))
    export(model, path, quantize=quantize)


def some_lengths():
    """Of one row in five."""
    rng = np.random.default_rng(0)
    return (rng.random(5000) < 0.2) * rng.integers(1, 5, size=5000)


LENGTHS = {
    # Lengths, bytes a row, dtype of what a row has.
    "plain": ([2, 0, 1, 3] * 1250, 1, "uint8"),
    "long": ([200, 100] * 2500, 2, "int16"),
    # A bit, a place for each eight of them, and a byte where there is a row.
    "no_rows": ([0] * 5000, 0.25, "int32"),
    "some_rows": (some_lengths(), 0.45, "uint8"),
    "one": ([3], 6, "uint8"),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_offsets_of_rows(path, name):
    lengths, bytes_a_row, dtype = LENGTHS[name]
    places = np.concatenate([[0], np.cumsum(lengths)])
    offsets = PackedOffsets(places)
    # What blocks have in common, and the numbers of bits, come on top.
    assert offsets.nbytes <= 1.05 * bytes_a_row * len(lengths) + 160
    assert offsets.tables[-1].dtype == dtype
    path.write_bytes(convert(lambda ids: tf.stack(offsets(ids), axis=1)))
    ids = np.random.default_rng(0).permutation(len(lengths))
    got = LiteRTModel(path)(ids)
    # Where an empty row begins does not matter.
    np.testing.assert_array_equal(
        got[:, 1] - got[:, 0], np.asarray(lengths)[ids]
    )
    present = np.asarray(lengths)[ids] > 0
    np.testing.assert_array_equal(got[present, 0], places[ids][present])
