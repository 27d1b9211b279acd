"""Generalised binary cross-entropy as a loss."""

import numbers

import keras
import tensorflow as tf

from keras_compembed.baselines.sampled_loss import SampledLoss


@keras.saving.register_keras_serializable(package="keras_compembed")
class GBCELoss(SampledLoss):
    """Trains a `keras_compembed.CANESoftmax` as gSASRec is trained (gBCE).

    Binary cross-entropies of the label and of n sampled classes, with the
    probability of the label to the power of beta:
    `-(beta log(sigmoid(s_y)) + sum_j log(1 - sigmoid(s_j))) / (n + 1)`. With
    few of the N classes sampled, labels would be far too many, and their
    probabilities too high; `beta = a (t (1 - 1 / a) + 1 / a)` makes good for
    it, where `a = n / (N - 1)` is the share of classes that is sampled and t
    is `calibration`.

    The paper draws samples evenly, so give the layer `noise="uniform"`; from
    another noise, probabilities are not calibrated. Samples are with
    replacement, shared by all examples of a step (the paper's are each
    example's own), and left out where they are the label. Scores are not
    corrected by how often classes are sampled.

    Example:

    >>> layer = kc.CANESoftmax(1000, noise="uniform")
    >>> model = keras.Sequential([keras.Input((8,)), layer])
    >>> model.compile("adam", loss=kc.baselines.GBCELoss(num_sampled=256))

    Args:
        num_sampled: Optional integer, the number of sampled classes, which
            all examples of a step share. Defaults to the candidates and
            noises of the layer together.
        calibration: Number from 0, the plain binary cross-entropy, to 1, with
            which probabilities are calibrated: the paper's t. Defaults to
            `0.75`.
        evaluation: Same as for `keras_compembed.CANELoss`.
        ignore_class: Same as for `keras_compembed.CANELoss`.
        name: Optional string.
        reduction: Same as for `keras.losses.Loss`.

    Call arguments:
        y_true: Same as for `keras_compembed.CANELoss`.
        y_pred: Same as for `keras_compembed.CANELoss`.
        sample_weight: Same as for `keras_compembed.CANELoss`.

    Raises:
        ValueError: Same as for `keras_compembed.CANELoss`; if `num_sampled`
            is not a positive integer, or `calibration` is out of range; or if
            the layer is not a `CANESoftmax`.

    References:
        - [Petrov & Macdonald, 2023](https://arxiv.org/abs/2308.07192)
    """

    correction = None

    def __init__(self, num_sampled=None, calibration=0.75, **kwargs):
        super().__init__(num_sampled, **kwargs)
        if (
            not isinstance(calibration, numbers.Real)
            or isinstance(calibration, bool)
            or not 0 <= calibration <= 1
        ):
            raise ValueError(
                "`calibration` must be a number from 0 to 1. "
                f"Received: calibration={calibration!r}."
            )
        self.calibration = float(calibration)

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
