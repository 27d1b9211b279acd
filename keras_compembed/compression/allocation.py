"""Bytes shared among tables, by what each loses."""

import numpy as np


def lower_hull(sizes, losses):
    """Places of the points on the lower convex hull, smallest first."""
    hull = []
    for place in np.lexsort((losses, sizes)):
        if hull and losses[place] >= losses[hull[-1]]:
            continue
        while len(hull) > 1 and _slope(
            sizes, losses, hull[-2], hull[-1]
        ) >= _slope(sizes, losses, hull[-2], place):
            hull.pop()
        hull.append(place)
    return [int(place) for place in hull]


def _slope(sizes, losses, first, second):
    """What the loss falls by for each byte, as a number below 0."""
    return (losses[second] - losses[first]) / (sizes[second] - sizes[first])


def allocate(curves, limit):
    """Chooses a point of each curve so that all together fit in a limit."""
    curves = [
        (np.asarray(sizes, "int64"), np.asarray(losses, "float64"))
        for sizes, losses in curves
    ]
    hulls = [lower_hull(*curve) for curve in curves]
    places = [hull[0] for hull in hulls]
    left = limit - sum(
        sizes[place] for (sizes, _), place in zip(curves, places, strict=True)
    )
    if left < 0:
        return None
    steps = [
        (_slope(*curve, hull[step], hull[step + 1]), table, step)
        for table, (curve, hull) in enumerate(zip(curves, hulls, strict=True))
        for step in range(len(hull) - 1)
    ]
    # A curve's own steps gain less and less, so they come in their order.
    for _, table, step in sorted(steps):
        sizes, _ = curves[table]
        first, second = hulls[table][step : step + 2]
        added = sizes[second] - sizes[first]
        # Steps after one that does not fit are not the table's next.
        if places[table] == first and added <= left:
            places[table] = second
            left -= added
    while True:
        best = None
        for table, (sizes, losses) in enumerate(curves):
            here = places[table]
            fits = np.flatnonzero(sizes - sizes[here] <= left)
            place = int(fits[np.lexsort((sizes[fits], losses[fits]))[0]])
            gain = losses[here] - losses[place]
            if gain > 0 and (best is None or gain > best[0]):
                best = gain, table, place
        if best is None:
            return places
        _, table, place = best
        left -= curves[table][0][place] - curves[table][0][places[table]]
        places[table] = place
