"""A transform of which a step touches the rows looked up only."""

import numpy as np
import tensorflow as tf

from keras_compembed.anchors.shrink import shrink
from keras_compembed.anchors.transform_rows import TransformRows
from keras_compembed.optimizers.device_writes import gather_rows
from keras_compembed.optimizers.device_writes import write
from keras_compembed.optimizers.device_writes import write_rows
from keras_compembed.optimizers.read_rows import read_different_rows

# Look-ups in one step that are remembered until the optimizer has moved T.
_MOST_LOOKUPS = 16


class LazyRows(TransformRows):
    """Rows that owe shrinkage, which is taken when they are next read.

    A clock adds up `learning rate * l1` of all steps. A row knows the clock
    when it was last settled; what passed since is the threshold that it owes.
    Thresholds of steps add up, so that one shrinkage makes good for all.

    The clock is float64: learning rate * l1 may be 1e-9 of their sum.
    """

    def build(self):
        layer = self._layer
        num_rows = layer.input_dim
        self.variable = self._add_weight(
            shape=(num_rows, layer.num_anchors),
            initializer=layer.initialize_transform,
            regularizer=layer.transform_regularizer,
            name="transform",
        )
        self._build_clock(num_rows)

    def _build_clock(self, num_rows):
        state = {"initializer": "zeros", "trainable": False}
        self._clock = self._add_weight(
            shape=(), dtype="float64", name="clock", **state
        )
        self._settled = self._add_weight(
            shape=(num_rows,), dtype="float64", name="settled", **state
        )
        # Thresholds of optimizers that follow coordinates: while a row is not
        # looked up, its mean 1 / divisor stands for its coordinates'.
        self._rate = self._add_weight(
            shape=(num_rows,), dtype="float32", name="rate", **state
        )
        self._default_rate = self._add_weight(
            shape=(), dtype="float32", name="default_rate", **state
        )
        if self._layer.threshold == "learning_rate":
            self._default_rate.assign(1)
        self._touched = {}

    def read(self, ids, room):
        rows = read_different_rows(self.variable, ids, room)
        return self._settling(
            rows, ids, lambda effective: (effective, lambda upstream: upstream)
        )

    def whole(self):
        stored = tf.convert_to_tensor(self.variable.value)
        clock = tf.identity(self._clock.value)
        ids = tf.range(self._layer.input_dim)
        rows = self._shrink(stored, ids, clock)
        return (
            stored,
            rows,
            lambda ids: self._settle(ids, tf.gather(rows, ids), clock),
        )

    def _settling(self, rows, ids, use):
        """`use` of rows without what they owe; gradients settle them.

        Args:
            rows: Tensor `(ids, columns)` as stored.
            ids: Tensor of different ids.
            use: From settled rows to a tensor and the function of its
                gradients.
        """
        clock = tf.identity(self._clock.value)
        effective = self._shrink(rows, ids, clock)

        @tf.custom_gradient
        def settle(rows):
            result, gradient_of_rows = use(effective)

            def gradient(upstream):
                self._settle(ids, effective, clock)
                return gradient_of_rows(upstream)

            return tf.identity(result), gradient

        return settle(rows)

    def _settle(self, ids, rows, clock):
        """Stores rows as they are, before the optimizer moves them."""
        write_rows(self.variable, ids, rows)
        write_rows(self._settled, ids, tf.fill(tf.shape(ids), clock))
        self._remember(ids)

    def _shrink(self, rows, ids, clock):
        rows = tf.stop_gradient(rows)
        owed = clock - gather_rows(self._settled, ids)
        threshold = tf.cast(owed, "float32") * self._rates(ids)
        return shrink(
            rows,
            threshold[:, None],
            self._layer.non_negative,
            self._free(ids),
        )

    def _free(self, ids):
        return self._layer.free_entries.of_rows(ids)

    def _rates(self, ids):
        rates = gather_rows(self._rate, ids)
        return tf.where(rates > 0, rates, self._default_rate.value)

    # What the step just taken looked up, for `after_step` of the same graph.
    def _remember(self, ids):
        recent = self._touched.setdefault(_replica(), [])
        # Where no optimizer follows, none of them is ever recalled.
        del recent[:-_MOST_LOOKUPS]
        recent.append(ids)

    def _recall(self):
        return [
            ids for ids in self._touched.pop(_replica(), []) if _is_at_hand(ids)
        ]

    def after_step(self, step, amount):
        clock = self._clock.value + tf.cast(amount, "float64")
        touched = self._recall()
        if self._layer.threshold == "coordinate":
            default = 1.0 if step.slot is None else 0.0
            write(self._default_rate, default)
            for ids in touched:
                self._step(ids, step, amount, clock)
        write(self._clock, clock)

    def _step(self, ids, step, amount, clock):
        # Ids of two look-ups may overlap: the second then finds them done.
        due = gather_rows(self._settled, ids) < clock
        if step.slot is None:
            rates = tf.ones((tf.shape(ids)[0], 1))
        else:
            rates = step.rates(gather_rows(step.slot, ids))
        threshold = tf.where(due[:, None], amount * rates, 0.0)
        rows = shrink(
            gather_rows(self.variable, ids),
            threshold,
            self._layer.non_negative,
            self._free(ids),
        )
        write_rows(self.variable, ids, rows)
        write_rows(self._settled, ids, tf.fill(tf.shape(ids), clock))
        write_rows(self._rate, ids, tf.reduce_mean(rates, axis=1))

    def count(self):
        ids = tf.range(self._layer.input_dim)
        rows = tf.convert_to_tensor(self.variable.value)
        rows = self._shrink(rows, ids, tf.identity(self._clock.value))
        return tf.math.count_nonzero(rows)

    def rows(self, start, stop):
        ids = tf.range(start, stop)
        return self._settled_rows(ids).numpy()

    def _settled_rows(self, ids):
        rows = tf.gather(self.variable.value, ids)
        return self._shrink(rows, ids, tf.identity(self._clock.value))

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
        # A row of zeros has a rate again when it is next moved.
        self._rate.assign(np.where(empty, 0, self._rate.numpy()))
        self._settled.assign(np.zeros(len(empty)))
        self._clock.assign(0)

    def state(self):
        rate = self._rate.numpy()
        rows = np.flatnonzero(rate)
        return {
            "rate_rows": rows.astype("int32"),
            "rate": rate[rows],
            "default_rate": self._default_rate.numpy(),
        }

    def load_state(self, state):
        rate = np.zeros(self._layer.input_dim, "float32")
        rate[state["rate_rows"]] = state["rate"]
        self._rate.assign(rate)
        self._default_rate.assign(state["default_rate"])


def _replica():
    context = tf.distribute.get_replica_context()
    # A tensor while a graph is made; its constant value is the number.
    replica = 0 if context is None else context.replica_id_in_sync_group
    return int(tf.get_static_value(tf.convert_to_tensor(replica)))


def _is_at_hand(tensor):
    """Whether the graph being made, if any, can use a tensor."""
    graph = getattr(tensor, "graph", None) if _is_symbolic(tensor) else None
    if graph is None:
        return tf.executing_eagerly()
    current = tf.compat.v1.get_default_graph()
    while current is not None and current is not graph:
        current = getattr(current, "outer_graph", None)
    return current is graph


def _is_symbolic(tensor):
    return not hasattr(tensor, "numpy")
