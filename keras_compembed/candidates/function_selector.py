"""Candidates by a function of the user's own."""

import keras
import tensorflow as tf

from keras_compembed.candidates.selector import Selector


@keras.saving.register_keras_serializable(package="keras_compembed")
class FunctionSelector(Selector):
    """Candidates that a function chooses.

    What `CANESoftmax(selector=function)` makes of a function. To be saved it
    must be registered with `keras.saving.register_keras_serializable`. For
    one with weights of its own, or a fast `top_k`, write a `Selector`.

    Example:

    >>> def first_ten(features):
    ...     return tf.range(10)
    >>> head = kc.CANESoftmax(1000, selector=first_ten)

    Args:
        function: Callable. From features, a float32 tensor `(rows, width)`,
            to integer ids `(rows, num_candidates)` that differ within a row,
            with -1 where there are fewer, or `(num_candidates,)`, the same
            for all rows. Ids that come again in a row, or are out of range,
            stop training with an error, or, where XLA compiles the step, do
            not count.
        **kwargs: `name` of `keras.layers.Layer`.

    Raises:
        ValueError: if `function` cannot be called, or returns ids of another
            shape or what are no integers.
    """

    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        if not callable(function):
            raise ValueError(
                "`function` must be a function of features. "
                f"Received: function={function!r}."
            )
        self.function = function

    def select(self, scores, features, context=None):
        ids = self.function(features)
        if ids is None:
            raise ValueError(
                "A function that selects candidates must return ids. "
                "Received: None."
            )
        ids = tf.convert_to_tensor(ids)
        if not ids.dtype.is_integer:
            raise ValueError(
                "A function that selects candidates must return integer ids. "
                f"Received: ids of dtype {ids.dtype.name}."
            )
        if ids.shape.rank not in (1, 2) or (
            ids.shape[-1] != self.num_candidates
        ):
            raise ValueError(
                "A function that selects candidates must return ids of shape "
                f"(rows, {self.num_candidates}) or ({self.num_candidates},). "
                f"Received: ids of shape {tuple(ids.shape)}."
            )
        if ids.shape.rank == 2:
            rows = features.shape[0]
            if None not in (rows, ids.shape[0]) and ids.shape[0] != rows:
                raise ValueError(
                    "A function that selects candidates must return a row of "
                    f"ids for each example, {rows}. "
                    f"Received: ids of shape {tuple(ids.shape)}."
                )
        return _checked(ids, self.num_classes)

    def get_config(self):
        function = keras.saving.serialize_keras_object(self.function)
        return {**super().get_config(), "function": function}

    @classmethod
    def from_config(cls, config):
        function = keras.saving.deserialize_keras_object(config["function"])
        return cls(**{**config, "function": function})


def _checked(ids, num_classes):
    """int32 ids, with -1 for those that may not be there."""
    ids = tf.cast(ids, "int64")
    no_class = (ids < -1) | (ids >= num_classes)
    ids = tf.cast(tf.where(no_class, tf.cast(-1, "int64"), ids), "int32")
    ordered = tf.argsort(ids, axis=-1, stable=True)
    values = tf.gather(ids, ordered, batch_dims=ids.shape.rank - 1)
    twice = (values[..., 1:] == values[..., :-1]) & (values[..., 1:] >= 0)
    twice = tf.concat([tf.zeros_like(twice[..., :1]), twice], axis=-1)
    # Back in the order that ids came in.
    places = tf.argsort(ordered, axis=-1)
    twice = tf.gather(twice, places, batch_dims=ids.shape.rank - 1)
    wrong = no_class | twice
    check = tf.debugging.Assert(
        tf.logical_not(tf.reduce_any(wrong)),
        [
            "A function that selects candidates must return ids from 0 to "
            f"{num_classes - 1} (`num_classes` - 1) that differ within a row, "
            "or -1. Received: ids out of range:",
            tf.reduce_sum(tf.cast(no_class, "int32")),
            "ids that come again in their row, such as:",
            tf.reduce_max(tf.where(twice, ids, -1)),
        ],
    )
    # Eager calls have raised by now.
    with tf.control_dependencies([] if check is None else [check]):
        return tf.where(wrong, -1, ids)
