"""How often each class of a text follows each other one."""

import numpy as np

# Numbers held at a time.
_ENTRIES = 1 << 24


def most_frequent(ids, num_classes, number):
    """Classes by how often they come, the most frequent first."""
    counts = np.bincount(ids[ids >= 0].ravel(), minlength=num_classes)
    order = np.argsort(-counts, kind="stable")
    return order[:number].astype("int32")


def most_frequent_followers(ids, num_classes, frequent):
    """Classes by how often they follow each class."""
    number = len(frequent)
    before, after = ids[..., :-1].ravel(), ids[..., 1:].ravel()
    there = (before >= 0) & (after >= 0)
    keys = before[there].astype("int64") * num_classes + after[there]
    # `np.unique` takes 70 times as long for millions of keys.
    keys.sort()
    firsts = np.flatnonzero(np.diff(keys, prepend=-1))
    counts = np.diff(firsts, append=len(keys))
    before, after = np.divmod(keys[firsts], num_classes)
    order = np.lexsort((-counts, before))
    before, after = before[order], after[order]
    followers = np.bincount(before, minlength=num_classes)
    starts = np.cumsum(followers) - followers
    place = np.arange(len(before)) - starts[before]
    kept = place < number
    before, after, place = before[kept], after[kept], place[kept]
    table = np.full((num_classes, number), -1, "int32")
    table[before, place] = after
    _fill_up(table, np.minimum(followers, number), frequent)
    return table


def _fill_up(table, counts, frequent):
    """Fills rows up with what is frequent and not in them yet."""
    number = table.shape[1]
    rank = np.full(len(table), number)
    rank[frequent] = np.arange(number)
    step = max(1, _ENTRIES // number)
    for start in range(0, len(table), step):
        part = table[start : start + step]
        room = number - counts[start : start + step]
        there = np.zeros((len(part), number + 1), bool)
        rows = np.arange(len(part))[:, None]
        there[rows, np.where(part >= 0, rank[part], number)] = True
        free = ~there[:, :number]
        # As many of them as there is room for, in their order.
        free &= np.cumsum(free, axis=1) <= room[:, None]
        rows, columns = np.nonzero(free)
        place = np.cumsum(free, axis=1)[rows, columns] - 1
        part[rows, number - room[rows] + place] = frequent[columns]
