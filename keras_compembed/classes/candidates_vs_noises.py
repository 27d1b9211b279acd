"""Candidates vs. Noises Estimation: what a step draws, and its losses."""

import collections
import functools
import numbers

import numpy as np
import tensorflow as tf

from keras_compembed.classes.count_selectors import AllClasses
from keras_compembed.classes.count_selectors import FrequentClasses
from keras_compembed.classes.noise import UnigramNoise
from keras_compembed.classes.noise import random_bits
from keras_compembed.classes.noise import random_order
from keras_compembed.classes.selector import CandidateGroups
from keras_compembed.classes.selector import ids_of
from keras_compembed.classes.selector import is_in
from keras_compembed.optimizers.device_rows import of_all_devices
from keras_compembed.optimizers.device_rows import own_value
from keras_compembed.optimizers.device_rows import rows_of_all_devices
from keras_compembed.utils.log_sums import log_add_exp
from keras_compembed.utils.log_sums import log_sum_exp
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

# Up to so many comparisons of ids are faster than a search.
_COMPARED = 32
_NONE = float("-inf")


# What a step considers.
Draw = collections.namedtuple("Draw", ["losses", "hit", "best"])
Noises = collections.namedtuple(
    "Noises", ["ids", "offsets", "left_out", "label_offset"]
)
# `share_noises`: noises are the labels of other examples.
LABELS = "labels"
# Up to so many classes, a step that scores all of them takes little longer.
MOST_SCORED = 2_000
# What a step scores of more classes.
SCORED = 1_000
# What an example scores at least, and how many groups have their own noises
# at most.
_LEAST_SCORED = 200
_MOST_GROUPS = 4
# Mean square error of the sum over all classes, relative to it, that is small
# enough for an example, where labels are few, and where they are many.
_SMALL_ERROR = 7e-4
_FEW_LABELS, _MANY_LABELS = 1e6, 8e6
# So few noises would be wrong for all examples alike if these shared them.
_FEWEST_SHARED = 100


def is_of_batch(share_noises):
    """Whether a batch shares noises, not each example or block of them."""
    is_block = isinstance(share_noises, numbers.Integral)
    is_block &= not isinstance(share_noises, bool)
    return bool(share_noises) and not is_block


class CandidatesVsNoises:
    """Estimates losses over all classes from candidates and noises."""

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
            power = isinstance(noise, UnigramNoise) and noise.power
            require(
                power == 1 and estimate == "joint",
                "`noise` must be drawn as labels are, "
                "`UnigramNoise(counts, power=1.0)`, and `estimate` must be "
                "'joint', if labels are noises.",
                noise=type(noise).__name__,
                power=power,
                estimate=estimate,
            )
        elif isinstance(share_noises, bool | np.bool_):
            share_noises = bool(share_noises)
        else:
            check_positive_int("share_noises", share_noises)
        self.share_noises = share_noises
        self.of_batch = is_of_batch(share_noises)
        self.block = 1 if self.of_batch else max(1, int(share_noises))
        self.noise_groups = check_positive_int("noise_groups", noise_groups)
        require(
            self.noise_groups == 1 or self.of_batch,
            "`noise_groups` must be 1 unless the batch shares noises, "
            '`share_noises` of True or "labels".',
            noise_groups=noise_groups,
            share_noises=share_noises,
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
        """Draws candidates and noises, and computes losses."""
        fixed = tf.stop_gradient(features)
        if learn:
            self.selector._before_step(scores, fixed)
        selected = self.selector.select(scores, fixed, context)
        noises = self.draw_noises(selected, labels, seed, counted)
        there = ids_of(selected) >= 0
        label, all_but_one, last, inside = scores.score(
            features,
            labels[:, None],
            noises.ids[..., :-1],
            noises.ids[..., -1:],
            selected,
            block=self.block,
            offsets=[
                tf.zeros((tf.size(labels), 1)),
                noises.offsets[..., :-1],
                noises.offsets[..., -1:],
                tf.where(there, 0.0, _NONE),
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
        same = tf.equal(_of_rows(selected), labels[:, None])
        hit = tf.reduce_any(same, axis=1)
        estimate = joint_losses if self.estimate == "joint" else separate_losses
        losses = estimate(
            label[:, 0],
            inside,
            (all_but_one, last),
            (label + noises.label_offset)[:, 0],
            hit,
        )
        if learn:
            self.selector.after_step(scores, labels, hit)
            self.noise.observe(labels, hit)
            losses = _after_writes(losses, self.selector)
        # The label's own score, computed in another way, may be above itself.
        best = tf.reduce_max(tf.where(same, _NONE, inside), axis=1)
        return Draw(losses, hit, hit & (best <= label[:, 0]))

    def draw_noises(self, selected, labels, seed, counted=None):
        """Draws noises."""
        rows, size = tf.size(labels), self.block
        # Noises of several examples cannot keep clear of the candidates of
        # all of them; those that are candidates of an example count as 0 in
        # it, which leaves the expectation of the sum as it was.
        excluded = None
        if not isinstance(selected, CandidateGroups) and (
            selected.shape.rank == 1 or not self.share_noises
        ):
            excluded = selected
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
        if excluded is None:
            held = _hold(selected, of_rows)
            left_out = held if left_out is None else held | left_out
        return Noises(ids, offsets, left_out, label_offset)

    def _labels_first(
        self, drawn, labels, seed, excluded, counted, places, groups
    ):
        """Noises that are labels of the batch, as far as there are."""
        others = labels
        if counted is not None:
            others = tf.where(counted, labels, -1)
        others = of_all_devices(others)
        noises = self.noise._may_draw(others)
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


def _of_rows(selected):
    """Candidates of each row, or `(1, number)` for all rows."""
    if isinstance(selected, CandidateGroups):
        return selected.of_rows()
    return selected[None] if selected.shape.rank == 1 else selected


def _hold(selected, ids):
    """Whether candidates of rows, or of groups of them, hold ids."""
    common = ids[None] if ids.shape.rank == 1 else ids
    if isinstance(selected, CandidateGroups):
        if ids.shape.rank == 1:
            # Once for each group, however many rows it has.
            return tf.gather(is_in(selected.ids, common), selected.groups)
        return is_in(selected.ids, common, selected.groups)
    if selected.shape[1] > _COMPARED:
        return is_in(selected, common)
    # A column at a time: TensorFlow reduces a short last axis slowly.
    columns = tf.unstack(selected, axis=1)
    return functools.reduce(
        tf.logical_or, [tf.equal(column[:, None], common) for column in columns]
    )


def _after_writes(losses, layer):
    """`losses`, whose gradients need what a layer wrote in this step."""
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
    """Losses with all noises of an example in one sum."""
    noises, last = noises
    last = tf.where(hit[:, None], last, label_noise[:, None])
    return log_sum_exp(candidates, noises, last) - label


def separate_losses(label, candidates, noises, label_noise, hit):
    """Losses with a logarithm for each noise: Algorithm 1."""
    inside = log_sum_exp(candidates)
    noises = tf.concat(noises, axis=1)
    noises = tf.where(hit[:, None], noises, label_noise[:, None])
    totals = log_add_exp(inside[:, None], noises)
    return tf.reduce_mean(totals, axis=1) - label


# What is scored in a step.
Choice = collections.namedtuple(
    "Choice",
    "selector num_candidates num_noises share_noises noise_groups",
    defaults=[1],
)


def choose(
    num_classes,
    class_counts,
    num_candidates=None,
    num_noises=None,
    noise_groups=None,
):
    """What to score in a step, by the number of classes and their counts."""
    numbers = (num_candidates, num_noises)
    if numbers == (None, None) and num_classes <= MOST_SCORED:
        return Choice(AllClasses(), num_classes, 1, False)
    if class_counts is None:
        class_counts = np.ones(num_classes)
    scored = min(SCORED, num_classes - 1)
    in_groups = numbers == (None, None) and noise_groups is None
    if in_groups:
        scored = enough_scored(class_counts, scored)
    worthy = worthy_candidates(class_counts, scored)
    if num_candidates is None:
        given = scored - worthy if num_noises is None else num_noises
        most = num_classes - 1 - given
        num_candidates = max(1, min(most, max(worthy, scored - given)))
    if num_noises is None:
        most = num_classes - 1 - num_candidates
        num_noises = max(scored - worthy, scored - num_candidates)
        num_noises = max(1, min(most, num_noises))
    if in_groups:
        num_noises = max(num_noises, _FEWEST_SHARED)
        noise_groups = round((SCORED - num_candidates) / num_noises)
        noise_groups = min(max(1, noise_groups), _MOST_GROUPS)
    share_noises = num_noises >= _FEWEST_SHARED
    return Choice(
        FrequentClasses(class_counts),
        num_candidates,
        num_noises,
        share_noises,
        noise_groups or 1,
    )


def worthy_candidates(counts, number, power=0.75):
    """How many of the frequent classes to score always, not by chance."""
    squares = _squares(counts, number, power)
    return int(1 + np.argmin(squares / np.arange(number - 1, 0, -1)))


def enough_scored(counts, most):
    """How many classes an example scores, candidates and noises together."""
    squares = _squares(counts, most)
    labels = np.clip(np.sum(counts), _FEW_LABELS, _MANY_LABELS)
    small = _SMALL_ERROR * np.sqrt(labels / _FEW_LABELS)
    for number in range(_LEAST_SCORED, most):
        errors = squares[: number - 1] / np.arange(number - 1, 0, -1)
        if errors.min() <= small:
            return number
    return most


def _squares(counts, number, power=0.75):
    """Mean squares of what one noise gives for the sum over all classes."""
    shares = np.sort(np.asarray(counts, "float64"))[::-1]
    shares /= shares[0]
    # Of all classes but so many.
    rest, squares = (
        np.cumsum(part[::-1])[::-1][1:number]
        for part in (shares**power, shares ** (2 - power))
    )
    return rest * squares / shares.sum() ** 2
