"""A table held as packed codes; rows are composed when they are read."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.codes.packing import pack_codes
from keras_compembed.codes.packing import unpack_codes
from keras_compembed.codes.packing import unpack_rows
from keras_compembed.utils.chunks import of_all_ids
from keras_compembed.utils.chunks import split_rows
from keras_compembed.utils.custom_gradient import custom_gradient

# Up to so many codewords a codebook for each row, rows are added up faster by
# counts of all codewords than one by one.
_COUNTED_SIZE = 16
# Rows of a group of unknown length.
_USUAL_LENGTH = 32
# Numbers of codewords composed at once.
_CHUNK_ELEMENTS = 1 << 22


class CodedRows:
    """Reads and writes the codes of a table, and composes its rows."""

    def __init__(self, packed_codes, codebooks, composition):
        self.packed_codes = packed_codes
        self.codebooks = codebooks
        self.composition = composition
        self.num_rows = packed_codes.shape[0]
        self._code_shape = composition.num_codebooks, composition.codebook_size

    def subcodes(self, ids):
        """Subcodes, int32 `(ids, num_codebooks)`, of a tensor of ids."""
        rows = tf.gather(self.packed_codes.value, ids)
        return unpack_rows(rows, *self._code_shape)

    def compose(self, subcodes):
        """Vectors `(ids, output_dim)` of int32 subcodes."""
        return self.composition.compose_codes(
            tf.convert_to_tensor(self.codebooks.value), subcodes
        )

    def compose_picks(self, picks):
        """Vectors of picks `(ids, num_codebooks, codebook_size)`."""
        codebooks = tf.convert_to_tensor(self.codebooks.value)
        return self.composition.compose_picks(
            codebooks, tf.cast(picks, codebooks.dtype)
        )

    def sums_by_counts(self, length):
        """Whether to add up so many rows by counting their codes."""
        composition = self.composition
        if not composition.is_linear:
            return False
        most = _COUNTED_SIZE * (length or _USUAL_LENGTH)
        return composition.codebook_size <= most

    def sum_rows(self, subcodes, weights):
        """Weighted sums of rows, without any row being composed."""
        counts = count_codes(subcodes, weights, self.composition.codebook_size)
        codebooks = tf.cast(self.codebooks.value, weights.dtype)
        return self.composition.sum_counts(codebooks, counts)

    def compose_all(self, subcodes):
        """Vectors of all rows, part by part where these are many."""
        composition = self.composition
        size = composition.num_codebooks * composition.code_dim
        if self.num_rows * size <= _CHUNK_ELEMENTS:
            return of_all_ids(
                lambda ids: self.compose(subcodes(ids)), self.num_rows
            )
        size = max(1, _CHUNK_ELEMENTS // size)
        # As functions of tensors: a gradient of its own may read no variables.
        weights = [
            weight
            for weight in composition.variables
            if keras.backend.is_float_dtype(weight.dtype)
        ]

        def compose(ids, codebooks, *values):
            scope = zip(weights, values, strict=True)
            with keras.StatelessScope(list(scope)):
                return composition.compose_codes(codebooks, subcodes(ids))

        @custom_gradient
        def compose_parts(*sources):
            vectors = of_all_ids(
                lambda ids: compose(ids, *sources),
                self.num_rows,
                size,
            )

            def gradient(upstream):
                ids = tf.expand_dims(tf.range(self.num_rows), 1)

                def add(totals, part):
                    ids, upstream = part
                    with tf.GradientTape() as tape:
                        tape.watch(sources)
                        vectors = compose(ids[:, 0], *sources)
                    gradients = tape.gradient(
                        vectors,
                        sources,
                        upstream,
                        unconnected_gradients=tf.UnconnectedGradients.ZERO,
                    )
                    return [
                        total + tf.convert_to_tensor(gradient)
                        for total, gradient in zip(
                            totals, gradients, strict=True
                        )
                    ]

                return tf.foldl(
                    add,
                    (
                        split_rows(ids, self.num_rows, size),
                        split_rows(upstream, self.num_rows, size),
                    ),
                    [tf.zeros_like(source) for source in sources],
                    parallel_iterations=1,
                )

            return vectors, gradient

        sources = [self.codebooks, *weights]
        return compose_parts(
            *(tf.convert_to_tensor(source.value) for source in sources)
        )

    @property
    def codes(self):
        """Codes of all rows, an unsigned array `(rows, num_codebooks)`."""
        return unpack_codes(
            keras.ops.convert_to_numpy(self.packed_codes), *self._code_shape
        )

    def assign(self, codes):
        """Sets the codes of all rows."""
        self.packed_codes.assign(pack_codes(codes, self._code_shape[1]))

    def decode(self, codes):
        """Rows that codes stand for: arrays in, float32 array out."""
        return self.composition.decode(
            codes, keras.ops.convert_to_numpy(self.codebooks)
        )


def count_codes(subcodes, weights, codebook_size):
    """Weighted counts of subcodes."""
    num_codebooks = subcodes.shape[1]
    width = num_codebooks * codebook_size
    groups, length = tf.unstack(tf.shape(weights))
    # int64: there may be more counts than int32 numbers, and int32 sums have
    # no GPU kernel. Cast here: LiteRT takes no int64 shapes apart.
    groups = tf.cast(groups, tf.int64)
    first = np.arange(num_codebooks, dtype="int64") * codebook_size
    start = tf.repeat(tf.range(groups) * width, length)
    places = tf.cast(subcodes, tf.int64) + first + tf.expand_dims(start, 1)
    values = tf.repeat(tf.reshape(weights, (-1,)), num_codebooks)
    # Much faster of flat tensors.
    counts = tf.math.unsorted_segment_sum(
        values, tf.reshape(places, (-1,)), groups * width
    )
    return tf.reshape(counts, (-1, num_codebooks, codebook_size))
