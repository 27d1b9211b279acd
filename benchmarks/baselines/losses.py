"""The full softmax, BlackOut and gBCE as losses.

BlackOut: https://arxiv.org/abs/1511.06909, equations 5 and 6. gBCE, as
gSASRec is trained: https://arxiv.org/abs/2308.07192.
"""

import keras
import tensorflow as tf

from keras_compembed.classes.class_head import ClassHead
from keras_compembed.classes.losses import ClassLoss
from keras_compembed.classes.losses import SampledLoss
from keras_compembed.utils.tensor_ops import log_sum_exp


@keras.saving.register_keras_serializable(package="benchmarks")
class FullSoftmaxLoss(ClassLoss):
    """Trains a layer of classes on the scores of all classes."""

    def training_losses(self, examples):
        draw = ClassHead.draw(examples.head, examples)
        if examples.training:
            examples.keep(draw)
        return draw.losses


@keras.saving.register_keras_serializable(package="benchmarks")
class BlackOutLoss(SampledLoss):
    """Trains a `CANESoftmax` by BlackOut.

    `-log p(label) - sum(log(1 - p(class)) for sampled classes)`, p the softmax
    over the label and sampled classes.
    """

    def sampled_losses(self, label, sampled, left_out, num_classes):
        others = tf.where(left_out, float("-inf"), sampled)
        scores = tf.concat([label[:, None], others], axis=1)
        total = log_sum_exp(scores)
        # Of one class alone 1 - p may round to 0: it is summed without it.
        largest = tf.one_hot(
            tf.argmax(scores, axis=1), tf.shape(scores)[1], True, False
        )
        rest = log_sum_exp(tf.where(largest, float("-inf"), scores))
        log_p = tf.where(largest, float("-inf"), scores - total[:, None])
        log_not_p = tf.where(
            largest, (rest - total)[:, None], tf.math.log1p(-tf.exp(log_p))
        )
        noise = tf.where(left_out, 0.0, log_not_p[:, 1:])
        return total - label - tf.reduce_sum(noise, axis=1)


@keras.saving.register_keras_serializable(package="benchmarks")
class GBCELoss(SampledLoss):
    """Trains a `CANESoftmax` as gSASRec is trained (gBCE).

    `-(beta log(sigmoid(s_y)) + sum_j log(1 - sigmoid(s_j))) / (n + 1)`, where
    `beta = a (t (1 - 1 / a) + 1 / a)`, `a = n / (N - 1)` and t `calibration`.
    """

    correction = None

    def __init__(self, num_sampled=None, calibration=0.75, **kwargs):
        super().__init__(num_sampled, **kwargs)
        self.calibration = calibration

    def sampled_losses(self, label, sampled, left_out, num_classes):
        number = sampled.shape[1]
        share = min(1.0, number / (num_classes - 1))
        # The paper's beta, multiplied out.
        beta = self.calibration * (share - 1) + 1
        negative = tf.where(left_out, 0.0, tf.math.softplus(sampled))
        total = beta * tf.math.softplus(-label) + tf.reduce_sum(negative, 1)
        return total / (number + 1)

    def get_config(self):
        return {**super().get_config(), "calibration": self.calibration}
