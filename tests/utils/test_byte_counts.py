"""Numbers of bytes as people write them."""

import numpy as np
import pytest

from keras_compembed.utils.byte_counts import number_of_bytes


@pytest.mark.parametrize(
    "value, wanted",
    [
        (500, 500),
        (np.int64(7), 7),
        ("500", 500),
        ("500k", 500_000),
        ("500 kB", 500_000),
        ("2MB", 2_000_000),
        ("1.1M", 1_100_000),
        (".5g", 500_000_000),
    ],
)
def test_numbers(value, wanted):
    assert number_of_bytes("max_bytes", value) == wanted


@pytest.mark.parametrize(
    "value",
    [0, -5, True, 2.5, None, "", "0k", "k", "1.5", "2 T", "-2k", "1e6", "٣k"],
)
def test_no_numbers(value):
    with pytest.raises(ValueError, match="`max_bytes` must be a number of b"):
        number_of_bytes("max_bytes", value)
