"""Sizes in bytes, in words, and as people write them."""

import decimal
import math
import numbers
import re

import tensorflow as tf

# Bytes of a number of a weight in a LiteRT file, and numbers of the smallest
# matrix that the converter makes int8.
WEIGHT_BYTES = {None: 4, "float16": 2, "int8": 1, "int8_codebooks": 1}
_LEAST_INT8 = 1024
_UNITS = (("GB", 2**30), ("MB", 2**20), ("KB", 2**10))
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


def format_bytes(count):
    """`1816032` as `"1.73 MB"`; an MB is 2**20 bytes, as in the paper."""
    for unit, size in _UNITS:
        # What would round to 1024 of a unit is 1 of the next.
        if count >= size - size / 2048:
            number = count / size
            decimals = 2 if number < 9.995 else 1 if number < 99.95 else 0
            return f"{number:.{decimals}f} {unit}"
    return f"{count:.0f} B"


def count_bytes(variables):
    """Bytes of the values of Keras variables, each counted once."""
    different = {id(variable): variable for variable in variables}
    return sum(
        math.prod(variable.shape) * tf.as_dtype(variable.dtype).size
        for variable in different.values()
    )


def count_litert_bytes(num_numbers, quantize=None):
    """Bytes that a matrix of codewords or the like takes in a LiteRT file."""
    if quantize == "int8" and num_numbers < _LEAST_INT8:
        quantize = None
    return WEIGHT_BYTES[quantize] * num_numbers


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
            count = decimal.Decimal(found[1]) * _FACTORS[found[2].lower()]
    else:
        is_whole = isinstance(value, numbers.Integral)
        count = value if is_whole and not isinstance(value, bool) else 0
    if count <= 0 or count != int(count):
        raise ValueError(
            f"`{name}` must be a number of bytes, such as 500000, '500k' or "
            f"'2MB'. Received: {name}={value!r}."
        )
    return int(count)
