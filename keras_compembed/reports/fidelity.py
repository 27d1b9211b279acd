"""Accuracy of a reconstructed table."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import require

_CHUNK_ELEMENTS = 1 << 20


@dataclasses.dataclass(frozen=True)
class Fidelity:
    """How close a reconstructed table is to the original; see `fidelity`."""

    mean_squared_distance: float
    relative_squared_error: float | None
    centred_relative_squared_error: float | None
    mean_cosine: float | None
    neighbor_overlap: float | None
    num_neighbors: int
    num_queries: int


def fidelity(
    table: ArrayLike | keras.Layer,
    reconstruction: ArrayLike | keras.Layer,
    num_neighbors: int = 10,
    num_queries: int = 1000,
    seed: int = 0,
) -> Fidelity:
    """Compares a table with its reconstruction.

    Neighbors are compared by cosine for a random sample of rows, among all
    other rows. Zero rows of the table are left out of the mean cosine and of
    the sample. Rows that are zero only in the reconstruction have cosine 0 and
    overlap 0. Both tables are read in parts.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(1000, 64))
    >>> fidelity(table, table).mean_squared_distance
    0.0

    Args:
        table: Array `(rows, columns)`, or a built embedding layer.
        reconstruction: Array of the same shape, or a built embedding layer,
            such as a `CodeEmbedding`.
        num_neighbors: Integer. Neighbors to compare per row, fewer in a small
            table. Defaults to `10`.
        num_queries: Integer. Rows in the sample. Defaults to `1000`.
        seed: Integer. Seed of the sample. Defaults to `0`.

    Returns:
        A `Fidelity`.

    Raises:
        ValueError: If shapes differ, or an argument is out of range.
    """
    original = TableRows("table", table)
    rebuilt = TableRows("reconstruction", reconstruction)
    require(
        original.shape == rebuilt.shape,
        f"`reconstruction` must have the shape of `table`, {original.shape}.",
        shape=rebuilt.shape,
    )
    check_positive_int("num_neighbors", num_neighbors)
    check_positive_int("num_queries", num_queries)
    num_rows = original.shape[0]
    mean = sum(
        original[part].sum(axis=0, dtype="float64")
        for part in row_parts(original.shape)
    )
    mean /= num_rows
    error = energy = centred = cosines = 0.0
    directed = []
    for part in row_parts(original.shape):
        rows = original[part].astype("float64")
        others = rebuilt[part].astype("float64")
        error += np.sum((rows - others) ** 2)
        energy += np.sum(rows**2)
        centred += np.sum((rows - mean) ** 2)
        cosines += np.sum(_directions(rows) * _directions(others))
        directed.append(part.start + np.flatnonzero(rows.any(axis=1)))
    directed = np.concatenate(directed)
    num_neighbors = min(num_neighbors, num_rows - 1)
    num_queries = min(num_queries, len(directed)) if num_neighbors else 0
    queries = np.sort(
        np.random.default_rng(seed).choice(directed, num_queries, replace=False)
    )
    # A smaller variance is rounding noise of float32.
    spread = centred if centred > 1e-14 * energy else 0
    overlap = None
    if num_queries:
        near, _ = nearest_rows(original, queries, num_neighbors)
        found, has_direction = nearest_rows(rebuilt, queries, num_neighbors)
        shared = (near[:, :, None] == found[:, None, :]).any(axis=2)
        overlap = float(np.mean(shared.mean(axis=1) * has_direction))
    return Fidelity(
        mean_squared_distance=float(error / num_rows),
        relative_squared_error=float(error / energy) if energy else None,
        centred_relative_squared_error=(
            float(error / spread) if spread else None
        ),
        mean_cosine=float(cosines / len(directed)) if len(directed) else None,
        neighbor_overlap=overlap,
        num_neighbors=num_neighbors,
        num_queries=num_queries,
    )


class TableRows:
    """Rows of an array or layer as float32, by slice or ids."""

    def __init__(self, name, source):
        if not isinstance(source, keras.layers.Layer):
            self._table = check_table(source, name)
            self.shape = self._table.shape
            self._read = self._table.__getitem__
            return
        require(
            source.built and hasattr(source, "input_dim"),
            f"`{name}` must be an array or a built embedding layer.",
            source=source,
        )
        self.shape = (source.input_dim, source.output_dim)
        if isinstance(source, LookupLayer):
            read = source.store.reader()
        else:

            def read(ids):
                rows = keras.ops.cast(source(tf.constant(ids)), "float32")
                return keras.ops.convert_to_numpy(rows)

        every = np.arange(source.input_dim, dtype="int32")
        self._read = lambda ids: read(every[ids])

    def __getitem__(self, ids):
        return np.asarray(self._read(ids), dtype="float32")


def row_parts(shape, num_columns=0):
    """Yields slices of rows, of bounded size."""
    step = max(1, _CHUNK_ELEMENTS // max(shape[1], num_columns))
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


def _directions(rows):
    """Rows scaled to length 1; zero rows stay zero."""
    # Scaled first: squares of tiny or huge values would under- or overflow.
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows = rows / np.where(largest > 0, largest, 1)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1)


def nearest_rows(rows, queries, num_neighbors):
    """The nearest rows by cosine."""
    wanted = _directions(rows[queries])
    cosine = np.full((len(queries), 0), -np.inf, dtype="float32")
    ids = np.zeros((len(queries), 0), dtype="int64")
    for part in row_parts(rows.shape, num_columns=len(queries)):
        found = wanted @ _directions(rows[part]).T
        inside = (queries >= part.start) & (queries < part.stop)
        found[inside, queries[inside] - part.start] = -np.inf
        cosine = np.concatenate([cosine, found], axis=1)
        new = np.broadcast_to(np.arange(part.start, part.stop), found.shape)
        ids = np.concatenate([ids, new], axis=1)
        if cosine.shape[1] > num_neighbors:
            best = np.argpartition(-cosine, num_neighbors - 1, axis=1)
            best = best[:, :num_neighbors]
            cosine = np.take_along_axis(cosine, best, axis=1)
            ids = np.take_along_axis(ids, best, axis=1)
    order = np.argsort(-cosine, axis=1, kind="stable")
    return np.take_along_axis(ids, order, axis=1), wanted.any(axis=1)
