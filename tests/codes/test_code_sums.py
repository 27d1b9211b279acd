"""Sums of what the numbers of rows stand for."""

import numpy as np
import pytest

from keras_compembed.codes.packing import FieldColumns
from keras_compembed.codes.packing import pack_codes


@pytest.mark.parametrize(
    "rows, fields, bits, size",
    [
        (1, 1, 1, 2),
        (70_000, 5, 4, 16),
        (5000, 5, 4, 16),
        (5000, 5, 3, 7),
        (300, 3, 12, 3000),
        (20, 2, 16, 65_536),
    ],
)
def test_sums_of_field_columns(rows, fields, bits, size):
    rng = np.random.default_rng(0)
    numbers = rng.integers(size, size=(rows, fields)).astype("uint16")
    numbers[0] = size - 1
    tables = rng.normal(size=(fields, size)).astype("float32")
    packed = pack_codes(numbers, size)
    found = FieldColumns(packed, fields, bits).add_up(tables)
    wanted = tables[np.arange(fields), numbers].sum(axis=1)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert found.dtype == "float32"
