"""The base of losses of labels against sampled classes."""

import tensorflow as tf

from keras_compembed.candidates.candidates_vs_noises import Draw
from keras_compembed.layers.cane_softmax import CANESoftmax
from keras_compembed.losses.class_loss import ClassLoss
from keras_compembed.noises.random_bits import random_bits
from keras_compembed.utils.log_sums import log_sum_exp
from keras_compembed.utils.validation import check_positive_int


class SampledLoss(ClassLoss):
    """Base of losses that know no candidates but the label.

    Classes are sampled from the noise of the layer, with replacement, once
    for all examples of a step. A `LearnedNoise` learns how often classes are
    labels: none of them is among candidates. If the selector of the layer has
    a tree, vectors are sums over its paths, as for any loss.

    In training, metrics are of the label among the sampled classes.

    Args:
        num_sampled: Optional integer, the number of sampled classes. Defaults
            to the candidates and noises of the layer together, so that as
            many classes are scored as by `keras_compembed.CANELoss`.
        **kwargs: Same as for `keras_compembed.CANELoss`.
    """

    def __init__(self, num_sampled=None, **kwargs):
        super().__init__(**kwargs)
        if num_sampled is not None:
            num_sampled = check_positive_int("num_sampled", num_sampled)
        self.num_sampled = num_sampled

    def sampled_losses(self, label, sampled, hits):
        """Losses of examples.

        Args:
            label: Tensor `(rows,)`, `s_y - log(n q(y))`: the score of the
                label, less the logarithm of how often it is expected among n
                sampled classes.
            sampled: Tensor `(rows, n)`, the same of sampled classes.
            hits: Boolean tensor `(rows, n)`, where these are the label.

        Returns:
            Tensor `(rows,)`.
        """
        raise NotImplementedError

    def training_losses(self, examples):
        head, labels = examples.head, examples.labels
        if not isinstance(head, CANESoftmax):
            raise ValueError(
                f"`{type(self).__name__}` must be given the output of a "
                "`keras_compembed.CANESoftmax`, which it takes vectors and "
                "noise of classes from. Received: the output of the "
                f"{type(head).__name__} {head.name!r}."
            )
        number = self.num_sampled
        if number is None:
            if not head.samples:
                raise ValueError(
                    "`num_sampled` must be given for a layer that trains on "
                    f"all {head.num_classes} classes. "
                    "Received: num_sampled=None."
                )
            number = head.num_candidates + head.estimation.num_noises
        bits = random_bits(head.seed_generator.next(), number)
        sampled = head.noise.sample(bits)
        scores = head.scores.score(examples.features, labels[:, None], sampled)
        expected = [
            head.noise.log_prob(ids) + tf.math.log(float(number))
            for ids in (labels[:, None], sampled)
        ]
        label = (scores[0] - expected[0])[:, 0]
        others = scores[1] - expected[1]
        hits = tf.equal(labels[:, None], sampled)
        if examples.training:
            no_candidate = tf.zeros_like(labels, "bool")
            head.noise.observe(labels, no_candidate)
            # What metrics of training go by.
            # Where a sample is the label, its score may be off by rounding.
            best = tf.reduce_all(hits | (scores[0] >= scores[1]), axis=1)
            losses = sampled_cross_entropies(label, others, hits)
            examples.keep(Draw(losses, no_candidate, best))
        return self.sampled_losses(label, others, hits)

    def get_config(self):
        return {**super().get_config(), "num_sampled": self.num_sampled}


def sampled_cross_entropies(label, sampled, hits):
    """Cross-entropies of labels among themselves and sampled classes.

    Args:
        label: See `SampledLoss.sampled_losses`.
        sampled: See `SampledLoss.sampled_losses`.
        hits: See `SampledLoss.sampled_losses`.

    Returns:
        Tensor `(rows,)`.
    """
    others = tf.where(hits, float("-inf"), sampled)
    total = log_sum_exp(tf.concat([label[:, None], others], axis=1))
    return total - label
