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
            to int32 ids `(rows, num_candidates)` that differ within a row,
            with -1 where there are fewer, or `(num_candidates,)`, the same
            for all rows.
        **kwargs: `name` of `keras.layers.Layer`.

    Raises:
        ValueError: if `function` cannot be called, or returns ids of another
            shape.
    """

    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        if not callable(function):
            raise ValueError(
                "`function` must be a function of features. "
                f"Received: function={function!r}."
            )
        self.function = function

    def select(self, head, features, context=None):
        ids = tf.cast(self.function(features), "int32")
        if ids.shape.rank not in (1, 2) or (
            ids.shape[-1] != self.num_candidates
        ):
            raise ValueError(
                "A function that selects candidates must return ids of shape "
                f"(rows, {self.num_candidates}) or ({self.num_candidates},). "
                f"Received: ids of shape {tuple(ids.shape)}."
            )
        return ids

    def get_config(self):
        function = keras.saving.serialize_keras_object(self.function)
        return {**super().get_config(), "function": function}

    @classmethod
    def from_config(cls, config):
        function = keras.saving.deserialize_keras_object(config["function"])
        return cls(**{**config, "function": function})
