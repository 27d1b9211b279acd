"""`FieldColumns`, held to plain sums."""

import numpy as np
import pytest

from keras_compembed.codes.field_columns import FieldColumns


@pytest.mark.parametrize(
    "rows, fields, bits, size",
    [
        (1, 1, 1, 2),
        (300, 7, 3, 5),
        (70_000, 5, 4, 16),
        (70_000, 4, 5, 32),
        (40, 9, 8, 256),
        (300, 3, 12, 3000),
        (20, 2, 16, 65_536),
    ],
)
def test_sums(rows, fields, bits, size):
    rng = np.random.default_rng(0)
    numbers = rng.integers(size, size=(rows, fields)).astype("uint16")
    numbers[0] = size - 1
    tables = rng.normal(size=(fields, size)).astype("float32")
    found = FieldColumns(numbers, bits).add_up(tables)
    wanted = tables[np.arange(fields), numbers].sum(axis=1)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert found.dtype == "float32"
