"""The base of selectors, and candidates that groups of examples share."""

import dataclasses

import keras
import tensorflow as tf

from keras_compembed.utils.chunks import in_parts
from keras_compembed.utils.log_sums import log_sum_exp
from keras_compembed.utils.saving import WholeLoad
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

# Rows of a block: the more, the fewer class vectors are copied, and the more
# products are of nothing.
BLOCK = 8


class Selector(WholeLoad, keras.layers.Layer):
    """Base of what chooses the candidates of each example.

    A `keras_compembed.CANESoftmax` calls its `attach`, then `build`, then
    `select` in each step of training. For a method of your own, write
    `select`, and `top_k` if you know a faster way than scores of all classes:

    >>> @keras.saving.register_keras_serializable()
    ... class FirstClasses(kc.classes.Selector):
    ...     def select(self, scores, features, context=None):
    ...         return tf.range(self.num_candidates)

    Attributes:
        num_classes, num_candidates: Integers, from `attach`.
        tree: `ClassTree` that class vectors are sums over paths of, or None.
    """

    tree = None
    # Attributes that are arguments of the constructor.
    _settings = ()

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
            scores, features: `ClassScores`, a float32 tensor `(rows, width)`.
            context: Optional integer tensor `(rows,)`, what the layer was
                called with.

        Returns:
            int32 tensor `(rows, num_candidates)` of ids that differ within a
            row, -1 where there are fewer; or `(num_candidates,)`, the same for
            all rows; or `CandidateGroups`, the same for groups of rows.
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

    def get_build_config(self):
        # The layer that holds the selector attaches it, then builds it.
        return None

    def get_config(self):
        settings = {name: getattr(self, name) for name in self._settings}
        return {**super().get_config(), **settings}


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


@dataclasses.dataclass(frozen=True)
class CandidateGroups:
    """Candidates of groups of examples: what a `Selector` may return.

    The group of an example may depend on its own features, and on what was
    learned in earlier steps, and on nothing else: in a language model the
    features of the next position hold the label of this one.

    Example:

    >>> sides = kc.classes.CandidateGroups(
    ...     groups=tf.constant([0, 1, 1]),
    ...     ids=tf.constant([[3, 5], [2, 3]]),
    ... )
    >>> sides.of_rows().numpy()
    array([[3, 5],
           [2, 3],
           [2, 3]], dtype=int32)

    Args:
        groups: int32 tensor `(rows,)`, the group of each example.
        ids: int32 tensor `(num_groups, number)`, of a static shape: classes
            of each group, which differ within a row, -1 where there are fewer.
    """

    groups: tf.Tensor
    ids: tf.Tensor

    def of_rows(self):
        """The candidates of each example, `(rows, number)`."""
        return tf.gather(self.ids, self.groups)


def ids_of(selected):
    """Ids of candidates, which may be `CandidateGroups`."""
    is_grouped = isinstance(selected, CandidateGroups)
    return selected.ids if is_grouped else selected


class GroupBlocks:
    """Where each row of a batch is, in blocks of rows of one group."""

    def __init__(self, groups, num_groups):
        rows = groups.shape[0]
        smaller = min if rows is not None else tf.minimum
        rows = tf.shape(groups)[0] if rows is None else rows
        most = self._blocks = smaller(rows, rows // BLOCK + num_groups)
        # By group, then by place.
        order = tf.argsort(groups, stable=True)
        ordered = tf.gather(groups, order)
        sizes = tf.math.unsorted_segment_sum(
            tf.ones_like(groups), groups, num_groups
        )
        blocks = (sizes + BLOCK - 1) // BLOCK
        ends = tf.cumsum(blocks)
        # From places among ordered rows to places in blocks.
        shifts = (ends - blocks) * BLOCK - (tf.cumsum(sizes) - sizes)
        places = tf.range(rows) + tf.gather(shifts, ordered)
        self._places = tf.scatter_nd(order[:, None], places, (rows,))
        self.occurs = sizes > 0
        passed = tf.cast(ends[None] <= tf.range(most)[:, None], "int32")
        passed = tf.reduce_sum(passed, axis=1)
        self.of_blocks = tf.minimum(passed, num_groups - 1)

    def products(self, rows, matrices):
        """Products of rows with the matrices of their blocks."""
        width, number = rows.shape[1], matrices.shape[1]
        padded = tf.scatter_nd(
            self._places[:, None], rows, (self._blocks * BLOCK, width)
        )
        padded = tf.reshape(padded, (self._blocks, BLOCK, width))
        found = tf.matmul(padded, matrices, transpose_b=True)
        found = tf.reshape(found, (self._blocks * BLOCK, number))
        return tf.gather(found, self._places)


def is_in(sets, ids, rows=None):
    """Whether ids are in sets, without a comparison of each with each."""
    size = sets.shape[1]
    number = tf.shape(sets)[0]
    if not size:
        shape = tf.maximum(tf.shape(ids), tf.stack([number, 1]))
        return tf.zeros(shape, "bool")
    flat = tf.reshape(tf.sort(sets, axis=1), (-1,))
    start = size * (tf.range(number) if rows is None else rows)[:, None]
    # How many of the set are at most the id.
    below = tf.zeros_like(start + ids)
    for power in reversed(range(size.bit_length())):
        further = below + (1 << power)
        entry = tf.gather(flat, start + tf.minimum(further, size) - 1)
        below = tf.where((further <= size) & (entry <= ids), further, below)
    last = tf.gather(flat, start + tf.maximum(below - 1, 0))
    return (below > 0) & (last == ids) & (ids >= 0)
