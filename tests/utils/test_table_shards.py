"""`TableShards` beside the array that it stands for."""

import numpy as np
import pytest

from keras_compembed.utils.table_shards import TableShards
from keras_compembed.utils.validation import check_table

ARRAY = np.arange(40, dtype="float32").reshape(10, 4)
SHARDS = TableShards([ARRAY[:3], ARRAY[3:3], ARRAY[3:4], ARRAY[4:]])


@pytest.mark.parametrize(
    "rows",
    [
        slice(None),
        slice(0, 3),
        slice(2, 5),
        slice(3, 4),
        slice(-2, None),
        slice(5, 99),
        slice(5, 2),
        slice(10, 12),
        slice(None, None, 3),
        slice(8, 1, -2),
        4,
        -1,
        np.int64(9),
        [0, 9, 3, 3, -10],
        np.array([[1, 2], [3, 4]]),
        np.array([7, 0], "uint8"),
        [],
        ARRAY[:, 0] > 12,
    ],
    ids=str,
)
def test_rows_are_those_of_the_array(rows):
    found, expected = SHARDS[rows], ARRAY[rows]
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


def test_is_read_like_an_array():
    assert len(SHARDS) == 10 and SHARDS.shape == (10, 4) and SHARDS.ndim == 2
    assert SHARDS.dtype == "float32" and "(10, 4)" in repr(SHARDS)
    np.testing.assert_array_equal(SHARDS, ARRAY)
    assert np.asarray(SHARDS, "float64").dtype == "float64"
    # Rows of one shard are not copied.
    assert np.shares_memory(SHARDS[4:8], ARRAY)
    assert check_table(SHARDS, shards=True) is SHARDS
    assert isinstance(check_table(SHARDS), np.ndarray)


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (10, IndexError, "There are 10 rows"),
        ([0, -11], IndexError, "There are 10 rows"),
        (1.5, IndexError, "integers, a slice or a boolean"),
        ([True, False], IndexError, "for each of the 10 rows"),
        (None, IndexError, "integers, a slice or a boolean"),
        ((0, 1), TypeError, "2 indices"),
    ],
)
def test_refuses_other_rows(rows, error, message):
    with pytest.raises(error, match=message):
        SHARDS[rows]


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ([], "Received: none"),
        ([ARRAY, ARRAY[0]], "at place 1 an array of shape"),
        ([ARRAY.tolist()], "at place 0 an object of type list"),
        ([ARRAY, ARRAY[:, :2]], "as many columns"),
        ([ARRAY, ARRAY.astype("float16")], "of one dtype"),
    ],
)
def test_refuses_other_arrays(shards, message):
    with pytest.raises(ValueError, match=message):
        TableShards(shards)
