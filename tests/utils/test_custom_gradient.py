import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.utils.custom_gradient import custom_gradient


class Factor:
    value = 3.0


def doubled(factor=Factor):
    """`2 * x + 3 * y`, whose gradient in `x` is as if it were no double."""

    @custom_gradient
    def function(x, y):
        """Its own text."""

        def gradients(upstream):
            return upstream, upstream * factor.value

        return 2 * x + 3 * y, gradients

    return function


def gradients_of(function, x, y):
    with tf.GradientTape() as tape:
        tape.watch([x, y])
        result = function(x, y)
    return result, *tape.gradient(result, [x, y])


def take_gradients(function, traced, x, y):
    if traced == "gradients":
        return tf.function(lambda x, y: gradients_of(function, x, y))(x, y)
    if traced == "function":
        function = tf.function(function)
    return gradients_of(function, x, y)


def in_loop(function):
    def loop(x, y):
        return tf.foldl(lambda total, row: function(total, row), y, x)

    return loop


@pytest.mark.parametrize("traced", ["nothing", "function", "gradients"])
def test_value_and_gradients(traced):
    function = doubled()
    x, y = tf.constant([1.0, 2.0]), tf.constant([4.0, 5.0])
    result, of_x, of_y = take_gradients(function, traced, x, y)
    np.testing.assert_array_equal(result, [14, 19])
    np.testing.assert_array_equal(of_x, [1, 1])
    np.testing.assert_array_equal(of_y, [3, 3])


@pytest.mark.parametrize("traced", ["function", "gradients"])
def test_in_a_loop_of_a_graph(traced):
    function = in_loop(doubled())
    x, y = tf.constant([1.0]), tf.constant([[4.0], [5.0]])
    result, of_x, of_y = take_gradients(function, traced, x, y)
    np.testing.assert_array_equal(result, [43])
    np.testing.assert_array_equal(of_x, [1])
    np.testing.assert_array_equal(of_y, [[3], [3]])


def test_files_hold_the_gradients(tmp_path):
    rows = tf.TensorSpec((2,), "float32")
    module = tf.Module()
    module.call = tf.function(doubled(), input_signature=[rows, rows])
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    x, y = tf.constant([1.0, 2.0]), tf.constant([4.0, 5.0])
    _, of_x, of_y = gradients_of(loaded.call, x, y)
    np.testing.assert_array_equal(of_x, [1, 1])
    np.testing.assert_array_equal(of_y, [3, 3])


def trace_and_leave(whole):
    """Weak references to what a gradient reads, and to a graph."""
    factor = Factor()
    function = in_loop(doubled(factor))
    x, y = tf.constant([1.0]), tf.constant([[4.0], [5.0]])
    if whole:
        traced = tf.function(lambda x, y: gradients_of(function, x, y))
        _, _, of_y = traced(x, y)
    else:
        traced = tf.function(function)
        _, _, of_y = gradients_of(traced, x, y)
    np.testing.assert_array_equal(of_y, [[3], [3]])
    graph = traced.get_concrete_function(x, y).graph
    return weakref.ref(factor), weakref.ref(graph)


@pytest.mark.parametrize("whole", [True, False])
def test_graphs_are_freed(whole):
    references = trace_and_leave(whole)
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_keeps_name_and_text():
    function = doubled()
    assert function.__name__ == "function"
    assert function.__doc__ == "Its own text."
