"""Sampled softmax as a loss."""

import keras

from keras_compembed.baselines.sampled_loss import SampledLoss
from keras_compembed.baselines.sampled_loss import sampled_cross_entropies


@keras.saving.register_keras_serializable(package="keras_compembed")
class SampledSoftmaxLoss(SampledLoss):
    """Trains a `keras_compembed.CANESoftmax` by sampled softmax.

    The cross-entropy of the label among itself and sampled classes, scores
    corrected by how often classes are sampled: `tf.nn.sampled_softmax_loss`,
    for any noise of the layer, compiled by XLA, and with gradients in which a
    row comes once. Of samples that are the label, all are left out. Its
    minimum is not that of the softmax over all classes, but tends to it with
    the number of samples.

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

    def sampled_losses(self, label, sampled, hits):
        return sampled_cross_entropies(label, sampled, hits)
