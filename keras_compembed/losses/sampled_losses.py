"""Losses of labels against sampled classes, in place of candidates."""

import keras
import tensorflow as tf

from keras_compembed.candidates.candidates_vs_noises import Draw
from keras_compembed.losses.class_loss import ClassLoss
from keras_compembed.noises.random_bits import random_bits
from keras_compembed.optimizers.unique_places import first_places
from keras_compembed.utils.log_sums import log_sum_exp
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require


class SampledLoss(ClassLoss):
    """Base of losses that know no candidates but the label."""

    # What scores are corrected by: the expected "count" of samples of a class,
    # the probability of its "presence" among them, or None.
    correction = "count"

    def __init__(self, num_sampled=None, **kwargs):
        super().__init__(**kwargs)
        if num_sampled is not None:
            check_positive_int("num_sampled", num_sampled)
        self.num_sampled = num_sampled

    def sampled_losses(self, label, sampled, left_out, num_classes):
        """Losses by corrected scores of labels `(rows,)` and of samples."""
        raise NotImplementedError

    def training_losses(self, examples):
        head = examples.head
        labels = examples.labels
        number = self.num_sampled
        if number is None:
            require(
                head.samples,
                "`num_sampled` must be given for a layer that trains on all "
                f"{head.num_classes} classes.",
                num_sampled=None,
            )
            number = head.num_candidates + head.estimation.num_noises
        sampled = head.noise.sample(random_bits(examples.seed(), number))
        scores = head.scores.score(examples.features, labels[:, None], sampled)
        # Where batches differ in size, it is not known.
        scores[1] = tf.ensure_shape(scores[1], (None, number))
        log_q = [head.noise.log_prob(ids) for ids in (labels[:, None], sampled)]
        hits = tf.equal(labels[:, None], sampled)
        firsts = first_places(sampled, head.num_classes)
        again = tf.not_equal(firsts, tf.range(number))
        once = [
            score - log_presence(each, float(number))
            for score, each in zip(scores, log_q, strict=True)
        ]
        if examples.training:
            # What metrics of training go by.
            no_candidate = tf.zeros_like(labels, "bool")
            head.noise.observe(labels, no_candidate)
            # Where a sample is the label, its score may be off by rounding.
            best = tf.reduce_all(hits | (scores[0] >= scores[1]), axis=1)
            losses = sampled_cross_entropies(
                once[0][:, 0], once[1], hits | again
            )
            examples.keep(Draw(losses, no_candidate, best))
        if self.correction == "presence":
            scores, hits = once, hits | again
        elif self.correction == "count":
            scores = [
                score - each - tf.math.log(float(number))
                for score, each in zip(scores, log_q, strict=True)
            ]
        return self.sampled_losses(
            scores[0][:, 0], scores[1], hits, head.num_classes
        )

    def get_config(self):
        return {**super().get_config(), "num_sampled": self.num_sampled}


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
    >>> loss = kc.SampledSoftmaxLoss(num_sampled=40)
    >>> model.compile("adam", loss=loss)

    Args:
        num_sampled: Optional integer, the number of sampled classes, which
            all examples of a step share. Defaults to the candidates and
            noises of the layer together.
        evaluation, ignore_class, name, reduction: Same as for
            `keras_compembed.CANELoss`, as are call arguments.

    Raises:
        ValueError: Same as for `keras_compembed.CANELoss`; or if the layer is
            not a `CANESoftmax`.

    References:
        - [Bengio & Senecal, 2008](https://doi.org/10.1109/TNN.2007.912312)
        - [Jean et al., 2015](https://arxiv.org/abs/1412.2007)
    """

    # With "count", a frequent class that is sampled often would weigh too
    # little in the sum where it is the label, as its samples are left out.
    correction = "presence"

    def sampled_losses(self, label, sampled, left_out, num_classes):
        return sampled_cross_entropies(label, sampled, left_out)


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
    >>> model.compile("adam", loss=kc.NCELoss(num_sampled=40))

    Args:
        num_sampled: Same as for `keras_compembed.SampledSoftmaxLoss`.
        evaluation, ignore_class, name, reduction: Same as for
            `keras_compembed.CANELoss`, as are call arguments.

    Raises:
        ValueError: Same as for `keras_compembed.SampledSoftmaxLoss`.

    References:
        - [Gutmann & Hyvarinen, 2012](
          https://jmlr.org/papers/v13/gutmann12a.html)
        - [Mnih & Teh, 2012](https://arxiv.org/abs/1206.6426)
    """

    def sampled_losses(self, label, sampled, left_out, num_classes):
        # A class sampled as noise is noise, also where it is the label.
        losses = tf.math.softplus(-label)
        return losses + tf.reduce_sum(tf.math.softplus(sampled), axis=1)


def log_presence(log_q, number):
    """Logarithms of the probabilities to be among classes that are drawn."""
    return tf.math.log(-tf.math.expm1(number * tf.math.log1p(-tf.exp(log_q))))


def sampled_cross_entropies(label, others, left_out):
    """Cross-entropies of labels among themselves and other classes."""
    others = tf.where(left_out, float("-inf"), others)
    total = log_sum_exp(label[:, None], others)
    return total - label
