"""Hierarchical k-means with clusters of equal sizes."""

import keras
import numpy as np

from keras_compembed.utils.workers import one_thread

# Array entries to process at a time, in each of a few arrays.
_ENTRIES = 1 << 23
# Points to fit centres to: at least this many, and this many per cluster.
_SAMPLE = 4096
_SAMPLE_A_CLUSTER = 32
_STEPS = 20
_PRICE_STEPS = 2
_EXACT_STEPS = 10
# Temperatures of the prices, as shares of the cost of a wrong cluster.
_HOT = 0.3
_COLD = 0.02
# Rounds of assignment. Points that remain get any free place.
_ROUNDS = 32


def balanced_parts(num_classes, branching):
    """The numbers of parts to split into at each level, from the top down."""
    depth, most = 1, branching
    while most < num_classes:
        depth, most = depth + 1, most * branching
    parts = []
    size = num_classes
    while size > branching:
        most //= branching
        parts.append(-(-size // most))
        size = -(-size // parts[-1])
    return parts


def cluster_levels(vectors, branching, seed, verbose):
    """Splits vectors into clusters of clusters, from the top down."""
    rng = np.random.default_rng(seed)
    order = np.arange(len(vectors))
    sizes = np.array([len(vectors)])
    levels = []
    splits = balanced_parts(len(vectors), branching)
    bar = keras.utils.Progbar(
        len(splits) * len(vectors), verbose=verbose, unit_name="row"
    )
    with one_thread():
        for parts in splits:
            order, sizes = _split_level(vectors, order, sizes, parts, rng, bar)
            levels.append(sizes)
    return order, levels


def _split_level(vectors, order, sizes, parts, rng, bar):
    order = order.copy()
    starts = np.cumsum(sizes) - sizes
    counts = np.empty((len(sizes), parts), "int64")
    for size in np.unique(sizes):
        sets = np.flatnonzero(sizes == size)
        step = max(1, _ENTRIES // (size * (vectors.shape[1] + 2 * parts)))
        for first in range(0, len(sets), step):
            some = sets[first : first + step]
            places = starts[some, None] + np.arange(size)
            ids = order[places]
            clusters = split_evenly(vectors, ids, parts, rng)
            within = np.argsort(clusters, axis=1, kind="stable")
            order[places] = np.take_along_axis(ids, within, axis=1)
            clusters = clusters + parts * np.arange(len(some))[:, None]
            counts[some] = np.bincount(
                clusters.ravel(), minlength=parts * len(some)
            ).reshape(-1, parts)
            bar.add(ids.size)
    return order, counts.ravel()


def split_evenly(vectors, ids, parts, rng):
    """Splits sets of one size into clusters with sizes that differ by <= 1."""
    size = ids.shape[1]
    sample = min(size, max(_SAMPLE, _SAMPLE_A_CLUSTER * parts))
    sample = max(parts, min(sample, 4 * _ENTRIES // parts))
    if sample < size:
        return np.stack(
            [_split_large(vectors, row, parts, sample, rng) for row in ids]
        )
    points = vectors[ids]
    _normalise(points)
    centres, prices = _fit(points, parts, rng)
    costs = _costs(points, centres).reshape(-1, parts)
    return _deal(costs.__getitem__, prices, size)


def _split_large(vectors, ids, parts, sample, rng):
    """Clusters of one set of points, with centres fitted to a sample."""
    some = rng.choice(len(ids), sample, replace=False, shuffle=False)
    points = vectors[ids[np.sort(some)]][None]
    mean, scale = _normalise(points)
    centres, prices = _fit(points, parts, rng)
    step = max(1, _ENTRIES // (vectors.shape[1] + parts))

    def costs(rows):
        return _costs((vectors[ids[rows]] - mean) / scale, centres)[0]

    return _deal(costs, prices, len(ids), step)[0]


def _normalise(points):
    """Scales sets of points to mean 0 and entries up to 1, in place."""
    mean = points.mean(axis=1, keepdims=True)
    points -= mean
    scale = np.maximum(points.max(axis=(1, 2)), -points.min(axis=(1, 2)))
    scale = np.where(scale > 0, scale, 1)[:, None, None]
    points /= scale
    return mean, scale


def _fit(points, parts, rng):
    """Centres and prices of clusters with about equal sizes."""
    centres = _seeds(points, parts, rng)
    prices = np.zeros((len(points), 1, parts), "float32")
    shares = np.geomspace(_HOT, _COLD, _STEPS, dtype="float32")
    for step, share in enumerate(shares):
        costs = _costs(points, centres)
        for _ in range(_PRICE_STEPS):
            prices = _balance(costs, prices, share)
        if step < _STEPS - _EXACT_STEPS:
            nearest = np.argmin(costs + prices, axis=2)
        else:
            rows = costs.reshape(-1, parts)
            nearest = _deal(rows.__getitem__, prices[:, 0], points.shape[1])
        members = nearest[..., None] == np.arange(parts)
        members = members.astype("float32")
        counts = members.sum(axis=1)[..., None]
        sums = np.matmul(members.transpose(0, 2, 1), points)
        # A centre without points does not move.
        centres = np.where(counts > 0, sums / np.maximum(counts, 1), centres)
    costs = _costs(points, centres)
    for _ in range(2 * _PRICE_STEPS):
        prices = _balance(costs, prices, np.float32(_COLD))
    return centres, prices[:, 0]


def _seeds(points, parts, rng):
    """Initial centres from the points of each set, as in k-means++."""
    sets, size, _ = points.shape
    every = np.arange(sets)
    centres = np.empty((sets, parts, points.shape[2]), "float32")
    centres[:, 0] = points[every, rng.integers(size, size=sets)]
    nearest = np.full((sets, size), np.inf, "float32")
    for part in range(1, parts):
        # Differences first: expanded squares would not be 0 for equal points.
        apart = points - centres[:, part - 1, None]
        np.minimum(nearest, np.einsum("bsd,bsd->bs", apart, apart), out=nearest)
        below = np.cumsum(nearest, axis=1, dtype="float64")
        drawn = rng.random((sets, 1)) * below[:, -1:]
        rows = (below <= drawn).sum(axis=1)
        centres[:, part] = points[every, np.minimum(rows, size - 1)]
    return centres


def _costs(points, centres):
    """Squared distances from all centres, without their common part."""
    costs = np.matmul(points, (-2 * centres).transpose(0, 2, 1))
    costs += np.einsum("bpd,bpd->bp", centres, centres)[:, None]
    return costs


def _balance(costs, prices, share):
    """One update of prices towards equal demand."""
    size, parts = costs.shape[1:]
    logits = -(costs + prices)
    logits -= logits.max(axis=2, keepdims=True)
    unit = -logits.mean(axis=(1, 2), keepdims=True)
    unit = share * np.maximum(unit, np.finfo("float32").tiny / share)
    np.exp(logits / unit, out=logits)
    logits /= logits.sum(axis=2, keepdims=True)
    demand = logits.sum(axis=1, keepdims=True) * np.float32(parts / size)
    return prices + unit * np.log(np.maximum(demand, np.float32(1e-6)))


def _deal(costs, prices, size, step=None):
    """Assigns points to clusters with sizes that differ by at most 1."""
    sets, parts = prices.shape
    clusters = np.empty(sets * size, "int32")
    left = np.arange(sets * size)
    room = None
    for _ in range(_ROUNDS):
        asking = prices if room is None else np.where(room, prices, np.inf)
        wanted, loss = _wishes(costs, asking, left, size, step or len(left))
        if room is None:
            room = _capacities(wanted, sets, parts, size)
        order = np.lexsort((-loss, wanted))
        wanted = wanted[order]
        counts = np.bincount(wanted, minlength=sets * parts)
        place = np.arange(len(left)) - (np.cumsum(counts) - counts)[wanted]
        taken = place < room.ravel()[wanted]
        clusters[left[order[taken]]] = wanted[taken] % parts
        room -= np.minimum(room, counts.reshape(room.shape))
        left = np.sort(left[order[~taken]])
        if not len(left):
            break
    clusters[left] = np.repeat(np.arange(sets * parts) % parts, room.ravel())
    return clusters.reshape(sets, size)


def _wishes(costs, prices, rows, size, step):
    """The best cluster of each point, and the loss if it is full."""
    wanted = np.empty(len(rows), "int64")
    loss = np.empty(len(rows), "float32")
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        own = some // size
        table = costs(some) + prices[own]
        every = np.arange(len(some))
        best = np.argmin(table, axis=1)
        least = table[every, best]
        table[every, best] = np.inf
        wanted[start : start + step] = own * prices.shape[1] + best
        loss[start : start + step] = table.min(axis=1) - least
    return wanted, loss


def _capacities(wanted, sets, parts, size):
    """Sizes of clusters. The most requested ones take one more if needed."""
    asked = np.bincount(wanted, minlength=sets * parts).reshape(sets, parts)
    rank = np.argsort(np.argsort(-asked, axis=1, kind="stable"), axis=1)
    return size // parts + (rank < size % parts)
