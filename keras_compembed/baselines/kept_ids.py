"""Which ids are kept, in a bit and a half for each."""

import numpy as np
import tensorflow as tf

# Ids counted from a common number.
_BLOCK = 64
_BYTES = _BLOCK // 8
_BIT_COUNTS = np.array([bin(bits).count("1") for bits in range(256)], "uint8")


class KeptIds:
    """Numbers the ids that are kept, in their order."""

    def __init__(self, bits, starts):
        self._bits = bits
        self._starts = starts

    @staticmethod
    def pack(ids, input_dim):
        """The arrays that hold some ids."""
        kept = np.zeros(_count_blocks(input_dim) * _BLOCK, bool)
        kept[ids] = True
        counts = kept.reshape(-1, _BLOCK).sum(axis=1)
        bits = np.packbits(kept, bitorder="little").reshape(-1, _BYTES)
        return bits, (np.cumsum(counts) - counts).astype("int32")

    @staticmethod
    def count_bytes(input_dim):
        """Bytes of it in a LiteRT file, with how many bits each byte has."""
        return _count_blocks(input_dim) * (_BYTES + 4) + _BIT_COUNTS.nbytes

    def __call__(self, ids):
        """Whether ids are kept, and how many are before each."""
        bits = tf.cast(tf.gather(self._bits, ids // _BLOCK), tf.int32)
        counts = tf.cast(tf.gather(_BIT_COUNTS, bits), tf.int32)
        steps = np.arange(_BYTES, dtype="int32")
        place = tf.expand_dims(ids % _BLOCK // 8, 1)
        before = tf.cast(steps < place, tf.int32)
        own = tf.cast(tf.equal(steps, place), tf.int32)
        byte = tf.reduce_sum(bits * own, axis=1)
        unit = tf.gather(2 ** np.arange(8, dtype="int32"), ids % 8)
        below = tf.cast(tf.gather(_BIT_COUNTS, byte % unit), tf.int32)
        ranks = tf.gather(self._starts, ids // _BLOCK) + below
        ranks += tf.reduce_sum(counts * before, axis=1)
        return tf.equal(byte // unit % 2, 1), ranks


def _count_blocks(input_dim):
    return -(-input_dim // _BLOCK)
