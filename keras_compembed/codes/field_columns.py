"""Small numbers of many rows, several in each entry of a column."""

import numpy as np

# Bits of an entry at most: sums of all its values are held in a table.
_MOST_BITS = 16
_LEAST_VALUES = 256
_CHUNK_ROWS = 1 << 16


class FieldColumns:
    """Adds up what the numbers of each row stand for, in plain arrays."""

    def __init__(self, fields, bits):
        num_rows, num_fields = fields.shape
        joint = max(1, _MOST_BITS // bits)
        # Tables of sums are not to be dearer than what they save.
        while joint > 1 and 2 ** (bits * joint) > max(_LEAST_VALUES, num_rows):
            joint -= 1
        self._bits, self._joint = bits, joint
        dtype = np.min_scalar_type(2 ** (bits * joint) - 1)
        self._columns = np.zeros((-(-num_fields // joint), num_rows), dtype)
        for start in range(0, num_rows, _CHUNK_ROWS):
            part = slice(start, start + _CHUNK_ROWS)
            for place in range(joint):
                field = fields[part, place::joint].T.astype(dtype)
                columns = self._columns[: len(field), part]
                columns |= field << np.array(bits * place, dtype)

    def add_up(self, tables):
        """Sums `(rows,)` of what numbers stand for."""
        tables = np.asarray(tables, "float32")
        num_fields, size = tables.shape
        room = (0, -num_fields % self._joint), (0, 2**self._bits - size)
        tables = np.pad(tables, room)
        parts = tables.reshape(-1, self._joint, 2**self._bits)
        # The first field stands in the lowest bits.
        sums = parts[:, 0]
        for place in range(1, self._joint):
            sums = parts[:, place, :, None] + sums[:, None, :]
            sums = sums.reshape(len(parts), -1)
        total = np.zeros(self._columns.shape[1], "float32")
        for table, column in zip(sums, self._columns, strict=True):
            total += table.take(column)
        return total
