"""Codes learned with a task, by dot products of queries and keys."""

import keras

from keras_compembed.learners.queries import Queries
from keras_compembed.learners.queries import pick_best
from keras_compembed.learners.task_codes import TaskCodes
from keras_compembed.utils.validation import check_positive_number


@keras.saving.register_keras_serializable(package="keras_compembed")
class SoftmaxCodes(TaskCodes):
    """Learns codes by dot products: `learn_codes="softmax"`.

    Each id has a query, and each part of it takes the key whose dot product
    with it is largest; backward, the gradient is that of a softmax.

    Example:

    >>> layer = kc.CodeEmbedding(
    ...     100, 8, num_codebooks=4,
    ...     learn_codes=SoftmaxCodes(temperature=0.5),
    ... )

    Args:
        temperature: Positive number. Divides scores before the softmax of
            the gradient. Defaults to `1.0`.
        teacher: Optional array, see `TaskCodes`.
        teacher_weight: Positive number, see `TaskCodes`. Defaults to `1.0`.

    Raises:
        ValueError: if `temperature` is not positive, or an argument of
            `TaskCodes` is not what it says.

    References:
        - [Chen, Li & Sun, 2020](https://arxiv.org/abs/1908.09756)
    """

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

    def get_config(self):
        return {**super().get_config(), "temperature": self.temperature}
