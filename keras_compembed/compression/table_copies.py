"""Copies of models with layers in the place of tables."""

import contextlib

import tensorflow as tf

from keras_compembed.compression.copy_check import CopyCheck
from keras_compembed.exchange.copy_with import copy_with
from keras_compembed.exchange.only_readers import pooled_before


def copy_with_tables(model, tables, sample_inputs=None, is_checked=True):
    """A copy of a model, not compiled, with other layers for its tables."""
    poolings = _poolings_before(tables)
    exchanges = [(table.layer, table.small) for table in tables] + poolings
    with _no_traces():
        check = CopyCheck(model, sample_inputs) if is_checked else None
        return copy_with(model, exchanges, check)


def _poolings_before(tables):
    """Pairs of a pooling and what takes its place, each once."""
    found = {}
    for table in tables:
        if table.pooling is not None:
            operation = table.pooling.operation
            place = pooled_before(operation, table.layer.output_dim)
            found.setdefault(id(operation), (operation, place))
    return list(found.values())


@contextlib.contextmanager
def _no_traces():
    """Runs functions without keeping graphs of them."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)
