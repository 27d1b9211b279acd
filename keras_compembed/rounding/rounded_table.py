"""A table of small integers and their scales, as arrays."""

import dataclasses

import numpy as np

from keras_compembed.codes.packing import bytes_per_row
from keras_compembed.codes.packing import pack_codes
from keras_compembed.codes.packing import unpack_codes


@dataclasses.dataclass(frozen=True)
class RoundedTable:
    """A table of small integers: `integers * scales * unit`."""

    integers: np.ndarray
    scales: np.ndarray
    unit: np.float32
    block_size: int

    def part(self, start, stop):
        """Some of the rows."""
        return dataclasses.replace(
            self,
            integers=self.integers[start:stop],
            scales=self.scales[start:stop],
        )

    def decode(self):
        """The float32 array `(rows, width)` that it stands for."""
        scales = self.scales.astype("float32") * self.unit
        width = self.integers.shape[1]
        return self.integers * np.repeat(scales, self.block_size, 1)[:, :width]


def name_of_rows(bits, block_size=None, rank=None):
    """How rows are stored, as `"int4 rank 16"`."""
    name = f"int{bits}"
    if rank is not None:
        name += f" rank {rank}"
    if block_size is not None:
        name += f" blocks of {block_size}"
    return name


def count_blocks(width, block_size):
    """Blocks in a row; the last may be shorter."""
    return -(-width // block_size)


def integer_range(bits):
    """The lowest and the highest integer of so many bits."""
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def packed_width(width, bits):
    """Bytes of a packed row."""
    return bytes_per_row(width, 2**bits)


def pack_integers(integers, bits):
    """Signed integers as fields of bytes, the first in the lowest bits."""
    fields = np.asarray(integers, "int8").view("uint8") & (2**bits - 1)
    return pack_codes(fields, 2**bits)


def unpack_integers(packed, width, bits):
    """Undoes `pack_integers`."""
    fields = unpack_codes(packed, width, 2**bits)
    # The highest bit of a field becomes that of the byte, and comes back.
    return (fields << (8 - bits)).view("int8") >> (8 - bits)
