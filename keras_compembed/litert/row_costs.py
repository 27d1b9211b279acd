"""What graphs of rows cost: time, bytes of the file, bytes while they run."""

import collections

from keras_compembed.litert.one_hot_rows import one_hot_bytes
from keras_compembed.litert.row_graphs import Product

# Rows looked up at once, or ids of a text, where a file leaves it open.
ASSUMED_IDS = 64

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
_GATHERS = {False: (2950, 675, 12.6, 0.0355, 0.040, 0.0142, 0.046)}
_GATHERS[True] = (2850, 660, 25, 0.010, 0.069, 0.029, 0.070)
# Nanoseconds of counts of codewords times a matrix: of their ops, and of a byte
# of the matrix, which is read once for each text. About half of that where it
# is in a cache already, and so are times of gathers from large codewords.
_COUNTS = {False: (2300, 0.022), True: (2100, 0.020)}
# Nanoseconds of a number that is counted: added up as a one-hot row, or put
# where its codeword is counted, after it was taken out of a byte, or out of
# bits that begin anywhere.
_COUNTED = {"one-hot": 4.3, "bytes": 6.5, "bits": 16}
# Nanoseconds of an op that adds up rows.
_SUM = 400
# What it takes longer to take a subcode out of bits that begin anywhere, which
# times of rows leave out.
_BITS = 8
# Where that begins, and after how many bytes more it is complete.
_CACHE = 1 << 19
_CODEWORDS_BEYOND = 1 << 21
_ROWS_BEYOND = 1 << 22
# Bytes in the file of the ops of one more group.
_GROUP_BYTES = 1400
# A byte of codes, and an int32 of it.
_CODE_BYTES = 5


# What one look-up costs.
RowCosts = collections.namedtuple(
    "RowCosts", ("nanoseconds", "file_bytes", "arena_bytes")
)


def estimate(graph, shape, num_ids, quantize=None):
    """Costs of a graph."""
    costs = _of_product if isinstance(graph, Product) else _of_gathers
    return costs(graph, shape, num_ids, NUMBER_BYTES[quantize])


def estimate_sum(graph, shape, num_ids, quantize=None, aligned=True):
    """Same, for the sum of the rows that a graph gives."""
    costs = estimate(graph, shape, num_ids, quantize)
    add = _GATHERS[NUMBER_BYTES[quantize] == 1][-1]
    time = costs.nanoseconds + _SUM + add * 4 * num_ids * shape[2]
    if not aligned:
        time += _BITS * num_ids * shape[0]
    return costs._replace(nanoseconds=time)


def estimate_counts(shape, num_ids, quantize=None, way="bytes", together=1):
    """Costs of the sum of a text by counts of its codewords."""
    num_codebooks, codebook_size, width = shape
    size = NUMBER_BYTES[quantize]
    numbers = num_ids * -(-num_codebooks // together)
    columns = num_codebooks * codebook_size
    ops, matrix_byte = _COUNTS[size == 1]
    # Numbers of float16 are float32 once the file is loaded.
    read = columns * width * (1 if size == 1 else 4)
    time = ops + _COUNTED[way] * numbers + matrix_byte * read
    held = 4 * num_ids * columns if way == "one-hot" else 8 * numbers
    arena = _CODE_BYTES * numbers + held + 4 * columns
    return RowCosts(time, columns * width * size, arena)


def estimate_product(shape, quantize=None):
    """Nanoseconds of a vector times a matrix `(rows, columns)`."""
    is_int8 = NUMBER_BYTES[quantize] == 1
    size = 1 if is_int8 else 4
    return _COUNTS[is_int8][1] * size * shape[0] * shape[1]


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
    # With int8, one-hot rows are float32 for a while, and then int8 again.
    held = (4 if size > 1 else 5) * places * one_hot
    arena = _CODE_BYTES * places + held + 4 * num_ids * width
    matrix += one_hot_bytes(codebook_size, graph.together)
    return RowCosts(time, matrix, arena)


def _of_gathers(graph, shape, num_ids, size):
    num_codebooks, codebook_size, width = shape
    columns = -(-num_codebooks // graph.together)
    group = min(graph.group, columns)
    steps = -(-columns // group)
    places = num_ids * columns
    values = codebook_size if graph.together == 1 else 256
    file_bytes = table = columns * values * width * size
    held, result = 4 * num_ids * group * width, 4 * num_ids * width
    is_int8, loaded = size == 1, 0
    if is_int8 and steps > 1:
        # What several ops read is made float32 when the file is loaded.
        is_int8, table = False, 4 * table
        loaded = table
    ops, step, place, near, far_table, far_rows, add = _GATHERS[is_int8]
    byte = near + far_table * _share_beyond(table, _CODEWORDS_BEYOND)
    byte += far_rows * _share_beyond(held, _ROWS_BEYOND)
    time = (
        ops
        + step * (steps - 1)
        + place * places
        + byte * 4 * places * width
        + add * (steps - 1) * result
    )
    held += held // 4 if is_int8 else loaded
    # While a group is added up, the sum of those before is held.
    arena = _CODE_BYTES * places + held + result * min(steps, 2)
    return RowCosts(time, file_bytes + (steps - 1) * _GROUP_BYTES, arena)


def _share_beyond(held, beyond):
    return min(1, max(0, held - _CACHE) / beyond)
