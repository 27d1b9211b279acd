import pytest

from keras_compembed.utils.sizes import format_bytes


@pytest.mark.parametrize(
    "count, expected",
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KB"),
        (10 * 1024 - 1, "10.0 KB"),
        (100 * 1024 - 1, "100 KB"),
        (1_816_032, "1.73 MB"),
        (2**20 - 1, "1.00 MB"),
        (90_122_400, "85.9 MB"),
        (3 * 2**30, "3.00 GB"),
        (2**50, "1048576 GB"),
    ],
)
def test_format_bytes(count, expected):
    assert format_bytes(count) == expected
