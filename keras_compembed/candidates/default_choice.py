"""How a layer of classes chooses for itself what a step scores."""

import dataclasses

import numpy as np

from keras_compembed.candidates.frequent_classes import AllClasses
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
    """What is scored in a step."""

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
