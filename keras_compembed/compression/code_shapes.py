"""Code shapes of the same bits that files look up faster."""

import dataclasses

from keras_compembed.export.row_costs import ASSUMED_IDS
from keras_compembed.export.row_costs import estimate
from keras_compembed.export.row_graphs import Gathers
from keras_compembed.export.row_graphs import Product
from keras_compembed.utils.validation import check_code_shape
from keras_compembed.utils.validation import check_positive_int

# Of more codewords, a subcode takes more than a byte.
_LARGEST_CODEBOOK = 256
# A table must stay so many times smaller, codebooks and all.
_LEAST_RATIO = 10
# Larger codebooks must save so much of the time.
_LARGEST_TIME_RATIO = 0.9
# What is added up at once.
_GROUPS = (1, 2, 4, 8, 16, 32)
_FLOAT_BYTES = 4


@dataclasses.dataclass(frozen=True)
class CodeShape:
    """How the rows of a table are coded, and what that costs and saves.

    Args:
        num_codebooks: Integer, subcodes per row (M).
        codebook_size: Integer, codewords per codebook (K).
        codebook_bytes: Integer, what the codebooks take in float32.
        added_codebook_bytes: Integer, how much more that is than with the
            shape that was asked for. Defaults to `0`.
        time_ratio: Float, estimated time of a look-up of 64 rows over that
            with the shape that was asked for, in a float32 file. Defaults to
            `1.0`.
        int8_time_ratio: Float, same in an int8 file. Defaults to `1.0`.
    """

    num_codebooks: int
    codebook_size: int
    codebook_bytes: int
    added_codebook_bytes: int = 0
    time_ratio: float = 1.0
    int8_time_ratio: float = 1.0


def code_shape_for_latency(
    input_dim, output_dim, num_codebooks=32, codebook_size=16
):
    """A code shape of the same bits a row that LiteRT files look up faster.

    Fewer codebooks of up to 256 codewords, with as many bits a row, leave less
    to look up and to add up, and are nearer to the table as well, but take
    more bytes: 8 x 256 those of 8 times 16 x 16. Among shapes with which the
    table is still 10 times smaller, codes and float32 codebooks together, the
    fastest is taken, by estimates of `export_litert` for the processor that
    they were made on. It must save a tenth of the time in a float32 file, and
    lose none in an int8 file.

    For rows: what pools codes counts codewords, for which small codebooks are
    the fastest.

    Example:

    >>> shape = kc.compression.code_shape_for_latency(100_000, 256, 16, 16)
    >>> shape.num_codebooks, shape.codebook_size, shape.added_codebook_bytes
    (8, 256, 1835008)

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
    asked = (*check_code_shape(num_codebooks, codebook_size), output_dim)
    best = CodeShape(*asked[:2], _codebook_bytes(asked))
    for shape in _shapes_of_same_bits(asked):
        held = _codebook_bytes(shape)
        bits = shape[0] * _bits(shape[1])
        table = _FLOAT_BYTES * input_dim * output_dim
        if _LEAST_RATIO * (input_dim * -(-bits // 8) + held) > table:
            continue
        ratio, int8_ratio = (
            _nanoseconds(shape, quantize) / _nanoseconds(asked, quantize)
            for quantize in (None, "int8")
        )
        limit = min(_LARGEST_TIME_RATIO, best.time_ratio)
        if ratio <= limit and int8_ratio <= 1:
            added = held - _codebook_bytes(asked)
            best = CodeShape(*shape[:2], held, added, ratio, int8_ratio)
    return best


def _shapes_of_same_bits(asked):
    """Shapes `(M, K, width)` of larger codebooks."""
    num_codebooks, size, width = asked
    if size & (size - 1):
        # Bits a row are no whole number.
        return
    bits = num_codebooks * _bits(size)
    while (size := 2 * size) <= _LARGEST_CODEBOOK:
        count, rest = divmod(bits, _bits(size))
        if not rest:
            yield count, size, width


def _nanoseconds(shape, quantize):
    """Estimated time of a look-up, by the fastest graph for the shape."""
    graphs = [Product(), *(Gathers(1, group) for group in _GROUPS)]
    return min(
        estimate(graph, shape, ASSUMED_IDS, quantize).nanoseconds
        for graph in graphs
    )


def _bits(codebook_size):
    return codebook_size.bit_length() - 1


def _codebook_bytes(shape):
    num_codebooks, codebook_size, width = shape
    return _FLOAT_BYTES * num_codebooks * codebook_size * width
