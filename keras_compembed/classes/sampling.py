"""Draws the candidates and noise classes of a step; computes its losses."""

import collections
import copy
import functools

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.classes.class_scores import ClassScores
from keras_compembed.classes.noise import NOISES
from keras_compembed.classes.noise import Noise
from keras_compembed.classes.noise import UnigramNoise
from keras_compembed.classes.noise import random_bits
from keras_compembed.classes.noise import random_order
from keras_compembed.classes.selectors import AllClasses
from keras_compembed.classes.selectors import FrequentClasses
from keras_compembed.classes.selectors import Selector
from keras_compembed.optimizers.device_rows import of_all_devices
from keras_compembed.optimizers.device_rows import own_value
from keras_compembed.optimizers.device_rows import rows_of_all_devices
from keras_compembed.utils.saving import Settings
from keras_compembed.utils.tensor_ops import in_xla
from keras_compembed.utils.tensor_ops import log_add_exp
from keras_compembed.utils.tensor_ops import log_sum_exp
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

# With more candidates than this, a search beats comparing all ids.
_COMPARED = 32
_NONE = float("-inf")
# The losses of a step, whether candidates include the label, and whether the
# label has the best score.
Draw = collections.namedtuple("Draw", ["losses", "hit", "best"])
Noises = collections.namedtuple(
    "Noises", ["ids", "offsets", "left_out", "label_offset"]
)
# With fewer classes than this, scoring all of them costs little more.
MOST_SCORED = 2_000
# Classes that a step scores if there are more than that.
SCORED = 1_000
# Minimum classes that an example scores, and maximum groups of examples with
# separate noise samples.
_LEAST_SCORED = 200
_MOST_GROUPS = 4
# Acceptable mean square error of the sum over all classes, relative to it, for
# one example: for few labels and for many.
_SMALL_ERROR = 7e-4
_FEW_LABELS, _MANY_LABELS = 1e6, 8e6
# Fewer shared noise samples than this bias all examples in the same way.
_FEWEST_SHARED = 100
# Labels of fewer examples are too few noise samples.
_MANY_EXAMPLES = 500
# Default numbers of candidates and noise samples with a selector.
_FEW = 10


@keras.saving.register_keras_serializable(package="keras_compembed")
class Sampling(Settings):
    """Chooses the classes that a training step of a `CANESoftmax` scores.

    A selector chooses candidates, and noise classes are drawn from the rest.
    Arguments left at `None` depend on the number of classes and their counts.
    `CANESoftmax.summary` prints the choices.

    Classes shared by a batch are scored with one matrix product: a thousand of
    them cost no more than a few classes looked up for each example. The
    sampling error is then the same for all examples of the batch.

    Example:

    >>> counts = 20_000 // np.arange(1, 20_001)
    >>> sampling = Sampling(num_candidates=200, num_noises=500, shared=True)
    >>> kc.CANESoftmax(20_000, counts, sampling, name="words").summary()
    words: 20,000 classes
    candidates: 200, by FrequentClasses
    noise classes: 500, shared by a batch, by UnigramNoise

    Args:
        selector: `"auto"` or a `keras_compembed.classes.Selector`. With up to
            2,000 classes, `"auto"` trains a full softmax. With more, a step
            scores about 1,000 classes: frequent ones as candidates
            (`FrequentClasses`), and noise classes. `class_counts` decide how
            many of each. If few classes have most of the labels, an example
            scores fewer, see `groups`. With even counts, there is 1 candidate,
            and `num_noises` is `"growing"`. If you pass only one of
            `num_candidates` and `num_noises`, `"auto"` chooses the other.
            Defaults to `"auto"`.
        num_candidates: Optional integer, candidates for each example. Defaults
            to `None`: chosen by `"auto"`, or 10 with a selector.
        noise: Optional distribution of noise classes: `"uniform"`, `"learned"`
            or an object such as `keras_compembed.classes.UnigramNoise(counts)`.
            It works best if it is close to the labels that candidates miss.
            Defaults to `None`: `UnigramNoise(class_counts, 0.75)`, with power
            1 for `shared="labels"`; `"uniform"` without `class_counts`.
        num_noises: Optional integer, noise samples for each example or each
            group that shares them. If `num_candidates + num_noises` is not
            less than the number of classes, the layer warns and trains a full
            softmax. With `"growing"`, a step scores 1,000 classes. In the
            first epoch, a batch of at least 500 examples draws only one sample
            for each of them. The epoch ends after as many examples as
            `class_counts` add up to. XLA always scores 1,000. `"growing"`
            needs `shared="labels"` and one group. Defaults to `None`: by
            `"auto"`, or 10 with a selector.
        shared: Optional, the examples that share noise samples:

            - `False`: none.
            - `True`: the whole batch.
            - `"neighbors"`: groups of adjacent examples in the batch of a
              device. In a sequence, these are adjacent in time.
            - `"labels"`: the whole batch. Labels of other examples are the
              first noise samples, except from label lists and examples
              without weight. Shuffle training data, and pass `class_counts`.

            Defaults to `None`. With `"auto"` and at least 100 noise samples,
            this is `"labels"`, or `True` without `class_counts`. Otherwise it
            is `False`.
        groups: Optional integer. With `True` or `"labels"`, the number of
            groups in a batch, each with its own `num_noises` samples. Defaults
            to 1, or the choice of `"auto"`. With `"neighbors"`, the number of
            examples in a group, required; 20 to 60 work well.
        estimate: `"joint"` or `"separate"`. `"joint"` puts all noise samples
            of an example in one sum, which has less variance. `"separate"`
            averages a loss for each noise sample, as in Algorithm 1 of the
            paper. Defaults to `"joint"`.

    Raises:
        ValueError: If arguments do not fit together, e.g. `groups` without
            `shared`. Some are checked when a layer gets the object.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658): Algorithm 1
    """

    def __init__(
        self,
        selector: str | Selector = "auto",
        num_candidates: int | None = None,
        noise: str | Noise | None = None,
        num_noises: int | str | None = None,
        shared: bool | str | None = None,
        groups: int | None = None,
        estimate: str = "joint",
    ):
        require(
            isinstance(selector, Selector) or str(selector) == "auto",
            '`selector` must be "auto" or a '
            "`keras_compembed.classes.Selector`.",
            selector=selector,
        )
        require(
            isinstance(noise, Noise)
            or noise is None
            or isinstance(noise, str)
            and noise in NOISES,
            '`noise` must be "uniform", "learned", or a distribution such as '
            "`keras_compembed.classes.UnigramNoise(counts)`.",
            noise=noise,
        )
        require(
            isinstance(shared, bool | np.bool_)
            or shared is None
            or str(shared) in ("neighbors", "labels"),
            '`shared` must be None, a boolean, "neighbors" or "labels".',
            shared=shared,
        )
        require(
            groups is not None or str(shared) != "neighbors",
            "`groups` must be the number of examples in a group if `shared` is "
            '"neighbors".',
            groups=groups,
        )
        self.selector = selector
        self.num_candidates = check_positive_int(
            "num_candidates", num_candidates, optional=True
        )
        self.noise = noise
        if isinstance(num_noises, str):
            require(
                num_noises == "growing",
                '`num_noises` must be None, a positive integer or "growing".',
                num_noises=num_noises,
            )
            self.num_noises = num_noises
        else:
            self.num_noises = check_positive_int(
                "num_noises", num_noises, optional=True
            )
        self.shared = bool(shared) if isinstance(shared, np.bool_) else shared
        self.groups = check_positive_int("groups", groups, optional=True)
        self.estimate = check_choice(
            "estimate", estimate, ("joint", "separate")
        )

    @classmethod
    def from_config(cls, config):
        return cls(**keras.saving.deserialize_keras_object(config))

    @property
    def of_batch(self) -> bool:
        """Whether the whole batch shares noise samples, or groups of it."""
        return self.shared in (True, "labels")

    @property
    def most_noises(self) -> int:
        """The most noise samples of a step."""
        if self.num_noises == "growing":
            return max(_FEWEST_SHARED, SCORED - self.num_candidates)
        return self.num_noises

    def resolve(self, num_classes: int, class_counts: object) -> "Sampling":
        """Returns a copy with all open settings chosen."""
        made = copy.copy(self)
        if not isinstance(self.selector, Selector):
            made._choose(num_classes, class_counts)
        if isinstance(made.selector, AllClasses):
            made.num_candidates = num_classes
        made.num_candidates = made.num_candidates or _FEW
        made.num_noises = made.num_noises or _FEW
        made.shared = made.shared or False
        made.groups = made.groups or 1
        require(
            made.groups == 1 or made.shared,
            "`groups` must be 1 unless examples share noise samples.",
            groups=made.groups,
            shared=made.shared,
        )
        require(
            made.num_noises != "growing"
            or made.shared == "labels"
            and made.groups == 1,
            "`num_noises` must be an integer unless `shared` is 'labels', in "
            "one group.",
            num_noises=made.num_noises,
            shared=made.shared,
            groups=made.groups,
        )
        made._find_noise(class_counts)
        return made

    def _find_noise(self, class_counts):
        has_labels = self.shared == "labels"
        if self.noise is None:
            require(
                not has_labels or class_counts is not None,
                "`class_counts` must be given with shared='labels': the "
                "frequencies of labels correct their scores.",
                class_counts=None,
            )
            self.noise = "uniform"
            if class_counts is not None:
                power = 1.0 if has_labels else 0.75
                self.noise = UnigramNoise(class_counts, power)
        if isinstance(self.noise, str):
            self.noise = NOISES[self.noise]()
        if has_labels:
            check_positive_int("num_noises", self.most_noises, 2)
            power = isinstance(self.noise, UnigramNoise) and self.noise.power
            require(
                power == 1 and self.estimate == "joint",
                "`noise` must be `UnigramNoise(counts, power=1.0)` and "
                "`estimate` must be 'joint' with shared='labels', as labels "
                "are the first noise samples.",
                noise=type(self.noise).__name__,
                power=power,
                estimate=self.estimate,
            )

    def _choose(self, num_classes, class_counts):
        """Chooses open settings by the number of classes and their counts."""
        candidates, noises = self.num_candidates, self.num_noises
        if noises == "growing":
            noises, self.groups = None, self.groups or 1
            self.shared = self.shared or "labels"
        is_open = candidates is None and noises is None
        # With labels as noise samples, one sample is still drawn.
        least = 2 if noises is None and self.shared == "labels" else 1
        if is_open and num_classes <= MOST_SCORED:
            self.selector, self.num_noises = AllClasses(), least
            if self.shared != "neighbors":
                self.groups = 1
            return
        counts = np.ones(num_classes) if class_counts is None else class_counts
        self.selector = FrequentClasses(counts)
        scored = min(SCORED, num_classes - 1)
        in_groups = is_open and self.groups is None and self.shared is not False
        if in_groups:
            scored = enough_scored(counts, scored)
        worthy = worthy_candidates(counts, scored)
        if candidates is None:
            given = scored - worthy if noises is None else noises
            most = num_classes - 1 - given
            candidates = max(1, min(most, max(worthy, scored - given)))
        if noises is None:
            most = num_classes - 1 - candidates
            noises = max(scored - worthy, scored - candidates)
            noises = max(1, min(most, noises))
        if in_groups:
            noises = max(noises, _FEWEST_SHARED)
            groups = round((SCORED - candidates) / noises)
            self.groups = min(max(1, groups), _MOST_GROUPS)
        if self.shared is None:
            self.shared = noises >= _FEWEST_SHARED
            by_labels = self.noise is None and self.estimate == "joint"
            if self.shared and by_labels and class_counts is not None:
                self.shared = "labels"
        # With even counts, candidates are no better than samples, and more
        # samples help only after many steps.
        grows = in_groups and (self.shared, self.groups) == ("labels", 1)
        if grows or self.num_noises == "growing":
            candidates, self.num_noises = self.num_candidates or 1, "growing"
        else:
            self.num_noises = max(least, noises)
        self.num_candidates = candidates

    def summary(self) -> str:
        """Lines on the candidates and noise classes of a training step."""
        whose = {
            False: "for each example",
            True: "shared by a batch",
            "labels": "labels of the batch first",
            "neighbors": f"shared by {self.groups} examples at a time",
        }
        selector, noise = (
            type(part).__name__ for part in (self.selector, self.noise)
        )
        number = f"{self.most_noises:,}"
        if self.num_noises == "growing":
            number = f"growing to {number}"
        if self.of_batch and self.groups > 1:
            number += f" for each of {self.groups} groups"
        return (
            f"candidates: {self.num_candidates:,}, by {selector}",
            f"noise classes: {number}, {whose[self.shared]}, by {noise}",
        )

    def draw(
        self,
        scores: ClassScores,
        features: tf.Tensor,
        labels: tf.Tensor,
        seed: tf.Tensor,
        context: tf.Tensor | None = None,
        learn: bool = True,
        counted: tf.Tensor | None = None,
    ) -> Draw:
        """Draws candidates and noise samples, and computes losses."""
        fixed = tf.stop_gradient(features)
        if learn:
            self.selector._before_step(scores, fixed)
        selected = self.selector.select(scores, fixed, context)
        each = self.most_noises
        if self.num_noises == "growing" and learn and counted is not False:
            each = self._noises_so_far(tf.size(labels), seed)
        noises = self.draw_noises(selected, labels, seed, counted, each)
        lists = labels[:, None], *_last_apart(noises.ids), selected
        offsets = (
            tf.zeros((tf.size(labels), 1)),
            *_last_apart(noises.offsets),
            tf.where(selected >= 0, 0.0, _NONE),
        )
        shared = bool(self.shared)
        if self.shared == "neighbors":
            shared = self.groups > 1
        kinds = False, shared, shared, selected.shape.rank == 1
        order, number = np.argsort(kinds, kind="stable"), kinds.count(False)
        if number == len(lists):
            found = scores.own(features, *lists, offsets=offsets)
        else:
            found = scores.shared(
                features,
                [lists[place] for place in order[:number]],
                [lists[place] for place in order[number:]],
                [offsets[place] for place in order],
                self.groups if self.shared == "neighbors" else None,
            )
        label, *drawn, inside = (found[place] for place in np.argsort(order))
        if noises.left_out is not None:
            left_out = _last_apart(noises.left_out)
            drawn = [
                tf.where(where, _NONE, part)
                for where, part in zip(left_out, drawn, strict=True)
            ]
        of_rows = selected[None] if kinds[-1] else selected
        same = tf.equal(of_rows, labels[:, None])
        hit = tf.reduce_any(same, axis=1)
        estimate = joint_losses if self.estimate == "joint" else separate_losses
        losses = estimate(
            label[:, 0],
            inside,
            drawn,
            (label + noises.label_offset)[:, 0],
            hit,
        )
        if learn:
            self.selector.after_step(scores, labels, hit)
            self.noise.observe(labels, hit)
            losses = _after_writes(losses, self.selector)
        # Rounding may put the label's score above itself: skip it here.
        best = tf.reduce_max(tf.where(same, _NONE, inside), axis=1)
        return Draw(losses, hit, hit & (best <= label[:, 0]))

    def _noises_so_far(self, rows, seed):
        """How many noise samples a step of training draws."""
        most = self.most_noises
        if in_xla():
            return most
        _, examples = rows_of_all_devices(rows)
        # The second number of a seed counts steps.
        seen = tf.cast(seed[1], "float32") * tf.cast(examples, "float32")
        is_few = (examples >= _MANY_EXAMPLES) & (seen < self.noise.counts.sum())
        return tf.where(is_few, tf.minimum(examples, most), most)

    def draw_noises(
        self,
        selected: tf.Tensor,
        labels: tf.Tensor,
        seed: tf.Tensor,
        counted: tf.Tensor | None,
        each: int | tf.Tensor,
    ) -> Noises:
        """Draws `each` noise samples for an example, or for its group."""
        rows = tf.size(labels)
        # Shared noise samples may be candidates of some examples. These
        # examples ignore them, which leaves the expected sum unchanged.
        excluded = None
        if selected.shape.rank == 1 or not self.shared:
            excluded = selected
        number, size, draws = rows, each, each
        if self.of_batch:
            number, size = None, self.groups * each
        elif self.shared:
            number = (rows + self.groups - 1) // self.groups
        ids = self.noise.sample(random_bits(seed, size, number), excluded)
        places = groups = left_out = None
        if self.shared == "labels" or self.of_batch and self.groups > 1:
            start, _ = rows_of_all_devices(rows)
            places = start + tf.range(rows)
            if self.groups > 1:
                # Adjacent examples are in different groups.
                groups = places % self.groups
        if self.shared == "labels":
            ids, left_out = self._labels_first(
                ids, labels, seed, excluded, counted, places, groups, each
            )
            draws -= 1
        if groups is not None:
            ids = tf.reshape(ids, (self.groups, each))
        # Expected draws of a class: in the joint sum, or for each sample.
        draws = draws if self.estimate == "joint" else 1
        log_draws = tf.math.log(tf.cast(draws, "float32"))
        offsets = -self.noise.log_prob(ids, excluded) - log_draws
        offsets = tf.where(ids >= 0, offsets, _NONE)
        label_offset = -self.noise.log_prob(labels[:, None], excluded)
        label_offset -= log_draws
        of_rows = ids
        if self.shared == "neighbors":
            of_rows = tf.gather(ids, tf.range(rows) // self.groups)
        elif groups is not None:
            of_rows = tf.gather(ids, groups)
            # Start with the group of the first row on this device.
            order = (start + tf.range(self.groups)) % self.groups
            ids, offsets = tf.gather(ids, order), tf.gather(offsets, order)
        if excluded is None:
            held = _hold(selected, of_rows)
            left_out = held if left_out is None else held | left_out
        return Noises(ids, offsets, left_out, label_offset)

    def _labels_first(
        self, drawn, labels, seed, excluded, counted, places, groups, each
    ):
        """Noise samples: labels of the batch first, then drawn ones."""
        others = labels
        if counted is not None:
            others = tf.where(counted, labels, -1)
        others = of_all_devices(others)
        noises = self.noise._may_draw(others)
        if excluded is not None:
            noises &= tf.logical_not(is_in(excluded[None], others[None])[0])
        end = each - 1
        most = self.groups * end
        chosen = random_order(seed, noises)[:most]
        whose = tf.where(tf.gather(noises, chosen), chosen, -1)
        missing = most - tf.size(whose)
        whose = tf.pad(whose, [[0, missing]], constant_values=-1)
        whose = tf.transpose(tf.reshape(whose, (end, self.groups)))
        whose = tf.pad(whose, [[0, 0], [0, 1]], constant_values=-1)
        # One tensor for both, as a batch may have no labels.
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
        spare = tf.equal(tf.range(each), end - 1)
        return ids, own | (has_none & spare)


def _last_apart(noises):
    """Splits off the last noise sample, as a label may replace it."""
    return noises[..., :-1], noises[..., -1:]


def _hold(selected, ids):
    """Whether ids are among the candidates of rows."""
    common = ids[None] if ids.shape.rank == 1 else ids
    if selected.shape[1] > _COMPARED:
        return is_in(selected, common)
    # A column at a time: TensorFlow reduces a short last axis slowly.
    columns = tf.unstack(selected, axis=1)
    return functools.reduce(
        tf.logical_or, [tf.equal(column[:, None], common) for column in columns]
    )


def _after_writes(losses, layer):
    """Makes gradients of `losses` wait for the writes of a layer."""
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
    """Losses with all noise samples of an example in one sum."""
    noises, last = noises
    last = tf.where(hit[:, None], last, label_noise[:, None])
    return log_sum_exp(candidates, noises, last) - label


def separate_losses(label, candidates, noises, label_noise, hit):
    """Losses with a logarithm for each noise sample (Algorithm 1)."""
    inside = log_sum_exp(candidates)
    noises = tf.concat(noises, axis=1)
    noises = tf.where(hit[:, None], noises, label_noise[:, None])
    totals = log_add_exp(inside[:, None], noises)
    return tf.reduce_mean(totals, axis=1) - label


def is_in(sets, ids):
    """Whether ids are in sets, by binary search."""
    size = sets.shape[1]
    number = tf.shape(sets)[0]
    if not size:
        shape = tf.maximum(tf.shape(ids), tf.stack([number, 1]))
        return tf.zeros(shape, "bool")
    flat = tf.reshape(tf.sort(sets, axis=1), (-1,))
    start = size * tf.range(number)[:, None]
    # Number of entries of the set up to the id.
    below = tf.zeros_like(start + ids)
    for power in reversed(range(size.bit_length())):
        further = below + (1 << power)
        entry = tf.gather(flat, start + tf.minimum(further, size) - 1)
        below = tf.where((further <= size) & (entry <= ids), further, below)
    last = tf.gather(flat, start + tf.maximum(below - 1, 0))
    return (below > 0) & (last == ids) & (ids >= 0)


def worthy_candidates(counts, number, power=0.75):
    """The best number of frequent classes to score in every step."""
    squares = _squares(counts, number, power)
    return int(1 + np.argmin(squares / np.arange(number - 1, 0, -1)))


def enough_scored(counts, most):
    """How many classes an example scores: candidates and noise samples."""
    squares = _squares(counts, most)
    labels = np.clip(np.sum(counts), _FEW_LABELS, _MANY_LABELS)
    small = _SMALL_ERROR * np.sqrt(labels / _FEW_LABELS)
    for number in range(_LEAST_SCORED, most):
        errors = squares[: number - 1] / np.arange(number - 1, 0, -1)
        if errors.min() <= small:
            return number
    return most


def _squares(counts, number, power=0.75):
    """Mean squares of one noise sample's estimate of the full sum."""
    shares = np.sort(np.asarray(counts, "float64"))[::-1]
    shares /= shares[0]
    # Sums over the classes after the first ones.
    rest, squares = (
        np.cumsum(part[::-1])[::-1][1:number]
        for part in (shares**power, shares ** (2 - power))
    )
    return rest * squares / shares.sum() ** 2
