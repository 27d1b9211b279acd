"""The base of layers with probabilities in place of scores."""

import tensorflow as tf

from keras_compembed.classes.class_head import ClassHead
from keras_compembed.classes.class_head import flat_features
from keras_compembed.classes.class_head import unflat
from keras_compembed.utils.tensor_ops import in_parts
from keras_compembed.utils.tensor_ops import without_nan
from keras_compembed.utils.validation import check_positive_int

# Numbers held at a time for some examples and all classes.
_PART_NUMBERS = 1 << 24


class ProbabilityHead(ClassHead):
    """Base of layers with log-probabilities in place of scores."""

    def log_probabilities(self, features):
        """Log-probabilities of all classes, in memory all at once."""
        raise NotImplementedError

    def row_probabilities(self, features):
        return tf.exp(self.log_probabilities(features))

    def numbers_per_row(self):
        """Numbers in the largest tensor of `log_probabilities`, for a row."""
        return self.num_classes

    def exact(self, features, labels):
        def compute(features, labels):
            scores = self.log_probabilities(features)
            own = tf.gather(scores, labels, batch_dims=1)[:, None]
            before = tf.range(self.num_classes) < labels[:, None]
            above = (scores > own) | (tf.equal(scores, own) & before)
            return -own[:, 0], tf.reduce_sum(tf.cast(above, "int32"), axis=1)

        return self._in_parts(
            compute,
            (features, labels),
            (tf.zeros(tf.shape(labels)), tf.zeros_like(labels)),
        )

    def top_k(self, features, k=5):
        check_positive_int("k", k, maximum=self.num_classes)
        features = tf.convert_to_tensor(features)
        if not self.built:
            self.build(features.shape)
        rows = flat_features(features)

        def compute(features):
            scores = without_nan(self.log_probabilities(features))
            scores, ids = tf.math.top_k(scores, k)
            return tf.where(scores > float("-inf"), ids, -1), tf.exp(scores)

        shape = (tf.shape(rows)[0], k)
        ids, probabilities = self._in_parts(
            compute, (rows,), (tf.zeros(shape, "int32"), tf.zeros(shape))
        )
        return unflat(ids, features), unflat(probabilities, features)

    def _in_parts(self, compute, inputs, results):
        size = max(1, _PART_NUMBERS // self.numbers_per_row())
        return in_parts(compute, inputs, results, size)
