"""Entries of a transform that are not shrunk."""

import numpy as np
import tensorflow as tf

from keras_compembed.transforms.fixed_rows import scatter_columns


class FreeEntries:
    """The matrix 1 - S(G) of Liang et al., section 3.3, held sparse."""

    def __init__(self, relations, anchor_ids):
        offsets, columns = [0], []
        if relations is not None:
            offsets, columns = relations.free_entries(anchor_ids)
        self.num_columns = len(anchor_ids)
        lengths = np.diff(offsets)
        self._longest = int(lengths.max(initial=0))
        rows = np.repeat(np.arange(len(lengths)), lengths)
        self._entries = np.stack([rows, columns], axis=1).astype("int64")
        self._starts = np.asarray(offsets[:-1], "int32")
        self._lengths = lengths.astype("int32")
        self._columns = np.asarray(columns, "int32")

    def __len__(self):
        return len(self._entries)

    def of_rows(self, ids):
        """Boolean tensor `(ids, num_columns)`, or None if nothing is free."""
        if not len(self):
            return None
        places = tf.range(self._longest)
        inside = places < tf.gather(self._lengths, ids)[:, None]
        places = places + tf.gather(self._starts, ids)[:, None]
        columns = tf.gather(self._columns, tf.where(inside, places, 0))
        columns = tf.where(inside, columns, self.num_columns)
        ones = tf.ones_like(columns, "float32")
        return scatter_columns(columns, ones, self.num_columns) > 0

    def of_entries(self, ids, columns):
        """Boolean tensor like `columns`, `(ids, some columns)`."""
        free = self.of_rows(ids)
        return None if free is None else tf.gather(free, columns, batch_dims=1)

    def restore(self, shrunk, values):
        """Puts the free entries of the whole matrix `values` into `shrunk`."""
        if not len(self):
            return shrunk
        return tf.tensor_scatter_nd_update(
            shrunk, self._entries, tf.gather_nd(values, self._entries)
        )
