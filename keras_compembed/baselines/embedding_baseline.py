"""Base of embeddings to compare `CodeEmbedding` and the like with."""

import functools
import math

import numpy as np
import tensorflow as tf

from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.optimizers.device_rows import on_several_devices
from keras_compembed.optimizers.read_rows import read_rows
from keras_compembed.utils.each_once import each_once
from keras_compembed.utils.repeat_rows import repeat_rows
from keras_compembed.utils.sizes import count_litert_bytes
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_seed

# What the converter quantizes at all.


def read_all(variable, rows):
    """Rows of a variable, whose gradient is as large as the variable."""
    # The gradient of a reshape adds up that of rows that are read repeatedly.
    values = tf.reshape(tf.convert_to_tensor(variable.value), variable.shape)
    return repeat_rows(values, rows)


class EmbeddingBaseline(LookupLayer):
    """Base of baseline embeddings, one signature each."""

    # Of numbers drawn from -0.05 to 0.05.
    INITIAL_STDDEV = 0.05 / 3**0.5
    # Shapes of integers that are not trained, by the names of weights.
    integer_shapes = {}

    def __init__(
        self, input_dim, output_dim, mask_zero=False, seed=None, **kwargs
    ):
        super().__init__(**kwargs)
        self.input_dim = check_positive_int("input_dim", input_dim)
        self.output_dim = check_positive_int("output_dim", output_dim)
        self.mask_zero = check_boolean("mask_zero", mask_zero)
        self.seed = check_seed(seed)
        self.supports_masking = True
        self.autocast = False

    @property
    def shapes(self):
        """Dict, shapes of float weights by their names."""
        raise NotImplementedError

    def initializers(self):
        """Dict, initializers of all weights by their names."""
        raise NotImplementedError

    def seeds(self, number):
        """Seeds for initializers, None if the layer has none."""
        if self.seed is None:
            return [None] * number
        found = np.random.SeedSequence(self.seed).generate_state(number)
        return [int(seed) for seed in found]

    def build(self, input_shape=None):
        if self.built:
            return
        initializers = self.initializers()
        for name, shape in self.shapes.items():
            weight = self.add_weight(
                shape=shape,
                initializer=initializers[name],
                autocast=False,
                name=name,
            )
            setattr(self, name, weight)
        for name, shape in self.integer_shapes.items():
            weight = self.add_weight(
                shape=shape,
                initializer=initializers[name],
                dtype="int64",
                trainable=False,
                autocast=False,
                name=name,
            )
            setattr(self, name, weight)
        self.built = True

    def embed(self, ids, read=read_all):
        """Vectors `(ids, output_dim)` of a rank-1 tensor of ids.

        Args:
            ids: Integer tensor.
            read: Function from a variable `(rows, columns)` and an integer
                tensor of rank 1 to its rows. In training, one after which
                optimizers touch no other rows.
        """
        raise NotImplementedError

    def known(self, ids):
        """`ids`, or an error if there is one that the table does not have.

        For what is computed from ids, which would give a vector for any. Not
        in files and on devices where reads of a table raise no error either.
        """
        is_known = (ids >= 0) & (ids < self.input_dim)
        check = tf.debugging.Assert(
            tf.reduce_all(is_known),
            [f"Ids must be from 0 to {self.input_dim - 1}. Received:", ids],
        )
        with tf.control_dependencies([check]):
            return tf.identity(ids)

    def litert_bytes(self, quantize=None):
        """Bytes of the layer's numbers in a LiteRT file.

        Args:
            quantize: Same as in `export_litert`. The converter makes what is
                less than 1,024 numbers no int8.
        """
        total = 8 * sum(map(math.prod, self.integer_shapes.values()))
        # Only codebooks and anchors are int8 with "int8_codebooks".
        if quantize == "int8_codebooks":
            quantize = None
        return total + sum(
            count_litert_bytes(math.prod(shape), quantize)
            for shape in self.shapes.values()
        )

    def call(self, inputs, reverse=False, training=False):
        if reverse or not training:
            return super().call(inputs, reverse=reverse)
        embed = functools.partial(self.embed, read=read_rows)
        # Several devices exchange ids, as many as there are in a batch.
        if not on_several_devices():
            embed = functools.partial(each_once, embed)
        return self._set_mask(self.look_up(inputs, embed), inputs)

    def get_config(self):
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "mask_zero": self.mask_zero,
            "seed": self.seed,
        }
