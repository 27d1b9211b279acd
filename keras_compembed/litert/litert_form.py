"""Base of stores in LiteRT files: lookups, sums and scores."""

import dataclasses
import math

import numpy as np
import tensorflow as tf

from keras_compembed.litert.flatbuffer import UNPACK_RUNTIME
from keras_compembed.utils.files import WEIGHT_BYTES
from keras_compembed.utils.tensor_ops import weighted_sums
from keras_compembed.utils.validation import check_version

# Largest difference allowed, relative to the largest output of Keras. Rounding
# of float32 sums is about 1e-6. The relative error of a float16 weight is up to
# 2**-11. An int8 weight is off by up to 1/254 of the largest in its row or
# table, about 1 % of a typical one, like activations; errors of layers add up.
TOLERANCES = {
    None: 1e-4,
    "float16": 1e-2,
    "int8": 0.1,
    "int8_codebooks": 0.1,
}
# Rounding errors: of float16 relative to itself, of int8 to the largest.
ROUNDING = {
    None: 0.0,
    "float16": 2.0**-11,
    "int8": 1 / 254,
    "int8_codebooks": 1 / 254,
}
# Half the smallest step of float16, and the error of a float32 sum.
LEAST = 2.0**-25
FLOAT32 = 2.0**-23
# How much longer the longest row of an int8 matrix may be than the median. As
# later codebooks are shorter, 6 is common.
_LONG = 8
# Elements of the largest tensor while all rows are composed.
_CHUNK_ELEMENTS = 1 << 20


# Share of bytes that may be added to codes and codebooks to save time.
ROOM = {None: 0.02, "latency": math.inf, "size": 0, "memory": 0}
# Bytes of the ops that unpack subcodes, and of all others.
_DIGIT_OPS, _OTHER_OPS = 690, 5000


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Options of `export_litert` for tables."""

    quantize: str | None = None
    min_runtime: str | None = None
    optimize_for: str | None = None
    unroll: bool = False
    matrices: list = dataclasses.field(default_factory=list, compare=False)
    unpacked: list = dataclasses.field(default_factory=list, compare=False)
    tables: list = dataclasses.field(default_factory=list, compare=False)

    @property
    def is_int8(self):
        """Whether codewords are int8."""
        return self.quantize in ("int8", "int8_codebooks")

    def note(self, matrix):
        """Notes and returns a matrix `(rows, columns)` to quantize."""
        if self.quantize == "int8_codebooks":
            self.matrices.append(matrix)
        return matrix

    def even_rows(self, matrix):
        """A matrix of even rows, and their scales `(rows, 1)` or None."""
        others = tuple(x for x in range(matrix.ndim) if x != matrix.ndim - 2)
        scales = np.abs(matrix).max(axis=others)[:, None] + LEAST
        # Short rows vary more by chance; a scale is as large as 4 numbers.
        longest = _LONG * (1 + 3 * len(scales) / matrix.size)
        # The longest row would set the int8 step of all rows.
        if self.is_int8 and scales.max() > longest * np.median(scales):
            return matrix / scales, scales
        return matrix, None

    def product(self, inputs, matrix):
        """Inputs times a matrix of weights."""
        matrix, scales = self.even_rows(matrix)
        inputs = scale_inputs(inputs, scales)
        return tf.matmul(inputs, tf.constant(self.note(matrix)))

    def gatherer(self, matrix):
        """A function that gathers rows of a matrix of weights."""
        matrix, scales = self.even_rows(matrix)
        matrix = tf.constant(self.note(matrix))
        if scales is None:
            return lambda places: tf.gather(matrix, places)
        return lambda places: (
            tf.gather(matrix, places) * tf.gather(scales, places)
        )

    def serves(self, runtime):
        """Whether `min_runtime` is at least some version."""
        oldest = self.min_runtime
        return oldest is None or check_version("min_runtime", oldest) >= runtime


class LiteRTForm:
    """A store in ops of LiteRT, for layers of exported copies."""

    # Whether vectors are features of ids, `columns` wide, times a `matrix`.
    # Then features are summed first, and later layers may be folded into the
    # matrix. In a file it has `num_numbers`, and rows take `num_bytes`.
    has_features = can_fold = can_spread = False
    # The kernel of a folded `Dense` layer.
    kernel = None
    # Whether the traced graph reads rows, and pools them.
    is_read = is_pooled = False

    def __init__(self, store, options):
        self.store = store
        self._options = options
        self.chunks = RowChunks(store.input_dim, store.output_dim)

    def look_up(self, ids):
        """Vectors `(ids, output_dim)` of a rank-1 int32 tensor of ids."""
        return self.store.read(ids)

    def read(self, ids):
        """Same, for ids of any integer dtype, times the kernel."""
        self.is_read, ids = True, tf.cast(ids, tf.int32)
        if self.kernel is not None:
            return self.folded_rows(ids)
        return self.look_up(ids)

    def read_all(self):
        """The table `(input_dim, output_dim)`, computed at run time."""
        return self.chunks.table(self.read)

    def sum_rows(self, ids, weights):
        """Weighted sums of vectors of ids `(groups, length)`."""
        return weighted_sums(self.read(tf.reshape(ids, (-1,))), weights)

    def may_sum(self, length):
        """Whether to pool texts of `length` ids by products."""
        return self.kernel is not None or self.sums_faster(length)

    def sums_faster(self, length):
        """Whether summing features is faster, if nothing is folded."""
        return True

    def folds_faster(self, width, sums=False, length=None):
        """Whether folding a matrix of `width` columns is faster."""
        own = self.store.output_dim
        return self.columns * width < (self.columns + width) * own

    def fold(self, kernel=None):
        """The matrix `(columns, output_dim)`, times a kernel if given."""
        return self.matrix if kernel is None else self.matrix @ kernel

    def pool(self, ids, counts=None, weights=None, mean=False):
        """Sums or means of vectors of ids `(texts, length)`, by products."""
        self.is_read = self.is_pooled = True
        ids = tf.cast(ids, tf.int32)
        sums = self.feature_sums(ids, counts, weights, mean)
        matrix = self.fold(self.kernel)
        if matrix is None:
            return sums
        return self._options.product(sums, matrix)

    def spread(self, ids):
        """Features `(texts, length, columns)` of ids, one by one."""
        self.is_read = True
        return self.features(tf.cast(ids, tf.int32))

    def parts(self):
        """Same as `Store.parts`: sublayers with some of the weights."""
        return {}

    def score_chunks(self, vectors):
        """Yields logits of vectors, chunk by chunk of ids."""
        for ids in self.chunks.ids(vectors):
            rows = tf.cast(self.read(ids), vectors.dtype)
            yield tf.matmul(vectors, rows, transpose_b=True)

    def score(self, vectors):
        """Logits `(rows, input_dim)` of vectors `(rows, output_dim)`."""
        return tf.concat(list(self.score_chunks(vectors)), axis=-1)

    def top_ids(self, vectors, k):
        """Scores and ids `(rows, k)` of vectors `(rows, output_dim)`."""
        return top_of_chunks(self.score_chunks(vectors), k)

    # For the comparison of a file's rows with Keras.

    def ids_to_compare(self):
        """All ids, or enough of them if rows are slow."""
        return np.arange(self.store.input_dim, dtype="int32")

    def tolerance(self, quantize, largest):
        """Largest difference that arithmetic alone may cause."""
        return TOLERANCES[quantize] * largest


def scale_inputs(inputs, scales):
    """Inputs of a matrix, times the scales of its rows."""
    if scales is None:
        return inputs
    # Without the minimum, the converter would scale the matrix instead.
    return tf.minimum(inputs * tf.reshape(scales, [-1]), inputs.dtype.max)


class RowChunks:
    """Composes all rows at run time, in chunks of static shape."""

    def __init__(self, num_rows, row_elements, most=_CHUNK_ELEMENTS):
        self._num_rows = num_rows
        self._size = min(num_rows, max(1, most // row_elements))

    def ids(self, inputs):
        """Yields rank-1 tensors of all ids, which the converter cannot fold."""
        size, zero = self._size, unknown_zero(inputs)
        # A static shape.
        offsets = tf.reshape(tf.range(zero, size + zero), [size])
        for start in range(0, self._num_rows, size):
            yield offsets[: min(size, self._num_rows - start)] + start

    def table(self, embed):
        """Vectors `(rows, output_dim)` of all ids."""
        graph = tf.compat.v1.get_default_graph()
        while hasattr(getattr(graph, "outer_graph", None), "inputs"):
            graph = graph.outer_graph
        return tf.concat([embed(x) for x in self.ids(graph.inputs[0])], axis=0)


def top_of_chunks(chunks, k):
    """Best scores and ids `(vectors, k)`, from chunks of scores."""
    scores, ids, start = [], [], 0
    for chunk in chunks:
        size = chunk.shape[1]
        best, places = tf.math.top_k(chunk, min(k, size))
        scores.append(best)
        ids.append(places + start)
        start += size
    if len(scores) == 1:
        return scores[0], ids[0]
    scores, places = tf.math.top_k(tf.concat(scores, 1), k)
    return scores, tf.gather(tf.concat(ids, 1), places, batch_dims=1)


def unknown_zero(inputs):
    """A zero that the converter cannot fold."""
    some = tf.reduce_max(tf.cast(inputs, tf.float32)) >= 0
    return tf.minimum(tf.cast(some, tf.int32), 0)


def unflatten(rows, ids, width):
    """Reshapes flat rows to the shape of the ids."""
    rows = tf.reshape(rows, tf.concat([tf.shape(ids), [width]], axis=0))
    rows.set_shape(ids.shape.concatenate(width))
    return rows


def join_weights(counts, weights):
    """Weights of ids, 0 for masked ones; None if all are 1."""
    if counts is None:
        return weights
    counts = tf.cast(counts, tf.float32)
    return counts if weights is None else counts * weights


def number_groups(ids):
    """The text of each id in a row, and the number of texts."""
    size = ids.shape[0]
    if size == 1:
        return tf.zeros_like(tf.reshape(ids, [-1])), 1
    if size is None:
        size = tf.shape(ids)[0]
    groups = tf.broadcast_to(tf.expand_dims(tf.range(size), 1), tf.shape(ids))
    return tf.reshape(groups, [-1]), size


def length_of(ids):
    """Number of ids of each text, as a float32 number or tensor."""
    return tf.cast(
        tf.shape(ids)[1] if ids.shape[1] is None else ids.shape[1], tf.float32
    )


def count_ids(counts):
    """Number of unmasked ids, float32 `(texts, 1)`, from booleans."""
    return tf.reduce_sum(tf.cast(counts, tf.float32), axis=1, keepdims=True)


class OneHotRows:
    """Rows of ids as concatenated one-hot vectors of their subcodes."""

    def __init__(self, codes, num_values, options):
        self._codes, self._options = codes, options
        self._together, per_byte = 1, codes.per_byte
        if per_byte > 1:
            added = (257 * per_byte - codes.codebook_size) * codes.codebook_size
            is_packed = options.serves(UNPACK_RUNTIME)
            added = added // 2 if is_packed else 4 * added
            # Minus the ops that unpack subcodes.
            added -= _DIGIT_OPS + 256 * per_byte
            own = codes.table.content.nbytes + _OTHER_OPS
            own += WEIGHT_BYTES[options.quantize] * num_values
            if added <= ROOM[options.optimize_for] * own:
                self._together = per_byte
        values = 256 if self._together > 1 else codes.codebook_size
        digits = np.arange(values)[:, None] >> codes.bits * np.arange(
            self._together
        )
        digits %= 1 << codes.bits
        rows = digits[:, :, None] == np.arange(codes.codebook_size)
        rows = rows.reshape(values, -1).astype("int8")
        self._table = np.concatenate([rows, np.zeros_like(rows[:1])])
        columns = -(-codes.num_codebooks // self._together)
        self.columns = columns * rows.shape[1]

    def matrix(self, codewords):
        """Codewords `(columns, width)` to multiply one-hot vectors by."""
        flat = codewords.reshape(-1, codewords.shape[-1])
        return np.pad(flat, ((0, self.columns - len(flat)), (0, 0)))

    def __call__(self, ids, counts=None):
        """One-hot vectors of ids, in parts; zeros for masked ids."""
        if self._together > 1 or ids.shape.rank == 1:
            numbers = self._codes.read(ids, self._together)
        else:
            numbers = self._codes.read(tf.reshape(ids, [-1]))
            numbers = unflatten(numbers, ids, self._codes.num_codebooks)
        if counts is not None:
            counts = tf.expand_dims(counts, -1)
            numbers = tf.where(counts, numbers, len(self._table) - 1)
        if not self._options.serves(UNPACK_RUNTIME):
            return tf.gather(self._table.astype("float32"), numbers)
        self._options.unpacked.append(self._table)
        return tf.cast(tf.gather(self._table, numbers), tf.float32)
