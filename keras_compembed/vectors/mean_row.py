"""What stored rows have for the mean of all."""

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
    return stored.with_vectors(mean[None]), stored.shape[0]
