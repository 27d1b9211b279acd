"""Sums of the codewords that subcodes name, in ops that LiteRT has."""

import numpy as np
import tensorflow as tf

from keras_compembed.export.export_options import DEFAULTS

# Up to here a one-hot product is faster than gathered codewords, and takes
# less memory; more so where the runtime multiplies in int8.
_ONE_HOT_CODEBOOK_SIZES = {None: 16, "float16": 16, "int8": 32}
# Codewords gathered at once: a small multiple of the output, however many
# codebooks there are.
_GROUP = 8


class RowSums:
    """Sums of codewords, one of each codebook, by the graph that suits best.

    Args:
        codewords: float32 array `(num_codebooks, codebook_size, width)`.
        options: `ExportOptions`.

    Attributes:
        codewords: Same as the argument.
        row_elements: Integer, numbers held for one row while it is summed.
    """

    def __init__(self, codewords, options=DEFAULTS):
        self.codewords = codewords
        num_codebooks, codebook_size, width = codewords.shape
        self._one_hot = (
            codebook_size <= _ONE_HOT_CODEBOOK_SIZES[options.quantize]
        )
        if self._one_hot:
            self.row_elements = num_codebooks * codebook_size
        else:
            self.row_elements = min(num_codebooks, _GROUP) * width

    def __call__(self, subcodes):
        """Sums `(ids, width)` for int32 subcodes `(ids, num_codebooks)`."""
        num_codebooks, codebook_size, width = self.codewords.shape
        flat = tf.constant(self.codewords.reshape(-1, width))
        if self._one_hot:
            one_hot = tf.one_hot(subcodes, codebook_size)
            return tf.matmul(tf.reshape(one_hot, (-1, flat.shape[0])), flat)
        places = subcodes + np.arange(num_codebooks) * codebook_size
        total = None
        for start in range(0, num_codebooks, _GROUP):
            part = tf.gather(flat, places[:, start : start + _GROUP])
            part = tf.reduce_sum(part, axis=1)
            total = part if total is None else total + part
        return total
