"""A transform with room for a few numbers in each row."""

import numpy as np
import tensorflow as tf

from keras_compembed.anchors.fixed_rows import scatter_columns
from keras_compembed.anchors.lazy_rows import LazyRows
from keras_compembed.anchors.transform_rows import TransformRows
from keras_compembed.optimizers.device_writes import gather_rows
from keras_compembed.optimizers.device_writes import share_of_device
from keras_compembed.optimizers.device_writes import sum_over_devices
from keras_compembed.optimizers.device_writes import write_rows
from keras_compembed.optimizers.read_rows import read_different_rows

# Places of a row that may change their column in one step.
_GROWN_AT_ONCE = 4


class SparseRows(LazyRows):
    """Numbers and their columns, at most so many a row; shrunk as lazy rows.

    A place whose number has become 0 is free. When the row is looked up, the
    gradient with respect to all of its columns is known; free places take
    the columns with the largest, where it exceeds l1 (below that, 0 is the
    optimum), and start from 0.
    """

    def build(self):
        layer = self._layer
        shape = layer.input_dim, layer.max_nonzeros
        self._columns = self._add_weight(
            shape=shape,
            initializer=layer.initialize_columns,
            dtype="int32",
            trainable=False,
            name="columns",
        )
        self.variable = self._add_weight(
            shape=shape,
            initializer=layer.initialize_values,
            regularizer=layer.transform_regularizer,
            name="transform",
        )
        self._build_clock(layer.input_dim)

    def read(self, ids):
        columns = gather_rows(self._columns, ids)
        num_anchors = self._layer.num_anchors

        def use(effective):
            def gradient(upstream):
                total = sum_over_devices(upstream)
                grown = self._grow(ids, columns, effective, total)
                return share_of_device(grown)

            return scatter_columns(columns, effective, num_anchors), gradient

        rows = read_different_rows(self.variable, ids)
        return self._settling(rows, ids, use)

    def whole(self):
        return TransformRows.whole(self)

    def _grow(self, ids, columns, values, upstream):
        """Gives free places new columns; returns the gradient of places."""
        wish = tf.abs(upstream)
        if self._layer.non_negative:
            wish = -upstream
        own = tf.gather(wish, columns, batch_dims=1)
        taken = scatter_columns(
            columns, tf.ones_like(values), self._layer.num_anchors
        )
        others = tf.where(taken > 0, wish.dtype.min, wish)
        number = min(_GROWN_AT_ONCE, columns.shape[1])
        best, best_columns = tf.math.top_k(others, number)
        free = tf.equal(values, 0)
        rank = tf.cumsum(tf.cast(free, tf.int32), axis=1) - 1
        within = tf.clip_by_value(rank, 0, number - 1)
        needed = tf.maximum(own, tf.cast(self._layer.l1_value, own.dtype))
        grows = (
            free
            & (rank < number)
            & (tf.gather(best, within, batch_dims=1) > needed)
        )
        columns = tf.where(
            grows, tf.gather(best_columns, within, batch_dims=1), columns
        )
        write_rows(self._columns, ids, columns)
        return tf.gather(upstream, columns, batch_dims=1)

    def _free(self, ids):
        columns = gather_rows(self._columns, ids)
        return self._layer.free_entries.of_entries(ids, columns)

    def rows(self, start, stop):
        ids = tf.range(start, stop)
        columns = gather_rows(self._columns, ids).numpy()
        values = self._settled_rows(ids)
        dense = np.zeros((stop - start, self._layer.num_anchors), "float32")
        np.put_along_axis(dense, columns, values.numpy(), axis=1)
        return dense

    def settle(self):
        parts = [self._settled_rows(tf.range(*part)) for part in self.chunks()]
        self.variable.assign(np.concatenate(parts))
        self._reset()

    def load(self, transform):
        lengths = transform.row_lengths
        capacity = self._layer.max_nonzeros
        if lengths.max(initial=0) > capacity:
            raise ValueError(
                "`max_nonzeros` must be at least the most non-zeros of a row. "
                f"Received: max_nonzeros={capacity} and a transform with "
                f"{lengths.max()} in a row."
            )
        inside = np.arange(capacity) < lengths[:, None]
        values = np.zeros(inside.shape, "float32")
        values[inside] = transform.values
        columns = np.zeros(inside.shape, "int32")
        columns[inside] = transform.columns
        self._fill(columns, inside)
        self.variable.assign(values)
        self._columns.assign(columns)
        self._reset()

    def state(self):
        # Slots of the optimizer are by place, so places must come back as
        # they are, free ones too: these wait for their columns' gradients.
        columns = self._columns.numpy()
        dtype = np.min_scalar_type(self._layer.num_anchors - 1)
        return {**super().state(), "places": columns.astype(dtype)}

    def load_state(self, state):
        super().load_state(state)
        if "places" not in state.keys():
            return
        columns = np.asarray(state["places"]).astype("int32")
        values = np.empty(columns.shape, "float32")
        for start, stop in self.chunks():
            values[start:stop] = np.take_along_axis(
                self.rows(start, stop), columns[start:stop], axis=1
            )
        self.variable.assign(values)
        self._columns.assign(columns)

    def _fill(self, columns, inside):
        """Gives places without a number columns that the row lacks."""
        num_anchors = self._layer.num_anchors
        capacity = columns.shape[1]
        for start, stop in self.chunks():
            taken = np.zeros((stop - start, num_anchors), bool)
            rows, places = np.nonzero(inside[start:stop])
            taken[rows, columns[start:stop][rows, places]] = True
            # Those not taken come first.
            order = np.argsort(taken, axis=1, kind="stable")[:, :capacity]
            part, known = columns[start:stop], inside[start:stop]
            rank = np.cumsum(~known, axis=1) - 1
            spare = np.take_along_axis(order, np.maximum(rank, 0), axis=1)
            part[~known] = spare[~known]
