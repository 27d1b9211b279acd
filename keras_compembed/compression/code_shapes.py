"""Code shapes of the same bits that phones look up faster."""

import dataclasses

from keras_compembed.utils.validation import check_code_shape
from keras_compembed.utils.validation import check_positive_int

# Subcodes of a byte each, of which files read the most at once.
_LARGEST_CODEBOOK = 256
# A table must stay so many times smaller, codebooks and all.
_LEAST_RATIO = 10
_FLOAT_BYTES = 4


@dataclasses.dataclass(frozen=True)
class CodeShape:
    """How the rows of a table are coded, and what that takes.

    Args:
        num_codebooks: Integer, subcodes per row (M).
        codebook_size: Integer, codewords per codebook (K).
        codebook_bytes: Integer, what the codebooks take in float32.
        added_codebook_bytes: Integer, how much more that is than with the
            shape that was asked for.
    """

    num_codebooks: int
    codebook_size: int
    codebook_bytes: int
    added_codebook_bytes: int = 0


def code_shape_for_latency(
    input_dim, output_dim, num_codebooks=32, codebook_size=16
):
    """A code shape of the same bits a row that a phone looks up faster.

    The time that a LiteRT file takes to look up a row is nearly proportional
    to the number of codewords that it adds up. Fewer codebooks of up to 256
    codewords, with as many bits a row, so save time, and keep closer to the
    table as well, but take more bytes: 8 x 256 those of 8 times 16 x 16. They
    are chosen where the table is still 10 times smaller as codes and float32
    codebooks; the largest that do are taken.

    For rows: what pools codes counts codewords, for which small codebooks are
    the fastest.

    Example:

    >>> kc.compression.code_shape_for_latency(100_000, 256, 16, 16)
    CodeShape(num_codebooks=8, codebook_size=256, codebook_bytes=2097152, \
added_codebook_bytes=1835008)

    Args:
        input_dim: Integer. Rows of the table.
        output_dim: Integer. Columns of the table.
        num_codebooks: Integer. Subcodes per row asked for. Defaults to `32`.
        codebook_size: Integer. Codewords per codebook asked for. Defaults to
            `16`.

    Returns:
        A `CodeShape`; the one asked for, if no other is better.

    Raises:
        ValueError: if a number is not positive, or no size of codebooks.
    """
    check_positive_int("input_dim", input_dim)
    check_positive_int("output_dim", output_dim)
    shape = check_code_shape(num_codebooks, codebook_size)
    asked = _codebook_bytes(*shape, output_dim)
    best = CodeShape(*shape, asked)
    bits = num_codebooks * (codebook_size.bit_length() - 1)
    if codebook_size & (codebook_size - 1):
        # Bits a row are no whole number.
        return best
    size = 2 * codebook_size
    while size <= _LARGEST_CODEBOOK:
        count, rest = divmod(bits, size.bit_length() - 1)
        used = _codebook_bytes(count, size, output_dim)
        total = input_dim * -(-bits // 8) + used
        table = _FLOAT_BYTES * input_dim * output_dim
        if not rest and _LEAST_RATIO * total <= table:
            best = CodeShape(count, size, used, used - asked)
        size *= 2
    return best


def _codebook_bytes(num_codebooks, codebook_size, output_dim):
    return _FLOAT_BYTES * num_codebooks * codebook_size * output_dim
