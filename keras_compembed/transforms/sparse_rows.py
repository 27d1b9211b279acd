"""A transform with room for a few numbers in each row."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.optimizers.device_rows import share_of_device
from keras_compembed.optimizers.device_rows import write_rows
from keras_compembed.optimizers.read_rows import read_unique_rows
from keras_compembed.optimizers.read_rows import sum_rows_over_devices
from keras_compembed.optimizers.running_optimizer import losses_are_scaled
from keras_compembed.transforms.fixed_rows import scatter_columns
from keras_compembed.transforms.lazy_rows import LazyRows
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

# Places of a row that may change their column in one step.
_GROWN_AT_ONCE = 4
_DEFAULT_ROOM = 16


@keras.saving.register_keras_serializable(package="keras_compembed")
class SparseRows(LazyRows):
    """Room for a few numbers and their columns per row; shrunk as lazy rows.

    A place whose number has become 0 is free. When the row is looked up, the
    gradient with respect to all of its columns is known; free places take
    the columns with the largest, where it exceeds l1 (below that, 0 is the
    optimum), and start from 0. A free place has no gradient unless it grows,
    and nothing of its past is left in the optimizer. The step in which it
    grows does not shrink it.

    Where several look-ups or batches precede a step, the first that reads a
    row decides.

    Example:

    >>> layer = kc.ANTEmbedding(
    ...     1000, 64, num_anchors=50, transform=SparseRows(max_nonzeros=8)
    ... )
    >>> layer.build()
    >>> layer.transform.shape
    TensorShape([1000, 8])

    Args:
        max_nonzeros: Optional integer up to `num_anchors`, the room in each
            row. Defaults to `min(16, num_anchors)`.
    """

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
        # Of rows that a step waits for, places that have a column only since
        # then. Of other rows, places that were settled to 0, of which the
        # optimizer has something left.
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
            "`transform` must not be 'sparse' where a `LossScaleOptimizer` "
            "scales losses. Pass 'lazy', compile with `auto_scale_loss=False`, "
            "or train in 'mixed_bfloat16'.",
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
            "`max_nonzeros` must be at least the most non-zeros of a row.",
            max_nonzeros=self.max_nonzeros,
            of_a_row=longest,
        )
        columns, values = [], []
        for part in self.chunks():
            dense = transform.dense_rows(*part)
            # Free places get columns that the row lacks.
            order = np.argsort(dense == 0, axis=1, kind="stable")
            columns.append(order[:, : self.max_nonzeros].astype("int32"))
            values.append(np.take_along_axis(dense, columns[-1], axis=1))
        self.variable.assign(np.concatenate(values))
        self.columns.assign(np.concatenate(columns))
        self._reset()

    def state(self):
        # Slots of the optimizer are by place, so places must come back as
        # they are, free ones too: these wait for their columns' gradients.
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

    def get_config(self):
        return {"max_nonzeros": self.max_nonzeros}
