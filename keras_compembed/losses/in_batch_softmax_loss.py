"""Softmax over the labels of a batch as a loss."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.candidates.candidates_vs_noises import Draw
from keras_compembed.losses.class_loss import ClassLoss
from keras_compembed.losses.sampled_losses import log_presence
from keras_compembed.losses.sampled_losses import sampled_cross_entropies
from keras_compembed.optimizers.device_rows import of_all_devices
from keras_compembed.optimizers.unique_places import first_places
from keras_compembed.utils.validation import require


@keras.saving.register_keras_serializable(package="keras_compembed")
class InBatchSoftmaxLoss(ClassLoss):
    """Trains a `keras_compembed.CANESoftmax` on the labels of each batch.

    The cross-entropy of the label among all labels of the batch, as two-tower
    models of retrieval are trained: no class is sampled, and scores are one
    matrix product. Frequent classes come as negatives more often, for which
    scores are corrected (logQ correction): by the logarithm of
    `1 - (1 - q)^n`, the probability that a class of the share q of labels is
    among n others of the batch. A class counts once however often it comes,
    so that labels of other examples that are the own one are left out.

    It is the cross-entropy of `keras_rs.layers.SamplingProbabilityCorrection`
    given these probabilities. Shares are those of the layer's `class_counts`.
    Examples that a mask or `ignore_class` leaves out are no negatives. Over
    several devices, labels are those of all.

    In training, metrics are of the label among the labels of the batch.

    Example:

    >>> counts = 1000 / np.arange(1, 1001)
    >>> layer = kc.CANESoftmax(1000, class_counts=counts)
    >>> model = keras.Sequential([keras.Input((8,)), layer])
    >>> model.compile("adam", loss=kc.InBatchSoftmaxLoss())

    Args:
        evaluation, ignore_class, name, reduction: Same as for
            `keras_compembed.CANELoss`, as are call arguments.

    Raises:
        ValueError: Same as for `keras_compembed.CANELoss`; or if the layer is
            not a `CANESoftmax`, or has no `class_counts`.

    References:
        - [Yi et al., 2019](https://doi.org/10.1145/3298689.3346996)
    """

    def training_losses(self, examples):
        head = examples.head
        require(
            head.class_counts is not None,
            "`InBatchSoftmaxLoss` must be given the output of a layer with "
            "`class_counts`, the frequencies that scores are corrected by.",
            layer=head.name,
        )
        labels = examples.labels
        others = labels
        if examples.mask is not None:
            others = tf.where(examples.mask, labels, -1)
        others = of_all_devices(others)
        steps = tf.range(tf.size(others))
        again = tf.not_equal(first_places(others, head.num_classes), steps)
        none = (others < 0) | again
        scores = head.scores.score(examples.features, labels[:, None], others)
        shares = head.class_counts / head.class_counts.sum()
        log_q = tf.constant(np.log(shares), "float32")
        counted = tf.reduce_sum(tf.cast(others >= 0, "float32"))
        log_q = log_presence(log_q, tf.maximum(counted - 1, 1.0))
        left_out = none | tf.equal(labels[:, None], others)
        losses = sampled_cross_entropies(
            scores[0][:, 0] - tf.gather(log_q, labels),
            scores[1] - tf.gather(log_q, tf.maximum(others, 0)),
            left_out,
        )
        if examples.training:
            best = tf.reduce_all(left_out | (scores[0] >= scores[1]), axis=1)
            examples.keep(Draw(losses, tf.zeros_like(best), best))
        return losses
