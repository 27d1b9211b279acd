"""Choosing a learning rate, and names of a flag."""

import math
import sys

import numpy as np


def climb(rates, first, score_of):
    """Scores by rate: from the first upwards, or else downwards."""
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
