"""Counts the package's files and functions that the verbs on models walk.

    python -m tools.count_walk --list

The model is a small trained classifier: an Embedding, a mean, a Dense; that of
the class step ends in a `CANESoftmax`, and the step is its first, in a graph.
Imports do not count, and nothing runs before it is counted.
"""

import argparse
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import keras_compembed as kc

_PACKAGE = pathlib.Path(kc.__file__).parent


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the files")
    options = parser.parse_args(arguments)
    model = _make_classifier()
    method = kc.methods.Codes(8, 16)
    small, compressing = _walk(kc.compress_model, model, method)
    budget = kc.Budget(max_bytes=60_000)
    _, searching = _walk(kc.compress_model, model, budget)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.tflite")
        _, exporting = _walk(kc.export_litert, small, path)
    _, stripping = _walk(kc.strip, small)
    rows = np.zeros((10, 64), "float32")
    _, growing = _walk(kc.grow, small, {"embedding": rows})
    head = _make_head()
    labels = np.zeros(32, "int32")
    features = np.zeros((32, 16), "float32")
    _, stepping = _walk(head.train_on_batch, features, labels)
    walks = {
        "compress_model": compressing,
        "Budget": searching,
        "export_litert": exporting,
        "strip": stripping,
        "grow": growing,
        "class step": stepping,
    }
    print(f"{'':16}{'files':>8}{'functions':>12}")
    for name, functions in walks.items():
        files = sorted({path for path, *_ in functions})
        print(f"{name:16}{len(files):8}{len(functions):12}")
        if options.list:
            print(*(f"    {path}" for path in files), sep="\n")


def _make_classifier():
    model = keras.Sequential(
        [
            keras.Input((8,), dtype="int32"),
            keras.layers.Embedding(2000, 64, name="embedding"),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(2),
        ]
    )
    model.compile("adam", "mse")
    rng = np.random.default_rng(0)
    ids, labels = rng.integers(0, 2000, (64, 8)), rng.normal(size=(64, 2))
    model.fit(ids, labels, verbose=0)
    return model


def _make_head():
    """A model that ends in very many classes, before its first step."""
    model = keras.Sequential([keras.Input((16,)), kc.CANESoftmax(20_000)])
    model.compile("sgd", kc.CANELoss())
    return model


def _walk(function, *args, **kwargs):
    """What a function returns, and the functions of the package that ran."""
    walked = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_name[0] != "<":
            path = pathlib.Path(code.co_filename)
            if path.is_relative_to(_PACKAGE):
                name = path.relative_to(_PACKAGE).as_posix()
                walked.add((name, code.co_firstlineno, code.co_name))

    sys.setprofile(note)
    try:
        return function(*args, **kwargs), walked
    finally:
        sys.setprofile(None)


if __name__ == "__main__":
    main()
