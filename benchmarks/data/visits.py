"""Users and the places they visited: Gowalla, made-up ones."""

import dataclasses
import lzma

import numpy as np


@dataclasses.dataclass(frozen=True)
class Visits:
    """Pairs of a user and a place, in three parts.

    Attributes:
        num_users, num_items: Integers.
        train, valid, test: int32 arrays `(pairs, 2)`, sorted by user.
    """

    num_users: int
    num_items: int
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray

    @classmethod
    def split(cls, train, test):
        """Holds a tenth of training pairs out."""
        order = np.random.default_rng(0).permutation(len(train))
        held = len(train) // 10
        sizes = np.concatenate([train, test]).max(axis=0) + 1
        parts = (train[order[held:]], train[order[:held]], test)
        return cls(*sizes.tolist(), *map(_by_user, parts))


def _by_user(pairs):
    return pairs[np.argsort(pairs[:, 0], kind="stable")].astype("int32")


def gowalla(folder):
    """Check-ins of Gowalla.

    Args:
        folder: `pathlib.Path` that holds `train.txt.xz` and `test.txt.xz`: a
            line a user, with the ids of places after the user's.
    """
    parts = []
    for name in ("train", "test"):
        pairs = []
        path = folder / f"{name}.txt.xz"
        with lzma.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                user, *items = map(int, line.split())
                pairs += [(user, item) for item in items]
        parts.append(np.array(pairs))
    return Visits.split(*parts)


def generated(seed=0):
    """Users and places of five kinds, who mostly keep to theirs."""
    rng = np.random.default_rng(seed)
    users, items = np.divmod(np.arange(150 * 100), 100)
    alike = users % 5 == items % 5
    visited = rng.random(len(users)) < np.where(alike, 0.7, 0.02)
    pairs = np.stack([users, items], axis=1)[visited]
    tested = rng.random(len(pairs)) < 0.2
    return Visits.split(pairs[~tested], pairs[tested])
