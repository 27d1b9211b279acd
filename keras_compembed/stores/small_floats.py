"""Floats of a file in eight bits, with scales."""

import dataclasses

import numpy as np

# Numbers of a list that share a scale.
_BLOCK = 256
_HIGHEST = 127


@dataclasses.dataclass(frozen=True, eq=False)
class SmallFloats:
    """Floats as int8, with a float32 scale for each vector of the last axis."""

    integers: np.ndarray
    scales: np.ndarray

    @classmethod
    def of(cls, values):
        rows = _as_rows(np.asarray(values, "float32"))
        scales = np.abs(rows).max(axis=1, initial=0) / np.float32(_HIGHEST)
        usable = np.where(scales > 0, scales, 1)[:, None]
        integers = np.rint(rows / usable).clip(-_HIGHEST, _HIGHEST)
        integers = integers.astype("int8").ravel()[: np.size(values)]
        return cls(integers.reshape(np.shape(values)), scales)

    def floats(self):
        rows = _as_rows(self.integers) * self.scales[:, None]
        return rows.ravel()[: self.integers.size].reshape(self.integers.shape)

    @property
    def num_scales(self):
        return len(_as_rows(self.integers))


def _as_rows(values):
    """`(vectors, numbers)`, filled up with 0."""
    if values.ndim > 1:
        return values.reshape(-1, values.shape[-1])
    return np.pad(values, (0, -values.size % _BLOCK)).reshape(-1, _BLOCK)
