"""What an `ANTEmbedding` does in training."""

import random

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.anchors.orthogonality import Orthogonality
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.optimizers.device_rows import write
from keras_compembed.optimizers.read_rows import unique_ids
from keras_compembed.optimizers.running_optimizer import StepSize
from keras_compembed.transforms.transform_rows import one_hot_rows

# Numbers in a row of T at the start, and the largest of them.
_START_NONZEROS = 4
_START_VALUE = 0.1
# Steps from one adjustment of l1 to the next, the power of `nnz / target` that
# it is multiplied by, and the largest factor.
_TARGET_INTERVAL = 20
_TARGET_POWER = 0.5
_TARGET_FACTOR = 1.5
# Random partners of each id of a batch.
_PARTNERS = 4
_PRIME, _FACTOR = 2**31 - 1, 1_000_003


class ANTTraining(LookupLayer):
    """Base of `ANTEmbedding`, where the arguments are described."""

    def initialize_transform(self, shape, dtype=None):
        """The start of T, dense."""
        if self.transform_initializer is None:
            values = self.initialize_values(
                (shape[0], min(_START_NONZEROS, shape[1])), dtype
            )
            columns = self.initialize_columns(values.shape)
            table = np.zeros(shape, values.numpy().dtype)
            np.put_along_axis(table, columns.numpy(), values.numpy(), axis=1)
        else:
            table = self.transform_initializer(shape, dtype=dtype)
            table = np.array(
                tf.maximum(table, 0) if self.non_negative else table
            )
            rows, columns = one_hot_rows(self.anchor_ids)
            table[rows] = 0
            table[rows, columns] = 1
        return tf.convert_to_tensor(table, dtype=dtype)

    def initialize_values(self, shape, dtype=None):
        """The start of the numbers in places of rows."""
        rng = np.random.default_rng(self._start_seed + 1)
        low = 0 if self.non_negative else -_START_VALUE
        values = rng.uniform(low, _START_VALUE, shape)
        values[:, _START_NONZEROS:] = 0
        rows, _ = one_hot_rows(self.anchor_ids)
        values[rows] = 0
        values[rows, 0] = 1
        return tf.convert_to_tensor(values, dtype=dtype)

    def initialize_columns(self, shape, dtype="int32"):
        """The start of the columns of places: different ones in a row."""
        num_rows, places = shape
        rng = np.random.default_rng(self._start_seed)
        first = rng.integers(self.num_anchors, size=(num_rows, 1))
        rows, columns = one_hot_rows(self.anchor_ids)
        first[rows, 0] = columns
        stride = self.num_anchors // places
        columns = (first + stride * np.arange(places)) % self.num_anchors
        return tf.convert_to_tensor(columns, dtype=dtype)

    @property
    def _start_seed(self):
        # One for values and columns alike.
        if self.seed is None:
            self.seed = random.getrandbits(31)
        return self.seed

    def _anchors_loss(self):
        """The regularizer of the anchors."""
        if not self.orthogonality:
            return self.anchors_regularizer
        orthogonality = Orthogonality(self.orthogonality)
        other = self.anchors_regularizer
        if other is None:
            return orthogonality
        return lambda anchors: orthogonality(anchors) + other(anchors)

    def take_proximal_step(self, optimizer):
        """What follows each step of the optimizer that moved T."""
        check_optimizer(optimizer)
        # XLA leaves this out; there, `get_transform` and saving find it.
        tf.debugging.check_numerics(
            self.anchors.value,
            f"`anchors` of the layer {self.name!r} must be finite after a "
            "step. Lower the learning rate, or look for NaN in the inputs and "
            "the loss. Received",
        )
        step = StepSize(
            optimizer, self._rows.variable, self.threshold == "coordinate"
        )
        l1 = tf.convert_to_tensor(self.l1_value.value)
        self._rows.after_step(step, step.scale * l1)
        if self.target_nonzeros is not None:
            self._follow_target(optimizer, l1, step.scale > 0)

    def _follow_target(self, optimizer, l1, moved):
        def adjusted():
            count = tf.cast(self._rows.count() + 1, "float32")
            ratio = count / self.target_nonzeros
            factor = tf.clip_by_value(
                ratio**_TARGET_POWER, 1 / _TARGET_FACTOR, _TARGET_FACTOR
            )
            return l1 * factor

        iterations = tf.cast(optimizer.iterations, "int64") + 1
        # Steps that only accumulate gradients do not advance `iterations`.
        due = moved & tf.equal(iterations % _TARGET_INTERVAL, 0)
        write(self.l1_value, tf.cond(due, adjusted, lambda: l1))

    def _embed_and_separate(self, ids):
        """`embed`, and the loss of unrelated ids that share anchors."""
        different, places, room = unique_ids(ids)
        rows = self._rows.read(different, room)
        loss = self.negative_weight * self._shared_anchors(different, rows)
        self.add_replica_loss(loss)
        return tf.gather(self._compose(rows), places)

    def _shared_anchors(self, ids, rows):
        """Mean of `|t_u| . |t_v|` over random pairs that are not related."""
        # In an order that is the same on all devices and changes with the
        # batch: multiples of the ids modulo a prime.
        ids = tf.cast(ids, tf.int64)
        factor = _FACTOR + tf.math.floormod(tf.reduce_sum(ids), _FACTOR)
        order = tf.argsort(tf.math.floormod(ids * factor, _PRIME))
        ids = tf.gather(ids, order)
        rows = tf.abs(tf.gather(rows, order))
        number = tf.size(ids)
        total = count = 0.0
        for shift in range(1, _PARTNERS + 1):
            # Not `tf.roll`: XLA does it wrong on axes of unknown size.
            others = tf.math.floormod(tf.range(number) + shift, number)
            partners = tf.gather(ids, others)
            counts = tf.cast(tf.not_equal(ids, partners), rows.dtype)
            if self.mask_zero:
                counts *= tf.cast(tf.not_equal(ids * partners, 0), rows.dtype)
            if self.relations is not None:
                related = self._related(ids, partners)
                counts *= 1 - tf.cast(related, rows.dtype)
            shared = tf.reduce_sum(rows * tf.gather(rows, others), axis=1)
            total += tf.reduce_sum(counts * shared)
            count += tf.reduce_sum(counts)
        return total / tf.maximum(count, 1)

    def _related(self, ids, partners):
        keys = tf.constant(self.relations.keys)
        if not len(self.relations.keys):
            return tf.zeros_like(ids, tf.bool)
        wanted = ids * self.input_dim + partners
        places = tf.searchsorted(keys, wanted)
        places = tf.minimum(places, tf.size(keys) - 1)
        return tf.equal(tf.gather(keys, places), wanted)


def check_optimizer(optimizer):
    """Raises if the optimizer's steps undo proximal steps."""
    name = type(optimizer).__name__
    kinds = (getattr(keras.optimizers, kind, None) for kind in ("Ftrl", "Muon"))
    if isinstance(optimizer, tuple(filter(None, kinds))):
        raise ValueError(
            "The optimizer of a model with an `ANTEmbedding` must move weights "
            f"from where they are, each by itself. Received: {name}. Use "
            "another, such as Adam or SGD."
        )
    if getattr(optimizer, "use_ema", False):
        raise ValueError(
            "`use_ema` must be False with an `ANTEmbedding`: averages of "
            f"sparse weights are not sparse. Received: {name} with "
            "use_ema=True."
        )
