"""What a `CANESoftmax` chooses to score if it is told nothing."""

import json
import warnings

import numpy as np
import pytest
from errors import refused

import keras_compembed as kc
from keras_compembed.classes import AllClasses
from keras_compembed.classes import FrequentClasses
from keras_compembed.classes import UnigramNoise
from keras_compembed.classes.candidates_vs_noises import MOST_SCORED
from keras_compembed.classes.candidates_vs_noises import SCORED
from keras_compembed.classes.candidates_vs_noises import enough_scored
from keras_compembed.classes.candidates_vs_noises import worthy_candidates

# Of nearly a million labels.
ZIPF = 1e5 / np.arange(1, 10_001)


def mean_square(counts, candidates, number, power):
    """That of the estimate of noises, over their number, as a plain sum."""
    p = np.sort(counts)[::-1] / counts.sum()
    rest = p[candidates:]
    q = rest**power / np.sum(rest**power)
    total = 0.0
    for share, drawn in zip(rest, q, strict=True):
        total += drawn * (share / drawn) ** 2
    return total / (number - candidates)


@pytest.mark.parametrize("power", [0.5, 0.75])
@pytest.mark.parametrize(
    "counts",
    [
        ZIPF[:300],
        np.ones(300),
        np.random.default_rng(0).permutation(1 / np.arange(1, 301) ** 0.5),
        np.r_[np.full(7, 1e6), np.ones(293)],
    ],
)
def test_number_of_least_error(counts, power):
    number = 60
    chosen = worthy_candidates(counts, number, power)
    errors = [mean_square(counts, n, number, power) for n in range(1, number)]
    assert errors[chosen - 1] == pytest.approx(min(errors), rel=1e-9)
    # Few or none, where classes are as frequent, but for 7 of them.
    counts = np.ones(10_000)
    assert worthy_candidates(counts, 1000) == 1
    counts[:7] = 1e6
    assert worthy_candidates(counts, 1000) == 7


@pytest.mark.parametrize(
    "labels, small",
    [(1, 7e-4), (1e6, 7e-4), (4e6, 1.4e-3), (8e6, 1.98e-3), (1e9, 1.98e-3)],
)
@pytest.mark.parametrize("exponent", [0.0, 0.7, 0.9, 1.0, 1.3])
def test_an_example_scores_the_fewest_that_are_enough(exponent, labels, small):
    counts = np.random.default_rng(0).permutation(
        np.arange(1, 5001) ** -exponent
    )
    counts *= labels / counts.sum()
    chosen = enough_scored(counts, SCORED)
    assert 200 <= chosen <= SCORED

    def error(number):
        worthy = worthy_candidates(counts, number)
        return mean_square(counts, worthy, number, 0.75)

    if chosen < SCORED:
        assert error(chosen) <= small
    if chosen > 200:
        assert error(chosen - 1) > small


def lines_of(head):
    lines = []
    head.summary(lines.append)
    return lines


@pytest.mark.parametrize("counts", [None, "zipf"])
def test_few_classes_are_all_scored(counts):
    counts = counts and ZIPF[:MOST_SCORED]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        head = kc.CANESoftmax(MOST_SCORED, class_counts=counts, name="head")
        config = json.loads(json.dumps(head.get_config()))
        again = kc.CANESoftmax.from_config(config)
    for each in (head, again):
        assert isinstance(each.selector, AllClasses)
        assert not each.samples


def test_many_classes():
    """Of known counts, or with a selector that is given."""
    head = kc.CANESoftmax(10_000, FrequentClasses(ZIPF), class_counts=ZIPF)
    assert (head.num_candidates, head.estimation.num_noises) == (10, 10)
    head = kc.CANESoftmax(10_000, class_counts=ZIPF, name="head")
    assert isinstance(head.selector, FrequentClasses)
    assert isinstance(head.noise, UnigramNoise)
    scored = enough_scored(ZIPF, SCORED)
    number = head.num_candidates
    assert number == worthy_candidates(ZIPF, scored)
    # Another group would be further from a thousand classes.
    noises = scored - number
    assert abs(number + 3 * noises - SCORED) < noises / 2
    assert lines_of(head) == [
        "head: 10,000 classes",
        f"candidates: {number}, by FrequentClasses",
        f"noises: {noises} for each of 3 groups, "
        "labels of the batch first, by UnigramNoise",
    ]
    again = kc.CANESoftmax.from_config(head.get_config())
    assert lines_of(again) == lines_of(head)


@pytest.mark.parametrize(
    "numbers, chosen",
    [
        ({"num_candidates": 300}, (300, 700, "labels", 1)),
        ({"num_noises": 400}, (600, 400, "labels", 1)),
        ({"num_noises": 2000}, (394, 2000, "labels", 1)),
        ({"num_candidates": 9_900}, (9_900, 99, False, 1)),
        ({"noise": UnigramNoise(ZIPF)}, (149, 289, True, 3)),
        ({"share_noises": True}, (149, 289, True, 3)),
        ({"share_noises": 16}, (394, 606, 16, 1)),
        # A block of one example, which is equal to `True`.
        ({"share_noises": 1}, (394, 606, 1, 1)),
        ({"share_noises": False}, (394, 606, False, 1)),
        ({"noise_groups": 1}, (394, 606, "labels", 1)),
        ({"noise_groups": 5}, (394, 606, "labels", 5)),
        ({"num_noises": 400, "noise_groups": 2}, (600, 400, "labels", 2)),
        ({"num_candidates": 20, "num_noises": 10}, (20, 10, False, 1)),
    ],
)
def test_numbers_that_are_given(numbers, chosen):
    head = kc.CANESoftmax(10_000, class_counts=ZIPF, **numbers)
    for each in (head, kc.CANESoftmax.from_config(head.get_config())):
        found = each.estimation
        assert chosen == (
            each.num_candidates,
            found.num_noises,
            found.share_noises,
            found.noise_groups,
        )


def test_labels_as_noises_of_few_classes():
    head = kc.CANESoftmax(1500, class_counts=ZIPF[:1500], share_noises="labels")
    assert isinstance(head.selector, AllClasses)
    with refused("num_noises", 1):
        kc.CANESoftmax(
            1500, class_counts=ZIPF[:1500], share_noises="labels", num_noises=1
        )
