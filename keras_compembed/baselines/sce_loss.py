"""Scalable cross-entropy as a loss."""

import keras
import tensorflow as tf

from keras_compembed.baselines.cane_head import check_cane_softmax
from keras_compembed.baselines.class_projections import furthest_classes
from keras_compembed.candidates.candidates_vs_noises import Draw
from keras_compembed.losses.class_loss import ClassLoss
from keras_compembed.utils.log_sums import log_sum_exp
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_positive_int


@keras.saving.register_keras_serializable(package="keras_compembed")
class SCELoss(ClassLoss):
    """Trains a `keras_compembed.CANESoftmax` by scalable cross-entropy (SCE).

    Draws random directions in each step. The examples whose features lie
    furthest in a direction are a bucket, with the classes whose vectors lie
    furthest in it: hard negatives, and one matrix product. The loss of an
    example is the cross-entropy of its label among the classes of its bucket,
    where the label counts once, in the bucket or not. An example in several
    buckets takes its largest loss; one in none is left out of the mean, as a
    mask leaves it out.

    A step reads the vectors of all classes, without gradients, for a product
    of `num_classes * width * num_buckets`: faster than the full softmax by
    the number of examples to that of buckets. The paper has as many buckets
    as examples in each, twice the root of the examples of a step, and 256
    classes.

    Biases count in the scores, not in the choice of buckets: the paper has
    none. On several devices, buckets are those of each device.

    In training, metrics are of the label among the classes of its buckets; an
    example in no bucket counts as right, with a loss of 0.

    Example:

    >>> model = keras.Sequential([keras.Input((8,)), kc.CANESoftmax(1000)])
    >>> loss = kc.baselines.SCELoss(
    ...     num_buckets=16, bucket_size_examples=16, bucket_size_classes=64
    ... )
    >>> model.compile("adam", loss=loss)

    Args:
        num_buckets: Integer.
        bucket_size_examples: Integer, examples of a bucket; all of them if
            a step has fewer.
        bucket_size_classes: Integer, classes of a bucket; all of them if
            there are fewer.
        mix: Boolean. Whether directions are random mixtures of the features
            of the step, so that fewer examples are in no bucket, or are
            anywhere. Defaults to `True`.
        evaluation: Same as for `keras_compembed.CANELoss`.
        ignore_class: Same as for `keras_compembed.CANELoss`.
        name: Optional string.
        reduction: Same as for `keras.losses.Loss`.

    Call arguments:
        y_true: Same as for `keras_compembed.CANELoss`.
        y_pred: Same as for `keras_compembed.CANELoss`.
        sample_weight: Same as for `keras_compembed.CANELoss`.

    Raises:
        ValueError: Same as for `keras_compembed.CANELoss`; if a number is not
            a positive integer, or `mix` is not a boolean; or if the layer is
            not a `CANESoftmax`.

    References:
        - [Mezentsev et al., 2024](https://arxiv.org/abs/2409.18721)
    """

    def __init__(
        self,
        num_buckets,
        bucket_size_examples,
        bucket_size_classes,
        mix=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_buckets = check_positive_int("num_buckets", num_buckets)
        self.bucket_size_examples = check_positive_int(
            "bucket_size_examples", bucket_size_examples
        )
        self.bucket_size_classes = check_positive_int(
            "bucket_size_classes", bucket_size_classes
        )
        self.mix = check_boolean("mix", mix)

    def training_losses(self, examples):
        head = check_cane_softmax(examples.head, self)
        number = tf.shape(examples.labels)[0]
        size = tf.minimum(self.bucket_size_examples, number)
        rows, classes = self._buckets(head, examples, size)
        labels = tf.gather(examples.labels, rows)
        label, others = head.scores.score(
            tf.gather(examples.features, rows),
            labels[:, None],
            classes[:, None],
            block=size,
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
        classes = furthest_classes(
            head.scores,
            directions,
            min(self.bucket_size_classes, head.num_classes),
        )
        return tf.reshape(rows, (-1,)), tf.stop_gradient(classes)

    def get_config(self):
        return {
            **super().get_config(),
            "num_buckets": self.num_buckets,
            "bucket_size_examples": self.bucket_size_examples,
            "bucket_size_classes": self.bucket_size_classes,
            "mix": self.mix,
        }
