"""Noise-contrastive estimation as a loss."""

import keras
import tensorflow as tf

from keras_compembed.baselines.sampled_loss import SampledLoss


@keras.saving.register_keras_serializable(package="keras_compembed")
class NCELoss(SampledLoss):
    """Trains a `keras_compembed.CANESoftmax` by noise-contrastive estimation.

    Tells labels from sampled classes, one by one, by scores taken for log
    probabilities, of which the sum over classes is not computed but learned
    to be 1: `tf.nn.nce_loss`, for any noise of the layer, and with gradients
    in which a row comes once. Start biases at log frequencies of classes.

    Example:

    >>> counts = 1000 / np.arange(1, 1001)
    >>> noise = kc.noises.UnigramNoise(counts)
    >>> layer = kc.CANESoftmax(1000, noise=noise, class_counts=counts)
    >>> model = keras.Sequential([keras.Input((8,)), layer])
    >>> model.compile("adam", loss=kc.baselines.NCELoss(num_sampled=40))

    Args:
        num_sampled: Optional integer, the number of sampled classes, which
            all examples of a step share. Defaults to the candidates and
            noises of the layer together.
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
            is not a positive integer; or if the layer is not a `CANESoftmax`.

    References:
        - [Gutmann & Hyvarinen, 2012](
          https://jmlr.org/papers/v13/gutmann12a.html)
        - [Mnih & Teh, 2012](https://arxiv.org/abs/1206.6426)
    """

    def sampled_losses(self, label, sampled, left_out, num_classes):
        # A class sampled as noise is noise, also where it is the label.
        losses = tf.math.softplus(-label)
        return losses + tf.reduce_sum(tf.math.softplus(sampled), axis=1)
