"""Codes learned with a task, by queries of ids and keys of subcodes."""

import keras
import tensorflow as tf

from keras_compembed.compositions.composition import ConcatComposition
from keras_compembed.compositions.composition import split_columns
from keras_compembed.learners.task_codes import TaskCodes
from keras_compembed.learners.task_codes import exact_dtype
from keras_compembed.optimizers.device_rows import of_all_devices
from keras_compembed.optimizers.device_rows import on_several_devices
from keras_compembed.optimizers.device_rows import read_rows
from keras_compembed.optimizers.device_rows import sum_over_devices
from keras_compembed.utils.custom_gradient import custom_gradient
from keras_compembed.utils.validation import check_positive_number

# Statistics of the last ten batches or so. Queries move: older ones would tell
# what scores were like before.
_KEPT = 0.9
# Scores of small queries are small: 1e-6 and less.
_EPSILON = 1e-9
# Normalized products with one number tell no more than its sign.
_PART_WIDTH = 4


@keras.saving.register_keras_serializable(package="keras_compembed")
class SoftmaxCodes(TaskCodes):
    """Learns codes by dot products: `codes="softmax"`.

    Each id has a query, and each part of it takes the key whose dot product
    with it is largest; backward, the gradient is that of a softmax.

    Example:

    >>> layer = kc.CodeEmbedding(
    ...     100, 8, num_codebooks=4, codes=SoftmaxCodes(temperature=0.5)
    ... )

    Args:
        temperature: Positive number. Divides scores before the softmax of
            the gradient. Defaults to `1.0`.
        teacher: Optional array `(input_dim, output_dim)`, whose rows vectors
            are drawn to. Set it again after loading: it is not saved.
        teacher_weight: Positive number. Weight of the mean squared distance
            to the teacher's rows. Defaults to `1.0`.

    References:
        - [Chen, Li & Sun, 2020](https://arxiv.org/abs/1908.09756)
    """

    _settings = "teacher_weight", "temperature"

    def __init__(self, temperature=1.0, teacher=None, teacher_weight=1.0):
        super().__init__(teacher, teacher_weight)
        self.temperature = check_positive_number("temperature", temperature)

    def build(self, add_weight, rows):
        super().build(add_weight, rows)
        self._queries = Queries(self.add_weight, rows, nearest=False)

    def subcodes(self, ids):
        return self._queries.subcodes(ids)

    def learn(self, ids, counts):
        _, scores = self._queries.ask(ids, counts)
        picks = pick_best(scores, self.temperature)
        return self.rows.compose_picks(picks), []


@keras.saving.register_keras_serializable(package="keras_compembed")
class NearestCodes(SoftmaxCodes):
    """Learns codes by distances: `codes="nearest"`."""

    _settings = "teacher_weight", "commitment", "temperature"

    def __init__(
        self, commitment=0.25, temperature=1.0, teacher=None, teacher_weight=1.0
    ):
        super().__init__(temperature, teacher, teacher_weight)
        self.commitment = check_positive_number(
            "commitment", commitment, zero=True
        )

    def build(self, add_weight, rows):
        TaskCodes.build(self, add_weight, rows)
        # Where the space of queries is that of the vectors.
        self._codewords_are_keys = isinstance(
            rows.composition, ConcatComposition
        )
        keys = rows.codebooks if self._codewords_are_keys else None
        self._queries = Queries(self.add_weight, rows, True, keys)

    def learn(self, ids, counts):
        queries, scores = self._queries.ask(ids, counts)
        if not self._codewords_are_keys:
            picks = pick_best(scores, self.temperature)
            return self.rows.compose_picks(picks), []
        vectors = self.rows.compose(best_keys(scores))
        chosen = tf.cast(vectors, scores.dtype)
        asked = tf.cast(queries, scores.dtype)
        distances = tf.square(chosen - tf.stop_gradient(asked))
        distances += self.commitment * tf.square(
            tf.stop_gradient(chosen) - asked
        )
        vectors += queries - tf.stop_gradient(queries)
        return vectors, [tf.reduce_mean(distances, axis=1)]

    def restart(self, vectors):
        # Keys that are not codewords know nothing of vectors. Without sums,
        # a distance of 0 is the least, whatever the scores of a key are like.
        if self._codewords_are_keys:
            self._queries.restart(vectors)


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
            "queries", (rows.input_dim, width), initializer="uniform"
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
        before = tf.convert_to_tensor(self.score_sums.value)
        # Constants to gradients.
        sums = tf.stop_gradient(_KEPT * before + sums)
        self.score_sums.assign(sums)
        return queries, normalize_scores(scores, sums)

    def restart(self, queries):
        """Sets the queries, and forgets what scores were like before."""
        self.queries.assign(queries)
        self.score_sums.assign(tf.zeros_like(self.score_sums))

    def _scores(self, queries):
        """How well each key answers each part of a query."""
        queries = tf.cast(queries, self.dtype)
        keys = tf.cast(self.keys.value, self.dtype)
        # (M, ids, w) x (M, w, K)
        parts = split_columns(queries, self._shape[0])
        parts = tf.transpose(parts, (1, 0, 2))
        keys = tf.transpose(split_columns(keys, self._shape[0]), (1, 2, 0))
        scores = tf.matmul(parts, keys)
        if self._nearest:
            scores *= 2
            scores -= tf.reduce_sum(tf.square(parts), axis=2, keepdims=True)
            scores -= tf.reduce_sum(tf.square(keys), axis=1, keepdims=True)
        return tf.transpose(scores, (1, 0, 2))


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
