"""Models that commands read: checked as files, then loaded."""

import importlib
import importlib.util
import inspect
import os
import re
import sys
import warnings
import zipfile

from keras_compembed.cli.lines import show
from keras_compembed.cli.lines import warn
from keras_compembed.utils.keras_2_file import read_keras_2_file
from keras_compembed.utils.saved_words import check_saved_words

KERAS_FILES = {"config.json", "metadata.json", "model.weights.h5"}
_PYTHON_API = (
    "use the Python API: compression.compress_model, export.export_litert, "
    "reports.size_report of keras_compembed."
)


def check_file(path):
    """Raises if there is no file at `path` that can be read."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"No such file: {path!r}.")
    if os.path.isdir(path):
        raise IsADirectoryError(
            f"The input must be a file. Received: the folder {path!r}."
        )
    with open(path, "rb"):
        pass


def check_model_file(path):
    """Raises if `path` is no whole `.keras` file, nor a `.h5` file of Keras."""
    check_file(path)
    problem = None
    if path.endswith(".h5"):
        if read_keras_2_file(path)[0]:
            return
        problem = "it holds weights alone, or something else"
    elif not path.endswith(".keras"):
        problem = "its name does not end so"
    elif not zipfile.is_zipfile(path):
        problem = "it is truncated, or something else"
    else:
        with zipfile.ZipFile(path) as file:
            missing = KERAS_FILES - set(file.namelist())
            if missing:
                problem = f"it has no {', '.join(sorted(missing))}"
            elif file.testzip():
                problem = f"{file.testzip()} in it is damaged"
    if problem:
        raise ValueError(
            f"{path!r} is not a `.keras` file, nor a `.h5` file of Keras 2: "
            f"{problem}."
        )


def check_suffix(path, suffix):
    """Raises if an output's name does not end as it must."""
    if not path.endswith(suffix):
        raise ValueError(
            f"The output must end in {suffix!r}. Received: {path!r}."
        )


def check_different(*paths):
    """Raises if two of the files that a command names are one."""
    for place, path in enumerate(paths):
        for other in paths[:place]:
            same = os.path.abspath(path) == os.path.abspath(other)
            if not same and os.path.exists(path) and os.path.exists(other):
                same = os.path.samefile(path, other)
            if same:
                raise ValueError(
                    "Each input and output must be a file of its own. "
                    f"Received: {other!r} and {path!r}."
                )


def check_imports(names):
    """Raises if a module of `--import` is not there."""
    if names and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in names:
        # Of a module in a package only the package: to look further would
        # import it.
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(
                "--import must name a module, as `import` does. "
                f"Received: --import {name}."
            )
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            raise ImportError(
                f"No module named {name!r} in the current folder or among "
                f"what is installed. Received: --import {name}."
            )


def read_lines(path, what):
    """The lines of a file of `what`, e.g. `"Words"`."""
    try:
        # Not `splitlines`, which takes characters in words for ends of
        # lines. Editors of Windows write a mark before the first.
        with open(path, encoding="utf-8-sig", newline="\n") as file:
            lines = file.read().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{what} must be in UTF-8. Received: {path!r} ({error})."
        ) from error
    return [line.removesuffix("\r") for line in lines]


def load_model(path, imports=(), compile=False):
    """Loads a model."""
    import keras

    objects = _objects_of(imports)
    show(f"loading {path}")
    if read_keras_2_file(path)[0].startswith("2."):
        from keras_compembed.compression.from_tf_keras import from_tf_keras

        with warnings.catch_warnings(), keras.saving.CustomObjectScope(objects):
            warnings.showwarning = warn
            return from_tf_keras(path)
    check_saved_words(path)
    try:
        with warnings.catch_warnings():
            # Of optimizer state, which nothing here needs.
            warnings.simplefilter("ignore")
            return keras.saving.load_model(
                path, custom_objects=objects, compile=compile
            )
    except Exception as error:
        # Whatever a foreign file makes Keras raise.
        raise ValueError(_explain(path, error)) from error


def _objects_of(imports):
    """Classes and functions of modules by name, as Keras looks for them."""
    objects = {}
    for name in imports:
        show(f"importing {name}")
        module = importlib.import_module(name)
        for key, value in vars(module).items():
            defined_in = str(getattr(value, "__module__", None))
            if not f"{defined_in}.".startswith(f"{name}."):
                continue
            if inspect.isclass(value) or (
                inspect.isfunction(value) and not _is_word_of_keras(key)
            ):
                objects[key] = value
    return objects


def _is_word_of_keras(name):
    """Whether files name a function of Keras's own so, e.g. `"relu"`."""
    import keras

    return any(
        hasattr(module, name)
        for module in (
            keras.activations,
            keras.constraints,
            keras.initializers,
            keras.losses,
            keras.metrics,
            keras.regularizers,
        )
    )


def _explain(path, error):
    reason = " ".join(str(error).split())
    unknown = re.search(r"Could not locate (\w+ '[^']+')", reason)
    if unknown:
        return (
            f"{path!r} has parts that only your code knows: {unknown[1]}. "
            "Name the module that defines them by --import MODULE, or import "
            f"them and {_PYTHON_API}"
        )
    if "safe_mode" in reason:
        return (
            f"{path!r} holds Python code (a Lambda layer), which is not "
            "run from a file. If you trust it, load it by "
            "keras.saving.load_model(..., safe_mode=False) and "
            f"{_PYTHON_API}"
        )
    return f"{path!r} cannot be loaded. Keras says: {reason[:300]}"
