"""A Keras model as a TensorFlow function that LiteRT can hold."""

import contextlib
import dataclasses
import re

import keras
import tensorflow as tf

from keras_compembed.utils.swapped import swapped
from keras_compembed.utils.validation import require

_HALF_DTYPES = ("float16", "bfloat16")


def all_layers(model):
    """The model and every layer in it, once each, however deep."""
    return model._flatten_layers()


@contextlib.contextmanager
def float32_form(model):
    """Makes the model compute in float32, from float32 copies of variables."""
    with contextlib.ExitStack() as stack:
        for layer in all_layers(model):
            policy = layer.dtype_policy
            if policy.compute_dtype in _HALF_DTYPES:
                mode, of, _ = policy.name.rpartition("_from_")
                float32 = keras.dtype_policies.get(f"{mode}{of}float32")
                # Not the public setter, which also edits policies that
                # several layers share.
                swap = swapped(layer, _dtype_policy=float32)
                stack.enter_context(swap)
            reverse = getattr(layer, "reverse", None)
            if getattr(reverse, "dtype", None) in _HALF_DTYPES:
                float32 = dataclasses.replace(reverse, dtype="float32")
                stack.enter_context(swapped(layer, reverse=float32))
        for variable in [*model.variables, *_states(model)]:
            if variable.dtype in _HALF_DTYPES:
                value = tf.cast(variable.value, "float32")
                value = tf.Variable(value, trainable=False)
                swap = swapped(variable, _value=value, _dtype="float32")
                stack.enter_context(swap)
        yield


@contextlib.contextmanager
def kept_state(model):
    """Puts back the states that recurrent layers carry from call to call."""
    variables = _states(model)
    values = [variable.numpy() for variable in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)


def _states(model):
    """Variables that are no weights, so that Keras does not list them."""
    return [
        variable
        for layer in all_layers(model)
        if isinstance(layer, keras.layers.RNN) and layer.stateful
        for variable in keras.tree.flatten(layer.states)
    ]


def get_signature(model, input_signature=None):
    """Specs of the model's inputs, in the structure that it is called with."""
    if input_signature is None:
        # A Sequential knows its inputs once it is built.
        inputs = getattr(model, "inputs", None)
        input_signature = getattr(model, "_inputs_struct", inputs)
        require(
            input_signature is not None,
            "`input_signature` must be given for a model that was not made "
            "from `keras.Input`s: a tf.TensorSpec for each input, e.g. "
            "input_signature=tf.TensorSpec((None, None), 'int32').",
            input_signature=None,
            model=model.name,
        )
    if isinstance(input_signature, (list, tuple)) and len(input_signature) == 1:
        (input_signature,) = input_signature
    names, specs = set(), []
    for path, spec in keras.tree.flatten_with_path(input_signature):
        shape = getattr(spec, "shape", None)
        dtype = getattr(spec, "dtype", None)
        require(
            shape is not None and dtype is not None,
            "`input_signature` must hold a spec with a shape and a dtype for "
            "each input, e.g. tf.TensorSpec((None, None), 'int32').",
            input_signature=input_signature,
        )
        dtype = tf.as_dtype(dtype)
        if dtype == tf.bfloat16:
            # Which neither NumPy nor the languages of apps have.
            dtype = tf.float32
        require(
            dtype.is_floating or dtype.is_integer or dtype.is_bool,
            "The inputs of an exported model must be real numbers: turn text "
            "into ids before it, and export a model that begins after the "
            "layer that does so.",
            dtype=dtype.name,
        )
        keys = [key for key in path if isinstance(key, str)]
        name = keys[-1] if keys else getattr(spec, "name", None)
        if name is None or name.startswith("keras_tensor"):
            name = "inputs"
        specs.append(tf.TensorSpec(shape, dtype, _new_name(name, names)))
    return keras.tree.pack_sequence_as(input_signature, specs)


def _new_name(name, names):
    """A name that files can hold and that is not in `names`; adds it there."""
    name = base = re.sub(r"\W", "_", name)
    number = 1
    while name in names:
        name = f"{base}_{number}"
        number += 1
    names.add(name)
    return name


def trace(model, signature, linear):
    """A concrete function of the model, from named inputs to named outputs."""

    def serve(*tensors):
        inputs = keras.tree.pack_sequence_as(signature, list(tensors))
        with contextlib.ExitStack() as stack:
            # An outer name for a model whose own one cannot be the outermost.
            if model.name[:1] in "_-/":
                stack.enter_context(tf.name_scope("model"))
            return name_outputs(model, model(inputs, training=False))

    while True:
        function = tf.function(
            serve,
            input_signature=keras.tree.flatten(signature),
            autograph=False,
        ).get_concrete_function()
        if not linear.reconsider(function):
            return function


def name_outputs(model, outputs):
    """A dict of what a model returns, in order."""
    flat = keras.tree.flatten_with_path(outputs)
    layer_names = getattr(model, "output_names", None) or []
    if len(layer_names) != len(flat):
        layer_names = [f"output_{place}" for place in range(len(flat))]
    names, named = set(), {}
    for (path, tensor), name in zip(flat, layer_names, strict=True):
        keys = [key for key in path if isinstance(key, str)]
        named[_new_name(keys[-1] if keys else name, names)] = tensor
    return named
