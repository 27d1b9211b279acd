"""Base of the ways in which compressed vectors are stored."""

import abc

import numpy as np

from keras_compembed.vectors.small_floats import SmallFloats

# Numbers of rows that are floats at once.
_CHUNK_ELEMENTS = 1 << 20


class StoredRows(abc.ABC):
    """Rows of a look-up layer, as files hold them and in plain arrays."""

    kind = shared_kind = None
    # The layer that may be stored so.
    layer = None
    # Whether a layer finds how to store new vectors.
    can_grow = True

    def __init__(self, settings, rows, shared):
        self.settings = settings
        self.rows = rows
        self.shared = shared
        self.floats = {name: small.floats() for name, small in shared.items()}
        self.start()

    @classmethod
    def of(cls, layer):
        """Those of a built layer."""
        settings = cls.read_settings(layer)
        shared = {
            name: SmallFloats.of(values)
            for name, values in cls.read_shared(layer).items()
        }
        return cls(settings, cls.read_rows(layer), shared)

    @abc.abstractmethod
    def start(self):
        """Makes what look-ups need."""

    @abc.abstractmethod
    def read(self, ids):
        """Vectors, float32 `(ids, columns)`, of an integer array `(ids,)`."""

    @property
    def shape(self):
        first = next(iter(self.rows.values()))
        return len(first), self.settings["columns"]

    @property
    def bytes_by_part(self):
        """Dict of bytes: of rows, and of what they share."""
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
        """Yields vectors of the first rows or all, some at a time."""
        num_rows, size = num_rows or self.shape[0], self.rows_at_once
        for start in range(0, num_rows, size):
            yield self.read(np.arange(start, min(start + size, num_rows)))

    def with_rows(self, rows):
        """The same with other rows."""
        return type(self)(self.settings, rows, self.shared)

    def part(self, start, end):
        """The same with the rows from one to another."""
        return self.with_rows(self.take(self.rows, slice(start, end)))

    def with_mean(self):
        """The same with a row nearest to the mean of all, and its place."""
        total = sum(x.sum(axis=0, dtype="float64") for x in self.parts())
        mean = total / self.shape[0]
        if self.can_grow:
            return self.with_vectors(mean[None]), self.shape[0]
        far = [np.square(x - mean).sum(axis=1) for x in self.parts()]
        return self, int(np.argmin(np.concatenate(far)))

    def with_vectors(self, vectors):
        """The same with more rows, those nearest to vectors."""
        layer = self.make_layer()._grown(vectors)
        return self.with_rows(self.read_rows(layer))

    @classmethod
    def take(cls, rows, ids):
        """Some rows of what `read_rows` gives: a slice, or those of `ids`."""
        return {name: values[ids] for name, values in rows.items()}


def check_arrays(arrays, wanted):
    """Raises unless arrays of a file have these dtypes and shapes."""
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
    """Raises unless `SmallFloats` of a file have these shapes."""
    integers = {name: small.integers for name, small in shared.items()}
    check_arrays(integers, {x: ("int8", y) for x, y in shapes.items()})
    for name, small in shared.items():
        size = SmallFloats.num_scales(small.integers.shape)
        check_arrays({name: small.scales}, {name: ("float32", (size,))})
        if not np.isfinite(small.scales).all():
            raise ValueError(f"the array {name} has scales that are not finite")
