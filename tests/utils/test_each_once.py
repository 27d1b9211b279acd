"""Vectors of different ids are composed once, outside of XLA."""

import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.utils.each_once import each_once

IDS = tf.constant([7, 3, 7, 0, 3, 7])


@pytest.mark.parametrize("mode", ["eager", "graph", "xla", "graph in xla"])
def test_vectors_and_gradients_are_those_of_all(mode):
    table = tf.constant(np.random.default_rng(0).normal(size=(9, 4)))
    upstream = tf.constant(np.random.default_rng(1).normal(size=(6, 4)))
    composed = []

    def compose(ids):
        composed.append(ids.shape[0])
        return tf.sin(tf.gather(table, ids))

    def look_up(ids):
        with tf.GradientTape() as tape:
            tape.watch(table)
            vectors = each_once(compose, ids)
        return vectors, tf.convert_to_tensor(
            tape.gradient(vectors, table, upstream)
        )

    function = look_up
    if mode == "graph in xla":
        function = tf.function(look_up)
    if mode != "eager":
        function = tf.function(function, jit_compile="xla" in mode)
    vectors, gradient = function(IDS)
    exact = np.zeros((9, 4))
    np.add.at(exact, IDS, upstream * tf.cos(tf.gather(table, IDS)))
    np.testing.assert_allclose(vectors, tf.sin(tf.gather(table, IDS)))
    np.testing.assert_allclose(gradient, exact, atol=1e-12)
    # Graphs do not know the number of different ids; of all ids they do.
    assert composed == {"eager": [3], "graph": [None]}.get(mode, [6])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_of_half_precision_are_summed_in_float32(dtype):
    table = tf.ones((2, 3), dtype)
    with tf.GradientTape() as tape:
        tape.watch(table)
        ids = tf.zeros(1000, "int32")
        vectors = each_once(lambda ids: tf.gather(table, ids), ids)
    assert vectors.dtype == dtype
    gradient = tape.gradient(vectors, table, tf.fill((1000, 3), table[0, 0]))
    sums = tf.cast(tf.convert_to_tensor(gradient), "float32")
    np.testing.assert_array_equal(sums, [3 * [1000], 3 * [0]])
