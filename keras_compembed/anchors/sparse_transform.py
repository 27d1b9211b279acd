"""A sparse matrix as three arrays."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class SparseTransform:
    """The non-zeros of a matrix, row by row."""

    offsets: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    num_columns: int

    def __post_init__(self):
        small = self.offsets[-1] <= np.iinfo("int32").max
        offsets = self.offsets.astype("int32" if small else "int64")
        object.__setattr__(self, "offsets", offsets)

    @classmethod
    def from_parts(cls, parts, num_columns):
        """Collects the non-zeros of dense rows."""
        counts, columns, values = [], [], []
        for part in parts:
            part = np.asarray(part)
            rows, places = np.nonzero(part)
            counts.append(np.bincount(rows, minlength=len(part)))
            columns.append(places.astype(column_dtype(num_columns)))
            values.append(part[rows, places].astype(value_dtype(part.dtype)))
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
        return cls(
            offsets,
            np.concatenate(columns),
            np.concatenate(values),
            num_columns,
        )

    @property
    def num_rows(self):
        return len(self.offsets) - 1

    @property
    def nnz(self):
        return len(self.values)

    @property
    def row_lengths(self):
        """Integer array `(rows,)`, the non-zeros of each row."""
        return np.diff(self.offsets)

    def dense_rows(self, start=0, stop=None):
        """Rows from `start` to before `stop` as a dense array."""
        stop = self.num_rows if stop is None else min(stop, self.num_rows)
        dense = np.zeros((stop - start, self.num_columns), self.values.dtype)
        inside = slice(self.offsets[start], self.offsets[stop])
        rows = np.repeat(np.arange(stop - start), self.row_lengths[start:stop])
        dense[rows, self.columns[inside]] = self.values[inside]
        return dense

    def append(self, other):
        """Returns this matrix with the rows of another one below."""
        below = self.offsets[-1] + other.offsets[1:].astype("int64")
        return SparseTransform(
            np.concatenate([self.offsets, below]),
            np.concatenate([self.columns, other.columns]),
            np.concatenate([self.values, other.values]),
            self.num_columns,
        )

    def keep_largest(self, nnz):
        """Returns a matrix with at most `nnz` entries, the largest ones."""
        if self.nnz <= nnz:
            return self
        kept = np.zeros(self.nnz, bool)
        kept[np.argsort(-np.abs(self.values), kind="stable")[:nnz]] = True
        return self._part(kept)

    def fill(self, nnz, max_nonzeros):
        """Returns a matrix with room for `nnz` entries; some may be 0."""
        if self.nnz == nnz:
            return self
        lengths = self.row_lengths
        room = np.cumsum(max_nonzeros - lengths)
        added = np.diff(np.minimum(room, nnz - self.nnz), prepend=0)
        columns = [self.columns]
        for row in np.flatnonzero(added):
            taken = self.columns[self.offsets[row] : self.offsets[row + 1]]
            free = np.setdiff1d(np.arange(self.num_columns), taken)
            columns.append(free[: added[row]].astype(self.columns.dtype))
        columns = np.concatenate(columns)
        values = np.pad(self.values, (0, added.sum()))
        rows = np.tile(np.arange(self.num_rows), 2)
        rows = np.repeat(rows, np.concatenate([lengths, added]))
        order = np.lexsort((columns, rows))
        return SparseTransform(
            np.concatenate([[0], np.cumsum(lengths + added)]),
            columns[order],
            values[order],
            self.num_columns,
        )

    def without_zeros(self):
        """Returns a matrix without the entries that training made 0."""
        return self if self.values.all() else self._part(self.values != 0)

    def _part(self, kept):
        before = np.concatenate([[0], np.cumsum(kept)])
        return SparseTransform(
            before[self.offsets],
            self.columns[kept],
            self.values[kept],
            self.num_columns,
        )


def value_dtype(dtype):
    """The dtype for the entries of rows of `dtype`."""
    return "float64" if dtype == "float64" else "float32"


def column_dtype(num_columns):
    """The smallest unsigned integer dtype for column numbers."""
    return np.min_scalar_type(num_columns - 1)
