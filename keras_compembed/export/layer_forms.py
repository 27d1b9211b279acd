"""Layers in ops that LiteRT has, while a model is traced."""

import contextlib
import functools
import itertools

import keras
import tensorflow as tf

from keras_compembed.candidates.beam_tree import BeamTree
from keras_compembed.export.linear_layers import LinearLayers
from keras_compembed.export.recurrent import call_on_all_steps
from keras_compembed.export.recurrent import inner_loop
from keras_compembed.export.tracing import all_layers
from keras_compembed.layers.cane_softmax import CANESoftmax
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.utils.swapped import swapped


@contextlib.contextmanager
def litert_form(model, options):
    """Makes layers compute in ops that LiteRT has."""
    layers = all_layers(model)
    # Of functional models, operations that are no layers too.
    operations = (getattr(layer, "operations", ()) for layer in layers)
    # Before an encoder that others use too has a form of its own.
    forms = {
        id(layer): layer.store.litert(options, layer.path)
        for layer in layers
        if isinstance(layer, LookupLayer)
    }
    linear = LinearLayers(options, forms)
    with contextlib.ExitStack() as stack:
        for part in dict.fromkeys(itertools.chain(layers, *operations)):
            stack.enter_context(_swapped(part, linear))
        yield linear


def _swapped(part, linear):
    """A context in which a layer or operation has its form for LiteRT."""
    if isinstance(part, LookupLayer):
        return _swapped_rows(part, linear)
    if isinstance(part, CANESoftmax):
        if not isinstance(part.selector, BeamTree):
            return contextlib.nullcontext()
        # One matrix, in place of rows to be added up in each call.
        parts = part.selector.frontier(part.scores)
        constants = [tf.constant(each.numpy()) for each in parts]
        return swapped(part.selector, frontier=lambda scores: constants)
    if isinstance(part, keras.layers.RNN):
        return swapped(part, inner_loop=functools.partial(inner_loop, part))
    if isinstance(part, keras.layers.TimeDistributed):
        call = functools.partial(call_on_all_steps, part)
    else:
        call = linear.stand_in(part)
    return swapped(part, **({} if call is None else {"call": call}))


@contextlib.contextmanager
def _swapped_rows(layer, linear):
    """A context in which a layer reads and scores rows by its form."""
    form = linear.trace.forms[id(layer)]
    embed, score, top_ids = (
        linear.trace.add_lookup(layer, method).marked(function)
        for method, function in (
            ("embed", form),
            (form.scores_as, form.score),
            ("top_ids", form.top_ids),
        )
    )
    methods = {
        "embed_all": functools.partial(form.chunks.table, embed),
        "score": score,
        form.scores_as: score,
        "top_ids": top_ids,
    }
    with layer.embed_with(embed, **methods):
        with linear.of_table(layer, form.products):
            yield
