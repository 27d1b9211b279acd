"""Copies of models with layers in the place of tables."""

import contextlib

import tensorflow as tf

from keras_compembed.compression.copy_check import check_copy
from keras_compembed.compression.copy_check import made_up_inputs
from keras_compembed.compression.model_copy import copy_model
from keras_compembed.compression.pooling_place import pooled_before
from keras_compembed.compression.replaceable_layers import is_embed_reduce


def copy_with_tables(model, tables, sample_inputs=None, is_checked=True):
    """A copy of a model, not compiled, with other layers for its tables."""
    poolings = _poolings_before(tables)
    with _no_traces():
        small, pairs = copy_model(
            model,
            {
                **{id(table.layer): table.small for table in tables},
                **{id(old): new for old, new in poolings},
            },
            lambda: (
                made_up_inputs(model)[0]
                if sample_inputs is None
                else sample_inputs
            ),
        )
        if is_checked:
            _check(model, small, pairs, tables, poolings, sample_inputs)
    return small


def _check(model, small, pairs, tables, poolings, sample_inputs):
    with contextlib.ExitStack() as stack:
        for table in tables:
            stack.enter_context(table.original_rows())
        # Tables that are pooled give other things in the copy, and are
        # compared by what takes the place of the pooling.
        left_out = {id(old) for old, _ in poolings}
        left_out.update(id(x.layer) for x in tables if x.pooling)
        pairs = [pair for pair in pairs if id(pair[0]) not in left_out]
        check_copy(
            model,
            small,
            [*pairs, *poolings],
            sample_inputs,
            resumed=[
                *(old for old, _ in poolings),
                *(x.layer for x in tables if is_embed_reduce(x.layer)),
            ],
        )


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
