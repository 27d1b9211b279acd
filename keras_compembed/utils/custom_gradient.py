"""Gradients of our own that are freed with their graph."""

import functools
import weakref

import tensorflow as tf
from tensorflow.python.framework import ops


def custom_gradient(function):
    """`tf.custom_gradient`, but graphs and their models can be freed."""
    differentiable = tf.custom_gradient(function)

    @tf.autograph.experimental.do_not_convert
    @functools.wraps(function)
    def call(*args):
        result = differentiable(*args)
        if not tf.executing_eagerly():
            _leave_to_graph(tf.nest.flatten(result)[0].op)
        return result

    return call


def _leave_to_graph(op):
    # Not `op.graph`, a proxy.
    graph = tf.compat.v1.get_default_graph()
    name = op.get_attr("_gradient_op_type").decode()
    registry = getattr(ops.gradient_registry, "_registry", {})
    if "type" not in registry.get(name, ()):
        # Another version of TensorFlow.
        return
    gradient = registry[name]["type"]
    # A circle, which the garbage collection finds.
    setattr(graph, name, gradient)
    find = weakref.ref(gradient)
    registry[name]["type"] = lambda *args: find()(*args)
    weakref.finalize(graph, registry.pop, name, None).atexit = False
