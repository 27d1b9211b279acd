"""Makes layers again from their class and config."""

import inspect
import types
import warnings

import keras

from keras_compembed.exchange.held_objects import custom_objects


def made_again(layer):
    """A layer or operation of the same class and config, without state."""
    if type(layer) is keras.layers.Lambda:
        # Not by its config, which takes functions apart.
        return keras.layers.Lambda(
            layer.function,
            output_shape=layer._output_shape,
            mask=layer.mask,
            arguments=dict(layer.arguments),
            name=layer.name,
            dtype=layer.dtype_policy,
        )
    with (
        warnings.catch_warnings(),
        keras.utils.custom_object_scope(custom_objects(layer)),
    ):
        # Of lambdas in configs, which are put back here.
        warnings.filterwarnings("ignore", message=".*lambda.*")
        config = layer.get_config()
        for name, value in vars(layer).items():
            is_function = isinstance(value, types.FunctionType)
            if name in config and is_function and value.__name__ == "<lambda>":
                config[name] = value
        if isinstance(layer, keras.layers.TextVectorization):
            config = _with_vocabulary(config, layer)
        if (type(layer).get_config.__module__ or "").startswith("keras."):
            config = _without_unknown(config, type(layer))
        return type(layer).from_config(config)


def _with_vocabulary(config, layer):
    """A config with the vocabulary, if Keras's files break it up."""
    if config["vocabulary"] is None and config["output_mode"] != "tf_idf":
        words = layer.get_vocabulary(include_special_tokens=False)
        if any(word.splitlines() != [word] for word in words):
            return {**config, "vocabulary": words}
    return config


def _without_unknown(config, cls):
    """A config that Keras made up, without what the constructor lacks."""
    parameters = inspect.signature(cls).parameters
    if any(x.kind is x.VAR_KEYWORD for x in parameters.values()):
        return config
    return {
        name: value
        for name, value in config.items()
        if name in parameters or name not in ("name", "trainable", "dtype")
    }
