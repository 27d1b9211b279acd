"""A Keras model as a TensorFlow function that LiteRT can hold."""

import contextlib
import re

import keras
import tensorflow as tf

from keras_compembed.utils.validation import require


def all_layers(model):
    """The model and every layer in it, once each, however deep."""
    return model._flatten_layers()


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


def trace(model, signature):
    """A concrete function of the model, from named inputs to named outputs."""

    def serve(*tensors):
        inputs = keras.tree.pack_sequence_as(signature, list(tensors))
        with contextlib.ExitStack() as stack:
            # An outer name for a model whose own one cannot be the outermost.
            if model.name[:1] in "_-/":
                stack.enter_context(tf.name_scope("model"))
            return name_outputs(model, model(inputs, training=False))

    return tf.function(
        serve,
        input_signature=keras.tree.flatten(signature),
        autograph=False,
    ).get_concrete_function()


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
