import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from keras_compembed.codes import packing
from keras_compembed.codes.packing import unpack_rows
from keras_compembed.utils.validation import MAX_CODEBOOK_SIZE


@st.composite
def codes_and_sizes(draw):
    codebook_size = draw(
        st.one_of(
            st.integers(2, MAX_CODEBOOK_SIZE),
            st.sampled_from([2, 3, 4, 8, 16, 17, 32, 256, 257, 65536]),
        )
    )
    num_codebooks = draw(st.integers(1, 40))
    num_rows = draw(st.integers(1, 6))
    seed = draw(st.integers(0, 2**32 - 1))
    codes = np.random.default_rng(seed).integers(
        codebook_size, size=(num_rows, num_codebooks)
    )
    codes[0, 0], codes[-1, -1] = 0, codebook_size - 1
    return codes, codebook_size


def reference_pack(codes, codebook_size):
    """Row by row as one big integer, least significant subcode first."""
    bits = max(1, int(np.ceil(np.log2(codebook_size))))
    width = -(-codes.shape[1] * bits // 8)
    rows = []
    for row in codes:
        number = sum(int(c) << (m * bits) for m, c in enumerate(row))
        rows.append(list(number.to_bytes(width, "little")))
    return np.array(rows, dtype="uint8")


@settings(max_examples=200, deadline=None)
@given(codes_and_sizes())
def test_packing_equals_reference_and_comes_back(case):
    codes, codebook_size = case
    packed = packing.pack_codes(codes, codebook_size)
    np.testing.assert_array_equal(packed, reference_pack(codes, codebook_size))
    back = packing.unpack_codes(packed, codes.shape[1], codebook_size)
    np.testing.assert_array_equal(back, codes)
    assert back.dtype == packing.code_dtype(codebook_size)


@settings(max_examples=60, deadline=None)
@given(codes_and_sizes())
def test_tensorflow_unpacks_the_same_codes(case):
    codes, codebook_size = case
    rows = tf.constant(packing.pack_codes(codes, codebook_size))
    subcodes = unpack_rows(rows, codes.shape[1], codebook_size)
    assert subcodes.dtype == tf.int32
    np.testing.assert_array_equal(subcodes, codes)


def test_packing_in_several_chunks(monkeypatch):
    codes = np.random.default_rng(0).integers(11, size=(103, 7))
    monkeypatch.setattr(packing, "_CHUNK_ELEMENTS", 7 * 4 * 10)
    packed = packing.pack_codes(codes, 11)
    np.testing.assert_array_equal(packed, reference_pack(codes, 11))
    np.testing.assert_array_equal(packing.unpack_codes(packed, 7, 11), codes)


@pytest.mark.parametrize(
    "codebook_size, bits",
    [(2, 1), (3, 2), (4, 2), (5, 3), (16, 4), (17, 5), (256, 8), (65536, 16)],
)
def test_bits(codebook_size, bits):
    assert packing.bits_per_subcode(codebook_size) == bits
    assert packing.bytes_per_row(5, codebook_size) == -(-5 * bits // 8)


def test_four_bits_stand_as_litert_packs_int4():
    packed = packing.pack_codes(np.array([[1, 2, 3]]), 16)
    np.testing.assert_array_equal(packed, [[0x21, 0x03]])


@pytest.mark.parametrize(
    "codes, message",
    [
        (np.array([[0, 4]]), "below `codebook_size`"),
        (np.array([[-1, 0]]), "below `codebook_size`"),
        (np.array([[0.0, 1.0]]), "must be integers"),
        (np.array([0, 1]), "must have shape"),
    ],
)
def test_bad_codes(codes, message):
    with pytest.raises(ValueError, match=message):
        packing.pack_codes(codes, 4)


@pytest.mark.parametrize(
    "packed", [np.zeros((2, 3), "uint8"), np.zeros((2, 2), "int32")]
)
def test_bad_packed_codes(packed):
    with pytest.raises(ValueError, match="`packed` must be uint8"):
        packing.unpack_codes(packed, num_codebooks=4, codebook_size=16)
