import numpy as np
import pytest
import tensorflow as tf
from export_models import convert

from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.export.packed_offsets import PackedOffsets


def lengths_of(share_present, num_rows=5000):
    rng = np.random.default_rng(0)
    present = rng.random(num_rows) < share_present
    return present * rng.integers(1, 5, size=num_rows)


LENGTHS = {
    # Lengths, bytes a row, dtype of what a row has.
    "plain": ([2, 0, 1, 3] * 1250, 1, "uint8"),
    "long": ([200, 100] * 2500, 2, "int16"),
    "longer": ([30_000] * 5000, 4, "int32"),
    "longest": ([40_000, 2] * 2500, 4, "int32"),
    # A bit, a place for each eight of them, and a byte where there is a row.
    "no_rows": ([0] * 5000, 0.25, "int32"),
    "few_rows": (lengths_of(0.05), 0.30, "uint8"),
    "some_rows": (lengths_of(0.20), 0.45, "uint8"),
    "half": (lengths_of(0.5), 1, "uint8"),
    "last": ([0] * 4999 + [3], 0.25, "uint8"),
    "first": ([3] + [0] * 4999, 0.25, "uint8"),
    "one": ([3], 6, "uint8"),
    "one_empty": ([0], 6, "uint8"),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_places(tmp_path, name):
    lengths, bytes_a_row, dtype = LENGTHS[name]
    places = np.concatenate([[0], np.cumsum(lengths)])
    offsets = PackedOffsets(places)
    # What blocks have in common, and the numbers of bits, come on top.
    assert offsets.nbytes <= 1.05 * bytes_a_row * len(lengths) + 160
    assert offsets.tables[-1].dtype == dtype
    path = tmp_path / "offsets.tflite"
    path.write_bytes(convert(lambda ids: tf.stack(offsets(ids), axis=1)))
    ids = np.random.default_rng(0).permutation(len(lengths))
    got = LiteRTModel(path)(ids)
    # Where an empty row begins does not matter.
    np.testing.assert_array_equal(
        got[:, 1] - got[:, 0], np.asarray(lengths)[ids]
    )
    present = np.asarray(lengths)[ids] > 0
    np.testing.assert_array_equal(got[present, 0], places[ids][present])


def test_files_hold_no_more_than_the_tables():
    offsets = PackedOffsets(np.append(0, np.cumsum(lengths_of(0.1, 40_000))))
    content = convert(lambda ids: tf.stack(offsets(ids), axis=1))
    assert offsets.nbytes < len(content) < offsets.nbytes + 6000
