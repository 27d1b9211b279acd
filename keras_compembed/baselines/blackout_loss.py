"""BlackOut as a loss."""

import keras
import tensorflow as tf

from keras_compembed.baselines.sampled_loss import SampledLoss
from keras_compembed.utils.log_sums import log_sum_exp


@keras.saving.register_keras_serializable(package="keras_compembed")
class BlackOutLoss(SampledLoss):
    """Trains a `keras_compembed.CANESoftmax` by BlackOut.

    With `p` the softmax over the label and sampled classes, of scores
    corrected by how often classes are sampled, the loss is
    `-log p(label) - sum(log(1 - p(class)) for sampled classes)`. Samples that
    are the label are left out.

    The paper samples from frequencies to a power of 0.4 or so:
    `CANESoftmax(noise=UnigramNoise(counts, power=0.4))`.

    Example:

    >>> counts = 1000 / np.arange(1, 1001)
    >>> noise = kc.noises.UnigramNoise(counts, power=0.4)
    >>> layer = kc.CANESoftmax(1000, noise=noise)
    >>> model = keras.Sequential([keras.Input((8,)), layer])
    >>> model.compile("adam", loss=kc.baselines.BlackOutLoss(num_sampled=40))

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
        - [Ji et al., 2016](https://arxiv.org/abs/1511.06909), equations 5
          and 6
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
