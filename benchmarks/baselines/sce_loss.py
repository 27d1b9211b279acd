"""SCE as a loss (Mezentsev et al., 2024, https://arxiv.org/abs/2409.18721).

The examples whose features lie furthest in a random direction are a bucket,
with the classes whose vectors do. The loss of an example is the cross-entropy
of its label among the classes of its bucket; in several buckets, the largest;
in none, it is left out.
"""

import keras
import tensorflow as tf

from keras_compembed.classes.class_scores import ClassScores
from keras_compembed.classes.losses import ClassLoss
from keras_compembed.classes.sampling import Draw
from keras_compembed.utils.tensor_ops import log_sum_exp


@keras.saving.register_keras_serializable(package="benchmarks")
class SCELoss(ClassLoss):
    """Trains a `CANESoftmax` by scalable cross-entropy (SCE)."""

    def __init__(
        self,
        num_buckets,
        bucket_size_examples,
        bucket_size_classes,
        mix=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_buckets = num_buckets
        self.bucket_size_examples = bucket_size_examples
        self.bucket_size_classes = bucket_size_classes
        self.mix = mix

    def training_losses(self, examples):
        head = examples.head
        number = tf.shape(examples.labels)[0]
        size = tf.minimum(self.bucket_size_examples, number)
        rows, classes = self._buckets(head, examples, size)
        labels = tf.gather(examples.labels, rows)
        label, others = head.scores.shared(
            tf.gather(examples.features, rows),
            [labels[:, None]],
            [classes],
            neighbors=size,
        )
        classes = tf.repeat(classes, size, axis=0)
        left_out = tf.equal(labels[:, None], classes) | (classes < 0)
        others = tf.where(left_out, float("-inf"), others)
        losses = log_sum_exp(label, others) - label[:, 0]
        if examples.mask is not None:
            # Segments of negative numbers are dropped.
            rows = tf.where(tf.gather(examples.mask, rows), rows, -1)
        placed = (
            tf.math.unsorted_segment_sum(tf.ones_like(rows), rows, number) > 0
        )
        largest = tf.math.unsorted_segment_max(losses, rows, number)
        # The maximum passes over NaN.
        lost = tf.math.unsorted_segment_sum(0.0 * losses, rows, number)
        largest = tf.where(placed, largest + tf.stop_gradient(lost), 0.0)
        if examples.training:
            best = tf.reduce_all(label >= others, axis=1)
            worse = tf.cast(tf.logical_not(best), "int32")
            best = tf.math.unsorted_segment_sum(worse, rows, number) < 1
            examples.keep(Draw(largest, tf.zeros_like(best), best))
        largest = tf.identity(largest)
        largest._keras_mask = placed
        return largest

    def _buckets(self, head, examples, size):
        """Examples and classes of buckets."""
        features = tf.stop_gradient(examples.features)
        mask = examples.mask
        seed = tf.cast(examples.seed(), "int32")
        count = tf.shape(features)[0] if self.mix else features.shape[1]
        directions = tf.random.stateless_normal((self.num_buckets, count), seed)
        if self.mix:
            counted = features
            if mask is not None:
                counted = tf.where(mask[:, None], features, 0.0)
            directions = tf.matmul(directions, counted)
        lengths = tf.matmul(directions, features, transpose_b=True)
        if mask is not None:
            lengths = tf.where(mask, lengths, float("-inf"))
        rows = tf.math.top_k(lengths, size).indices
        scores = head.scores
        # Without biases, as in the paper.
        vectors = ClassScores(
            scores.table, tree=scores.tree, nodes=scores.nodes
        )
        number = min(self.bucket_size_classes, head.num_classes)
        classes, _, _ = vectors.top_k(directions, number)
        return tf.reshape(rows, (-1,)), tf.stop_gradient(classes)

    def get_config(self):
        return {
            **super().get_config(),
            "num_buckets": self.num_buckets,
            "bucket_size_examples": self.bucket_size_examples,
            "bucket_size_classes": self.bucket_size_classes,
            "mix": self.mix,
        }
