"""The base of losses of labels against sampled classes."""

import tensorflow as tf

from keras_compembed.baselines.cane_head import check_cane_softmax
from keras_compembed.candidates.candidates_vs_noises import Draw
from keras_compembed.losses.class_loss import ClassLoss
from keras_compembed.noises.random_bits import random_bits
from keras_compembed.optimizers.unique_places import first_places
from keras_compembed.utils.log_sums import log_sum_exp
from keras_compembed.utils.validation import check_positive_int


class SampledLoss(ClassLoss):
    """Base of losses that know no candidates but the label."""

    correction = "count"

    def __init__(self, num_sampled=None, **kwargs):
        super().__init__(**kwargs)
        if num_sampled is not None:
            num_sampled = check_positive_int("num_sampled", num_sampled)
        self.num_sampled = num_sampled

    def sampled_losses(self, label, sampled, left_out, num_classes):
        """Losses of examples.

        Args:
            label: Tensor `(rows,)`, the score of the label, corrected.
            sampled: Tensor `(rows, n)`, the same of sampled classes.
            left_out: Boolean tensor `(rows, n)`, where these are the label, or
                come again where each class counts once.
            num_classes: Integer, classes of the layer.

        Returns:
            Tensor `(rows,)`.
        """
        raise NotImplementedError

    def training_losses(self, examples):
        head = check_cane_softmax(examples.head, self)
        labels = examples.labels
        number = self.num_sampled
        if number is None:
            if not head.samples:
                raise ValueError(
                    "`num_sampled` must be given for a layer that trains on "
                    f"all {head.num_classes} classes. "
                    "Received: num_sampled=None."
                )
            number = head.num_candidates + head.estimation.num_noises
        bits = random_bits(examples.seed(), number)
        sampled = head.noise.sample(bits)
        scores = head.scores.score(examples.features, labels[:, None], sampled)
        # Where batches differ in size, it is not known.
        scores[1] = tf.ensure_shape(scores[1], (None, number))
        log_q = [head.noise.log_prob(ids) for ids in (labels[:, None], sampled)]
        hits = tf.equal(labels[:, None], sampled)
        firsts = first_places(sampled, head.num_classes)
        left_out = hits | tf.not_equal(firsts, tf.range(number))
        once = [
            score - log_presence(each, float(number))
            for score, each in zip(scores, log_q, strict=True)
        ]
        if examples.training:
            no_candidate = tf.zeros_like(labels, "bool")
            head.noise.observe(labels, no_candidate)
            # What metrics of training go by.
            # Where a sample is the label, its score may be off by rounding.
            best = tf.reduce_all(hits | (scores[0] >= scores[1]), axis=1)
            losses = sampled_cross_entropies(once[0][:, 0], once[1], left_out)
            examples.keep(Draw(losses, no_candidate, best))
        if self.correction == "presence":
            scores = once
        else:
            left_out = hits
        if self.correction == "count":
            scores = [
                score - each - tf.math.log(float(number))
                for score, each in zip(scores, log_q, strict=True)
            ]
        return self.sampled_losses(
            scores[0][:, 0], scores[1], left_out, head.num_classes
        )

    def get_config(self):
        return {**super().get_config(), "num_sampled": self.num_sampled}


def log_presence(log_q, number):
    """Logarithms of the probabilities to be among classes that are drawn."""
    return tf.math.log(-tf.math.expm1(number * tf.math.log1p(-tf.exp(log_q))))


def sampled_cross_entropies(label, others, left_out):
    """Cross-entropies of labels among themselves and other classes."""
    others = tf.where(left_out, float("-inf"), others)
    total = log_sum_exp(label[:, None], others)
    return total - label
