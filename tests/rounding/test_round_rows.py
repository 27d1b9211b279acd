"""Tables rounded with searched scales, packed and unpacked."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from keras_compembed.rounding.rounded_table import FINE_SHARES
from keras_compembed.rounding.rounded_table import integer_range
from keras_compembed.rounding.rounded_table import pack_integers
from keras_compembed.rounding.rounded_table import packed_width
from keras_compembed.rounding.rounded_table import round_rows
from keras_compembed.rounding.rounded_table import unpack_integers
from keras_compembed.rounding.rounded_table import warn_if_coarse
from keras_compembed.stores.integers import unpack_tensor

EVERY_BITS = pytest.mark.parametrize("bits", [8, 4, 2])


def tables():
    rng = np.random.default_rng(0)
    lengths = rng.uniform(0.2, 2, size=(40, 1))
    mixed = rng.normal(size=(40, 23)) * lengths
    mixed[3] = 0
    mixed[4] = np.abs(mixed[4])
    return {"normal": mixed, "heavy": rng.standard_t(3, size=(40, 23))}


def least_error(table, rounded, bits):
    """The least error of every integer scale that is in reach, for blocks."""
    lowest, highest = integer_range(bits)
    every = np.arange(1, np.iinfo(rounded.scales.dtype).max + 1)
    every = every * np.float64(rounded.unit)
    least = 0.0
    for row in table:
        for start in range(0, len(row), rounded.block_size):
            block = row[start : start + rounded.block_size]
            uncut = max(block.max() / highest, block.min() / lowest)
            steps = every[every <= max(FINE_SHARES[bits]) * uncut, None]
            integers = np.clip(np.rint(block / steps), lowest, highest)
            error = np.sum((block - integers * steps) ** 2, axis=1)
            least += min(error.min(initial=np.inf), np.sum(block**2))
    return least


@EVERY_BITS
@pytest.mark.parametrize("name, block_size", [("normal", 8), ("heavy", None)])
def test_scales_are_near_the_best(bits, block_size, name):
    table = tables()[name]
    rounded = round_rows(table, bits, block_size)
    error = np.sum((table - rounded.decode()) ** 2)
    rest = table - rounded.mean_row
    assert error <= 1.05 * least_error(rest, rounded, bits)


@settings(max_examples=60, deadline=None)
@given(
    bits=st.sampled_from([8, 4, 2]),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 19)),
    block_size=st.one_of(st.none(), st.integers(1, 19)),
    scale_dtype=st.sampled_from(["int8", "int16"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_each_number_is_rounded_as_well_as_its_scale_allows(
    bits, shape, block_size, scale_dtype, seed
):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=shape) * 10 ** rng.uniform(-3, 3)
    table[rng.random(shape) < 0.2] = 0
    block_size = None if block_size is None else min(block_size, shape[1])
    rounded = round_rows(table, bits, block_size, scale_dtype)
    blocks = -(-shape[1] // (block_size or shape[1]))
    assert rounded.scales.shape == (shape[0], blocks)
    assert rounded.scales.dtype == scale_dtype and rounded.scales.min() >= 0
    lowest, highest = integer_range(bits)
    assert lowest <= rounded.integers.min()
    assert rounded.integers.max() <= highest
    steps = rounded.scales.astype("float64") * rounded.unit
    steps = np.repeat(steps, rounded.block_size, axis=1)[:, : shape[1]]
    rows = rounded.integers * steps + rounded.mean_row
    largest = np.abs(rows).max()
    np.testing.assert_allclose(rounded.decode(), rows, 0, 1e-6 * largest)
    rest = table - rounded.mean_row
    own = np.abs(rest - rounded.integers * steps)
    for change in (-1, 1):
        integers = np.clip(rounded.integers + change, lowest, highest)
        other = np.abs(rest - integers * steps)
        assert np.all(own <= other + 1e-5 * np.abs(table).max())
    part = rounded.part(1, 3)
    np.testing.assert_array_equal(part.decode(), rounded.decode()[1:3])


@EVERY_BITS
def test_tables_of_integers_are_kept(bits):
    """The lowest integer has no counterpart above zero, and is used."""
    lowest, highest = integer_range(bits)
    rng = np.random.default_rng(0)
    integers = rng.integers(lowest, highest + 1, size=(30, 9))
    integers[:, 0] = lowest
    rounded = round_rows(integers * 0.25, bits)
    np.testing.assert_array_equal(rounded.integers, integers)
    np.testing.assert_allclose(rounded.decode(), 0.25 * integers, rtol=1e-6)
    zeros = round_rows(np.zeros((3, 4)), bits)
    assert not zeros.decode().any() and not zeros.scales.any()


@pytest.mark.parametrize("block_size", [None, 5])
@pytest.mark.parametrize("bits", [4, 2])
def test_the_mean_row_is_subtracted_and_zero_rows_stay_zero(bits, block_size):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(200, 12)) + rng.normal(0, 2, size=12)
    own, plain = (
        round_rows(table, bits, block_size, mean_row=x) for x in (None, 0)
    )
    np.testing.assert_allclose(own.mean_row, table.mean(axis=0), 1e-5)
    errors = [np.sum((table - x.decode()) ** 2) for x in (own, plain)]
    assert errors[0] < 0.7 * errors[1]
    table[[0, 7]] = 0
    rows = round_rows(table, bits, block_size).decode()
    assert not rows[[0, 7]].any() and rows[1:7].any(axis=1).all()
    assert np.sum((table - rows) ** 2) < 0.8 * errors[1]


def test_rows_of_very_different_lengths():
    table = np.random.default_rng(0).normal(size=(20, 16))
    table[7] *= 100
    coarse = round_rows(table, 8)
    with pytest.warns(UserWarning, match="`scale_dtype='int16'`"):
        warn_if_coarse(table, coarse)
    fine = round_rows(table, 8, scale_dtype="int16")
    warn_if_coarse(table, fine)
    errors = [
        np.sum(np.delete(table - rounded.decode(), 7, 0) ** 2)
        for rounded in (coarse, fine)
    ]
    assert errors[0] > 1.5 * errors[1]


@settings(max_examples=60, deadline=None)
@given(
    bits=st.sampled_from([8, 4, 2]),
    shape=st.tuples(st.integers(0, 5), st.integers(1, 33)),
    seed=st.integers(0, 2**32 - 1),
)
def test_packed_rows_come_back(bits, shape, seed):
    lowest, highest = integer_range(bits)
    rng = np.random.default_rng(seed)
    integers = rng.integers(lowest, highest + 1, size=shape)
    packed = pack_integers(integers, bits)
    width = -(-shape[1] * bits // 8)
    assert packed.shape == (shape[0], packed_width(shape[1], bits))
    # Two's complements, the first in the lowest bits.
    for row, fields in zip(packed, integers % 2**bits, strict=True):
        whole = sum(int(n) << (m * bits) for m, n in enumerate(fields))
        assert row.tobytes() == whole.to_bytes(width, "little")
    unpacked = unpack_integers(packed, shape[1], bits)
    assert unpacked.dtype == "int8"
    np.testing.assert_array_equal(unpacked, integers)
    rows = unpack_tensor(tf.constant(packed), shape[1], bits)
    assert rows.dtype == tf.int8
    np.testing.assert_array_equal(rows, integers)
