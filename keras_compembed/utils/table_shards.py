"""A table whose rows lie in several arrays."""

import numpy as np


class TableShards:
    """A table whose rows lie one after the other in several arrays.

    Learners and `from_table` of layers read it a part at a time, so that the
    arrays may be memory-mapped files and larger than memory, see
    `keras_compembed.vectors.open_table`. For all else it is an array that is
    read whole: `numpy.asarray(shards)`.

    Example:

    >>> shards = TableShards([np.zeros((2, 3)), np.ones((4, 3))])
    >>> shards.shape
    (6, 3)
    >>> shards[1:3]
    array([[0., 0., 0.],
           [1., 1., 1.]])

    Args:
        shards: List of arrays `(rows, columns)` of one dtype, perhaps
            memory-mapped. They are not copied.

    Attributes:
        shape: Tuple of integers, `(rows, columns)`.
        dtype: The NumPy dtype.
        ndim: 2.

    Raises:
        ValueError: if there are no arrays, or they are not matrices of as many
            columns and of one dtype.
    """

    ndim = 2

    def __init__(self, shards):
        shards = list(shards)
        if not shards:
            raise ValueError("`shards` must hold arrays. Received: none.")
        first = shards[0]
        for place, shard in enumerate(shards):
            if not isinstance(shard, np.ndarray) or shard.ndim != 2:
                raise ValueError(
                    "`shards` must hold arrays of two axes, (rows, columns). "
                    f"Received: at place {place} {_described(shard)}."
                )
            if (shard.shape[1], shard.dtype) != (first.shape[1], first.dtype):
                raise ValueError(
                    "`shards` must be of as many columns and of one dtype. "
                    f"Received: {_described(first)} at place 0, "
                    f"{_described(shard)} at place {place}."
                )
        self._shards = shards
        # Of the first row of each, and of the end.
        self._starts = np.cumsum([0, *map(len, shards)])
        self.shape = (int(self._starts[-1]), first.shape[1])
        self.dtype = first.dtype

    def __len__(self):
        return self.shape[0]

    def __repr__(self):
        return (
            f"<TableShards of {len(self._shards)}, shape {self.shape}, dtype "
            f"{self.dtype}>"
        )

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("Shards become one array by copying.")
        return np.concatenate(self._shards).astype(
            dtype or self.dtype, copy=False
        )

    def __getitem__(self, rows):
        """Some rows, an array; a view of one that holds them all."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                return self._between(start, max(start, stop))
            rows = np.arange(start, stop, step)
        rows = self._places(rows)
        found = np.empty((*rows.shape, self.shape[1]), self.dtype)
        shards = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(shards):
            here = shards == number
            found[here] = self._shards[number][
                rows[here] - self._starts[number]
            ]
        return found

    def _places(self, rows):
        """Integers from 0 on, for an index that is no slice."""
        if isinstance(rows, tuple):
            raise TypeError(
                "Rows of shards must be named by one index, as in "
                f"`shards[rows][:, columns]`. Received: {len(rows)} indices."
            )
        rows = np.asarray(rows)
        if rows.dtype == bool and rows.shape == (len(self),):
            return np.flatnonzero(rows)
        if not rows.size:
            rows = rows.astype("int64")
        if rows.dtype.kind not in "iu":
            raise IndexError(
                "Rows of shards must be named by integers, a slice or a "
                f"boolean for each of the {len(self)} rows. Received: an "
                f"index of shape {rows.shape} and dtype {rows.dtype}."
            )
        rows = rows.astype("int64")
        rows = np.where(rows < 0, rows + len(self), rows)
        if rows.size and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError(
                f"There are {len(self)} rows; one beyond is named."
            )
        return rows

    def _between(self, start, stop):
        first, last = (
            np.searchsorted(
                self._starts, [start, max(start, stop - 1)], "right"
            )
            - 1
        )
        parts = [
            shard[max(0, start - begin) : max(0, stop - begin)]
            for shard, begin in zip(
                self._shards[first : last + 1],
                self._starts[first:],
                strict=False,
            )
        ]
        if not parts:
            return np.empty((0, self.shape[1]), self.dtype)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _described(shard):
    if isinstance(shard, np.ndarray):
        return f"an array of shape {shard.shape} and dtype {shard.dtype}"
    return f"an object of type {type(shard).__name__}"
