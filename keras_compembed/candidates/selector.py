"""The base of ways to choose candidate classes."""

import keras
import tensorflow as tf

from keras_compembed.utils.log_sums import log_sum_exp
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.whole_load import WholeLoad


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

    `scores` is a `ClassScores`: what classes are scored by. A selector is a
    layer so that what it keeps, such as trees and tables, is saved with the
    model.

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
        """Tells sizes, before `build`.

        Args:
            num_classes: Integer.
            num_candidates: Integer, how many to choose for an example.

        Raises:
            ValueError: if the selector is for other sizes, or is attached
                already.
        """
        check_positive_int("num_classes", num_classes)
        check_positive_int("num_candidates", num_candidates)
        sizes = (num_classes, num_candidates)
        if self.num_classes is not None and sizes != (
            self.num_classes,
            self.num_candidates,
        ):
            raise ValueError(
                "A selector must belong to one layer. Received: "
                f"num_classes={num_classes}, num_candidates={num_candidates} "
                f"and a selector of a layer with {self.num_classes} classes "
                f"and {self.num_candidates} candidates."
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
            rows; or a list of several of these, of `num_candidates` columns
            in all. What comes in several of them counts once.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must have a method `select`."
        )

    def observe(self, scores, features, shared):
        """Called once in each step of training, after `select`.

        What is learned here may choose the candidates of later steps.

        Args:
            scores: `ClassScores`.
            features: float32 tensor `(rows, width)`.
            shared: Optional int32 tensor `(ids,)`, the candidates that all
                rows have.
        """
        # AutoGraph warns of a body that is a docstring alone.
        return

    def after_step(self, scores, labels, hit):
        """Called once in each step of training, after `observe`.

        Args:
            scores: `ClassScores`.
            labels: int32 tensor `(rows,)`.
            hit: Boolean tensor `(rows,)`, whether candidates hold the label.
        """
        # AutoGraph warns of a body that is a docstring alone.
        return

    def top_k(self, scores, features, k):
        """The classes of the highest scores.

        The base class scores all classes, in chunks.

        Args:
            scores: `ClassScores`.
            features: float32 tensor `(rows, width)`.
            k: Integer.

        Returns:
            Tensors: `(rows, k)` int32 ids, best first, and `(rows, k)`
            scores, where fewer classes were found -1 and minus infinity;
            and `(rows,)`, the logarithm of the sum of exponentials of the
            scores of all classes that were looked at.
        """
        return scores.top_k(features, k)

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
