"""How a layer of classes chooses for itself what a step scores."""

import dataclasses

import numpy as np

from keras_compembed.candidates.all_classes import AllClasses
from keras_compembed.candidates.frequent_classes import FrequentClasses
from keras_compembed.candidates.selector import Selector

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


@dataclasses.dataclass(frozen=True)
class Choice:
    """What is scored in a step.

    Attributes:
        selector: `Selector`.
        num_candidates: Integer.
        num_noises: Integer.
        share_noises: Boolean.
        noise_groups: Integer.
    """

    selector: Selector
    num_candidates: int
    num_noises: int
    share_noises: bool
    noise_groups: int = 1


def choose(
    num_classes,
    class_counts,
    num_candidates=None,
    num_noises=None,
    noise_groups=None,
):
    """What to score in a step, by the number of classes and their counts.

    Scores of classes that examples share are matrix products, so that
    `SCORED` of them cost as little as a few that each example has for itself.
    Of these, the frequent classes are candidates, and the others noises. If
    one of the numbers is given, the other is what makes `SCORED` of them, or
    what it would be by itself if that is more.

    If none is given, groups of examples may have noises of their own, where
    these are enough for an example: as many groups as make about `SCORED`
    classes. An example then scores fewer, so that a step is faster. What
    noises get wrong differs between groups, so that in the mean over the
    batch it is no more. How many are enough is a matter of the number of
    labels too, see `enough_scored`.

    Args:
        num_classes: Integer.
        class_counts: Array `(num_classes,)` of positive numbers, or None.
        num_candidates: Optional integer, if it is given.
        num_noises: Optional integer, if it is given.
        noise_groups: Optional integer, if it is given.

    Returns:
        A `Choice`.
    """
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
    """How many of the frequent classes to score always, not by chance.

    Noises estimate the sum over all classes that are no candidates. For a
    class of frequency `p`, drawn by `q`, the square of its share in that is
    `p ** 2 / q` in the mean, and more noises make the error smaller: this
    finds the number of candidates by which the mean square of the estimate,
    over the number of noises that are left, is least.

    Args:
        counts: Array of positive numbers.
        number: Integer, of candidates and noises together, less than that of
            classes.
        power: Number. Noises are drawn by counts to this power. Defaults to
            `0.75`.

    Returns:
        Integer from 1 to `number - 1`.
    """
    squares = _squares(counts, number, power)
    return int(1 + np.argmin(squares / np.arange(number - 1, 0, -1)))


def enough_scored(counts, most, power=0.75):
    """How many classes an example scores, candidates and noises together.

    The fewest whose estimate of the sum over all classes has a mean square
    error that is small enough, where probabilities are counts: 0.0007 of its
    square for up to a million labels, 0.002 from eight million on, and
    between them by the root of their number. Training does not get through
    so many often, and more of them seen gain more than a better estimate.

    Args:
        counts: Array of positive numbers, of labels.
        most: Integer, less than the number of classes.
        power: See `worthy_candidates`.

    Returns:
        Integer up to `most`, and from 200 on if that is more.
    """
    squares = _squares(counts, most, power)
    labels = np.clip(np.sum(counts), _FEW_LABELS, _MANY_LABELS)
    small = _SMALL_ERROR * np.sqrt(labels / _FEW_LABELS)
    for number in range(_LEAST_SCORED, most):
        errors = squares[: number - 1] / np.arange(number - 1, 0, -1)
        if errors.min() <= small:
            return number
    return most


def _squares(counts, number, power):
    """Mean squares of what one noise gives for the sum over all classes.

    Args:
        counts, number, power: See `worthy_candidates`.

    Returns:
        Array `(number - 1,)`, for 1 candidate, 2, and so on.
    """
    shares = np.sort(np.asarray(counts, "float64"))[::-1]
    shares /= shares[0]
    # Of all classes but so many.
    rest, squares = (
        np.cumsum(part[::-1])[::-1][1:number]
        for part in (shares**power, shares ** (2 - power))
    )
    return rest * squares / shares.sum() ** 2
