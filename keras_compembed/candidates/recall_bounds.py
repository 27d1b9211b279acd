"""What recall on some features says of that on others."""

import math

# Chance that recall on other features is below what is stated.
_RISK = 0.05


def _log_chance(found, recall, rows):
    """Bound of the log of the chance to find a share of `found` or more."""
    chance = 0.0
    for part, expected in ((found, recall), (1 - found, 1 - recall)):
        if part > 0:
            chance -= (
                math.inf
                if expected <= 0
                else (part * math.log(part / expected))
            )
    return rows * chance


def share_to_find(target, rows):
    """Least share that shows recall of at least `target`; 1 if none does."""
    return _edge(
        lambda share: _log_chance(share, target, rows) > math.log(_RISK),
        target,
        1.0,
    )


def stated_recall(found, rows):
    """The highest recall that a share of `found` shows."""
    return _edge(
        lambda recall: _log_chance(found, recall, rows) > math.log(_RISK),
        found,
        0.0,
    )


def _edge(holds, inside, outside):
    """Where a condition ends, by halves: the last number outside of it."""
    for _ in range(50):
        middle = (inside + outside) / 2
        if holds(middle):
            inside = middle
        else:
            outside = middle
    return outside
