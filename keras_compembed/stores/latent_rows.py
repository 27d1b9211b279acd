"""Trained float rows that are quantized when read."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.optimizers.device_rows import of_all_devices
from keras_compembed.optimizers.device_rows import read_unique_rows
from keras_compembed.optimizers.device_rows import unique_ids
from keras_compembed.optimizers.device_rows import write
from keras_compembed.rounding.rounded_table import RoundedTable
from keras_compembed.rounding.rounded_table import count_blocks
from keras_compembed.rounding.rounded_table import integer_range
from keras_compembed.rounding.rounded_table import scale_unit
from keras_compembed.utils.tensor_ops import custom_gradient
from keras_compembed.utils.tensor_ops import multiply_blocks

# As in `round_rows`, but chosen again for each batch.
_SHARES = {8: (1.0,), 4: (0.55, 0.75, 0.95), 2: (0.3, 0.45, 0.6)}
_CHUNK_ELEMENTS = 1 << 22


class LatentRows:
    """Latent float rows, quantized when read (straight-through gradient).

    They lack the fixed mean row.
    """

    def __init__(
        self, latents, scale_unit, mean_row, bits, block_size, scale_dtype
    ):
        self.latents = latents
        self.scale_unit = scale_unit
        self.mean_row = mean_row
        self.width = latents.shape[1]
        self.bits = bits
        self.block_size = block_size
        self._scale_dtype = scale_dtype
        self._highest = np.iinfo(scale_dtype).max

    def integers(self, ids):
        """Integers, int8 `(ids, width)`, of a tensor of ids."""
        integers, *_ = self._round(tf.gather(self.latents.value, ids))
        return tf.cast(integers, tf.int8)

    def read(self, ids, training=False):
        """Rows, float32 `(ids, width)`."""
        different, places, room = unique_ids(ids, self.latents.shape[0])
        rows = read_unique_rows(self.latents, different, room)
        if room is not None:
            # Other devices round their own rows.
            own, places = tf.unique(places)
            rows = tf.gather(rows, own)
        return tf.gather(self._straight_through(rows, grows=training), places)

    def read_all(self):
        """All rows, float32 `(rows, width)`."""
        return self._straight_through(tf.convert_to_tensor(self.latents.value))

    def _straight_through(self, rows, grows=False):
        """Quantized rows, with the gradient of the float rows."""

        @custom_gradient
        def rounded(rows):
            integers, scales, unit = self._round(rows, grows)
            result = multiply_blocks(integers, scales * unit, self.block_size)
            result += tf.convert_to_tensor(self.mean_row.value)

            def gradient(upstream):
                # The gradient of repeated rows is sparse.
                return tf.cast(tf.convert_to_tensor(upstream), rows.dtype)

            return result, gradient

        return rounded(rows)

    def grow(self):
        """Raises the unit to fit the scales of all rows."""
        self._round(tf.convert_to_tensor(self.latents.value), grows=True)

    def assign(self, latents):
        """Sets all latent rows, and a unit that fits them."""
        self.latents.assign(latents)
        largest = max(
            tf.reduce_max(_best_scales(self._blocks(part), self.bits)).numpy()
            for part in self._parts()
        )
        self.scale_unit.assign(scale_unit(largest, self._highest))

    def _round(self, rows, grows=False):
        """Integers `(ids, width)`, scales `(ids, blocks)` and unit, floats."""
        blocks = self._blocks(rows)
        scales = _best_scales(blocks, self.bits)
        unit = tf.convert_to_tensor(self.scale_unit.value)
        if grows:
            # Minus infinity without rows.
            largest = of_all_devices(tf.reduce_max(scales, keepdims=True)[0])
            unit = tf.maximum(unit, tf.reduce_max(largest) / self._highest)
            write(self.scale_unit, unit)
        scales = tf.math.divide_no_nan(scales, unit)
        scales = tf.round(scales)
        scales = tf.clip_by_value(scales, 0, self._highest)
        steps = tf.expand_dims(scales * unit, 2)
        integers = tf.round(tf.math.divide_no_nan(blocks, steps))
        integers = tf.clip_by_value(integers, *integer_range(self.bits))
        padded = blocks.shape[1] * blocks.shape[2]
        integers = tf.reshape(integers, (-1, padded))[:, : self.width]
        return integers, scales, unit

    def _blocks(self, rows):
        number = count_blocks(self.width, self.block_size)
        room = number * self.block_size - self.width
        rows = tf.pad(tf.cast(rows, tf.float32), ((0, 0), (0, room)))
        return tf.reshape(rows, (-1, number, self.block_size))

    def _parts(self):
        size = max(1, _CHUNK_ELEMENTS // self.width)
        for start in range(0, self.latents.shape[0], size):
            yield self.latents.value[start : start + size]

    def table(self):
        """The `RoundedTable` that `kc.strip` keeps."""
        integers, scales = [], []
        for part in self._parts():
            part = self._round(part)
            integers.append(part[0].numpy().astype("int8"))
            scales.append(part[1].numpy().astype(self._scale_dtype))
        return RoundedTable(
            np.concatenate(integers),
            np.concatenate(scales),
            keras.ops.convert_to_numpy(self.scale_unit)[()],
            self.block_size,
            keras.ops.convert_to_numpy(self.mean_row),
        )


def _best_scales(blocks, bits):
    """Float scales `(ids, blocks)` of blocks `(ids, blocks, size)`."""
    lowest, highest = integer_range(bits)
    whole = tf.maximum(
        tf.reduce_max(blocks, 2) / highest, tf.reduce_min(blocks, 2) / lowest
    )
    best, best_gain = whole, tf.fill(tf.shape(whole), -1.0)
    for share in _SHARES[bits]:
        steps = tf.expand_dims(share * whole, 2)
        integers = tf.round(tf.math.divide_no_nan(blocks, steps))
        integers = tf.clip_by_value(integers, lowest, highest)
        products = tf.reduce_sum(blocks * integers, 2)
        scales = tf.math.divide_no_nan(
            products, tf.reduce_sum(tf.square(integers), 2)
        )
        gain = products * scales
        best = tf.where(gain > best_gain, tf.maximum(scales, 0), best)
        best_gain = tf.maximum(gain, best_gain)
    return best
