"""Codes that are computed from ids, and so need no storage."""

import math

import numpy as np
import tensorflow as tf

from keras_compembed.utils.validation import check_seed
from keras_compembed.utils.validation import require

# Ids must be below it.
LARGEST_ID = 2**31 - 1
# Eight digits in base 16 make an id. Files have few ops for int64: a sum of
# eight numbers below the largest size fits int32.
_BASE, _NUM_DIGITS = 16, 8
LARGEST_HASHED = 1 << 28


def get_computed(identifier):
    """`"digits"` or `"hashed"` and a seed; None for other codes."""
    kind, seed = identifier, None
    if isinstance(identifier, (tuple, list)) and len(identifier) == 2:
        kind, seed = identifier
    if not isinstance(kind, str) or kind not in ("digits", "hashed"):
        return None
    require(
        seed is None or kind == "hashed",
        "`codes` may have a seed only if they are 'hashed'.",
        codes=identifier,
    )
    return kind, check_seed(seed) or 0


def digits_of_ids(ids, sizes):
    """Digits of ids in a mixed base, int32 `(ids, len(sizes))`.

    The last digit is the lowest. Ids below the product of the sizes differ.
    """
    units = [math.prod(sizes[place:]) for place in range(1, 1 + len(sizes))]
    # Ids are smaller than a unit that is cut.
    units = np.minimum(units, LARGEST_ID).astype("int32")
    ids = tf.expand_dims(tf.cast(ids, "int32"), 1)
    return tf.math.floormod(ids // units, np.array(sizes, "int32"))


def hash_ids(ids, sizes, seed=0):
    """A hash value of each id below each size, int32 `(ids, len(sizes))`.

    The sum of random numbers, one for each digit of an id (simple tabulation
    hashing, Patrascu & Thorup, 2012).
    """
    # `default_rng` may draw other numbers in other versions of NumPy.
    draw = np.random.RandomState(seed).randint
    number = _NUM_DIGITS * _BASE
    tables = [draw(size, size=number, dtype="int64") for size in sizes]
    tables = np.stack(tables, axis=1).astype("int32")
    digits = digits_of_ids(ids, _NUM_DIGITS * [_BASE])
    digits += np.arange(0, number, _BASE, dtype="int32")
    sums = tf.reduce_sum(tf.gather(tables, digits), axis=1)
    return tf.math.floormod(sums, np.array(sizes, "int32"))
