"""Transforms with few entries in each row, in learned or fixed columns."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.anchors.lazy_rows import LazyRows
from keras_compembed.anchors.sparse_transform import SparseTransform
from keras_compembed.anchors.sparse_transform import column_dtype
from keras_compembed.anchors.sparse_transform import value_dtype
from keras_compembed.anchors.transform_rows import TransformRows
from keras_compembed.anchors.transform_rows import gather
from keras_compembed.anchors.transform_rows import scatter_columns
from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.optimizers.device_rows import read_unique_rows
from keras_compembed.optimizers.device_rows import share_of_device
from keras_compembed.optimizers.device_rows import sum_rows_over_devices
from keras_compembed.optimizers.device_rows import write
from keras_compembed.optimizers.device_rows import write_rows
from keras_compembed.optimizers.running_optimizer import losses_are_scaled
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

# Largest number of columns that change in a row in one step.
_GROWN_AT_ONCE = 4
_DEFAULT_ROOM = 16


@keras.saving.register_keras_serializable(package="keras_compembed")
class SparseRows(LazyRows):
    """A few entries with their columns in each row; shrinks like `LazyRows`."""

    _settings = ("max_nonzeros",)

    def __init__(self, max_nonzeros=None):
        super().__init__()
        self.max_nonzeros = check_positive_int(
            "max_nonzeros", max_nonzeros, optional=True
        )

    def set_shape(self, num_rows, num_anchors):
        if self.max_nonzeros is None:
            self.max_nonzeros = min(_DEFAULT_ROOM, num_anchors)
        check_positive_int(
            "max_nonzeros", self.max_nonzeros, maximum=num_anchors
        )
        super().set_shape(num_rows, num_anchors)

    def make_variables(self):
        shape = self.num_rows, self.max_nonzeros
        self.columns = self.add_variable(
            "columns", shape, "int32", self.start.columns
        )
        self.variable = self.add_transform(shape, self.start.values)
        # In rows that a step is about to move, the places with a new column.
        # In other rows, the places that shrank to 0 and may still have
        # optimizer state.
        self._grown = self.add_variable("grown", shape, "uint8")
        self._make_clock(follows_rows=True)

    def read(self, ids, room, training=False):
        columns = gather_rows(self.columns, ids)
        num_anchors = self.num_anchors

        def use(effective):
            def gradient(upstream):
                total = sum_rows_over_devices(upstream, room)
                return share_of_device(self._grow(ids, total))

            return scatter_columns(columns, effective, num_anchors), gradient

        rows = read_unique_rows(self.variable, ids, room)
        return self._settling(rows, ids, use, training)

    def _grow(self, ids, upstream):
        """Gives free places new columns; returns the gradient of places."""
        columns = gather_rows(self.columns, ids)
        pending = tf.cast(gather_rows(self._pending, ids), "bool")[:, None]
        grown = tf.cast(gather_rows(self._grown, ids), "bool")
        free = tf.equal(gather_rows(self.variable, ids), 0) & ~pending & ~grown
        wish = tf.abs(upstream)
        if self.l1.non_negative:
            wish = -upstream
        own = tf.gather(wish, columns, batch_dims=1)
        taken = scatter_columns(columns, tf.ones_like(own), self.num_anchors)
        others = tf.where(taken > 0, wish.dtype.min, wish)
        number = min(_GROWN_AT_ONCE, columns.shape[1])
        best, best_columns = tf.math.top_k(others, number)
        rank = tf.cumsum(tf.cast(free, tf.int32), axis=1) - 1
        within = tf.clip_by_value(rank, 0, number - 1)
        needed = tf.cast(self.l1_value.value, own.dtype)
        changes = (
            free
            & (rank < number)
            & (tf.gather(best, within, batch_dims=1) > tf.maximum(own, needed))
        )
        columns = tf.where(
            changes, tf.gather(best_columns, within, batch_dims=1), columns
        )
        grows = changes | (free & (own > needed))
        moves = grows | ~free
        not_shrunk = self.free_entries.of_entries(ids, columns)
        if not_shrunk is not None:
            moves |= not_shrunk
        write_rows(self.columns, ids, columns)
        write_rows(self._grown, ids, grows | (grown & pending))
        gradient = tf.gather(upstream, columns, batch_dims=1)
        return tf.where(moves, gradient, tf.zeros_like(gradient))

    def after_step(self, step, amount):
        require(
            not losses_are_scaled(self.compute_dtype),
            "`transform` must not be 'sparse' with a `LossScaleOptimizer` that "
            "scales losses. Use 'lazy', `auto_scale_loss=False` in `compile`, "
            "or 'mixed_bfloat16'.",
            transform="sparse",
        )
        super().after_step(step, amount)

    def _step(self, ids, step, amount, clock):
        super()._step(ids, step, amount, clock)
        empty = tf.equal(gather_rows(self.variable, ids), 0)
        for name, slot in step.slots.items():
            rows = gather_rows(slot, ids)
            start = tf.cast(step.start_of(name), rows.dtype)
            write_rows(slot, ids, tf.where(empty, start, rows))
        write_rows(self._grown, ids, tf.zeros_like(empty))

    def _free(self, ids):
        grown = tf.cast(gather_rows(self._grown, ids), "bool")
        columns = gather_rows(self.columns, ids)
        free = self.free_entries.of_entries(ids, columns)
        return grown if free is None else free | grown

    def rows(self, start, stop):
        columns = gather_rows(self.columns, tf.range(start, stop)).numpy()
        values = super().rows(start, stop)
        dense = np.zeros((len(values), self.num_anchors), values.dtype)
        np.put_along_axis(dense, columns, values, axis=1)
        return dense

    def settle(self):
        rows = [self._settled_rows(*part) for part in self.chunks()]
        rows = np.concatenate(rows)
        freed = (rows == 0) & (self.variable.numpy() != 0)
        freed &= self._pending.numpy()[:, None] == 0
        self._grown.assign(freed | (self._grown.numpy() > 0))
        self.variable.assign(rows)
        self._reset()

    def load(self, transform):
        longest = int(transform.row_lengths.max(initial=0))
        require(
            longest <= self.max_nonzeros,
            "`max_nonzeros` must be at least the non-zeros of any row.",
            max_nonzeros=self.max_nonzeros,
            of_a_row=longest,
        )
        columns, values = [], []
        for part in self.chunks():
            dense = transform.dense_rows(*part)
            # Free places get columns that the row does not have yet.
            order = np.argsort(dense == 0, axis=1, kind="stable")
            columns.append(order[:, : self.max_nonzeros].astype("int32"))
            values.append(np.take_along_axis(dense, columns[-1], axis=1))
        self.variable.assign(np.concatenate(values))
        self.columns.assign(np.concatenate(columns))
        self._reset()

    def state(self):
        # Optimizer slots are by place, so all places must be restored, free
        # ones included: they wait for gradients of their columns.
        columns = self.columns.numpy()
        dtype = np.min_scalar_type(self.num_anchors - 1)
        state = {**super().state(), "places": columns.astype(dtype)}
        grown = self._grown.numpy() > 0
        state["pending_grown"] = grown[state["pending_rows"]]
        freed = grown.any(axis=1) & (self._pending.numpy() == 0)
        state["freed_rows"] = np.flatnonzero(freed).astype("int32")
        state["freed"] = grown[freed]
        return state

    def load_state(self, state):
        super().load_state(state)
        grown = np.zeros(self._grown.shape, bool)
        for rows, places in (
            ("pending_rows", "pending_grown"),
            ("freed_rows", "freed"),
        ):
            if places in state.keys():
                grown[state[rows]] = state[places]
        self._grown.assign(grown)
        if "places" not in state.keys():
            return
        columns = np.asarray(state["places"]).astype("int32")
        values = [
            np.take_along_axis(self.rows(*part), columns[slice(*part)], axis=1)
            for part in self.chunks()
        ]
        self.variable.assign(np.concatenate(values))
        self.columns.assign(columns)


@keras.saving.register_keras_serializable(package="keras_compembed")
class FixedRows(TransformRows):
    """Compressed rows, as in `SparseTransform`, with fixed columns."""

    # No proximal step follows. With `non_negative`, entries that become
    # negative in an optimizer step are set to 0 and keep their places.

    _settings = "num_nonzeros", "longest_row", "trainable"

    def __init__(self, num_nonzeros, longest_row, trainable=False):
        super().__init__()
        self.num_nonzeros = num_nonzeros
        self.longest_row = longest_row
        self.trainable = trainable

    @classmethod
    def for_transform(cls, transform, trainable=False):
        """Rows with room for a `SparseTransform`."""
        longest_row = int(transform.row_lengths.max(initial=0))
        rows = cls(transform.nnz, longest_row, trainable)
        rows.set_shape(transform.num_rows, transform.num_columns)
        return rows

    def make_variables(self):
        # At least one entry, so that lookups work without non-zeros.
        length = max(1, self.num_nonzeros)
        large = self.num_nonzeros > np.iinfo("int32").max
        self._offsets = self.add_variable(
            "offsets", (self.num_rows + 1,), "int64" if large else "int32"
        )
        self._columns = self.add_variable(
            "columns", (length,), column_dtype(self.num_anchors).name
        )
        if self.trainable:
            self.variable = self._values = self.add_transform(
                (length,), "zeros"
            )
        else:
            self._values = self.add_variable(
                "values", (length,), value_dtype(self.dtype)
            )

    def read(self, ids, room, training=False):
        # XLA skips this check.
        tf.debugging.assert_equal(
            self._offsets.value[-1],
            tf.cast(self.num_nonzeros, self._offsets.dtype),
            f"Weights such as {self._offsets.path} must be set or loaded "
            "first: the configuration alone does not hold the transform.",
        )
        num_anchors = self.num_anchors
        starts = tf.gather(self._offsets.value, ids)
        lengths = tf.gather(self._offsets.value, ids + 1) - starts
        places = tf.range(self.longest_row, dtype=starts.dtype)
        inside = places < lengths[:, None]
        places = tf.where(inside, starts[:, None] + places, 0)
        stored = tf.convert_to_tensor(self._values.value)
        read = gather if self.trainable else tf.gather
        values = read(stored, places)
        columns = tf.gather(self._columns.value, places)
        columns = tf.where(inside, tf.cast(columns, tf.int32), num_anchors)
        return scatter_columns(columns, values, num_anchors)

    def after_step(self, step, amount):
        if self.l1.non_negative:
            write(self.variable, tf.maximum(self.variable.value, 0))

    def project(self, scores, limit):
        return tf.matmul(scores, self.read_all(), transpose_b=True)

    def rows(self, start, stop):
        return self.to_sparse().dense_rows(start, stop)

    def to_sparse(self):
        return SparseTransform(
            np.asarray(self._offsets.value),
            np.asarray(self._columns.value)[: self.num_nonzeros],
            np.asarray(self._values.value)[: self.num_nonzeros],
            self.num_anchors,
        )

    def load(self, transform):
        require(
            transform.nnz == self.num_nonzeros,
            f"`transform` must have {self.num_nonzeros} non-zeros.",
            nnz=transform.nnz,
        )
        self._offsets.assign(transform.offsets)
        if transform.nnz:
            self._columns.assign(transform.columns)
            self._values.assign(transform.values)
