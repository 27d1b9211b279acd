"""Conversion of Keras 2 models (`tf_keras`) to Keras 3."""

import contextlib
import graphlib
import json
import os
import re
import warnings
import zipfile

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.exchange.copy_check import all_same
from keras_compembed.exchange.copy_check import arrays_of
from keras_compembed.exchange.copy_check import made_up_inputs
from keras_compembed.utils.extras import import_extra
from keras_compembed.utils.model_parts import layer_paths
from keras_compembed.utils.validation import on_one_line

# Keras 2 settings that change no output, or that are set later.
_LEFT_OUT = frozenset(
    "batch_input_shape build_config implementation input_length key_shape "
    "query_shape rng_type trainable value_shape vocabulary_size "
    "softmax_robust_masking".split()
)
# Left out if equal: some Keras 3 layers have no such argument.
_DEFAULTS = {"groups": 1, "noise_shape": None, "time_major": False}
_TFMOT = "tensorflow_model_optimization"


def from_tf_keras(model_or_path: object) -> keras.Model:
    """Converts a Keras 2 model (`tf_keras`) to Keras 3.

    The result has the same layers, names, weights and vocabularies. Its outputs
    are compared with the original's on random inputs. It is not compiled.
    Wrappers of tensorflow-model-optimization are removed, and weights stay as
    they are. Layers trained for quantization lose their learned ranges; a
    warning says how much that changes the outputs.

    A custom layer becomes the Keras 3 class registered under the same name, or
    given by `keras.saving.custom_object_scope`.

    Args:
        model_or_path: A built `tf_keras.Model`, Sequential or functional, or
            the path of a `.h5` or `.keras` file that Keras 2 wrote.

    Returns:
        A `keras.Model`.

    Raises:
        ValueError: If a file is of another kind, Keras 3 lacks layers (the
            message lists them), or outputs differ.
    """
    tf_keras = import_extra("tf_keras", "tf_keras")
    model = model_or_path
    if isinstance(model, (str, os.PathLike)):
        model = _load(tf_keras, os.fspath(model))
    if not isinstance(model, tf_keras.Model):
        raise TypeError(
            "`model_or_path` must be a `tf_keras.Model` or the path of a file. "
            f"Received: model_or_path={model_or_path!r}."
        )
    plain = model
    if any(_TFMOT in type(x).__module__ for x in model.submodules):
        plain = _strip(tf_keras, model)
    new = _Copy(tf_keras).copy(plain)
    _compare(model, plain, new)
    return new


def _load(tf_keras, path):
    if not os.path.isfile(path):
        raise FileNotFoundError(
            "`model_or_path` must be a file that exists. For a SavedModel, "
            "pass the result of `tf_keras.models.load_model`. "
            f"Received: model_or_path={path!r}."
        )
    version, config = read_keras_2_file(path)
    if not version.startswith("2.") or not config or '"Lambda"' in config:
        raise ValueError(
            "`model_or_path` must be a `.h5` or `.keras` file of a whole model "
            "saved by Keras 2, without Lambda layers. "
            f"Received: {path!r}, of Keras {version or None}."
        )
    with contextlib.ExitStack() as stack:
        if re.search('"(ClusterWeights|PruneLowMagnitude|Quantize)', config):
            tfmot = import_extra(_TFMOT, "prune")
            stack.enter_context(tfmot.sparsity.keras.prune_scope())
            stack.enter_context(tfmot.clustering.keras.cluster_scope())
            stack.enter_context(tfmot.quantization.keras.quantize_scope())
        return tf_keras.models.load_model(path, compile=False)


def read_keras_2_file(path):
    """The Keras version of a file, and its model config as JSON."""
    # Imported here: most commands do not need h5py.
    import h5py

    found = {}
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            if {"metadata.json", "config.json"} <= set(file.namelist()):
                found = json.loads(file.read("metadata.json"))
                found["model_config"] = file.read("config.json")
    elif h5py.is_hdf5(path):
        with h5py.File(path) as file:
            found = dict(file.attrs)
    values = (found.get(x, b"") for x in ("keras_version", "model_config"))
    return tuple(x.decode() if isinstance(x, bytes) else x for x in values)


def _strip(tf_keras, model):
    """The model without tensorflow-model-optimization wrappers."""
    tfmot = import_extra(_TFMOT, "prune")

    def strip(layer):
        if isinstance(layer, tf_keras.Model):
            return tf_keras.models.clone_model(layer, clone_function=strip)
        if type(layer).__name__ == "QuantizeLayer":
            return tf_keras.layers.Activation("linear", name=layer.name)
        if not type(layer).__name__.startswith("QuantizeWrapper"):
            return layer
        inner = layer.layer
        with tfmot.quantization.keras.quantize_scope():
            new = type(inner).from_config(inner.get_config())
        new.build(layer.get_build_config()["input_shape"])
        # Calls replace the inner layer's kernels by tensors.
        weights = layer.trainable_weights + inner.non_trainable_weights
        new.set_weights([weight.numpy() for weight in weights])
        return new

    model = tfmot.sparsity.keras.strip_pruning(model)
    return strip(tfmot.clustering.keras.strip_clustering(model))


class _Copy:
    """Makes each `tf_keras` layer and model again in Keras 3, once."""

    def __init__(self, tf_keras):
        self._old = tf_keras
        self._made = {}

    def copy(self, model):
        """A Keras 3 model with the same layers and weights."""
        if problems := "; ".join(self._problems(model)):
            raise ValueError(
                "`model_or_path` must have layers that Keras 3 has. Received: "
                f"{problems}"
            )
        new = self._model(model)
        holders = self._old.Model, self._old.layers.TimeDistributed
        for old, layer in self._made.values():
            # Layers with inner layers may order their weights differently.
            if isinstance(old, holders):
                continue
            if layer.weights:
                layer.set_weights(old.get_weights())
            getattr(layer, "finalize_state", list)()
            layer.trainable = old.trainable
        return new

    def _problems(self, model):
        """Makes the layers; yields why some cannot be made."""
        if not model.inputs:
            kind = type(model).__name__
            yield f"{model.name!r} ({kind}): subclassed, or not built"
            return
        for layer in model.layers:
            inner = getattr(layer, "layer", layer)
            if isinstance(inner, self._old.Model):
                yield from self._problems(inner)
            elif not isinstance(layer, self._old.layers.InputLayer):
                try:
                    self._layer(layer)
                except (TypeError, ValueError) as error:
                    reason = on_one_line(error)[-200:]
                    yield f"{layer.name!r} ({type(layer).__name__}): {reason}"

    def _layer(self, old):
        if id(old) not in self._made:
            is_model = isinstance(old, self._old.Model)
            new = self._model(old) if is_model else self._new_layer(old)
            self._made[id(old)] = old, new
        return self._made[id(old)][1]

    def _new_layer(self, old):
        name = type(old).__name__
        cls = getattr(keras.layers, name, None)
        if not type(old).__module__.startswith("tf_keras."):
            name = self._old.saving.get_registered_name(type(old))
            cls = keras.saving.get_registered_object(name)
        if cls in (None, keras.layers.Lambda):
            raise ValueError("not in Keras 3, or it holds a function")
        config = old.get_config()
        if cls is not getattr(keras.layers, name, None):
            config.pop("batch_input_shape", None)
            return cls.from_config(config)
        config = _translate(config)
        if name == "LeakyReLU":
            config["negative_slope"] = config.pop("alpha")
        if name.startswith("SeparableConv"):
            for unused in ("constraint", "initializer", "regularizer"):
                del config[f"kernel_{unused}"]
        if name == "TimeDistributed":
            return cls(**{**config, "layer": self._layer(old.layer)})
        if hasattr(old, "get_vocabulary"):
            words = old.get_vocabulary(include_special_tokens=False)
            config["vocabulary"] = words or None
            if words and config["output_mode"] == "tf_idf":
                parts = old, *old.submodules
                lookup = next(x for x in parts if hasattr(x, "idf_weights"))
                start = len(old.get_vocabulary()) - len(words)
                weights = lookup.idf_weights.numpy()[start:][: len(words)]
                config["idf_weights"] = weights
        if any(map(callable, config.values())):
            return cls(**config)
        return cls.from_config(config)

    def _dtype(self, tensor):
        """Ids are integers, also where Keras 2 makes their input of floats."""
        nodes = tensor._keras_history.layer.outbound_nodes
        kinds = [type(node.layer) for node in nodes]
        if tensor.dtype.is_floating and kinds:
            if set(kinds) == {self._old.layers.Embedding}:
                return "int32"
        return tensor.dtype.name

    def _model(self, old):
        tensors = {
            id(x): keras.Input(
                batch_shape=x.shape, dtype=self._dtype(x), name=name
            )
            for x, name in zip(old.inputs, old.input_names, strict=True)
        }
        if isinstance(old, self._old.Sequential):
            layers = [*tensors.values(), *map(self._layer, old.layers)]
            return keras.Sequential(layers, name=old.name)

        def new_of(structure):
            return tf.nest.map_structure(
                lambda value: tensors.get(id(value), value), structure
            )

        for node in _in_order(old.outputs):
            if not node.is_input:
                call = new_of((node.call_args, node.call_kwargs))
                new = _call(self._layer(node.layer), *call)
                flat = map(tf.nest.flatten, (node.outputs, new))
                tensors |= {id(x): y for x, y in zip(*flat, strict=True)}
        return keras.Model(*new_of((old.input, old.output)), name=old.name)


def _in_order(outputs):
    """Layer calls that lead to the outputs, inputs first."""
    histories = [tensor._keras_history for tensor in outputs]
    left = [x.layer.inbound_nodes[x.node_index] for x in histories]
    nodes, parents = {}, {}
    while left:
        node = left.pop()
        if id(node) not in nodes:
            nodes[id(node)] = node
            parents[id(node)] = [id(each) for each in node.parent_nodes]
            left += node.parent_nodes
    order = graphlib.TopologicalSorter(parents).static_order()
    return [nodes[key] for key in order]


def _translate(value):
    """A config value in the form of Keras 3."""
    if isinstance(value, (list, tuple)):
        parts = [_translate(part) for part in value]
        return tuple(parts) if isinstance(value, tuple) else parts
    if isinstance(value, str) and value == "hard_sigmoid":
        raise ValueError(f"{value!r} differs between Keras 2 and Keras 3")
    if not isinstance(value, dict):
        return value
    kind = value.get("class_name")
    if kind in ("Policy", "NoOpActivation"):
        return value["config"]["name"] if kind == "Policy" else "linear"
    config = {
        key: _translate(part)
        for key, part in value.items()
        if key not in _LEFT_OUT
        and not (key in _DEFAULTS and _DEFAULTS[key] == part)
    }
    axis = config.get("axis")
    if isinstance(axis, list) and len(axis) == 1:
        config["axis"] = axis[0]
    return config


def _call(layer, args, kwargs):
    kwargs = {key: x for key, x in kwargs.items() if x is not None}
    recurrent = keras.layers.RNN, keras.layers.Bidirectional
    if isinstance(layer, recurrent) and isinstance(args[0], (list, tuple)):
        (inputs, *kwargs["initial_state"]), *args = args
        args = inputs, *args
    return layer(*args, **kwargs)


def _compare(model, plain, new):
    """Raises if outputs differ; warns of lost ranges."""
    is_half = any("16" in x.compute_dtype for x in layer_paths(new).values())
    kinds = {type(each).__name__ for each in model.submodules}
    is_quantized = any("Quantize" in kind for kind in kinds)
    changes = [0.0]
    for sample in made_up_inputs(new):
        sample = tf.nest.map_structure(tf.convert_to_tensor, sample)
        try:
            wanted = arrays_of(plain(sample, training=False))
        except Exception as error:
            _warn(f"Not compared with random inputs: {on_one_line(error)}")
            continue
        if is_half:
            wanted = [x.astype("float16") for x in wanted]
        pairs = zip(arrays_of(new(sample, training=False)), wanted, strict=True)
        # Integer dtypes may differ in Keras 3.
        if not all_same(wanted, [x.astype(y.dtype) for x, y in pairs]):
            raise ValueError(
                "The converted model must return the same as the original. A "
                "layer computes something else in Keras 3."
            )
        if is_quantized:
            before = arrays_of(model(sample, training=False))
            pairs = zip(before, wanted, strict=True)
            changes += [np.abs(x - y).max() for x, y in pairs]
    if is_quantized:
        _warn(
            "Layers trained for quantization become float layers with the same "
            "weights. Their learned ranges are lost, which changes outputs by "
            f"up to {max(changes):.2g}."
        )


def _warn(message):
    warnings.warn(message, stacklevel=4)
