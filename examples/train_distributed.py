"""Learns codes and fine-tunes a model on several devices, with plain `fit`.

Does both on one device, then under `tf.distribute.MirroredStrategy` on all
GPUs (or on logical CPU devices without a GPU), and compares the results. The
data is generated: a table of clustered vectors, and texts with ids from the
clusters of their class.

    python -m examples.train_distributed
    python -m examples.train_distributed --devices 4 --table vectors.npy
"""

import argparse
import contextlib
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from examples.devices import mirrored_strategy

TEXT_LENGTH = 32
CLUSTERS_A_CLASS = 5
QUICK = {
    "rows": 400,
    "width": 16,
    "num_codebooks": 4,
    "codebook_size": 8,
    "iterations": 20,
    "texts": 512,
    "classes": 4,
    "epochs": 1,
}


def positive(text):
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return int(text)


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--devices", type=positive, help="default: all GPUs, or 2 without a GPU"
    )
    parser.add_argument(
        "--table", help=".npy file of vectors, instead of generated ones"
    )
    parser.add_argument("--rows", type=positive, default=10_000)
    parser.add_argument("--width", type=positive, default=64)
    parser.add_argument("--num-codebooks", type=positive, default=16)
    parser.add_argument("--codebook-size", type=positive, default=16)
    parser.add_argument("--iterations", type=positive, default=3000)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--texts", type=positive, default=12_800)
    parser.add_argument("--classes", type=positive, default=20)
    parser.add_argument("--epochs", type=positive, default=3)
    parser.add_argument(
        "--batch-size", type=positive, default=128, help="over all devices"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--quick", action="store_true", help="a few seconds: tiny sizes"
    )
    arguments = parser.parse_args(argv)
    if arguments.quick:
        vars(arguments).update(QUICK)
    if arguments.texts < 2 * arguments.batch_size:
        parser.error("--texts must be at least twice --batch-size")
    return arguments


def make_strategy(devices, batch_size):
    """A strategy over GPUs, or over logical CPU devices."""
    gpus = len(tf.config.list_physical_devices("GPU"))
    devices = devices or gpus or 2
    if gpus and devices > gpus:
        raise SystemExit(f"--devices must be at most {gpus}, the GPUs here.")
    if batch_size % devices:
        raise SystemExit(
            f"--batch-size must be a multiple of --devices={devices}. "
            f"Received: {batch_size}."
        )
    return mirrored_strategy(devices)


def make_data(arguments):
    """A table, and `(texts, labels)` with ids that depend on the label."""
    rng = np.random.default_rng(arguments.seed)
    if arguments.table:
        table = np.load(arguments.table, mmap_mode="r")
        rows = len(table)
        clusters = rng.integers(arguments.classes * CLUSTERS_A_CLASS, size=rows)
    else:
        rows, width = arguments.rows, arguments.width
        centres = rng.normal(size=(arguments.classes * CLUSTERS_A_CLASS, width))
        clusters = rng.integers(len(centres), size=rows)
        noise = 0.5 * rng.normal(size=(rows, width))
        table = (centres[clusters] + noise).astype("float32")
    labels = rng.integers(arguments.classes, size=arguments.texts)
    texts = rng.integers(rows, size=(arguments.texts, TEXT_LENGTH))
    # A quarter of the ids of a text belong to its class.
    id_class = clusters // CLUSTERS_A_CLASS
    for label in range(arguments.classes):
        ids = np.flatnonzero(id_class == label)
        own = np.flatnonzero(labels == label)
        if ids.size:
            texts[own, ::4] = rng.choice(ids, size=texts[own, ::4].shape)
    return table, texts, labels


def learn_codes(table, scope, arguments):
    with scope:
        learner = kc.learners.GumbelCodeLearner(
            arguments.num_codebooks,
            arguments.codebook_size,
            training=kc.learners.Training(
                iterations=arguments.iterations,
                batch_size=arguments.batch_size,
                learning_rate=arguments.learning_rate,
                validation_interval=max(1, arguments.iterations // 5),
            ),
            seed=arguments.seed,
        )
    return learner.train(table)


def fine_tune(table, learner, texts, labels, scope, arguments):
    """Returns the trained model, its last loss and its test accuracy."""
    with scope:
        model = keras.Sequential(
            [
                keras.Input((TEXT_LENGTH,), dtype="int32"),
                kc.CodeEmbedding(
                    *table.shape,
                    num_codebooks=learner.num_codebooks,
                    codebook_size=learner.codebook_size,
                    codes=learner.codes,
                    codebooks=learner.codebooks,
                ),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(
                    arguments.classes,
                    kernel_initializer=keras.initializers.GlorotUniform(
                        arguments.seed
                    ),
                ),
            ]
        )
        model.compile(
            keras.optimizers.Adam(1e-2),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    batch_size = arguments.batch_size
    # Full batches, to give each device the same number of rows.
    train = len(texts) * 4 // 5 // batch_size * batch_size
    history = model.fit(
        texts[:train],
        labels[:train],
        batch_size=batch_size,
        epochs=arguments.epochs,
        shuffle=False,
    )
    _, accuracy = model.evaluate(
        texts[train:], labels[train:], batch_size=batch_size, verbose=0
    )
    return model, history.history["loss"][-1], accuracy


def largest_difference(one, other):
    return max(
        float(np.abs(a.astype("float64") - b).max())
        for a, b in zip(one.get_weights(), other.get_weights(), strict=True)
    )


def main(argv=None):
    arguments = parse_arguments(argv)
    strategy = make_strategy(arguments.devices, arguments.batch_size)
    table, texts, labels = make_data(arguments)
    devices = strategy.num_replicas_in_sync

    learners, models, rows = [], [], []
    for several in (False, True):
        name = f"{devices} devices" if several else "one device"

        def scope(several=several):
            return strategy.scope() if several else contextlib.nullcontext()

        print(f"\n{name}: learning codes")
        start = time.perf_counter()
        learners.append(learn_codes(table, scope(), arguments))
        seconds = time.perf_counter() - start
        print(f"\n{name}: fine-tuning")
        # From the same codes, to compare training only.
        model, loss, accuracy = fine_tune(
            table, learners[0], texts, labels, scope(), arguments
        )
        models.append(model)
        code_loss = min(learners[-1].history["val_loss"])
        rows.append((name, code_loss, seconds, loss, accuracy))

    print(
        f"\n{'':12}{'code loss':>12}{'seconds':>10}{'loss':>10}{'accuracy':>10}"
    )
    for name, code_loss, seconds, loss, accuracy in rows:
        print(
            f"{name:12}{code_loss:12.4f}{seconds:10.1f}"
            f"{loss:10.4f}{accuracy:10.4f}"
        )
    print(
        "largest difference of fine-tuned weights: "
        f"{largest_difference(*models):.1e}"
    )
    print("(Code losses differ: each device draws its own Gumbel noise.)")


if __name__ == "__main__":
    main()
