"""Where compressed rows begin and end, in a byte per row or less."""

import numpy as np
import tensorflow as tf

# Entries counted from a common number.
_BLOCKS = (2, 4, 8, 16, 32, 64, 128, 256)
# Bits set in the numbers below 128.
_BIT_COUNTS = np.array([bin(bits).count("1") for bits in range(128)], "uint8")
# Ops are saved unless this share of the bytes is enough.
_WORTHWHILE = 0.5


class PackedOffsets:
    """Offsets of compressed rows, as tables that LiteRT reads."""

    def __init__(self, offsets):
        self._places = _RisingNumbers(offsets)
        self._bits = None
        self.tables = self._places.tables
        present = np.diff(offsets) > 0
        bits = np.packbits(present, bitorder="little")
        counts = np.add.reduceat(present, np.arange(0, len(present), 8))
        ranks = _RisingNumbers(np.cumsum(counts) - counts)
        places = _RisingNumbers(np.append(offsets[:-1][present], offsets[-1]))
        tables = [bits, *ranks.tables, _BIT_COUNTS, *places.tables]
        if _nbytes(tables) < _WORTHWHILE * self.nbytes:
            self._bits, self._ranks, self._places = bits, ranks, places
            self.tables = tables

    @property
    def nbytes(self):
        """Integer, what the file holds of them."""
        return _nbytes(self.tables)

    def __call__(self, ids):
        """int32 tensors of where rows begin and end, for an int32 tensor."""
        first, last = ids, ids + 1
        if self._bits is not None:
            byte, place = ids // 8, ids % 8
            bits = tf.cast(tf.gather(self._bits, byte), tf.int32)
            unit = tf.gather(2 ** np.arange(8, dtype="int32"), place)
            below = tf.gather(_BIT_COUNTS, bits % unit)
            first = self._ranks(byte) + tf.cast(below, tf.int32)
            # A row that is not there ends where it begins.
            last = first + bits // unit % 2
        return tf.split(self._places(tf.concat([first, last], axis=0)), 2)


class _RisingNumbers:
    """Integers that rise, each as that of its block plus a small one."""

    def __init__(self, numbers):
        self.tables = [numbers.astype("int32")]
        self._block = 1
        for block in _BLOCKS:
            coarse = numbers[::block].astype("int32")
            fine = numbers - np.repeat(coarse, block)[: len(numbers)]
            if fine.max() > np.iinfo("int16").max:
                break
            fine = fine.astype("uint8" if fine.max() < 256 else "int16")
            if _nbytes([coarse, fine]) < _nbytes(self.tables):
                self.tables = [coarse, fine]
                self._block = block

    def __call__(self, places):
        if self._block == 1:
            return tf.gather(self.tables[0], places)
        coarse, fine = self.tables
        numbers = tf.gather(coarse, places // self._block)
        return numbers + tf.cast(tf.gather(fine, places), tf.int32)


def _nbytes(tables):
    return sum(table.nbytes for table in tables)
