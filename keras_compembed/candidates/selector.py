"""The base of ways to choose candidate classes."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.utils.chunks import in_parts
from keras_compembed.utils.log_sums import log_sum_exp
from keras_compembed.utils.saving import WholeLoad
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require


class Selector(WholeLoad, keras.layers.Layer):
    """Base of what chooses the candidates of each example.

    A selector belongs to one `keras_compembed.CANESoftmax`, which calls
    `attach`, then `build`, then `select` in each step of training. For a
    method of your own, write `select`, and `top_k` if you know a faster way
    than scores of all classes:

    >>> @keras.saving.register_keras_serializable()
    ... class FirstClasses(kc.candidates.Selector):
    ...     def select(self, scores, features, context=None):
    ...         return tf.range(self.num_candidates)

    A selector is a layer so that what it keeps is saved with the model.

    Attributes:
        num_classes: Integer, from `attach`.
        num_candidates: Integer, from `attach`.
        tree: `ClassTree` that class vectors are sums over paths of, or None.
    """

    tree = None

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.num_classes = None
        self.num_candidates = None

    def attach(self, num_classes, num_candidates):
        """Tells sizes, before `build`: classes, and how many to choose."""
        check_positive_int("num_classes", num_classes)
        check_positive_int("num_candidates", num_candidates)
        sizes = (num_classes, num_candidates)
        own = (self.num_classes, self.num_candidates)
        require(
            own in (sizes, (None, None)),
            f"A selector must belong to one layer. Its own sizes are {own}.",
            num_classes=num_classes,
            num_candidates=num_candidates,
        )
        self.num_classes, self.num_candidates = sizes

    def build(self, input_shape=None):
        self.built = True

    def _before_step(self, scores, features):
        """Called once in each step of training, before `select`."""
        # AutoGraph warns of a body that is a docstring alone.
        return

    def select(self, scores, features, context=None):
        """Candidates of examples, in training and in evaluation.

        Args:
            scores: `ClassScores`.
            features: float32 tensor `(rows, width)`.
            context: Optional integer tensor `(rows,)`, what the layer was
                called with.

        Returns:
            int32 tensor `(rows, num_candidates)` of ids that differ within a
            row, with -1 where there are fewer; or `(num_candidates,)`, the
            same for all rows; or `CandidateGroups`, the same for groups of
            rows.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must have a method `select`."
        )

    def after_step(self, scores, labels, hit):
        """Called once in each step of training, after `select`.

        Args:
            scores, labels: `ClassScores`, and an int32 tensor `(rows,)`.
            hit: Boolean tensor `(rows,)`, whether candidates hold the label.
        """
        # AutoGraph warns of a body that is a docstring alone.
        return

    def top_k(self, scores, features, k):
        """The classes of the highest scores; here, all are scored in chunks.

        Args:
            scores, features, k: `ClassScores`, a float32 tensor
                `(rows, width)`, and an integer.

        Returns:
            Tensors: `(rows, k)` int32 ids, best first, and `(rows, k)`
            scores, where fewer classes were found -1 and minus infinity;
            and `(rows,)`, the logarithm of the sum of exponentials of the
            scores of all classes that were looked at.
        """
        return scores.top_k(features, k)

    def _add_state(self, name, values, dtype="int32"):
        """A weight that starts as an array and no optimizer changes."""
        return self.add_weight(
            name=name,
            shape=np.shape(values),
            dtype=dtype,
            initializer=lambda shape, dtype: values,
            trainable=False,
            autocast=False,
        )

    def get_build_config(self):
        # The layer that holds the selector attaches it, then builds it.
        return None


def best_of(ids, scores, k):
    """What `Selector.top_k` returns, from all classes that were looked at."""
    missing = max(0, k - ids.shape[1])
    if missing:
        sides = [[0, 0], [0, missing]]
        ids = tf.pad(ids, sides, constant_values=-1)
        scores = tf.pad(scores, sides, constant_values=float("-inf"))
    total = log_sum_exp(scores)
    scores, places = tf.math.top_k(scores, k)
    ids = tf.gather(ids, places, batch_dims=1)
    return tf.where(scores > float("-inf"), ids, -1), scores, total


def best_in_parts(compute, inputs, k, size):
    """What `Selector.top_k` returns, computed for some rows at a time."""
    rows, known = tf.shape(inputs[0])[0], inputs[0].shape[0]
    results = tf.fill((rows, k), -1), tf.zeros((rows, k)), tf.zeros((rows,))
    results = in_parts(compute, inputs, results, size)
    shapes = (known, k), (known, k), (known,)
    return tuple(map(tf.ensure_shape, results, shapes))
