"""What stored rows have for the mean of all."""

import warnings

import numpy as np


def with_mean(stored):
    """`StoredRows` with one more, and its place: what is nearest to the mean.

    A row is added where the layer can make new ones; it is else the word whose
    vector is nearest.
    """
    parts = stored.parts()
    total = sum(part.sum(axis=0, dtype="float64") for part in parts)
    mean = total / stored.shape[0]
    if not stored.can_grow:
        far = [np.square(x - mean).sum(axis=1) for x in stored.parts()]
        return stored, int(np.argmin(np.concatenate(far)))
    layer = stored.make_layer()
    with warnings.catch_warnings():
        # Of vectors about 0 the mean is short, and need not be exact.
        warnings.filterwarnings("ignore", ".*rows are far shorter")
        layer.add_ids(mean[None])
    return stored.with_rows(stored.read_rows(layer)), stored.shape[0]
