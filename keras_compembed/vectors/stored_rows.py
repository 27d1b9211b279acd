"""Base of the ways in which compressed vectors are stored."""

import abc

import numpy as np

from keras_compembed.vectors.small_floats import SmallFloats

# Numbers of rows that are floats at once.
_CHUNK_ELEMENTS = 1 << 20


class StoredRows(abc.ABC):
    """Rows of a look-up layer, as files hold them and in plain arrays."""

    kind = shared_kind = None
    # The layers that may be stored so.
    layers = ()
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
        shared = {
            name: SmallFloats.of(values)
            for name, values in cls.read_shared(layer).items()
        }
        return cls(cls.read_settings(layer), cls.read_rows(layer), shared)

    @classmethod
    @abc.abstractmethod
    def check(cls, settings, rows, shared, count):
        """Raises unless these, read from a file, make `count` rows."""

    @staticmethod
    @abc.abstractmethod
    def read_settings(layer):
        """Settings of a layer."""

    @staticmethod
    @abc.abstractmethod
    def read_rows(layer):
        """Dict of integer arrays, what single rows of a layer have."""

    @staticmethod
    @abc.abstractmethod
    def read_shared(layer):
        """Dict of float arrays, what rows of a layer share."""

    @abc.abstractmethod
    def start(self):
        """Makes what look-ups need."""

    @property
    @abc.abstractmethod
    def shape(self):
        """Tuple `(rows, columns)`."""

    @property
    @abc.abstractmethod
    def name(self):
        """String, the method and its settings."""

    @property
    def bytes_by_part(self):
        """Dict of bytes: of rows, and of what they share."""
        shared = sum(
            small.integers.nbytes + small.scales.nbytes
            for small in self.shared.values()
        )
        sizes = {
            self.kind: sum(values.nbytes for values in self.rows.values()),
            self.shared_kind: shared,
        }
        return {name: size for name, size in sizes.items() if size}

    @abc.abstractmethod
    def make_layer(self, **kwargs):
        """A built layer that gives these rows."""

    @abc.abstractmethod
    def read(self, ids):
        """Vectors, float32 `(ids, columns)`, of an integer array `(ids,)`."""

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
        """Integer, vectors of a part of `parts`."""
        return max(1, _CHUNK_ELEMENTS // self.shape[1])

    def parts(self):
        """Yields all vectors, some at a time."""
        num_rows, size = self.shape[0], self.rows_at_once
        for start in range(0, num_rows, size):
            yield self.read(np.arange(start, min(start + size, num_rows)))

    def with_rows(self, rows):
        """The same with other rows."""
        return type(self)(self.settings, rows, self.shared)

    def part(self, start, end):
        """The same with the rows from one to another."""
        return self.with_rows(self.take(self.rows, slice(start, end)))

    def with_vectors(self, vectors):
        """The same with more rows, those nearest to vectors."""
        layer = self.make_layer()._grown(vectors)
        return self.with_rows(self.read_rows(layer))

    @classmethod
    def take(cls, rows, ids):
        """Some rows of what `read_rows` gives: a slice, or those of `ids`."""
        return {name: values[ids] for name, values in rows.items()}


def check_arrays(arrays, wanted):
    """Raises unless arrays of a file are those wanted."""
    if arrays.keys() != wanted.keys():
        raise ValueError(f"it has the arrays {', '.join(sorted(arrays))}")
    for name, (dtypes, shape) in wanted.items():
        array = arrays[name]
        fits = len(shape) == array.ndim and all(
            size in (None, got)
            for size, got in zip(shape, array.shape, strict=True)
        )
        if array.dtype.name not in dtypes.split() or not fits:
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
