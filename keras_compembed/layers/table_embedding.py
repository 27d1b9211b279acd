"""Base of embeddings that read rows of variables and little else."""

import functools

import numpy as np
import tensorflow as tf

from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.optimizers.device_rows import on_several_devices
from keras_compembed.optimizers.read_rows import read_rows
from keras_compembed.utils.each_once import each_once
from keras_compembed.utils.repeat_rows import repeat_rows
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_seed


def read_all(variable, rows):
    """Rows of a variable, whose gradient is as large as the variable."""
    # The gradient of a reshape adds up that of rows that are read repeatedly.
    values = tf.reshape(tf.convert_to_tensor(variable.value), variable.shape)
    return repeat_rows(values, rows)


class TableEmbedding(LookupLayer):
    """Base of embeddings that read rows of variables and little else."""

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

    def embed(self, ids, read=read_all):
        """Vectors of a rank-1 tensor of ids; `read` reads rows of variables."""
        raise NotImplementedError

    def add_values(self, name, values, dtype, trainable=False):
        """Adds a weight that begins with given values."""
        return self.add_weight(
            shape=np.shape(values),
            initializer=lambda shape, dtype=None: tf.cast(values, dtype),
            dtype=dtype,
            trainable=trainable,
            autocast=False,
            name=name,
        )

    def known(self, ids):
        """`ids`, or an error if there is one that the table does not have.

        For what is computed from ids, which would give a vector for any.
        """
        is_known = (ids >= 0) & (ids < self.input_dim)
        check = tf.debugging.Assert(
            tf.reduce_all(is_known),
            [f"Ids must be from 0 to {self.input_dim - 1}. Received:", ids],
        )
        with tf.control_dependencies([check]):
            return tf.identity(ids)

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
