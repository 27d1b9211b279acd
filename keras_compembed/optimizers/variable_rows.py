"""Some rows of a variable, which an optimizer takes for a small variable."""

import keras
import tensorflow as tf


class VariableRows:
    """Some rows of a variable, read once, changed, and written back."""

    def __init__(self, variable, indices):
        if isinstance(variable, keras.Variable):
            variable = variable.value
        self._variable = variable
        self._indices = indices
        # `tf.gather` reads the whole of a variable that devices mirror.
        self._rows = self._read = tf.raw_ops.ResourceGather(
            resource=variable.handle, indices=indices, dtype=variable.dtype
        )

    @property
    def shape(self):
        return self._rows.shape

    @property
    def dtype(self):
        return self._rows.dtype

    @property
    def value(self):
        # That of a Keras variable follows assignments too.
        return self

    def assign(self, value):
        self._rows = tf.cast(value, self.dtype)

    def assign_add(self, value):
        self.assign(self._rows + tf.cast(value, self.dtype))

    def assign_sub(self, value):
        self.assign(self._rows - tf.cast(value, self.dtype))

    def write(self):
        """Writes the rows to the variable, if they were assigned to."""
        if self._rows is not self._read:
            self._variable.scatter_update(
                tf.IndexedSlices(self._rows, self._indices)
            )

    def __tf_tensor__(self, dtype=None, name=None):
        return tf.convert_to_tensor(self._rows, dtype=dtype, name=name)


def _operator(name):
    def operator(self, *args):
        return getattr(self._rows, name)(*args)

    return operator


for _name in tf.Tensor.OVERLOADABLE_OPERATORS:
    setattr(VariableRows, _name, _operator(_name))
