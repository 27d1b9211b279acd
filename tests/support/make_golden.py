"""Makes the golden files: small models that every later version must load.

    python tests/support/make_golden.py

Writes `tests/golden/NAME.keras`, a trained model around each layer named
below, and `tests/golden/NAME.npz`, what it held and answered when it was made.
Files that exist are left as they are: what an earlier version wrote is the
point of them. `--overwrite` makes all of them again. Make them with the lowest
Keras that the package runs on, so that all later ones load them.
"""

import argparse
import os
import pathlib
import zipfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import hosts
import keras
import layer_cases
import numpy as np

import keras_compembed as kc

# Codes in a layer that makes its tables itself.
HELD = "codes-held"
FOLDER = pathlib.Path(__file__).parents[1] / "golden"
NAMES = (
    "codes",
    "codes-softmax",
    "codes-follow",
    HELD,
    "codes-pooled",
    "reversible-untied",
    "anchors-lazy",
    "anchors-sparse",
    "anchors-fixed",
    "anchors-pooled",
    "classes-tree",
    "hierarchical",
    "adaptive",
)


def weight_name(number, weight):
    return f"weight {number} {weight.path}"


def describe(model, inputs, labels):
    """Arrays of what a model holds and answers, by name."""
    arrays = {
        weight_name(number, weight): weight.numpy()
        for number, weight in enumerate(model.weights)
    }
    arrays["outputs"] = model.predict_on_batch(inputs)
    arrays["loss"] = model.test_on_batch(inputs, labels)
    if hasattr(model.layers[-1], "top_k"):
        # Outputs of the model itself are the features.
        arrays.update(kc.top_k_model(model, k=3).predict_on_batch(inputs))
    return {name: np.asarray(array) for name, array in arrays.items()}


def train(name):
    """A trained model of a case, inputs and labels."""
    if name == HELD:
        return train_held()
    (case,) = (case for case in layer_cases.CASES if case.name == name)
    model, _ = case.build()
    case.train(model)
    return model, *case.task.examples(layer_cases.BATCH_SIZE)


def train_held():
    model = hosts.in_functional(hosts.Attributes(name="host"))
    model.compile("sgd", "mse")
    small = kc.compression.compress_model(
        model, num_codebooks=2, codebook_size=4, min_bytes=1000, seed=0
    )
    inputs = np.arange(4 * hosts.LENGTH).reshape(4, -1) % hosts.ROWS
    labels = np.ones((4, hosts.LENGTH, 2), "float32")
    small.fit(inputs, labels, verbose=0)
    return small, inputs, labels


def write(name, folder):
    """Trains the model of a case; writes it and what it answers."""
    # Names of layers are the same whatever was made before.
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    model, inputs, labels = train(name)
    path = folder / f"{name}.keras"
    model.save(path)
    deflate(path)
    # Rows that owe shrinkage have paid it in the file.
    arrays = describe(keras.saving.load_model(path), inputs, labels)
    np.savez_compressed(
        path.with_suffix(".npz"), inputs=inputs, labels=labels, **arrays
    )


def deflate(path):
    """Compresses a `.keras` file, which Keras stores as it is."""
    with zipfile.ZipFile(path) as archive:
        members = [
            (info.filename, archive.read(info)) for info in archive.infolist()
        ]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--overwrite", action="store_true")
    args = parser.parse_args(arguments)
    FOLDER.mkdir(exist_ok=True)
    for name in NAMES:
        if args.overwrite or not (FOLDER / f"{name}.keras").exists():
            write(name, FOLDER)
            print(f"tests/golden/{name}.keras")


if __name__ == "__main__":
    main()
