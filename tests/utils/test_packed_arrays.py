import json

import numpy as np
import pytest

from keras_compembed.utils.packed_arrays import pack_array
from keras_compembed.utils.packed_arrays import unpack_array


@pytest.mark.parametrize(
    "array",
    [
        np.arange(-3, 9, dtype="int32").reshape(3, 4),
        np.arange(8, dtype="int64")[::2],
        np.arange(6, dtype=">i4"),
        np.array([0.5, np.inf, -1e300]),
        np.zeros((0, 5), "int32"),
        np.asfortranarray(np.arange(6, dtype="float32").reshape(2, 3)),
    ],
)
def test_arrays_come_back(array):
    again = unpack_array(json.loads(json.dumps(pack_array(array))))
    assert again.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(again, array)
    # They are the owner's to write to.
    again[...] = 1


def test_none():
    assert unpack_array(pack_array(None)) is None


def test_size():
    """Small numbers take about the bytes that they need."""
    ids = np.random.default_rng(0).permutation(60_000).astype("int32")
    assert len(pack_array(ids)["bytes"]) < 1.4 * 2 * len(ids)
