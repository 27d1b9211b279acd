"""Hash functions of ids, exact in Keras and in LiteRT files alike."""

import random

import numpy as np
import tensorflow as tf

# Products of two numbers below it fit 64 bits.
PRIME = 2**31 - 1


def draw_hashes(number, seed=None):
    """Random functions `(a * id + b) % PRIME`."""
    rng = np.random.default_rng(
        random.getrandbits(32) if seed is None else seed
    )
    return np.stack(
        [rng.integers(1, PRIME, number), rng.integers(PRIME, size=number)]
    )


def hash_ids(ids, hashes, size):
    """Numbers from 0 to `size - 1` for ids, by each of several functions."""
    ids = tf.expand_dims(tf.cast(ids, "int64"), 1)
    values = tf.math.floormod(ids * hashes[0] + hashes[1], PRIME)
    return tf.math.floormod(values, size)
