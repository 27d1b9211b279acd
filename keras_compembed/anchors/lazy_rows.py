"""Transforms stored in full, shrunk after each step or when read."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.anchors.l1 import shrink
from keras_compembed.anchors.transform_rows import TransformRows
from keras_compembed.anchors.transform_rows import gather
from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.optimizers.device_rows import own_value
from keras_compembed.optimizers.device_rows import read_unique_rows
from keras_compembed.optimizers.device_rows import write
from keras_compembed.optimizers.device_rows import write_rows
from keras_compembed.utils.tensor_ops import custom_gradient


@keras.saving.register_keras_serializable(package="keras_compembed")
class DenseRows(TransformRows):
    """All of T, shrunk after each step (Algorithm 1 of Liang et al.)."""

    def make_variables(self):
        self.variable = self.add_transform(
            (self.num_rows, self.num_anchors), self.start.table
        )

    def read(self, ids, room, training=False):
        return gather(self.read_all(), ids)

    def read_all(self):
        return tf.convert_to_tensor(self.variable.value)

    def whole(self):
        rows = self.read_all()
        return rows, tf.stop_gradient(rows), lambda ids: None

    def after_step(self, step, amount):
        rows = self.read_all()
        threshold = amount
        if step.slot is not None:
            threshold = amount * step.rates(step.slot.value)
        shrunk = shrink(rows, threshold, non_negative=False)
        shrunk = self.free_entries.restore(shrunk, rows)
        if self.l1.non_negative:
            shrunk = tf.maximum(shrunk, 0)
        write(self.variable, shrunk)

    def count(self):
        return tf.math.count_nonzero(self.variable.value)

    def rows(self, start, stop):
        return self.variable.value[start:stop].numpy()

    def load(self, transform):
        self.variable.assign(transform.dense_rows())


@keras.saving.register_keras_serializable(package="keras_compembed")
class LazyRows(TransformRows):
    """Rows with delayed shrinkage, applied when they are next read."""

    # A clock sums up `learning rate * l1` over all steps, and each row stores
    # its value at the last update. The difference is the threshold to apply,
    # as thresholds add up. Rows that a step moves are shrunk at once. They are
    # marked when gradients are taken, so that later graphs find them.

    def make_variables(self):
        self.variable = self.add_transform(
            (self.num_rows, self.num_anchors), self.start.table
        )
        self._make_clock(self.l1.by_coordinate)

    def _make_clock(self, follows_rows):
        num_rows = self.num_rows
        # float64, as learning rate * l1 may be 1e-9 of the sum.
        self._clock = self.add_variable("clock", (), "float64")
        self._settled = self.add_variable("settled", (num_rows,), "float64")
        # For optimizers with thresholds by coordinate: until a row is looked
        # up, the mean of 1 / divisor over its non-zeros applies to all.
        self._rate = self.add_variable("rate", (num_rows,), "float32")
        start = "zeros" if self.l1.by_coordinate else "ones"
        self._default_rate = self.add_variable(
            "default_rate", (), "float32", start
        )
        # Whether to mark rows that a step moves.
        self._follows_rows = follows_rows
        if follows_rows:
            self._pending = self.add_variable("pending", (num_rows,), "uint8")
        self._touched = {}

    def read(self, ids, room, training=False):
        rows = read_unique_rows(self.variable, ids, room)

        def use(effective):
            return effective, lambda upstream: upstream

        return self._settling(rows, ids, use, training)

    def whole(self):
        stored = tf.convert_to_tensor(self.variable.value)
        clock = tf.identity(self._clock.value)
        ids = tf.range(self.num_rows)
        rows = self._shrink(stored, ids, clock)
        return (
            stored,
            rows,
            lambda ids: self._settle(ids, tf.gather(rows, ids), clock),
        )

    def _settling(self, rows, ids, use, training):
        """Applies `use` to shrunk rows; gradients store these rows."""
        clock = tf.identity(self._clock.value)
        effective = self._shrink(rows, ids, clock, training)
        if not self.variable.trainable:
            # Gradient tapes watch it in any case.
            return use(effective)[0]

        @custom_gradient
        def settle(rows):
            result, gradient_of_rows = use(effective)

            def gradient(upstream):
                gradients = gradient_of_rows(upstream)
                self._settle(ids, effective, clock)
                return gradients

            return tf.identity(result), gradient

        return settle(rows)

    def _settle(self, ids, rows, clock):
        """Stores shrunk rows before the optimizer moves them."""
        if not self.variable.trainable:
            return
        write_rows(self.variable, ids, rows)
        write_rows(self._settled, ids, tf.fill(tf.shape(ids), clock))
        if self._follows_rows:
            write_rows(self._pending, ids, tf.ones_like(ids, "bool"))
            self._remember(ids)

    def _shrink(self, rows, ids, clock, training=False):
        rows = tf.stop_gradient(rows)
        threshold = self._owed(ids, clock, training) * self._rates(ids)
        return shrink(
            rows,
            tf.expand_dims(threshold, 1),
            self.l1.non_negative,
            self._free(ids),
        )

    def _owed(self, ids, clock, training):
        if training or tf.executing_eagerly():
            owed = clock - gather_rows(self._settled, ids)
            return tf.cast(owed, "float32")
        # LiteRT has no float64. Converters fold this constant for all rows.
        owed = tf.cast(clock - own_value(self._settled), "float32")
        return tf.gather(owed, ids)

    def _free(self, ids):
        return self.free_entries.of_rows(ids)

    def _rates(self, ids):
        rates = gather_rows(self._rate, ids)
        return tf.where(rates > 0, rates, self._default_rate.value)

    def _remember(self, ids):
        if hasattr(ids, "numpy"):
            self._touched[_replica()] = [None]
        else:
            self._touched.setdefault(_replica(), []).append(ids)

    def _moved(self, step):
        """The rows that a step moved, as a list of tensors of ids."""
        touched = self._touched.pop(_replica(), [None])
        if all(map(_is_at_hand, touched)) and not step.accumulates:
            return touched
        pending = tf.cast(self._pending.value, "bool")
        return [tf.where(pending & (step.scale > 0))[:, 0]]

    def after_step(self, step, amount):
        clock = self._clock.value + tf.cast(amount, "float64")
        default = 1.0 if step.slot is None else 0.0
        write(self._default_rate, default)
        if self._follows_rows:
            for ids in self._moved(step):
                self._step(ids, step, amount, clock)
                write_rows(self._pending, ids, tf.zeros_like(ids, "bool"))
        write(self._clock, clock)

    def _step(self, ids, step, amount, clock):
        # Ids of two lookups may overlap: the second one skips them.
        due = gather_rows(self._settled, ids) < clock
        if step.slot is None:
            rates = tf.ones((tf.shape(ids)[0], 1))
        else:
            rates = step.rates(gather_rows(step.slot, ids))
        threshold = tf.where(due[:, None], amount * rates, 0.0)
        rows = shrink(
            gather_rows(self.variable, ids),
            threshold,
            self.l1.non_negative,
            self._free(ids),
        )
        write_rows(self.variable, ids, rows)
        write_rows(self._settled, ids, tf.fill(tf.shape(ids), clock))
        # Only non-zeros count: without a gradient, rates are nearly unbounded
        # and depend on rounding.
        left = tf.cast(tf.not_equal(rows, 0), rates.dtype)
        rates = tf.math.divide_no_nan(
            tf.reduce_sum(left * rates, axis=1), tf.reduce_sum(left, axis=1)
        )
        write_rows(self._rate, ids, rates)

    def count(self):
        _, rows, _ = self.whole()
        return tf.math.count_nonzero(rows)

    def rows(self, start, stop):
        return self._settled_rows(start, stop).numpy()

    def _settled_rows(self, start, stop):
        ids = tf.range(start, stop)
        rows = tf.gather(self.variable.value, ids)
        return self._shrink(rows, ids, self._clock.value)

    def load(self, transform):
        self.variable.assign(transform.dense_rows())
        self._reset()

    def settle(self):
        self.variable.assign(
            np.concatenate([self.rows(*part) for part in self.chunks()])
        )
        self._reset()

    def _reset(self):
        empty = ~np.asarray(self.variable.value).any(axis=1)
        # An empty row gets a rate when a step next moves it.
        self._rate.assign(np.where(empty, 0, self._rate.numpy()))
        self._settled.assign(np.zeros(len(empty)))
        self._clock.assign(0)

    def state(self):
        rate = self._rate.numpy()
        rows = np.flatnonzero(rate)
        state = {
            "rate_rows": rows.astype("int32"),
            "rate": rate[rows],
            "default_rate": self._default_rate.numpy(),
        }
        if self._follows_rows:
            pending = np.flatnonzero(self._pending.numpy())
            state["pending_rows"] = pending.astype("int32")
        return state

    def load_state(self, state):
        rate = np.zeros(self.num_rows, "float32")
        rate[state["rate_rows"]] = state["rate"]
        self._rate.assign(rate)
        self._default_rate.assign(state["default_rate"])
        if "pending_rows" in state.keys():
            pending = np.zeros(self.num_rows, "bool")
            pending[state["pending_rows"]] = True
            self._pending.assign(pending)


def _replica():
    context = tf.distribute.get_replica_context()
    # This is a tensor while tracing; its constant value is the number.
    replica = 0 if context is None else context.replica_id_in_sync_group
    return int(tf.get_static_value(tf.convert_to_tensor(replica)))


def _is_at_hand(tensor):
    """Whether the current graph can use a tensor; False for None."""
    graph = getattr(tensor, "graph", None)
    if graph is None:
        return False
    current = tf.compat.v1.get_default_graph()
    while current is not None and current is not graph:
        current = getattr(current, "outer_graph", None)
    return current is graph
