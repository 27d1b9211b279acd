"""Gradients of our own that are freed with their graph."""

import functools
import weakref

import tensorflow as tf


def custom_gradient(function):
    """`tf.custom_gradient`, but graphs and their models can be freed."""
    differentiable = tf.custom_gradient(function)

    @tf.autograph.experimental.do_not_convert
    @functools.wraps(function)
    def call(*args):
        if tf.executing_eagerly():
            return differentiable(*args)
        graph, results = tf.compat.v1.get_default_graph(), []

        # TensorFlow keeps what this returns for ever. So the gradient becomes
        # the graph's, and tensors are taken out of the list.
        @tf.custom_gradient
        def compute(*args):
            result, gradient = function(*args)
            setattr(graph, f"gradient_{id(gradient)}", gradient)
            find = weakref.ref(gradient)
            results.append(result)
            return results, lambda *upstream: find()(*upstream)

        (result,) = compute(*args)
        results[:] = [None] * len(tf.nest.flatten(result))
        return result

    return call
