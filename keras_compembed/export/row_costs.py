"""What graphs of rows cost: time, bytes of the file, bytes while they run.

Times are those of LiteRT 2.3 on one thread of an AMD EPYC with AVX-512, as
`python -m benchmarks litert.row_graphs` measures them. Graphs are compared by
them, so only ratios matter.
"""

import dataclasses

from keras_compembed.export.row_graphs import Product

# Bytes of a number in the file, and in what a look-up brings.
NUMBER_BYTES = {None: 4, "float16": 2, "int8": 1, "int8_codebooks": 1}
# Nanoseconds of a product of one-hot rows: of its ops, of a number that is
# looked up, of a byte of one-hot rows, of a byte of codewords, and of a
# product of two numbers.
_PRODUCT = {False: (2200, 8.9, 0.0, 0.0108, 0.0087)}
_PRODUCT[True] = (2100, 8.7, 0.028, 0.0116, 0.0025)
# Nanoseconds of gathers: of their ops, of those of one more group, of a number
# that is looked up, of a byte of float32 that is looked up and added up, what
# that takes longer where codewords or what is looked up at once outgrow the
# cache next to the core, and of a byte of a sum that one more is added to.
_GATHERS = {False: (2950, 675, 12.6, 0.0355, 0.046, 0.0142, 0.046)}
_GATHERS[True] = (2850, 660, 25, 0.010, 0.069, 0.029, 0.070)
# What groups take longer for a byte where int8 codewords outgrow the cache.
_INT8_GROUPS = 0.03
# Where that begins, and after how many bytes more it is complete.
_CACHE = 1 << 19
_CODEWORDS_BEYOND = 1 << 21
_ROWS_BEYOND = 1 << 22
# Bytes in the file of the ops of one more group.
_GROUP_BYTES = 1400
# A byte of codes, and an int32 of it.
_CODE_BYTES = 5


@dataclasses.dataclass(frozen=True)
class RowCosts:
    """What one look-up costs.

    Attributes:
        nanoseconds: Float.
        file_bytes: Integer, what the graph adds to the codes in the file.
        arena_bytes: Integer, the largest tensors held at once.
    """

    nanoseconds: float
    file_bytes: int
    arena_bytes: int


def estimate(graph, shape, num_ids, quantize=None):
    """Costs of a graph.

    Args:
        graph: `Product` or `Gathers`.
        shape: Shape `(num_codebooks, codebook_size, width)` of codewords.
        num_ids: Integer, the rows looked up at once.
        quantize: Same as in `export_litert`.

    Returns:
        `RowCosts`.
    """
    costs = _of_product if isinstance(graph, Product) else _of_gathers
    return costs(graph, shape, num_ids, NUMBER_BYTES[quantize])


def _of_product(graph, shape, num_ids, size):
    num_codebooks, codebook_size, width = shape
    columns = -(-num_codebooks // graph.together)
    one_hot = graph.together * codebook_size
    places = num_ids * columns
    matrix = columns * one_hot * width * size
    ops, place, row_byte, matrix_byte, product = _PRODUCT[size == 1]
    time = (
        ops
        + place * places
        + row_byte * 4 * places * one_hot
        + matrix_byte * matrix
        + product * places * one_hot * width
    )
    values = codebook_size if graph.together == 1 else 256
    # With int8, one-hot rows are float32 for a while, and then int8 again.
    held = (4 if size > 1 else 5) * places * one_hot
    arena = _CODE_BYTES * places + held + 4 * num_ids * width
    return RowCosts(time, matrix + values * one_hot * size, arena)


def _of_gathers(graph, shape, num_ids, size):
    num_codebooks, codebook_size, width = shape
    columns = -(-num_codebooks // graph.together)
    group = min(graph.group, columns)
    steps = -(-columns // group)
    places = num_ids * columns
    values = codebook_size if graph.together == 1 else 256
    table = columns * values * width * size
    held, result = 4 * num_ids * group * width, 4 * num_ids * width
    ops, step, place, near, far_table, far_rows, add = _GATHERS[size == 1]
    byte = near + far_table * _share_beyond(table, _CODEWORDS_BEYOND)
    byte += far_rows * _share_beyond(held, _ROWS_BEYOND)
    if size == 1 and steps > 1:
        byte += _INT8_GROUPS * _share_beyond(table, _CODEWORDS_BEYOND)
    time = (
        ops
        + step * (steps - 1)
        + place * places
        + byte * 4 * places * width
        + add * (steps - 1) * result
    )
    held += held // 4 if size == 1 else 0
    # While a group is added up, the sum of those before is held.
    arena = _CODE_BYTES * places + held + result * min(steps, 2)
    return RowCosts(time, table + (steps - 1) * _GROUP_BYTES, arena)


def _share_beyond(held, beyond):
    return min(1, max(0, held - _CACHE) / beyond)
