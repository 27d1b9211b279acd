"""Loads saved models, as a new process of a user does, and runs them.

    python tests/support/read_models.py FOLDER

For each `NAME.keras` and the inputs in `NAME.inputs` beside it, `NAME.outputs`
gets the names of its class and bases, how many layers have codes, and what it
gives; or the text of an error.
"""

import importlib.util
import pathlib
import pickle
import sys

import keras
import model_zoo  # noqa: F401

import keras_compembed as kc

for package in ("keras_hub", "keras_rs"):
    if importlib.util.find_spec(package):
        importlib.import_module(package)


def read(path):
    try:
        model = keras.saving.load_model(path)
        inputs = pickle.loads(path.with_suffix(".inputs").read_bytes())
        outputs = keras.tree.flatten(model(inputs, training=False))
        classes = [cls.__name__ for cls in type(model).__mro__]
        codes = sum(
            isinstance(layer, kc.CodeEmbedding)
            for layer in model._flatten_layers()
        )
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return classes, codes, [output.numpy() for output in outputs]


for path in sorted(pathlib.Path(sys.argv[1]).glob("*.keras")):
    path.with_suffix(".outputs").write_bytes(pickle.dumps(read(path)))
