"""Base of compressed rows as plain arrays."""

import abc
import copy
import dataclasses

import numpy as np

# Elements of rows decompressed at once.
_CHUNK_ELEMENTS = 1 << 18
# Numbers of a list that share a scale.
_BLOCK = 256
_HIGHEST = 127


class RowArrays(abc.ABC):
    """Rows of a store as plain arrays, as in files of vectors."""

    # Names in files, of the kind and of its shared weights.
    kind = shared_kind = None
    # Whether `with_vectors` can encode new vectors.
    can_grow = True

    def __init__(self, settings, rows, floats, shared=None):
        self.settings = settings
        self.rows = rows
        self.floats = floats
        # Floats rounded as in a file.
        self.shared = shared
        self.start()

    @classmethod
    def of_file(cls, settings, rows, shared):
        """Rows from a file; `shared` is a dict of `SmallFloats`."""
        floats = {name: small.floats() for name, small in shared.items()}
        return cls(settings, rows, floats, shared)

    def small(self):
        """The same rows with floats rounded as in a file."""
        shared = {x: SmallFloats.of(y) for x, y in self.floats.items()}
        return self.of_file(self.settings, self.rows, shared)

    @abc.abstractmethod
    def start(self):
        """Prepares lookups."""

    @abc.abstractmethod
    def read(self, ids):
        """Vectors, float32 `(ids, columns)`, of an integer array `(ids,)`."""

    @abc.abstractmethod
    def make_store(self):
        """A store with these settings, to build and load."""

    @property
    def shape(self):
        first = next(iter(self.rows.values()))
        return len(first), self.settings["columns"]

    @property
    def bytes_by_part(self):
        """Dict of bytes of rows and of shared weights."""
        shared = [x for y in self.shared.values() for x in vars(y).values()]
        sizes = {
            self.kind: sum(values.nbytes for values in self.rows.values()),
            self.shared_kind: sum(values.nbytes for values in shared),
        }
        return {name: size for name, size in sizes.items() if size}

    def scores(self, query):
        """Products, float32 `(rows,)`, with a vector `(columns,)`."""
        return np.concatenate([rows @ query for rows in self.parts()])

    def norms(self):
        """Lengths of all rows, float32 `(rows,)`."""
        return np.concatenate(
            [np.sqrt(np.einsum("nd,nd->n", x, x)) for x in self.parts()]
        )

    @property
    def rows_at_once(self):
        return max(1, _CHUNK_ELEMENTS // self.shape[1])

    def parts(self, num_rows=None):
        """Yields vectors of all rows or the first ones, in parts."""
        num_rows, size = num_rows or self.shape[0], self.rows_at_once
        for start in range(0, num_rows, size):
            yield self.read(np.arange(start, min(start + size, num_rows)))

    def with_rows(self, rows):
        """The same with other rows."""
        other = copy.copy(self)
        other.rows = rows
        other.start()
        return other

    def part(self, start, end):
        """The same with rows `start` to `end`."""
        return self.with_rows(self.take(slice(start, end)))

    def with_mean(self):
        """The same with one more row, nearest to the mean, and its place."""
        total = sum(x.sum(axis=0, dtype="float64") for x in self.parts())
        mean = total / self.shape[0]
        if self.can_grow:
            return self.with_vectors(mean[None]), self.shape[0]
        far = [np.square(x - mean).sum(axis=1) for x in self.parts()]
        return self, int(np.argmin(np.concatenate(far)))

    @abc.abstractmethod
    def with_vectors(self, vectors):
        """The same with more rows, the nearest to vectors."""

    def take(self, ids):
        """Arrays of some rows: a slice or `ids`."""
        return {name: values[ids] for name, values in self.rows.items()}


def append_rows(rows, more):
    """Dict of arrays, with the rows of another one appended."""
    return {x: np.concatenate([y, more[x]]) for x, y in rows.items()}


def check_arrays(arrays, wanted):
    """Raises unless arrays have the wanted dtypes and shapes."""
    if arrays.keys() != wanted.keys():
        raise ValueError(f"it has the arrays {', '.join(sorted(arrays))}")
    for name, (dtypes, shape) in wanted.items():
        array = arrays[name]
        sizes = zip(array.shape, shape, strict=False)
        if (
            array.dtype.name not in dtypes.split()
            or array.ndim != len(shape)
            or any(wanted not in (None, found) for found, wanted in sizes)
        ):
            raise ValueError(
                f"the array {name} is {array.dtype} of shape {array.shape}"
            )


def check_shared(shared, shapes):
    """Raises unless `SmallFloats` have the given shapes."""
    integers = {name: small.integers for name, small in shared.items()}
    check_arrays(integers, {x: ("int8", y) for x, y in shapes.items()})
    for name, small in shared.items():
        wanted = "float32", (small.num_scales,)
        check_arrays({name: small.scales}, {name: wanted})
        if not np.isfinite(small.scales).all():
            raise ValueError(f"the array {name} has scales that are not finite")


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
    """`(vectors, numbers)`, padded with 0."""
    if values.ndim > 1:
        return values.reshape(-1, values.shape[-1])
    return np.pad(values, (0, -values.size % _BLOCK)).reshape(-1, _BLOCK)
