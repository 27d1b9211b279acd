"""Composes vectors of different ids only."""

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from keras_compembed.utils.repeat_rows import repeat_rows


def each_once(compose, ids):
    """Vectors of ids, each composed once however often its id is there."""
    graph = tf.compat.v1.get_default_graph()
    if control_flow_util.GraphOrParentsInXlaContext(graph):
        return compose(ids)
    different, places = tf.unique(ids)
    return repeat_rows(compose(different), places)
