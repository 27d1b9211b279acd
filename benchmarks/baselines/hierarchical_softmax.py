"""Hierarchical softmax (Goodman, 2001, https://arxiv.org/abs/cs/0108006)."""

import keras
import numpy as np
import tensorflow as tf

from benchmarks.baselines.probability_head import ProbabilityHead
from keras_compembed.classes.class_tree import log_shares
from keras_compembed.classes.tree_arrays import TreeArrays
from keras_compembed.optimizers.device_rows import read_rows
from keras_compembed.utils.validation import check_class_counts


class HierarchicalSoftmax(ProbabilityHead):
    """Probabilities of classes as products of choices down a tree."""

    def __init__(
        self, tree, class_counts=None, kernel_initializer="uniform", **kwargs
    ):
        tree = TreeArrays(tree)
        super().__init__(tree.num_classes, **kwargs)
        self.tree = tree
        self.class_counts = check_class_counts(class_counts, tree.num_classes)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, input_shape):
        if self.built:
            return
        self.tree.build()
        entries = self.tree.num_nodes + self.num_classes
        self.kernel = self.add_weight(
            name="kernel",
            shape=(entries, input_shape[-1]),
            initializer=self.kernel_initializer,
        )
        self.bias = self.add_weight(
            name="bias",
            shape=(entries, 1),
            initializer=lambda shape, dtype: self._first_bias(),
        )
        self.built = True

    def _first_bias(self):
        if self.class_counts is None:
            entries = self.tree.num_nodes + self.num_classes
            return np.zeros((entries, 1), "float32")
        tree = self.tree.class_tree
        classes, nodes = log_shares(tree, self.class_counts)
        return np.concatenate([nodes, classes])[:, None]

    def choices(self, features, labels):
        num_nodes = self.tree.num_nodes
        parents = self.tree.ancestors(labels)
        chosen = tf.concat([labels[:, None] + num_nodes, parents], axis=1)
        # The root has no number of its own: -1, as where a path has ended.
        parents = tf.concat([parents, -tf.ones_like(labels)[:, None]], axis=1)
        children = tf.gather(self.tree.children.value, parents + 1)
        flat = tf.reshape(tf.maximum(children, 0), (-1,))
        vectors = read_rows(self.kernel, flat)
        biases = read_rows(self.bias, flat)
        shape = tf.shape(children)
        vectors = tf.reshape(vectors, tf.concat([shape, [-1]], axis=0))
        scores = tf.reduce_sum(vectors * features[:, None, None, :], axis=-1)
        scores += tf.reshape(biases, shape)
        # Not minus infinity, which makes gradients NaN.
        scores = tf.where(children >= 0, scores, scores.dtype.min)
        places = tf.argmax(
            tf.cast(tf.equal(children, chosen[:, :, None]), "int32"), axis=-1
        )
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(places, scores)
        best = tf.equal(tf.argmax(scores, axis=-1), places) | (chosen < 0)
        losses = tf.reduce_sum(tf.where(chosen >= 0, losses, 0.0), axis=1)
        return losses, tf.reduce_all(best, axis=1)

    def numbers_per_row(self):
        # Children are padded to the most that a node has.
        children = (self.tree.num_nodes + 1) * self.tree.branching
        return max(self.num_classes, children)

    def log_probabilities(self, features):
        tree = self.tree
        scores = tf.matmul(features, self.kernel.value, transpose_b=True)
        scores += self.bias.value[:, 0]
        children = tf.convert_to_tensor(tree.children.value)
        of_children = tf.gather(scores, tf.maximum(children, 0), axis=1)
        of_children = tf.where(children >= 0, of_children, float("-inf"))
        totals = tf.reduce_logsumexp(of_children, axis=2)
        # Of the root and, level by level, of inner nodes.
        reached = tf.zeros_like(totals[:, :1])
        start = 0
        for size in tree.level_sizes:
            nodes = scores[:, start : start + size]
            above = tree.node_parents.value[start : start + size] + 1
            nodes += tf.gather(reached - totals[:, : 1 + start], above, axis=1)
            reached = tf.concat([reached, nodes], axis=1)
            start += size
        above = tf.gather(
            reached - totals, tree.class_parents.value + 1, axis=1
        )
        return scores[:, tree.num_nodes :] + above
