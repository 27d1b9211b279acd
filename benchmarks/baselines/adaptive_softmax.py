"""Adaptive softmax (Grave et al., 2017, https://arxiv.org/abs/1609.04309)."""

import keras
import numpy as np
import tensorflow as tf

from benchmarks.baselines.probability_head import ProbabilityHead
from keras_compembed.utils.validation import check_class_counts


class AdaptiveSoftmax(ProbabilityHead):
    """Probabilities of frequent classes first, of rare ones in clusters.

    So many of the most frequent classes come before each cluster as `cutoffs`
    say; classes of the n-th cluster have vectors narrower by `factor**n`.
    """

    def __init__(
        self,
        num_classes,
        cutoffs,
        factor=4.0,
        class_counts=None,
        kernel_initializer="uniform",
        projection_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(num_classes, **kwargs)
        self.supports_jit = False
        self.cutoffs = tuple(cutoffs)
        self.factor = factor
        self.class_counts = check_class_counts(class_counts, num_classes)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.projection_initializer = keras.initializers.get(
            projection_initializer
        )

    def build(self, input_shape):
        if self.built:
            return
        width = int(input_shape[-1])
        order = self._first_order()
        self.places = self.add_weight(
            name="places",
            shape=(self.num_classes,),
            dtype="int32",
            initializer=lambda shape, dtype: np.argsort(order).astype("int32"),
            trainable=False,
        )
        shares = self._first_biases(order)
        first, sizes = (
            self.cutoffs[0],
            np.diff([*self.cutoffs, self.num_classes]),
        )
        self.kernels = [self._add_kernel(0, first + len(sizes), width)]
        self.biases = [self._add_bias(0, shares[0])]
        self.projections = []
        for number, size in enumerate(sizes.tolist(), 1):
            narrow = max(1, int(width / self.factor**number))
            self.projections.append(
                self.add_weight(
                    name=f"projection_{number}",
                    shape=(width, narrow),
                    initializer=self.projection_initializer,
                )
            )
            self.kernels.append(self._add_kernel(number, size, narrow))
            self.biases.append(self._add_bias(number, shares[number]))
        self.built = True

    def _first_order(self):
        if self.class_counts is None:
            return np.arange(self.num_classes)
        return np.argsort(-self.class_counts, kind="stable")

    def _first_biases(self, order):
        """Log frequencies of classes, or of what a cluster holds of them."""
        if self.class_counts is None:
            ends = [*self.cutoffs, self.num_classes]
            sizes = np.diff([0, *ends])
            sizes[0] += len(sizes) - 1
            return [np.zeros(size, "float32") for size in sizes]
        first, *clusters = np.split(self.class_counts[order], self.cutoffs)
        parts = [np.append(first, [part.sum() for part in clusters]), *clusters]
        return [np.log(part / part.sum()).astype("float32") for part in parts]

    def _add_kernel(self, number, size, width):
        initializer = self.kernel_initializer
        if isinstance(initializer, keras.initializers.Initializer):
            # One object gives the same numbers at each call.
            initializer = initializer.clone()
        return self.add_weight(
            name=f"kernel_{number}",
            shape=(size, width),
            initializer=initializer,
        )

    def _add_bias(self, number, start):
        return self.add_weight(
            name=f"bias_{number}",
            shape=start.shape,
            initializer=lambda shape, dtype: start,
        )

    def choices(self, features, labels):
        places = tf.gather(self.places.value, labels)
        first = self.cutoffs[0]
        targets = tf.minimum(places, first)
        for cutoff in self.cutoffs[1:]:
            targets += tf.cast(places >= cutoff, "int32")
        losses, best = _losses(self._scores(0, features), targets)
        for number, start in enumerate(self.cutoffs, 1):
            rows = tf.where(tf.equal(targets, first + number - 1))
            scores = self._scores(number, tf.gather_nd(features, rows))
            in_cluster = _losses(scores, tf.gather_nd(places, rows) - start)
            losses = tf.tensor_scatter_nd_add(losses, rows, in_cluster[0])
            better = tf.gather_nd(best, rows) & in_cluster[1]
            best = tf.tensor_scatter_nd_update(best, rows, better)
        return losses, best

    def _scores(self, number, features):
        if number:
            features = tf.matmul(features, self.projections[number - 1].value)
        kernel, bias = self.kernels[number], self.biases[number]
        return tf.matmul(features, kernel.value, transpose_b=True) + bias.value

    def log_probabilities(self, features):
        first = self.cutoffs[0]
        head = tf.nn.log_softmax(self._scores(0, features))
        parts = [head[:, :first]]
        for number in range(1, len(self.kernels)):
            part = tf.nn.log_softmax(self._scores(number, features))
            cluster = first + number - 1
            parts.append(part + head[:, cluster : cluster + 1])
        return tf.gather(tf.concat(parts, axis=1), self.places.value, axis=1)


def _losses(scores, targets):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, scores)
    best = tf.argmax(scores, axis=1, output_type="int32")
    return losses, tf.equal(best, targets)
