"""Candidates sampled from the best of a few subsets by frequency."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.candidates.frequent_classes import CountsSelector
from keras_compembed.noises.random_bits import random_bits
from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.optimizers.device_rows import own_value
from keras_compembed.trees.class_tree import ClassTree
from keras_compembed.trees.tree_arrays import TreeArrays
from keras_compembed.utils.saving import load_seed
from keras_compembed.utils.saving import save_seed
from keras_compembed.utils.validation import check_positive_int


@keras.saving.register_keras_serializable(package="keras_compembed")
class FrequencySubsets(CountsSelector):
    """Routes an example to a subset of classes, and samples from it.

    The tree of section 5 of the paper, for language models: one level of
    subsets, split so that each has an equal share of what occurs. An example
    goes to the subset of the highest score; its candidates are drawn there
    evenly, or are the whole subset if that is small.

    This is here to be compared with: on Penn Treebank, `NGram` and
    `FrequentClasses` with more noises did far better.

    Example:

    >>> counts = 1000 // np.arange(1, 1001)
    >>> selector = FrequencySubsets(counts, num_subsets=6)
    >>> head = kc.CANESoftmax(1000, selector, 40, 1, class_counts=counts)

    Args:
        counts: Array `(num_classes,)`, how often each class occurs.
        num_subsets: Integer from 2 to the number of classes. Defaults to `6`.
        seed: Optional integer.
        **kwargs: `name` of `keras.layers.Layer`.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), section 5
    """

    def __init__(self, counts, num_subsets=6, seed=None, **kwargs):
        super().__init__(counts, **kwargs)
        check_positive_int("num_subsets", num_subsets, 2, len(self.counts))
        self.num_subsets = num_subsets
        self.seed = seed
        groups = split_evenly(self.counts, num_subsets)
        self.tree = TreeArrays(ClassTree.from_groups(groups))
        self._order = np.argsort(groups, kind="stable").astype("int32")
        sizes = np.bincount(groups, minlength=num_subsets)
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape=None):
        if self.built:
            return
        self.tree.build()
        self.order = self._add_state("order", self._order)
        self.starts = self._add_state("starts", self._starts)
        self.built = True

    def select(self, scores, features, context=None):
        vectors, biases = scores._of_nodes(1)
        of_subsets = tf.matmul(features, vectors, transpose_b=True) + biases
        subset = tf.argmax(of_subsets, axis=1, output_type="int32")
        start = gather_rows(self.starts, subset)[:, None]
        size = gather_rows(self.starts, subset + 1)[:, None] - start
        number = self.num_candidates
        seed = own_value(self.seed_generator.state)
        bits = random_bits(seed, number + 1, tf.shape(features)[0])
        places = _different_places(bits, tf.cast(size, "int64"))
        steps = tf.range(number)
        small = size <= number
        places = tf.where(small, tf.minimum(steps, size - 1), places)
        ids = tf.gather(self.order.value, start + places)
        return tf.where(small & (steps >= size), -1, ids)

    def after_step(self, scores, labels, hit):
        # Evaluation leaves the state as it is.
        self.seed_generator.next()

    def save_own_variables(self, store):
        super().save_own_variables(store)
        save_seed(store, self.seed_generator)

    def load_own_variables(self, store):
        super().load_own_variables(load_seed(store, self.seed_generator))

    def get_config(self):
        return {
            **super().get_config(),
            "num_subsets": self.num_subsets,
            "seed": self.seed,
        }


def split_evenly(counts, num_groups):
    """Groups of classes, most frequent first, of about equal mass."""
    order = np.argsort(-np.asarray(counts, "float64"), kind="stable")
    mass = np.cumsum(np.maximum(counts, 1e-9)[order], dtype="float64")
    middle = (mass - np.maximum(counts, 1e-9)[order] / 2) / mass[-1]
    groups = np.minimum((middle * num_groups).astype(int), num_groups - 1)
    # Each group begins after the one before it, and leaves room for others.
    starts = np.searchsorted(groups, np.arange(num_groups))
    number = len(counts)
    for group in range(1, num_groups):
        starts[group] = max(starts[group], starts[group - 1] + 1)
    room = number - num_groups + np.arange(num_groups)
    starts = np.minimum(starts, room)
    result = np.empty(number, "int32")
    result[order] = np.searchsorted(starts, np.arange(number), side="right") - 1
    return result


def _different_places(bits, size):
    """Different places in rows of some sizes, all of them equally probable."""
    number = bits.shape[1] - 1
    # One place in each part of a circle that begins anywhere: parts differ in
    # length by 1, and those of one length are not always the same.
    ends = tf.range(number + 1, dtype="int64") * size // number
    lengths = tf.maximum(ends[:, 1:] - ends[:, :-1], 1)
    places = ends[:, :-1] + tf.math.floormod(bits[:, 1:], lengths)
    turn = tf.math.floormod(bits[:, :1], size)
    return tf.cast(tf.math.floormod(places + turn, size), "int32")
