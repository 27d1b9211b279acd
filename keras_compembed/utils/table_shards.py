"""A table whose rows lie in several arrays."""

import numpy as np


class TableShards:
    """A table whose rows lie one after the other in several arrays."""

    ndim = 2

    def __init__(self, shards):
        kinds = {(shard.shape[1], shard.dtype) for shard in shards}
        if len(kinds) != 1:
            raise ValueError(
                "A list of tables must have tables of as many columns and of "
                f"one dtype. Received: {kinds or 'none'}."
            )
        ((columns, self.dtype),) = kinds
        self._shards = shards
        # Of the first row of each, and of the end.
        self._starts = np.cumsum([0, *map(len, shards)])
        self.shape = (int(self._starts[-1]), columns)

    def __len__(self):
        return self.shape[0]

    def __array__(self, dtype=None, copy=None):
        table = np.concatenate(self._shards)
        return table.astype(dtype or self.dtype, copy=False)

    def __getitem__(self, rows):
        """Some rows, an array; a view of one that holds them all."""
        if isinstance(rows, slice) and rows.step in (None, 1):
            return self._between(*rows.indices(len(self))[:2])
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        rows = np.asarray(rows)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        if not rows.size:
            rows = rows.astype("int64")
        rows = np.where(rows < 0, rows + len(self), rows)
        found = np.empty((*rows.shape, self.shape[1]), self.dtype)
        shards = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(shards):
            here = shards == number
            places = rows[here] - self._starts[number]
            found[here] = self._shards[number][places]
        return found

    def _between(self, start, stop):
        parts = [
            shard[max(0, start - begin) : max(0, stop - begin)]
            for shard, begin in zip(self._shards, self._starts, strict=False)
            if start < begin + len(shard) and begin < stop
        ]
        if not parts:
            return np.empty((0, self.shape[1]), self.dtype)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
