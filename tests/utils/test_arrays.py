"""Helpers that work on arrays and numbers."""

import contextlib
import json

import numpy as np
import pytest
import threadpoolctl
from errors import refused

from keras_compembed.utils.files import format_bytes
from keras_compembed.utils.files import number_of_bytes
from keras_compembed.utils.saving import pack_array
from keras_compembed.utils.saving import unpack_array
from keras_compembed.utils.validation import TableShards
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.workers import one_thread

ARRAY = np.arange(40, dtype="float32").reshape(10, 4)
SHARDS = TableShards([ARRAY[:3], ARRAY[3:3], ARRAY[3:4], ARRAY[4:]])


@pytest.mark.parametrize(
    "rows",
    [
        slice(0, 3),
        slice(2, 5),
        slice(5, 99),
        np.array([0, 9, 3, 3]),
    ],
    ids=str,
)
def test_rows_of_shards_are_those_of_the_array(rows):
    found, expected = SHARDS[rows], ARRAY[rows]
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


def test_shards_are_read_like_an_array():
    assert len(SHARDS) == 10 and SHARDS.shape == (10, 4)
    np.testing.assert_array_equal(SHARDS, ARRAY)
    # Rows of one shard are not copied.
    assert np.shares_memory(SHARDS[4:8], ARRAY)
    assert check_table(SHARDS, shards=True) is SHARDS
    tables = [ARRAY[:3], ARRAY[3:]]
    np.testing.assert_array_equal(check_table(tables, shards=True), ARRAY)
    with pytest.raises(ValueError, match="as many columns"):
        check_table([ARRAY, ARRAY[:, :2]], shards=True)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">i4"),
        np.array([0.5, np.inf, -1e300]),
        np.asfortranarray(np.arange(6, dtype="float32").reshape(2, 3)),
    ],
)
def test_packed_arrays_come_back(array):
    again = unpack_array(json.loads(json.dumps(pack_array(array))))
    assert again.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(again, array)
    # They are the owner's to write to.
    again[...] = 1


def test_packed_arrays_are_small():
    """Small numbers take about the bytes that they need."""
    ids = np.random.default_rng(0).permutation(60_000).astype("int32")
    assert len(pack_array(ids)["bytes"]) < 1.4 * 2 * len(ids)
    assert unpack_array(pack_array(None)) is None


@pytest.mark.parametrize(
    "value, wanted",
    [(np.int64(7), 7), ("500 kB", 500_000), (".5g", 500_000_000)],
)
def test_numbers_of_bytes(value, wanted):
    assert number_of_bytes("max_bytes", value) == wanted


@pytest.mark.parametrize(
    "value", [0, True, 2.5, "", "0k", "1.5", "2 T", "-2k", "1e6", "٣k"]
)
def test_no_numbers_of_bytes(value):
    with refused("max_bytes", repr(value)):
        number_of_bytes("max_bytes", value)


@pytest.mark.parametrize(
    "count, expected",
    [(0, "0 B"), (9_999, "10.0 kB"), (999_999, "1.00 MB")],
)
def test_format_bytes(count, expected):
    assert format_bytes(count) == expected


def blas_threads():
    pools = threadpoolctl.ThreadpoolController().select(user_api="blas")
    return {pool["num_threads"] for pool in pools.info()}


def test_the_last_that_leaves_takes_the_limit_of_threads_back():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        with contextlib.ExitStack() as second:
            with one_thread():
                second.enter_context(one_thread())
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == {2}
        with contextlib.suppress(KeyError), one_thread():
            raise KeyError
        assert blas_threads() == {2}
