"""Anchors that are a lightweight coreset."""

import keras
import numpy as np

from keras_compembed.anchors.k_means_seeding import squared_distances
from keras_compembed.anchors.table_initializer import TableInitializer
from keras_compembed.utils.validation import float_chunks


@keras.saving.register_keras_serializable(package="keras_compembed")
class Coreset(TableInitializer):
    """Anchors are a small set that stands for a space of objects.

    Lightweight coresets: an object is drawn with a probability that is half
    even, half proportional to its squared distance from the mean. Two
    passes over the table are enough for any number of anchors. Objects are
    drawn without replacement.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(1000, 64))
    >>> initializer = Coreset(table, seed=0)
    >>> len(np.unique(initializer.choose(input_dim=1000, num_anchors=10)))
    10

    Args:
        table: Array `(input_dim, width)` of finite numbers, a point for each
            object. It is read a part at a time, and may be memory-mapped.
        seed: Optional integer. Defaults to one drawn at random.

    Raises:
        ValueError: if the table is not a finite matrix, or `seed` is not an
            integer of at least 0; by `choose`, if the table has not
            `input_dim` rows, or anchors are more.

    References:
        - [Bachem, Lucic & Krause, 2017](https://arxiv.org/abs/1702.08248),
          Algorithm 1
        - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), appendix A
    """

    def choose_rows(self, num_anchors):
        rng = np.random.default_rng(self.seed)
        chances = coreset_chances(self.table)
        return rng.choice(
            len(self.table), num_anchors, replace=False, p=chances
        ).astype("int64")


def coreset_chances(table):
    """float64 array, the probability of each row in a coreset."""
    mean = np.zeros(table.shape[1])
    for _, chunk in float_chunks(table):
        mean += chunk.sum(axis=0, dtype="float64")
    distances = squared_distances(table, mean / len(table))
    total = distances.sum()
    even = 1 / len(table)
    if total == 0:
        return np.full(len(table), even)
    return 0.5 * even + 0.5 * distances / total
