"""Sampled softmax as a loss."""

import keras

from keras_compembed.baselines.sampled_loss import SampledLoss
from keras_compembed.baselines.sampled_loss import sampled_cross_entropies


@keras.saving.register_keras_serializable(package="keras_compembed")
class SampledSoftmaxLoss(SampledLoss):
    """Trains a `keras_compembed.CANESoftmax` by sampled softmax.

    The cross-entropy of the label among itself and sampled classes, scores
    corrected by how likely classes are to be sampled (logQ correction):
    `tf.nn.sampled_softmax_loss`, for any noise of the layer, compiled by XLA,
    and with gradients in which a row comes once.

    Classes are drawn with replacement, and each counts once, as TensorFlow's
    own samplers have it: the correction is the logarithm of
    `1 - (1 - q)^num_sampled`, the probability to be among the samples.
    Samples that are the label are left out. With the number of samples the
    loss tends to that of the softmax over all classes.

    Example:

    >>> counts = 1000 / np.arange(1, 1001)
    >>> layer = kc.CANESoftmax(1000, noise=kc.noises.UnigramNoise(counts))
    >>> model = keras.Sequential([keras.Input((8,)), layer])
    >>> loss = kc.baselines.SampledSoftmaxLoss(num_sampled=40)
    >>> model.compile("adam", loss=loss)

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
        - [Bengio & Senecal, 2008](https://doi.org/10.1109/TNN.2007.912312)
        - [Jean et al., 2015](https://arxiv.org/abs/1412.2007)
    """

    # With "count", a frequent class that is sampled often would weigh too
    # little in the sum where it is the label, as its samples are left out.
    correction = "presence"

    def sampled_losses(self, label, sampled, left_out, num_classes):
        return sampled_cross_entropies(label, sampled, left_out)
