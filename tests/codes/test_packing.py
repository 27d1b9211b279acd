"""Codes as bits, in NumPy and in TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf
from errors import refused
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from keras_compembed.codes import packing


@st.composite
def codes_and_sizes(draw):
    codebook_size = draw(
        st.one_of(
            st.integers(2, 65536),
            st.integers(2, 300),
            st.sampled_from([2, 3, 4, 8, 16, 17, 32, 256, 257, 65536]),
        )
    )
    shape = draw(st.integers(0, 6)), draw(st.integers(1, 40))
    seed = draw(st.integers(0, 2**32 - 1))
    codes = np.random.default_rng(seed).integers(codebook_size, size=shape)
    codes[:1, 0], codes[-1:, -1] = 0, codebook_size - 1
    return codes, codebook_size


def reference_pack(codes, codebook_size):
    """Row by row as one big integer, least significant subcode first."""
    bits = int(np.ceil(np.log2(codebook_size)))
    width = -(-codes.shape[1] * bits // 8)
    rows = []
    for row in codes:
        number = sum(int(c) << (m * bits) for m, c in enumerate(row))
        rows.append(list(number.to_bytes(width, "little")))
    return np.array(rows, "uint8").reshape(-1, width)


@settings(max_examples=100, deadline=None)
@given(codes_and_sizes())
def test_packing_equals_the_reference_and_comes_back(case):
    codes, codebook_size = case
    packed = packing.pack_codes(codes, codebook_size)
    np.testing.assert_array_equal(packed, reference_pack(codes, codebook_size))
    num_codebooks = codes.shape[1]
    assert packed.shape[1] == packing.bytes_per_row(
        num_codebooks, codebook_size
    )
    back = packing.unpack_codes(packed, num_codebooks, codebook_size)
    np.testing.assert_array_equal(back, codes)
    assert back.dtype == ("uint8" if codebook_size <= 256 else "uint16")
    subcodes = packing.unpack_rows(
        tf.constant(packed), num_codebooks, codebook_size
    )
    assert subcodes.dtype == tf.int32
    np.testing.assert_array_equal(subcodes, codes)


def test_packing_in_several_chunks():
    """More bits than are taken at a time."""
    codes = np.random.default_rng(0).integers(300, size=(9001, 53))
    packed = packing.pack_codes(codes, 300)
    few = [0, 1, 8790, 8791, 8792, 9000]
    np.testing.assert_array_equal(packed[few], reference_pack(codes[few], 300))
    np.testing.assert_array_equal(packing.unpack_codes(packed, 53, 300), codes)


@pytest.mark.parametrize(
    "codes, received",
    [
        (np.array([[0, 4]]), "highest=4"),
        (np.array([[0.0, 1.0]]), "float64"),
    ],
)
def test_bad_codes(codes, received):
    with refused("codes", received):
        packing.pack_codes(codes, 4)
