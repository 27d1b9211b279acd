"""Users and the places they visited: Gowalla, made-up ones."""

import dataclasses
import lzma

import numpy as np
import tensorflow as tf

TOP = 20


@dataclasses.dataclass(frozen=True)
class Visits:
    """Pairs of a user and a place, in three parts."""

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
    """Check-ins of Gowalla."""
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


def rank(user_table, item_table, users, seen, relevant):
    """Mean recall and NDCG of the first 20 items not seen; both by pairs."""
    num_items = len(item_table)
    seen, relevant = (
        np.sort(part[:, 0].astype("int64") * num_items + part[:, 1])
        for part in (seen, relevant)
    )
    discount = 1 / np.log2(np.arange(2, 2 + TOP))
    ideal = np.cumsum(discount)
    recalls, ndcgs = [], []
    for start in range(0, len(users), 512):
        part = np.sort(users[start : start + 512]).astype("int64")
        scores = tf.matmul(
            user_table[part], item_table, transpose_b=True
        ).numpy()
        rows, items = _of_users(seen, part, num_items)
        scores[rows, items] = -np.inf
        top = tf.math.top_k(scores, min(TOP, num_items)).indices.numpy()
        hits = np.isin(part[:, None] * num_items + top, relevant)
        rows, _ = _of_users(relevant, part, num_items)
        counts = np.bincount(rows, minlength=len(part))
        recalls.append(hits.sum(axis=1) / counts)
        gains = hits @ discount[: hits.shape[1]]
        ndcgs.append(gains / ideal[np.minimum(counts, TOP) - 1])
    return tuple(
        float(np.concatenate(values).mean()) for values in (recalls, ndcgs)
    )


def _of_users(keys, users, num_items):
    """Places in `users`, and items, of the sorted keys that are theirs."""
    starts = np.searchsorted(keys, users * num_items)
    stops = np.searchsorted(keys, (users + 1) * num_items)
    rows = np.repeat(np.arange(len(users)), stops - starts)
    found = [
        keys[start:stop] for start, stop in zip(starts, stops, strict=True)
    ]
    return rows, np.concatenate(found) % num_items
