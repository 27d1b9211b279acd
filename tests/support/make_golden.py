"""Makes golden files: small files that every later version must read.

In `tests/golden`:

- `NAME.keras`, a trained model around the layer `NAME` of `layer_cases.py`,
  and `NAME.npz`, what it held and answered when it was made: by `write`.
- `vectors/NAME.npz`, compressed word vectors, and `NAME.json`, what they
  answered: by `write_vectors`.
- `litert/NAME.tflite`, a file of the model `NAME.keras` beside it, and
  `NAME.npz`, inputs and what the file answered: by `write_litert`.

Files that exist are left as they are: what an earlier version wrote is the
point of them.
"""

import json
import os
import pathlib
import zipfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import export_models
import keras
import layer_cases
import numpy as np

import keras_compembed as kc

FOLDER = pathlib.Path(__file__).parents[1] / "golden"
# Those that are not among the words have vectors of their n-grams.
UNKNOWN = ["word999", "wordless"]
QUERIES = ["the", "été", "word26"]


def input_name(number):
    return f"inputs {number}" if number else "inputs"


def weights_of(model):
    """Weights without mean rows of zeros, which earlier files lack."""
    return [
        weight
        for weight in model.weights
        if weight.name != "mean_row" or weight.numpy().any()
    ]


def weight_name(number):
    return f"weight {number}"


def describe(model, inputs, labels):
    """Arrays of what a model holds and answers to arrays, by name."""
    inputs = inputs[0] if len(inputs) == 1 else inputs
    arrays = {
        weight_name(number): weight.numpy()
        for number, weight in enumerate(weights_of(model))
    }
    arrays["outputs"] = model(inputs, training=False)
    # With what metrics measure.
    arrays["loss"] = model.test_on_batch(inputs, labels)
    if hasattr(model.layers[-1], "top_k"):
        # Outputs of the model itself are the features.
        arrays.update(kc.top_k_model(model, k=3).predict_on_batch(inputs))
    return {name: np.asarray(array) for name, array in arrays.items()}


def describe_vectors(small):
    """What vectors answer, as JSON holds it."""
    unknown = [word for word in UNKNOWN if word in small]
    letters = small.subwords()
    return {
        "words": small.words,
        "method": small.method,
        "table": small.table().tolist(),
        "vectors": small[[*small.words[:3], *unknown]].tolist(),
        "unknown": unknown,
        "letters": None if letters is None else letters.vectors.tolist(),
        "most_similar": [small.most_similar(q, topn=3) for q in QUERIES],
        "analogy": small.most_similar(["the", "word9"], ["word20"], topn=3),
    }


def run_litert(path, inputs):
    """What a file answers, by name."""
    outputs = kc.export.LiteRTModel(path)(inputs)
    return outputs if isinstance(outputs, dict) else {"outputs": outputs}


def new(path):
    """The path, where nothing may be yet."""
    if path.exists():
        raise FileExistsError(path)
    return path


def save(model, path):
    """Writes a compressed `.keras` file, which Keras stores as it is."""
    model.save(new(path))
    with zipfile.ZipFile(path) as archive:
        members = [
            (info.filename, archive.read(info)) for info in archive.infolist()
        ]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)


def write(name):
    """Trains the model of a layer; writes it and what it answers."""
    keras.utils.set_random_seed(0)
    (case,) = (case for case in layer_cases.CASES if case.name == name)
    model, _ = case.build()
    case.train(model)
    inputs, labels = case.task.examples(layer_cases.BATCH_SIZE)
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    path = FOLDER / f"{name}.keras"
    save(model, path)
    # Rows that owe shrinkage have paid it in the file.
    arrays = describe(keras.saving.load_model(path), inputs, labels)
    for number, array in enumerate(inputs):
        arrays[input_name(number)] = array
    np.savez_compressed(path.with_suffix(".npz"), labels=labels, **arrays)


def write_vectors(name, small):
    """Writes `CompressedVectors`, with words of `QUERIES`."""
    path = new(FOLDER / "vectors" / f"{name}.npz")
    small.save(path)
    answers = describe_vectors(kc.vectors.CompressedVectors.load(path))
    text = json.dumps(answers) + "\n"
    path.with_suffix(".json").write_text(text, "utf-8")


def write_litert(name, model, inputs, **options):
    """Writes a model and its file, with options of `export_litert`."""
    path = FOLDER / "litert" / f"{name}.tflite"
    save(model, path.with_suffix(".keras"))
    export_models.write(model, path, **options)
    np.savez_compressed(
        path.with_suffix(".npz"),
        inputs=inputs,
        options=json.dumps(options),
        **run_litert(path, inputs),
    )
