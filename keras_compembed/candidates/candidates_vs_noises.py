"""Candidates vs. Noises Estimation: what a step draws, and its losses."""

import collections
import dataclasses
import numbers

import numpy as np
import tensorflow as tf

from keras_compembed.candidates.candidate_parts import CandidateParts
from keras_compembed.candidates.sorted_sets import is_in
from keras_compembed.noises.random_bits import random_bits
from keras_compembed.noises.random_bits import random_order
from keras_compembed.noises.unigram_noise import UnigramNoise
from keras_compembed.optimizers.device_rows import of_all_devices
from keras_compembed.optimizers.device_rows import own_value
from keras_compembed.optimizers.device_rows import rows_of_all_devices
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
    "Noises", ["ids", "offsets", "left_out", "label_offset"]
)
# `share_noises`: noises are the labels of other examples.
LABELS = "labels"


def is_of_batch(share_noises):
    """Whether a batch shares noises, not each example or block of them."""
    is_block = isinstance(share_noises, numbers.Integral)
    is_block &= not isinstance(share_noises, bool)
    return bool(share_noises) and not is_block


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
        share_noises: Boolean, integer or `"labels"`: see `CANESoftmax`.
        estimate: `"joint"` or `"separate"`: see `CANESoftmax`.
        noise_groups: Integer: see `CANESoftmax`.

    Raises:
        ValueError: if a number is out of range, `estimate` is unknown, groups
            are those of a batch that shares no noises, or labels are to be
            noises that are not drawn, or not estimated, as labels are.
    """

    def __init__(
        self,
        selector,
        noise,
        num_noises=10,
        share_noises=False,
        estimate="joint",
        noise_groups=1,
    ):
        self.selector = selector
        self.noise = noise
        self.num_noises = check_positive_int("num_noises", num_noises)
        self.estimate = check_choice(
            "estimate", estimate, ("joint", "separate")
        )
        self.has_labels = share_noises == LABELS
        if self.has_labels:
            check_positive_int("num_noises", num_noises, 2)
            self._check_drawn_as_labels()
        elif isinstance(share_noises, bool | np.bool_):
            share_noises = bool(share_noises)
        else:
            check_positive_int("share_noises", share_noises)
        self.share_noises = share_noises
        self.of_batch = is_of_batch(share_noises)
        self.block = 1 if self.of_batch else max(1, int(share_noises))
        self.noise_groups = check_positive_int("noise_groups", noise_groups)
        if self.noise_groups > 1 and not self.of_batch:
            raise ValueError(
                "`noise_groups` must be 1 unless the batch shares noises, "
                f'`share_noises` of True or "{LABELS}". Received: '
                f"noise_groups={noise_groups}, share_noises={share_noises!r}."
            )

    def _check_drawn_as_labels(self):
        noise = self.noise
        if not isinstance(noise, UnigramNoise) or noise.power != 1:
            raise ValueError(
                "`noise` must be drawn as labels are, "
                "`UnigramNoise(counts, power=1.0)`, if labels are noises, "
                f'`share_noises="{LABELS}"`. Received: a '
                f"{type(noise).__name__} with "
                f"power={getattr(noise, 'power', None)}."
            )
        if self.estimate != "joint":
            raise ValueError(
                '`estimate` must be "joint" if labels are noises, '
                f'`share_noises="{LABELS}"`. '
                f"Received: estimate={self.estimate!r}."
            )

    def draw(
        self,
        scores,
        features,
        labels,
        seed,
        context=None,
        learn=True,
        counted=None,
    ):
        """Draws candidates and noises, and computes losses from their scores.

        Args:
            scores: `ClassScores`.
            features: float32 tensor `(rows, width)`.
            labels: int32 tensor `(rows,)`.
            seed: Integer tensor `(2,)`, which noises are drawn by.
            context: Optional integer tensor `(rows,)`, for the selector.
            learn: Boolean, whether the selector and the noise learn from
                this step. Defaults to `True`.
            counted: Optional boolean tensor `(rows,)`, examples whose labels
                may be noises of others.

        Returns:
            A `Draw`.
        """
        fixed = tf.stop_gradient(features)
        if learn:
            self.selector._before_step(scores, fixed)
        candidates = CandidateParts(
            self.selector.select(scores, fixed, context)
        )
        noises = self.draw_noises(candidates, labels, seed, counted)
        label, all_but_one, last, *of_parts = scores.score(
            features,
            labels[:, None],
            noises.ids[..., :-1],
            noises.ids[..., -1:],
            *candidates.parts,
            block=self.block,
            offsets=[
                tf.zeros((tf.size(labels), 1)),
                noises.offsets[..., :-1],
                noises.offsets[..., -1:],
                *candidates.offsets,
            ],
        )
        if noises.left_out is not None:
            sizes = [self.num_noises - 1, 1]
            left_out = tf.split(noises.left_out, sizes, axis=1)
            all_but_one, last = (
                tf.where(where, _NONE, part)
                for where, part in zip(
                    left_out, (all_but_one, last), strict=True
                )
            )
        same = tf.equal(candidates.of_rows(tf.size(labels)), labels[:, None])
        hit = tf.reduce_any(same, axis=1)
        estimate = joint_losses if self.estimate == "joint" else separate_losses
        losses = estimate(
            label[:, 0],
            of_parts,
            (all_but_one, last),
            (label + noises.label_offset)[:, 0],
            hit,
        )
        if learn:
            self.selector.observe(scores, fixed, candidates.shared)
            self.selector.after_step(scores, labels, hit)
            self.noise.observe(labels, hit)
            losses = _after_writes(losses, self.selector)
        # The label's own score, computed in another way, may be above itself.
        others = tf.where(same, _NONE, tf.concat(of_parts, axis=1))
        best = tf.reduce_max(others, axis=1) <= label[:, 0]
        return Draw(losses, hit, hit & best)

    def draw_noises(self, candidates, labels, seed, counted=None):
        """Draws noises.

        Args:
            candidates: `CandidateParts`.
            labels: int32 tensor `(rows,)`.
            seed: Integer tensor `(2,)`.
            counted: Optional boolean tensor `(rows,)`, see `draw`.

        Returns:
            Named tuple of `ids` `(rows, num_noises)`, `(num_noises,)` for all
            rows, `(blocks, 1, num_noises)` or `(1, noise_groups,
            num_noises)`, see `ClassScores.score`; `offsets`, of the same shape,
            which scores of noises are corrected by; `left_out`, which of them
            count as 0 in each row, `(rows, num_noises)`, or None; and
            `label_offset`, the correction of labels, `(rows, 1)`.
        """
        rows, size = tf.size(labels), self.block
        # Noises of several examples cannot keep clear of the candidates of
        # all of them; those that are candidates of an example count as 0 in
        # it, which leaves the expectation of the sum as it was.
        excluded, keep_clear = candidates.shared, candidates.same_for_all
        if candidates.of_each is not None and not self.share_noises:
            excluded, keep_clear = candidates.of_each, True
        number = (rows + size - 1) // size
        if self.of_batch:
            number = None
        bits = random_bits(seed, self.noise_groups * self.num_noises, number)
        ids = self.noise.sample(bits, excluded)
        places = groups = None
        if self.has_labels or self.noise_groups > 1:
            start, _ = rows_of_all_devices(rows)
            places = start + tf.range(rows)
        if self.noise_groups > 1:
            # Examples next to each other are in different ones.
            groups = places % self.noise_groups
        left_out, draws = None, self.num_noises
        if self.has_labels:
            ids, left_out = self._labels_first(
                ids, labels, seed, excluded, counted, places, groups
            )
            draws -= 1
        if groups is not None:
            ids = tf.reshape(ids, (self.noise_groups, self.num_noises))
        # How often each is drawn: by one of them, or by all in one sum.
        draws = draws if self.estimate == "joint" else 1
        log_draws = tf.math.log(float(draws))
        offsets = -self.noise.log_prob(ids, excluded) - log_draws
        offsets = tf.where(ids >= 0, offsets, _NONE)
        label_offset = -self.noise.log_prob(labels[:, None], excluded)
        label_offset -= log_draws
        of_rows = ids
        if size > 1:
            of_rows = tf.gather(ids, tf.range(rows) // size)
            ids, offsets = ids[:, None], offsets[:, None]
        elif groups is not None:
            of_rows = tf.gather(ids, groups)
            # In the order of the first rows of this device.
            order = (start + tf.range(self.noise_groups)) % self.noise_groups
            ids, offsets = (
                tf.gather(part, order)[None] for part in (ids, offsets)
            )
        if not keep_clear:
            held = candidates.hold(of_rows)
            left_out = held if left_out is None else held | left_out
        return Noises(ids, offsets, left_out, label_offset)

    def _labels_first(
        self, drawn, labels, seed, excluded, counted, places, groups
    ):
        """Noises that are labels of the batch, as far as there are.

        Labels of other examples are drawn independently of the own one, by
        the probabilities of the noise, where they are not among `excluded`.
        Of all places but the last, each example leaves out one: that of its
        own label, or else the last of them. So its noises are those that it
        would have if its label were another. Groups get labels in turn.

        Where there are more labels than places, examples are drawn: the
        first ones may always come from the same part of a text.

        Args:
            drawn: int32 tensor `(noise_groups * num_noises,)`. The last one
                of each group stays.
            labels: int32 tensor `(rows,)`.
            seed: Integer tensor `(2,)`.
            excluded: int32 tensor `(excluded,)`, or None.
            counted: Boolean tensor `(rows,)`, or None.
            places: int32 tensor `(rows,)`, those of examples in the batch of
                all devices.
            groups: int32 tensor `(rows,)`, or None if there is one.

        Returns:
            int32 tensor of the shape of `drawn`, and boolean tensor
            `(rows, num_noises)`, which are left out.
        """
        others = labels
        if counted is not None:
            others = tf.where(counted, labels, -1)
        others = of_all_devices(others)
        noises = self.noise.draws(others)
        if excluded is not None:
            noises &= tf.logical_not(is_in(excluded[None], others[None])[0])
        end = self.num_noises - 1
        most = self.noise_groups * end
        chosen = random_order(seed, noises)[:most]
        whose = tf.where(tf.gather(noises, chosen), chosen, -1)
        missing = most - tf.size(whose)
        whose = tf.pad(whose, [[0, missing]], constant_values=-1)
        whose = tf.transpose(tf.reshape(whose, (end, self.noise_groups)))
        whose = tf.pad(whose, [[0, 0], [0, 1]], constant_values=-1)
        # Of one tensor, as a batch may have no labels at all.
        chosen = tf.reshape(whose, (-1,))
        rest = tf.size(others) + tf.range(tf.size(drawn))
        ids = tf.gather(
            tf.concat([others, drawn], axis=0),
            tf.where(chosen >= 0, chosen, rest),
        )
        if groups is not None:
            whose = tf.gather(whose, groups)
        own = tf.equal(places[:, None], whose)
        has_none = tf.logical_not(tf.reduce_any(own, axis=1, keepdims=True))
        spare = tf.equal(tf.range(self.num_noises), end - 1)
        return ids, own | (has_none & spare)


def _after_writes(losses, layer):
    """`losses`, whose gradients need what a layer wrote in this step.

    XLA copies the table of classes in each step if its update need not wait
    for a condition in which the table may be read.

    Args:
        losses: Tensor `(rows,)`.
        layer: Keras layer; its weights that are integers count.
    """
    written = [
        tf.reshape(own_value(variable), (-1,))[:1]
        for variable in layer.non_trainable_variables
        if variable.dtype == "int32"
    ]
    if not written:
        return losses
    nothing = 0.0 * tf.cast(tf.concat(written, axis=0), "float32")
    return losses * (1.0 + tf.reduce_sum(nothing))


def joint_losses(label, candidates, noises, label_noise, hit):
    """Losses with all noises of an example in one sum.

    `log(sum_{k in C} e^{s_k} + (1 / n) sum_j e^{s_j} / q(j)) - s_y`, where
    the label takes the place of the last of the n noises if it is not a
    candidate. As with one noise, where it is equation 5, true probabilities
    are what maximizes its expectation; the more noises, the less it varies.

    Args:
        label: Tensor `(rows,)`, the score of the label.
        candidates: List of tensors `(rows, candidates)`, scores, minus
            infinity where there is none.
        noises: Two tensors, of all noises but the last, `(rows, noises - 1)`,
            and of the last, `(rows, 1)`: `s_j - log(n q(j))`, minus infinity
            of those that count as 0.
        label_noise: Tensor `(rows,)`, `s_y - log(n q(y))`.
        hit: Boolean tensor `(rows,)`, whether the label is a candidate.

    Returns:
        Tensor `(rows,)`.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), equation 5
    """
    noises, last = noises
    last = tf.where(hit[:, None], last, label_noise[:, None])
    return log_sum_exp(*candidates, noises, last) - label


def separate_losses(label, candidates, noises, label_noise, hit):
    """Losses with a logarithm for each noise: Algorithm 1.

    The mean over noises of `log(sum_{k in C} e^{s_k} + e^{s_j} / q(j)) - s_y`
    or, if the label is not a candidate, with the label as the only noise.

    Args:
        label: Same as for `joint_losses`.
        candidates: Same as for `joint_losses`.
        noises: Same as for `joint_losses`, but `s_j - log q(j)`.
        label_noise: Tensor `(rows,)`, `s_y - log q(y)`.
        hit: Same as for `joint_losses`.

    Returns:
        Tensor `(rows,)`.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), equations 2, 3,
          7 and 8
    """
    inside = log_sum_exp(*candidates)
    noises = tf.concat(noises, axis=1)
    noises = tf.where(hit[:, None], noises, label_noise[:, None])
    totals = log_add_exp(inside[:, None], noises)
    return tf.reduce_mean(totals, axis=1) - label
