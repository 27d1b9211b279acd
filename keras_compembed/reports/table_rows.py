"""Rows of tables and of layers that stand for one, and which are near."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import require

_CHUNK_ELEMENTS = 1 << 20


class TableRows:
    """Rows of an array or of a layer, read by slice or by ids as float32."""

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
    """Yields slices of rows, a bounded part of a table at a time."""
    step = max(1, _CHUNK_ELEMENTS // max(shape[1], num_columns))
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


def directions(rows):
    """Rows of length 1; rows of zeros stay as they are."""
    # Scaled first, so that the squares of tiny or huge numbers hold.
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows = rows / np.where(largest > 0, largest, 1)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1)


def nearest_rows(rows, queries, num_neighbors):
    """Rows nearest to some rows by cosine."""
    wanted = directions(rows[queries])
    cosine = np.full((len(queries), 0), -np.inf, dtype="float32")
    ids = np.zeros((len(queries), 0), dtype="int64")
    for part in row_parts(rows.shape, num_columns=len(queries)):
        found = wanted @ directions(rows[part]).T
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
