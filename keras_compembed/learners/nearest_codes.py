"""Codes learned with a task, by distances of queries and keys."""

import keras
import tensorflow as tf

from keras_compembed.compositions.concat_composition import ConcatComposition
from keras_compembed.learners.queries import Queries
from keras_compembed.learners.queries import best_keys
from keras_compembed.learners.queries import pick_best
from keras_compembed.learners.task_codes import TaskCodes
from keras_compembed.utils.validation import check_positive_number


@keras.saving.register_keras_serializable(package="keras_compembed")
class NearestCodes(TaskCodes):
    """Learns codes by distances: `learn_codes="nearest"`.

    Each id has a query, and each part of it takes the nearest key. With
    composition `"concat"` codewords are the keys, and gradients go straight
    from vectors to queries; with others, the gradient is that of a softmax.

    Example:

    >>> layer = kc.CodeEmbedding(
    ...     100, 8, num_codebooks=4, composition="concat",
    ...     learn_codes=NearestCodes(commitment=0.5),
    ... )

    Args:
        commitment: Number of at least 0. Weight of the squared distance from
            queries to their codewords, with `"concat"`. Defaults to `0.25`.
        temperature: Positive number. Divides scores before the softmax of
            the gradient, with other compositions. Defaults to `1.0`.
        teacher: Optional array, see `TaskCodes`.
        teacher_weight: Positive number, see `TaskCodes`. Defaults to `1.0`.

    Raises:
        ValueError: if `commitment` is below 0, `temperature` is not
            positive, or an argument of `TaskCodes` is not what it says.

    References:
        - [Chen, Li & Sun, 2020](https://arxiv.org/abs/1908.09756)
    """

    def __init__(
        self,
        commitment=0.25,
        temperature=1.0,
        teacher=None,
        teacher_weight=1.0,
    ):
        super().__init__(teacher, teacher_weight)
        self.commitment = check_positive_number(
            "commitment", commitment, zero=True
        )
        self.temperature = check_positive_number("temperature", temperature)

    def build(self, add_weight, rows):
        super().build(add_weight, rows)
        # Where the space of queries is that of the vectors.
        self._codewords_are_keys = isinstance(
            rows.composition, ConcatComposition
        )
        keys = rows.codebooks if self._codewords_are_keys else None
        self._queries = Queries(self.add_weight, rows, True, keys)

    def subcodes(self, ids):
        return self._queries.subcodes(ids)

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

    def get_config(self):
        return {
            **super().get_config(),
            "commitment": self.commitment,
            "temperature": self.temperature,
        }
