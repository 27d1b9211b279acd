"""Numbers of bytes as people write them."""

import decimal
import numbers
import re

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


def number_of_bytes(name, value):
    """`"500k"`, `"2 MB"` or an integer as a number of bytes."""
    if isinstance(value, str):
        found = re.fullmatch(
            r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+) ?([kmg]?)b?",
            value.strip(),
            re.IGNORECASE | re.ASCII,
        )
        count = 0
        if found:
            count = decimal.Decimal(found[1]) * _UNITS[found[2].lower()]
    else:
        is_whole = isinstance(value, numbers.Integral)
        count = value if is_whole and not isinstance(value, bool) else 0
    if count <= 0 or count != int(count):
        raise ValueError(
            f"`{name}` must be a number of bytes, such as 500000, '500k' or "
            f"'2MB'. Received: {name}={value!r}."
        )
    return int(count)
