"""Base of stores that read rows of variables and little else."""

import abc
import functools

import tensorflow as tf

from keras_compembed.optimizers.device_rows import on_several_devices
from keras_compembed.optimizers.device_rows import read_rows
from keras_compembed.stores.store import Store
from keras_compembed.utils.row_ops import each_once
from keras_compembed.utils.row_ops import repeat_rows


def read_all(variable, rows):
    """Rows of a variable, whose gradient is as large as the variable."""
    # The gradient of a reshape adds up that of rows that are read repeatedly.
    values = tf.reshape(tf.convert_to_tensor(variable.value), variable.shape)
    return repeat_rows(values, rows)


class TableStore(Store):
    """Base of stores that read rows of variables and little else."""

    @abc.abstractmethod
    def compose(self, ids, read):
        """Vectors of a rank-1 tensor of ids; `read` reads rows of variables."""

    def read(self, ids, training=False, counts=None):
        if not training:
            return self.compose(ids, read_all)
        compose = functools.partial(self.compose, read=read_rows)
        # Several devices exchange ids, as many as there are in a batch.
        if on_several_devices():
            return compose(ids)
        return each_once(compose, ids)

    def add_arrays(self, add, arrays, trained=None):
        """Adds variables that begin with arrays, one of which is trained."""
        for name, values in arrays.items():
            is_trained = name == trained
            variable = add(
                name,
                shape=values.shape,
                initializer=lambda _, dtype, x=values: tf.cast(x, dtype),
                dtype=self.dtype if is_trained else values.dtype.name,
                trainable=is_trained,
            )
            setattr(self, name, variable)

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
