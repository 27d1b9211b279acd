"""Files that commands read and write."""

import contextlib
import importlib
import inspect
import json
import os
import re
import sys
import warnings
import zipfile

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.compression.from_tf_keras import from_tf_keras
from keras_compembed.compression.from_tf_keras import read_keras_2_file
from keras_compembed.utils import files
from keras_compembed.utils.saving import check_saved_words

_NAMES_OF_KERAS = (
    *(keras.activations, keras.constraints, keras.initializers),
    *(keras.losses, keras.metrics, keras.regularizers),
)


def given(arguments, *names):
    """Dict of the arguments that were passed."""
    values = {name: getattr(arguments, name) for name in names}
    return {name: x for name, x in values.items() if x is not None}


def check_file(path):
    """Raises if there is no file at `path`."""
    if os.path.isdir(path):
        raise IsADirectoryError(
            f"The input must be a file. Received: the folder {path!r}."
        )
    if not os.path.exists(path):
        raise FileNotFoundError(f"No such file: {path!r}.")


def check_output(path, suffix, overwrite, *others):
    """Raises if an output cannot be written or equals one of `others`."""
    if not path.endswith(suffix):
        raise ValueError(
            f"The output must end in {suffix!r}. Received: {path!r}."
        )
    for other in others:
        if other and os.path.realpath(other) == os.path.realpath(path):
            raise ValueError(
                "Inputs and outputs must be different files. "
                f"Received: {other!r} and {path!r}."
            )
    files.check_output(path, overwrite)


def write_json(found, path, overwrite):
    """Writes a dict."""
    with files.replacing(path, overwrite) as temporary:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=2)


def read_lines(path, what):
    """The lines of a text file; `what` is its name in errors."""
    check_file(path)
    try:
        # Not `splitlines`, which also splits at characters within words.
        # Windows editors write a byte order mark first.
        with open(path, encoding="utf-8-sig", newline="\n") as file:
            lines = file.read().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{what} must be in UTF-8. Received: {path!r} ({error})."
        ) from error
    return [line.removesuffix("\r") for line in lines]


def read_data(path, *parts):
    """Dict of the parts in an `.npz` file: pairs of inputs and labels."""
    check_file(path)
    found = {}
    if zipfile.is_zipfile(path):
        with np.load(path, allow_pickle=False) as file:
            for part in parts:
                x, y = (_read(file, f"{name}_{part}") for name in "xy")
                if x is not None and y is not None:
                    found[part] = x, y
    if not found:
        raise ValueError(
            f"--data must be an .npz file with x_{parts[0]} and y_{parts[0]}. "
            f"Received: {path!r}."
        )
    return found


def _read(file, stem):
    """An array, a dict of arrays by name, or None."""
    if stem in file.files:
        return file[stem]
    names = [name for name in file.files if name.startswith(f"{stem}_")]
    return {x.removeprefix(f"{stem}_"): file[x] for x in names} or None


def read_signature(texts, model):
    """Specs of `NAME:SHAPE:DTYPE` texts, in the structure of the inputs."""
    specs = []
    for text in texts:
        found = re.fullmatch(r"([^:]+):([?0-9x]*):(\w+)", text)
        try:
            name, sizes, dtype = found.groups()
            shape = [None if x == "?" else int(x) for x in sizes.split("x")]
            specs.append(tf.TensorSpec(shape, dtype, name))
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(
                "--input must be NAME:SHAPE:DTYPE, such as ids:1x32:int32. "
                f"Received: {text!r}."
            ) from error
    return _as_inputs({spec.name: spec for spec in specs}, model)


def read_inputs(path, model):
    """Texts, or the arrays of an `.npz` file as a model takes them."""
    if path is None:
        return None
    if path.endswith(".txt"):
        return [x for x in read_lines(path, "--sample-inputs") if x.strip()]
    check_file(path)
    if not zipfile.is_zipfile(path):
        raise ValueError(
            "--sample-inputs must be a .txt file, or an .npz file with an "
            f"array for each input. Received: {path!r}."
        )
    with np.load(path, allow_pickle=False) as file:
        return _as_inputs(dict(file), model)


def some_inputs(signature):
    """Inputs of zeros; axes of unknown size get size 2."""
    return keras.tree.map_structure(
        lambda spec: np.zeros([x or 2 for x in spec.shape], spec.dtype.name),
        signature,
    )


def _as_inputs(named, model):
    """Named values in the structure that the model takes; None if empty."""
    if not named:
        return None
    inputs = getattr(model, "input", None)
    if inputs is None:
        return next(iter(named.values())) if len(named) == 1 else named
    if isinstance(inputs, dict):
        return named
    names = [x.name for x in model.inputs if x.name in named] or list(named)
    values = [named[name] for name in names]
    return values if len(values) > 1 else values[0]


def load_model(path, imports=()):
    """Loads a model, compiled if its loss and metrics are known."""
    check_file(path)
    objects = _objects_of(imports)
    if read_keras_2_file(path)[0].startswith("2."):
        with keras.saving.CustomObjectScope(objects):
            return from_tf_keras(path)
    if zipfile.is_zipfile(path):
        check_saved_words(path)
    with warnings.catch_warnings():
        # Keras warns about optimizer state, which is not needed here.
        warnings.simplefilter("ignore")
        load = keras.saving.load_model
        # Keras may raise anything for files of others.
        with contextlib.suppress(Exception):
            return load(path, custom_objects=objects)
        try:
            # Perhaps only a loss or a metric is unknown.
            return load(path, custom_objects=objects, compile=False)
        except Exception as error:
            reason = " ".join(str(error).split())
            unknown = re.search(r"Could not locate \w+ '[^']+'", reason)
            raise ValueError(
                f"{path!r} cannot be loaded. For custom classes and functions, "
                "pass their module with --import. Keras says: "
                f"{unknown[0] if unknown else reason[:300]}"
            ) from error


def _objects_of(imports):
    """Classes and functions of modules, by the names that Keras looks up."""
    if imports and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    objects = {}
    for module in imports:
        for name, value in vars(importlib.import_module(module)).items():
            if not str(getattr(value, "__module__", "")).startswith(module):
                continue
            # "relu" in a file means the one of Keras.
            is_taken = any(hasattr(x, name) for x in _NAMES_OF_KERAS)
            if inspect.isclass(value) or (callable(value) and not is_taken):
                objects[name] = value
    return objects
