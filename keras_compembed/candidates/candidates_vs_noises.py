"""Candidates vs. Noises Estimation: what a step draws, and its losses."""

import collections
import dataclasses

import tensorflow as tf

from keras_compembed.candidates.candidate_parts import CandidateParts
from keras_compembed.noises.random_bits import random_bits
from keras_compembed.utils.log_sums import log_add_exp
from keras_compembed.utils.log_sums import log_sum_exp
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int

_NONE = float("-inf")


@dataclasses.dataclass(frozen=True)
class Draw:
    """What a step considers.

    Attributes:
        losses: Tensor `(rows,)`.
        hit: Boolean tensor `(rows,)`, whether candidates hold the label.
        best: Boolean tensor `(rows,)`, whether the label is scored at least
            as high as all classes considered.
    """

    losses: tf.Tensor
    hit: tf.Tensor
    best: tf.Tensor


Noises = collections.namedtuple(
    "Noises", ["ids", "counts", "log_q", "label_log_q"]
)


class CandidatesVsNoises:
    """Estimates losses over all classes from candidates and noises.

    A plain object, without weights: those of classes are in the
    `ClassScores` that `draw` is given.

    Example:

    >>> estimation = CandidatesVsNoises(selector, noise, num_noises=10)
    >>> draw = estimation.draw(scores, features, labels, seed)

    Args:
        selector: `Selector`, attached and built before `draw` is called.
        noise: `Noise`, attached and built before `draw` is called.
        num_noises: Integer, noises of each example, or of those that share
            them.
        share_noises: Boolean, or integer: see `CANESoftmax`.
        estimate: `"joint"` or `"separate"`: see `CANESoftmax`.

    Raises:
        ValueError: if a number is out of range, or `estimate` is unknown.
    """

    def __init__(
        self,
        selector,
        noise,
        num_noises=10,
        share_noises=False,
        estimate="joint",
    ):
        self.selector = selector
        self.noise = noise
        self.num_noises = check_positive_int("num_noises", num_noises)
        if not isinstance(share_noises, bool):
            check_positive_int("share_noises", share_noises)
        self.share_noises = share_noises
        self.estimate = check_choice(
            "estimate", estimate, ("joint", "separate")
        )

    def draw(self, scores, features, labels, seed, context=None, learn=True):
        """Draws candidates and noises, and computes losses from their scores.

        Args:
            scores: `ClassScores`.
            features: float32 tensor `(rows, width)`.
            labels: int32 tensor `(rows,)`.
            seed: Integer tensor `(2,)`, which noises are drawn by.
            context: Optional integer tensor `(rows,)`, for the selector.
            learn: Boolean, whether the selector and the noise learn from
                this step. Defaults to `True`.

        Returns:
            A `Draw`.
        """
        candidates = CandidateParts(
            self.selector.select(scores, tf.stop_gradient(features), context)
        )
        noises = self.draw_noises(candidates, labels, seed)
        label, of_noises, *of_parts = scores.score(
            features,
            labels[:, None],
            noises.ids,
            *candidates.parts,
            block=int(self.share_noises),
        )
        of_candidates = tf.concat(of_parts, axis=1)
        ids = candidates.of_rows(tf.size(labels))
        same = tf.equal(ids, labels[:, None])
        hit = tf.reduce_any(same, axis=1)
        of_candidates = tf.where(ids >= 0, of_candidates, _NONE)
        estimate = joint_losses if self.estimate == "joint" else separate_losses
        losses = estimate(
            label[:, 0],
            of_candidates,
            tf.where(noises.counts, of_noises - noises.log_q, _NONE),
            (label - noises.label_log_q)[:, 0],
            hit,
        )
        if learn:
            self.selector.observe(
                scores, tf.stop_gradient(features), candidates.shared
            )
            self.selector.after_step(scores, labels, hit)
            self.noise.observe(labels, hit)
        # The label's own score, computed in another way, may be above itself.
        others = tf.where(same, _NONE, of_candidates)
        best = tf.reduce_max(others, axis=1) <= label[:, 0]
        return Draw(losses, hit, hit & best)

    def draw_noises(self, candidates, labels, seed):
        """Draws noises.

        Args:
            candidates: `CandidateParts`.
            labels: int32 tensor `(rows,)`.
            seed: Integer tensor `(2,)`.

        Returns:
            Named tuple of `ids` `(rows, num_noises)`, `(num_noises,)` for all
            rows, or `(blocks, 1, num_noises)`; `counts`, which of them count
            in each row, and `log_q`, the logarithms of their probabilities,
            `(rows, num_noises)` or what broadcasts to it; and `label_log_q`,
            those of labels, `(rows, 1)`.
        """
        rows, size = tf.size(labels), max(1, int(self.share_noises))
        # Noises of several examples cannot keep clear of the candidates of
        # all of them; those that are candidates of an example count as 0 in
        # it, which leaves the expectation of the sum as it was.
        excluded, keep_clear = candidates.shared, candidates.same_for_all
        if candidates.of_each is not None and not self.share_noises:
            excluded, keep_clear = candidates.of_each, True
        number = (rows + size - 1) // size
        if self.share_noises is True:
            number = None
        bits = random_bits(seed, self.num_noises, number)
        ids = of_rows = self.noise.sample(bits, excluded)
        log_q = self.noise.log_prob(ids, excluded)
        if size > 1:
            block = tf.range(rows) // size
            of_rows, log_q = tf.gather(ids, block), tf.gather(log_q, block)
            ids = ids[:, None]
        counts = of_rows >= 0
        if not keep_clear:
            counts &= tf.logical_not(candidates.hold(of_rows))
        label_log_q = self.noise.log_prob(labels[:, None], excluded)
        return Noises(ids, counts, log_q, label_log_q)


def joint_losses(label, candidates, noises, label_noise, hit):
    """Losses with all noises of an example in one sum.

    `log(sum_{k in C} e^{s_k} + (1 / n) sum_j e^{s_j} / q(j)) - s_y`, where
    the label takes the place of the last of the n noises if it is not a
    candidate. As with one noise, where it is equation 5, true probabilities
    are what maximizes its expectation; the more noises, the less it varies.

    Args:
        label: Tensor `(rows,)`, the score of the label.
        candidates: Tensor `(rows, candidates)`, scores, minus infinity where
            there is none.
        noises: Tensor `(rows, noises)`, `s_j - log q(j)` of noises, minus
            infinity of those that count as 0.
        label_noise: Tensor `(rows,)`, `s_y - log q(y)`.
        hit: Boolean tensor `(rows,)`, whether the label is a candidate.

    Returns:
        Tensor `(rows,)`.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), equation 5
    """
    noises = tf.concat(
        [
            noises[:, :-1],
            tf.where(hit, noises[:, -1], label_noise)[:, None],
        ],
        axis=1,
    )
    noises -= tf.math.log(tf.cast(tf.shape(noises)[1], noises.dtype))
    total = log_sum_exp(tf.concat([candidates, noises], axis=1))
    return total - label


def separate_losses(label, candidates, noises, label_noise, hit):
    """Losses with a logarithm for each noise: Algorithm 1.

    The mean over noises of `log(sum_{k in C} e^{s_k} + e^{s_j} / q(j)) - s_y`
    or, if the label is not a candidate, with the label as the only noise.

    Args:
        label: Same as for `joint_losses`; so are the others.
        candidates: Tensor `(rows, candidates)`.
        noises: Tensor `(rows, noises)`.
        label_noise: Tensor `(rows,)`.
        hit: Boolean tensor `(rows,)`.

    Returns:
        Tensor `(rows,)`.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), equations 2, 3,
          7 and 8
    """
    inside = log_sum_exp(candidates)
    noises = tf.where(hit[:, None], noises, label_noise[:, None])
    totals = log_add_exp(inside[:, None], noises)
    return tf.reduce_mean(totals, axis=1) - label
