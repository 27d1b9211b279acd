"""What ways to choose candidate classes have in common."""

import keras
import tensorflow as tf

from keras_compembed.candidates.row_parts import chunk_sizes
from keras_compembed.candidates.row_parts import in_parts
from keras_compembed.utils.scores import log_add_exp
from keras_compembed.utils.scores import log_sum_exp
from keras_compembed.utils.scores import without_nan
from keras_compembed.utils.validation import check_positive_int


class Selector(keras.layers.Layer):
    """Base of what chooses the candidates of each example.

    A selector belongs to one `keras_compembed.CANESoftmax`, which calls
    `attach`, then `build`, then `select` in each step of training. For a
    method of your own, write `select`, and `top_k` if you know a faster way
    than scores of all classes:

    >>> @keras.saving.register_keras_serializable()
    ... class FirstClasses(kc.candidates.Selector):
    ...     def select(self, head, features, context=None):
    ...         return tf.range(self.num_candidates)

    What a selector may read from `head`: `class_vectors(ids)`,
    `class_biases(ids)`, `node_vectors(depth)` and `node_biases(depth)`, sums
    over paths, and the variables `kernel`, `bias`, `nodes` and `node_bias`,
    their parts.

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

    def select(self, head, features, context=None):
        """Candidates of examples.

        Args:
            head: The `CANESoftmax`.
            features: float32 tensor `(rows, width)`.
            context: Optional integer tensor `(rows,)`, what the layer was
                called with.

        Returns:
            int32 tensor `(rows, num_candidates)` of ids that differ within a
            row, with -1 where there are fewer, or `(num_candidates,)`, the
            same for all rows.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must have a method `select`."
        )

    def after_step(self, head, labels, hit):
        """Called once in each step of training, after `select`.

        Args:
            head: The `CANESoftmax`.
            labels: int32 tensor `(rows,)`.
            hit: Boolean tensor `(rows,)`, whether candidates hold the label.
        """

    def top_k(self, head, features, k):
        """The classes of the highest scores.

        The base class scores all classes, in chunks.

        Args:
            head: The `CANESoftmax`.
            features: float32 tensor `(rows, width)`.
            k: Integer.

        Returns:
            Tensors: `(rows, k)` int32 ids, best first, and `(rows, k)`
            scores, where fewer classes were found -1 and minus infinity;
            and `(rows,)`, the logarithm of the sum of exponentials of the
            scores of all classes that were looked at.
        """
        return exact_top_k(head, features, k)

    def get_build_config(self):
        # The layer that holds the selector attaches it, then builds it.
        return None


def exact_top_k(head, features, k):
    """The classes of the highest scores of all, in chunks.

    Rows and classes are scored a part at a time, so that memory does not grow
    with either, but for what is returned.

    Args:
        head: Layer with `num_classes` and `score_chunk`.
        features: float32 tensor `(rows, width)`.
        k: Integer, at most `num_classes`.

    Returns:
        As of `Selector.top_k`.
    """
    size, classes = chunk_sizes(
        features.shape[0], head.num_classes, features.shape[1], k
    )

    def compute(features):
        return _top_k_of_part(head, features, k, classes)

    rows = tf.shape(features)[0]
    ids, scores, total = in_parts(
        compute,
        (features,),
        (tf.fill((rows, k), -1), tf.zeros((rows, k)), tf.zeros((rows,))),
        size,
    )
    known = features.shape[0]
    return (
        tf.ensure_shape(ids, (known, k)),
        tf.ensure_shape(scores, (known, k)),
        tf.ensure_shape(total, (known,)),
    )


def _top_k_of_part(head, features, k, size):
    """As of `exact_top_k`, with `size` classes scored at a time."""
    rows = tf.shape(features)[0]

    def better(start, scores, ids, total):
        chunk_ids, chunk_scores = head.score_chunk(features, start, size)
        chunk_scores = without_nan(chunk_scores)
        best, places = tf.math.top_k(chunk_scores, min(k, size))
        scores = tf.concat([scores, best], axis=1)
        ids = tf.concat([ids, tf.gather(chunk_ids, places)], axis=1)
        scores, places = tf.math.top_k(scores, k)
        ids = tf.gather(ids, places, batch_dims=1)
        total = log_add_exp(total, log_sum_exp(chunk_scores))
        return start + size, scores, ids, total

    _, scores, ids, total = tf.while_loop(
        lambda start, *_: start < head.num_classes,
        better,
        (
            0,
            tf.fill((rows, k), float("-inf")),
            tf.fill((rows, k), -1),
            tf.fill((rows,), float("-inf")),
        ),
        shape_invariants=(
            tf.TensorShape(()),
            tf.TensorShape((features.shape[0], k)),
            tf.TensorShape((features.shape[0], k)),
            tf.TensorShape((features.shape[0],)),
        ),
        # Else ten chunks are in memory.
        parallel_iterations=1,
    )
    return tf.where(scores > float("-inf"), ids, -1), scores, total


def best_of(ids, scores, k):
    """What `Selector.top_k` returns, from all classes that were looked at.

    Args:
        ids: int32 tensor `(rows, found)`, -1 where there is none.
        scores: Tensor `(rows, found)`, minus infinity where there is none.
        k: Integer.
    """
    missing = max(0, k - ids.shape[1])
    if missing:
        sides = [[0, 0], [0, missing]]
        ids = tf.pad(ids, sides, constant_values=-1)
        scores = tf.pad(scores, sides, constant_values=float("-inf"))
    total = log_sum_exp(scores)
    scores, places = tf.math.top_k(scores, k)
    ids = tf.gather(ids, places, batch_dims=1)
    return tf.where(scores > float("-inf"), ids, -1), scores, total
