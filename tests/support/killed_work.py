"""Work that a test kills; run in processes of their own."""

import keras
import numpy as np

import keras_compembed as kc
from keras_compembed import cli

TABLES = {"first": (600, 16), "second": (900, 16)}


def train(folder, path, started):
    """Learns codes within a folder of checkpoints, and writes a NumPy file."""
    table = np.random.default_rng(0).normal(size=(12_000, 12))
    quantizer = kc.learners.AdditiveQuantizer(
        4, 16, effort=0.5, seed=0, verbose=0
    )
    with kc.checkpoint_folder(folder, interval=0):
        started.set()
        learner = quantizer.train(table.astype("float32"))
    np.savez(path, learner.codes, learner.codebooks)


def compress(folder, path, started):
    """The command, from `model.keras` beside a Keras file."""
    started.set()
    model = path.with_name("model.keras")
    command = "-m 4 -k 16 --min-bytes 1 --seed 0 --overwrite --checkpoint"
    arguments = ["compress", str(model), "-o", str(path), *command.split()]
    assert cli.main([*arguments, str(folder)]) == 0


def search(folder, path, started):
    """The best of a few bytes, tuned; writes a Keras file."""
    model = keras.saving.load_model(path.with_name("model.keras"))
    rng = np.random.default_rng(0)
    ids = [rng.integers(n, size=(64, 4)) for n, _ in TABLES.values()]
    data = tuple(ids), ids[0][:, 0] % 2
    budget = kc.compression.BudgetSearch(
        methods=[kc.methods.Rounded(2), kc.methods.Codes(4, 16)],
        train_data=data,
        validation_data=data,
        epochs=2,
        num_tuned=2,
    )
    with kc.checkpoint_folder(folder, interval=0):
        started.set()
        small = kc.compression.compress_model(
            model,
            max_bytes=24_000,
            min_bytes=1,
            search=budget,
            seed=0,
            verbose=0,
        )
    small.save(path)


def save_model(path):
    """A compiled model of two tables, which `compress` and `search` read."""
    keras.utils.set_random_seed(0)
    inputs = [keras.Input((4,), dtype="int32") for _ in TABLES]
    rows = [
        keras.layers.Embedding(*shape, name=name)(ids)
        for ids, (name, shape) in zip(inputs, TABLES.items(), strict=True)
    ]
    pooled = keras.layers.GlobalAveragePooling1D()(keras.layers.add(rows))
    outputs = keras.layers.Dense(2, activation="softmax")(pooled)
    model = keras.Model(inputs, outputs)
    model.compile("adam", "sparse_categorical_crossentropy")
    model.save(path)


def read(path):
    """The arrays of what was written."""
    if path.suffix == ".keras":
        return keras.saving.load_model(path).get_weights()
    with np.load(path) as file:
        return list(file.values())
