"""Makes the golden files: small files that every later version must read.

    python tests/support/make_golden.py

In `tests/golden`:

- `NAME.keras`, a trained model around each layer named below, and `NAME.npz`,
  what it held and answered when it was made.
- `vectors/NAME.npz`, compressed word vectors, and `NAME.json`, what they
  answered.
- `litert/NAME.tflite`, a file of the model `NAME.keras` beside it, and
  `NAME.npz`, inputs and what the file answered.

Files that exist are left as they are: what an earlier version wrote is the
point of them. `--overwrite` makes all of them again.
"""

import argparse
import os
import pathlib
import zipfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import golden_litert
import golden_vectors
import hosts
import keras
import layer_cases
import numpy as np

import keras_compembed as kc

# Codes in a layer that makes its tables itself.
HELD = "codes-held"
# Vectors of a tower of items, as inputs and as those of classes.
TOWER = "feature-embedding"
FOLDER = pathlib.Path(__file__).parents[1] / "golden"
# Losses in the place of that of the case.
LOSSES = {
    "classes-sampled": kc.SampledSoftmaxLoss,
    "classes-nce": kc.NCELoss,
    "classes-in-batch": kc.InBatchSoftmaxLoss,
}
NAMES = (
    "codes",
    "codes-concat",
    "codes-lstm",
    "codes-softmax",
    "codes-nearest",
    "codes-follow",
    HELD,
    "codes-pooled",
    "codes-pooled-follow",
    "reversible",
    "reversible-untied",
    "rounded-narrow",
    "rounded-learned",
    "rounded-pooled-learned",
    "rounded-reversible",
    "anchors-dense",
    "anchors-lazy",
    "anchors-sparse",
    "anchors-fixed",
    "anchors-trained-places",
    "anchors-pooled",
    "pruned",
    "vocabulary",
    "vocabulary-rounded",
    TOWER,
    "classes-tree",
    "classes-nearest",
    "classes-ngram",
    "classes-frequent",
    "classes-subsets",
    *LOSSES,
)


def input_name(number):
    return f"inputs {number}" if number else "inputs"


def weight_name(number):
    return f"weight {number}"


def describe(model, inputs, labels):
    """Arrays of what a model holds and answers to arrays, by name."""
    inputs = inputs[0] if len(inputs) == 1 else inputs
    arrays = {
        weight_name(number): weight.numpy()
        for number, weight in enumerate(model.weights)
    }
    arrays["outputs"] = model(inputs, training=False)
    # With what metrics measure.
    arrays["loss"] = model.test_on_batch(inputs, labels)
    if hasattr(model.layers[-1], "top_k"):
        # Outputs of the model itself are the features.
        arrays.update(kc.top_k_model(model, k=3).predict_on_batch(inputs))
    return {name: np.asarray(array) for name, array in arrays.items()}


def train(name):
    """A trained model of a case, inputs and labels."""
    if name == HELD:
        return train_held()
    if name == TOWER:
        return train_tower()
    wanted = "classes-frequent" if name in LOSSES else name
    (case,) = (case for case in layer_cases.CASES if case.name == wanted)
    model, _ = case.build()
    if name in LOSSES:
        model.compile("sgd", LOSSES[name]())
    case.train(model)
    return model, *case.task.examples(layer_cases.BATCH_SIZE)


def train_tower():
    rng = np.random.default_rng(0)
    rows, width = layer_cases.CLASSES, layer_cases.FEATURES
    text = keras.Input((3,), name="text")
    kind = keras.Input((), dtype="int32", name="kind")
    kinds = keras.layers.Embedding(5, 4)(kind)
    both = keras.layers.Concatenate()([text, kinds])
    tower = keras.Model(
        {"text": text, "kind": kind}, keras.layers.Dense(width, "tanh")(both)
    )
    features = {
        "text": rng.normal(size=(rows, 3)),
        "kind": rng.integers(5, size=rows),
    }
    items = kc.FeatureEmbedding(features, tower)
    head = kc.CANESoftmax(
        rows,
        kc.candidates.FrequentClasses(layer_cases.COUNTS),
        num_candidates=4,
        num_noises=5,
        class_embedding=items,
        seed=0,
    )
    ids = keras.Input((4,), dtype="int32")
    mean = keras.layers.GlobalAveragePooling1D()(items(ids))
    model = keras.Model(ids, head(mean))
    metrics = [kc.ClassAccuracy(k=2), kc.Coverage(), kc.Perplexity()]
    model.compile("adam", kc.CANELoss(), metrics=metrics)
    inputs = rng.integers(rows, size=(16, 4)).astype("int32")
    labels = inputs[:, 0]
    model.fit(inputs, labels, verbose=0)
    return model, inputs, labels


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
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    path = folder / f"{name}.keras"
    model.save(path)
    deflate(path)
    # Rows that owe shrinkage have paid it in the file.
    arrays = describe(keras.saving.load_model(path), inputs, labels)
    for number, array in enumerate(inputs):
        arrays[input_name(number)] = array
    np.savez_compressed(path.with_suffix(".npz"), labels=labels, **arrays)


def deflate(path):
    """Compresses a `.keras` file, which Keras stores as it is."""
    with zipfile.ZipFile(path) as archive:
        members = [
            (info.filename, archive.read(info)) for info in archive.infolist()
        ]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)


def write_litert(name, folder):
    keras.utils.clear_session()
    golden_litert.write(name, folder)
    deflate(folder / f"{name}.keras")


# What there is of each kind, how it is made, where, and how its name ends.
KINDS = (
    (NAMES, write, FOLDER, ".keras"),
    (golden_vectors.CASES, golden_vectors.write, FOLDER / "vectors", ".npz"),
    (golden_litert.CASES, write_litert, FOLDER / "litert", ".tflite"),
)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--overwrite", action="store_true")
    args = parser.parse_args(arguments)
    for names, make, folder, ending in KINDS:
        folder.mkdir(exist_ok=True)
        for name in names:
            path = folder / f"{name}{ending}"
            if args.overwrite or not path.exists():
                path.unlink(missing_ok=True)
                make(name, folder)
                print(path.relative_to(FOLDER.parents[1]))


if __name__ == "__main__":
    main()
