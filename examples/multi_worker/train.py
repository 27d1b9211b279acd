"""Trains a classifier with a table of codes on several workers.

    python examples/multi_worker/launch.py --workers 2 \\
        examples/multi_worker/train.py --backup build/backup

Each worker runs this program, with its place in `TF_CONFIG`. Without
`TF_CONFIG`, there is one worker. The first worker saves a backup after each
epoch. If a worker dies, all resume from the backup.
"""

import argparse
import os

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc

WORDS, WIDTH, LENGTH = 5000, 32, 20


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backup", default="build/backup", help="folder")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--batch-size", type=int, default=250, help="in total")
    parser.add_argument(
        "--timeout", type=float, default=600, help="seconds to wait for others"
    )
    args = parser.parse_args(arguments)

    # First, so that TensorFlow knows the other workers.
    strategy = tf.distribute.get_strategy()
    if "TF_CONFIG" in os.environ:
        # TensorFlow would wait forever.
        kc.distribution.wait_for_workers(args.timeout)
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = build()
    # Generated words of two kinds of texts. On real hosts, read files here.
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=args.texts)
    kinds = rng.dirichlet(np.full(WORDS, 0.05), size=2).cumsum(axis=1)
    ids = [
        np.searchsorted(kinds[label], rng.random(LENGTH)) for label in labels
    ]
    ids = np.minimum(ids, WORDS - 1).astype("int32")
    data = tf.data.Dataset.from_tensor_slices((ids, labels))
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = policy
    backup = kc.distribution.WorkerBackup(args.backup)
    with kc.distribution.multi_worker_fit(strategy):
        history = model.fit(
            data.batch(args.batch_size).with_options(options),
            epochs=args.epochs,
            shuffle=False,
            callbacks=[backup],
            verbose=2,
        )
    return history


def build():
    model = keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int32"),
            kc.CodeEmbedding(WORDS, WIDTH, num_codebooks=8),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(2, activation="softmax"),
        ]
    )
    model.compile(
        "adam", "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model


if __name__ == "__main__":
    main()
