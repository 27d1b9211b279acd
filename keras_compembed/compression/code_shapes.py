"""Code shapes of the same bits that files look up faster."""

from keras_compembed.litert.row_costs import ASSUMED_IDS
from keras_compembed.litert.row_costs import estimate
from keras_compembed.litert.row_graphs import Gathers
from keras_compembed.litert.row_graphs import Product

# With more codewords, a subcode takes more than a byte.
_LARGEST_CODEBOOK = 256
# A table must stay so many times smaller, codebooks and all.
_LEAST_RATIO = 10
# Larger codebooks must save a tenth of the time.
_LARGEST_TIME_RATIO = 0.9
# Codewords that are added up at once.
_GROUPS = (1, 2, 4, 8, 16, 32)
_FLOAT_BYTES = 4


def code_shape_for_latency(input_dim, output_dim, num_codebooks, codebook_size):
    """The shape `(M, K)` of as many bits a row that files look up fastest."""
    asked = num_codebooks, codebook_size, output_dim
    best, limit = asked, _LARGEST_TIME_RATIO
    for shape in _shapes_of_same_bits(asked):
        bits = shape[0] * _bits(shape[1])
        codebooks = _FLOAT_BYTES * shape[0] * shape[1] * output_dim
        table = _FLOAT_BYTES * input_dim * output_dim
        if _LEAST_RATIO * (input_dim * -(-bits // 8) + codebooks) > table:
            continue
        ratio, int8_ratio = (
            _nanoseconds(shape, quantize) / _nanoseconds(asked, quantize)
            for quantize in (None, "int8")
        )
        if ratio <= limit and int8_ratio <= 1:
            best, limit = shape, ratio
    return best[:2]


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
