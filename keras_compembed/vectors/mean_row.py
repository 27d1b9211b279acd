"""What stored rows have for the mean of all."""

import numpy as np


def with_mean(stored):
    """`StoredRows` with the row nearest to the mean."""
    parts = stored.parts()
    total = sum(part.sum(axis=0, dtype="float64") for part in parts)
    mean = total / stored.shape[0]
    if not stored.can_grow:
        far = [np.square(x - mean).sum(axis=1) for x in stored.parts()]
        return stored, int(np.argmin(np.concatenate(far)))
    return stored.with_vectors(mean[None]), stored.shape[0]
