"""Rows with one seed and chosen settings, the best of them with more."""

import itertools
import math
import sys
import time

import numpy as np


def first_then_best(groups, seeds, again):
    """Yields pairs of a seed and a row, when those before are measured.

    Args:
        groups: Iterable of lists of rows.
        seeds: Tuple of integers. All rows have the first.
        again: Function of a list of rows that have been measured with the
            first seed: those that have the other seeds too.
    """
    first, *others = seeds
    for group in groups:
        for row in group:
            yield first, row
        yield from itertools.product(others, again(group))


def begun_in_time(jobs, minutes, is_done):
    """Yields jobs until it is late; those that are done count no time.

    Args:
        jobs: Iterable of tuples.
        minutes: Number. Jobs that are left then are not begun.
        is_done: Function of the parts of a job.
    """
    started = time.monotonic()
    for job in jobs:
        if time.monotonic() - started > 60 * minutes and not is_done(*job):
            return
        yield job


def left_by_task(jobs, first_seed, seconds_of_row):
    """Says what is left, and how long it takes by what others took.

    Which rows get more seeds is known where the first seed is done.

    Args:
        jobs: List of pairs of a seed and a row whose `task` has a `name`.
        first_seed: Integer, the seed that settings are chosen on.
        seconds_of_row: Function of a task: processor seconds of a row with
            the first seed, or None where there is nothing to go by.

    Returns:
        String.
    """
    lines = ["", "Left (seeds), and processor hours by what others took:"]
    total = 0
    for task in dict.fromkeys(row.task for _, row in jobs):
        of_task = [job for job in jobs if job[1].task == task]
        seconds = seconds_of_row(task)
        # Other seeds try one rate, of some three.
        parts = [1 if seed == first_seed else 1 / 3 for seed, _ in of_task]
        hours = "unknown"
        if seconds is not None:
            total += seconds * sum(parts) / 3600
            hours = f"{seconds * sum(parts) / 3600:.1f} h"
        names = ", ".join(f"{row.name} ({seed})" for seed, row in of_task)
        lines.append(f"{task.name}, {len(of_task)}, {hours}: {names}")
    return "\n".join([*lines, f"In all {total:.1f} h of what is known."])


def climb(rates, first, score_of):
    """Scores by rate: from the first upwards, or else downwards.

    Goes on for as long as scores get better.
    """
    rates = sorted(rates)
    place = int(np.argmin([abs(math.log(rate / first)) for rate in rates]))
    scores = {rates[place]: score_of(rates[place])}
    for way in (rates[place + 1 :], rates[:place][::-1]):
        best = scores[rates[place]]
        for rate in way:
            scores[rate] = score_of(rate)
            if not scores[rate] > best:
                break
            best = scores[rate]
        if best > scores[rates[place]]:
            break
    return scores


def check_names(flag, names, known):
    """Ends the run if a flag names what is not known."""
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(
            f"--{flag} must be among: {', '.join(known)}. Received: "
            f"{', '.join(unknown)}"
        )
