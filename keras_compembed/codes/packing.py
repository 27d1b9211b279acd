"""Codes as bits: each row a stream of subcodes, least significant bit first."""

import numpy as np
import tensorflow as tf

from keras_compembed.utils.validation import require

_CHUNK_ELEMENTS = 1 << 22
_BYTES = np.arange(256, dtype="uint8")[:, None]


def bits_per_subcode(codebook_size):
    """Bits that a subcode from 0 to `codebook_size - 1` takes."""
    return max(1, (codebook_size - 1).bit_length())


def bytes_per_row(num_codebooks, codebook_size):
    """Bytes that a packed row of `num_codebooks` subcodes takes."""
    return -(-num_codebooks * bits_per_subcode(codebook_size) // 8)


def code_dtype(codebook_size):
    """The smallest unsigned dtype that holds every subcode."""
    return np.dtype("uint8" if codebook_size <= 256 else "uint16")


def check_codes(codes, codebook_size, shape=None):
    """Returns `codes` as an array of `code_dtype`."""
    codes = np.asarray(codes)
    require(
        codes.dtype.kind in "iu", "`codes` must be integers.", dtype=codes.dtype
    )
    rows, num_codebooks = shape or (None, None)
    require(
        codes.ndim == 2
        and rows in (None, codes.shape[0])
        and num_codebooks in (None, codes.shape[1]),
        "`codes` must have shape "
        f"({rows or 'rows'}, {num_codebooks or 'num_codebooks'}).",
        shape=codes.shape,
    )
    lowest, highest = int(codes.min(initial=0)), int(codes.max(initial=0))
    require(
        lowest >= 0 and highest < codebook_size,
        f"`codes` must be from 0 to {codebook_size - 1}.",
        lowest=lowest,
        highest=highest,
    )
    return codes.astype(code_dtype(codebook_size), copy=False)


def pack_codes(codes, codebook_size):
    """Packs codes into bytes."""
    codes = check_codes(codes, codebook_size)
    bits = bits_per_subcode(codebook_size)
    num_rows, num_codebooks = codes.shape
    width = bytes_per_row(num_codebooks, codebook_size)
    if bits == 8:
        return np.ascontiguousarray(codes)
    packed = np.empty((num_rows, width), dtype="uint8")
    places = np.arange(bits, dtype=codes.dtype)
    chunk = max(1, _CHUNK_ELEMENTS // (num_codebooks * bits))
    for start in range(0, num_rows, chunk):
        part = codes[start : start + chunk]
        stream = ((part[:, :, None] >> places) & 1).astype("uint8")
        packed[start : start + chunk] = np.packbits(
            stream.reshape(len(part), -1), axis=1, bitorder="little"
        )
    return packed


def unpack_codes(packed, num_codebooks, codebook_size):
    """Undoes `pack_codes`."""
    packed = np.asarray(packed)
    bits = bits_per_subcode(codebook_size)
    if bits == 8:
        return packed.copy()
    dtype = code_dtype(codebook_size)
    codes = np.empty((len(packed), num_codebooks), dtype=dtype)
    weights = (1 << np.arange(bits)).astype(dtype)
    chunk = max(1, _CHUNK_ELEMENTS // (num_codebooks * bits))
    for start in range(0, len(packed), chunk):
        stream = np.unpackbits(
            packed[start : start + chunk],
            axis=1,
            count=num_codebooks * bits,
            bitorder="little",
        )
        stream = stream.reshape(-1, num_codebooks, bits)
        codes[start : start + chunk] = stream @ weights
    return codes


def unpack_rows(rows, num_codebooks, codebook_size):
    """Undoes `pack_codes` for the rows of some ids, in TensorFlow ops."""
    bits = bits_per_subcode(codebook_size)
    if bits == 8:
        return tf.cast(rows, tf.int32)
    if bits in (1, 2, 4):
        digits = unpack_codes(_BYTES, 8 // bits, 2**bits)
        subcodes = gather_fields(rows, digits, num_codebooks)
        return tf.cast(subcodes, tf.int32)
    first_bit = np.arange(num_codebooks, dtype="int32") * bits
    byte, shift = first_bit // 8, first_bit % 8
    last_byte = (first_bit[-1] + bits - 1) // 8
    values = tf.cast(tf.gather(rows, byte, axis=1), tf.int32)
    for step in range(1, -(-int(shift.max() + bits) // 8)):
        # A subcode that ends at the last byte needs no byte after it: what
        # the clipped index brings is taken away below.
        above = tf.gather(rows, np.minimum(byte + step, last_byte), axis=1)
        values += tf.cast(above, tf.int32) * 256**step
    if shift.any():
        values = tf.math.floordiv(values, 2**shift)
    return tf.math.floormod(values, 2**bits)


def gather_fields(rows, digits, width):
    """Fields of bytes, from a table of those of each byte."""
    fields = tf.gather(digits, tf.cast(rows, tf.int32))
    columns = rows.shape[1] * digits.shape[1]
    fields = tf.reshape(fields, (-1, columns))
    # Not always: in LiteRT it would take as long as all the rest.
    return fields if columns == width else fields[:, :width]
