"""Queries of ids, and the keys that answer them: codes that can be learned."""

import tensorflow as tf

from keras_compembed.compositions.concat_composition import split_columns
from keras_compembed.learners.task_codes import exact_dtype
from keras_compembed.optimizers.device_rows import of_all_devices
from keras_compembed.optimizers.device_rows import on_several_devices
from keras_compembed.optimizers.device_rows import sum_over_devices
from keras_compembed.optimizers.read_rows import read_rows
from keras_compembed.utils.custom_gradient import custom_gradient

# Statistics of the last ten batches or so. Queries move: older ones would tell
# what scores were like before.
_KEPT = 0.9
# Scores of small queries are small: 1e-6 and less.
_EPSILON = 1e-9
# Normalized products with one number tell no more than its sign.
_PART_WIDTH = 4


class Queries:
    """A query of each id, and the nearest key of each part."""

    def __init__(self, add_weight, rows, nearest, keys=None):
        composition = rows.composition
        self._shape = composition.num_codebooks, composition.codebook_size
        self._nearest = nearest
        # Of scores, whose sums half precision does not hold.
        self.dtype = exact_dtype(rows)
        width = composition.output_dim
        if keys is None:
            width = max(width, _PART_WIDTH * self._shape[0])
        self.queries = add_weight(
            "queries", (rows.num_rows, width), initializer="uniform"
        )
        if keys is None:
            keys = add_weight(
                "keys", (self._shape[1], width), initializer="uniform"
            )
        self.keys = keys
        self.score_sums = add_weight(
            "score_sums",
            (3, *self._shape),
            dtype=self.dtype,
            trainable=False,
            aggregation="mean",
        )

    def subcodes(self, ids):
        """Subcodes, int32 `(ids, num_codebooks)`, outside training."""
        scores = self._scores(tf.gather(self.queries.value, ids))
        sums = tf.convert_to_tensor(self.score_sums.value)
        return best_keys(normalize_scores(scores, sums))

    def ask(self, ids, counts):
        """Queries and normalized scores of a training step."""
        queries = read_rows(self.queries, ids, once=True)
        scores = self._scores(queries)
        sums = score_sums(scores, weights_of_different(ids, counts))
        sums = kept_sums(self.score_sums.value, sums)
        self.score_sums.assign(sums)
        return queries, normalize_scores(scores, sums)

    def restart(self, queries):
        """Sets the queries, and forgets what scores were like before."""
        self.queries.assign(queries)
        self.score_sums.assign(tf.zeros_like(self.score_sums))

    def _scores(self, queries):
        return key_scores(
            tf.cast(queries, self.dtype),
            tf.cast(self.keys.value, self.dtype),
            self._shape[0],
            self._nearest,
        )


def best_keys(scores):
    """int32 `(ids, num_codebooks)`: the key of the best score."""
    return tf.argmax(scores, axis=2, output_type="int32")


def pick_best(scores, temperature=1.0):
    """One-hot of the best score, with the gradient of the softmax."""

    @custom_gradient
    def harden(soft):
        hard = tf.one_hot(
            tf.argmax(soft, axis=-1), soft.shape[-1], dtype=soft.dtype
        )
        return hard, lambda upstream: upstream

    return harden(tf.nn.softmax(scores / temperature))


def key_scores(queries, keys, num_codebooks, nearest):
    """How well each key answers each part of a query."""
    # (M, ids, w) x (M, w, K)
    parts = tf.transpose(split_columns(queries, num_codebooks), (1, 0, 2))
    keys = tf.transpose(split_columns(keys, num_codebooks), (1, 2, 0))
    scores = tf.matmul(parts, keys)
    if nearest:
        scores *= 2
        scores -= tf.reduce_sum(tf.square(parts), axis=2, keepdims=True)
        scores -= tf.reduce_sum(tf.square(keys), axis=1, keepdims=True)
    return tf.transpose(scores, (1, 0, 2))


def weights_of_different(ids, counts):
    """1 for an id that comes at all, shared by the devices that have it."""
    comes = counts > 0
    weights = tf.cast(comes, counts.dtype)
    if not on_several_devices():
        return weights
    everywhere = tf.sort(of_all_devices(tf.where(comes, ids, -1)))
    devices = tf.searchsorted(everywhere, ids, "right")
    devices -= tf.searchsorted(everywhere, ids, "left")
    return weights / tf.cast(tf.maximum(devices, 1), weights.dtype)


def score_sums(scores, weights):
    """Sums that give mean and variance: `(3, num_codebooks, codebook_size)`."""
    total = tf.reduce_sum(weights)
    weights = weights[:, None, None]
    sums = tf.stack(
        [
            tf.reduce_sum(weights * scores, axis=0),
            tf.reduce_sum(weights * tf.square(scores), axis=0),
            tf.fill(scores.shape[1:], total),
        ]
    )
    return sum_over_devices(sums)


def normalize_scores(scores, sums):
    """Scores less their mean, over their standard deviation."""
    first, second, total = tf.unstack(sums)
    # There may be no ids yet, or none but padding.
    mean = tf.math.divide_no_nan(first, total)
    variance = tf.math.divide_no_nan(second, total) - tf.square(mean)
    variance = tf.maximum(variance, 0.0)
    return (scores - mean) * tf.math.rsqrt(variance + _EPSILON)


def kept_sums(before, sums):
    """Statistics with those of a batch, constants to gradients."""
    return tf.stop_gradient(_KEPT * tf.convert_to_tensor(before) + sums)
