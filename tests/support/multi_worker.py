"""A worker of several: trains models, and keeps what came of them.

python multi_worker.py FOLDER PORT,PORT INDEX
"""

import json
import os
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc

ROWS, LENGTH, IDS, WIDTH, BATCH_SIZE = 96, 5, 60, 8, 16
COUNTS = 1 + 600 // np.arange(1, IDS + 1)


def texts():
    rng = np.random.default_rng(0)
    ids = rng.integers(IDS, size=(ROWS, LENGTH), dtype="int32")
    return ids, ids.sum(axis=1) % 2


def classes():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(ROWS, WIDTH)).astype("float32")
    labels = rng.choice(IDS, size=ROWS, p=COUNTS / COUNTS.sum())
    return x, labels.astype("int32")


def classifier(embedding, optimizer):
    model = keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int32"),
            embedding,
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(
                2,
                activation="softmax",
                kernel_initializer=keras.initializers.GlorotUniform(0),
            ),
        ]
    )
    model.compile(
        optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model


def plain():
    start = keras.initializers.RandomNormal(seed=0)
    layer = keras.layers.Embedding(IDS, WIDTH, embeddings_initializer=start)
    return classifier(layer, keras.optimizers.SGD(0.5))


def anchors():
    layer = kc.ANTEmbedding(IDS, WIDTH, num_anchors=6, l1=1e-4, seed=0)
    optimizer = kc.optimizers.SparseRowOptimizer(keras.optimizers.SGD(0.5))
    return classifier(layer, optimizer)


def softmax():
    head = kc.CANESoftmax(
        IDS,
        kc.candidates.FrequentClasses(COUNTS),
        num_candidates=6,
        num_noises=12,
        share_noises="labels",
        class_counts=COUNTS,
        kernel_initializer=keras.initializers.RandomNormal(seed=0),
        seed=0,
    )
    start = keras.initializers.GlorotUniform(0)
    model = keras.Sequential(
        [
            keras.Input((WIDTH,)),
            keras.layers.Dense(WIDTH, kernel_initializer=start),
            head,
        ]
    )
    model.compile(
        kc.optimizers.SparseRowOptimizer(keras.optimizers.Adam(0.02)),
        kc.CANELoss(),
        metrics=[kc.ClassAccuracy()],
        jit_compile=False,
    )
    return model


MODELS = {
    "plain": (plain, texts),
    "anchors": (anchors, texts),
    "softmax": (softmax, classes),
}


def train(name, strategy):
    """History, evaluation, predictions and weights of a model."""
    make, data = MODELS[name]
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = policy
    x, y = data()
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH_SIZE)
    dataset = dataset.with_options(options)
    with strategy.scope():
        model = make()
    with kc.distribution.multi_worker_fit(strategy):
        history = model.fit(dataset, epochs=2, shuffle=False, verbose=0).history
        evaluated = model.evaluate(dataset, verbose=0)
        predicted = model.predict(dataset, verbose=0)
    return {
        **{f"history {key}": value for key, value in history.items()},
        "evaluated": evaluated,
        "predicted": predicted,
        **{
            f"weight {number}": weight
            for number, weight in enumerate(model.get_weights())
        },
    }


def refused(strategy):
    """Messages of layers whose tables are bytes."""
    messages = []
    for make in (
        lambda: kc.CodeEmbedding(IDS, WIDTH, num_codebooks=4, codebook_size=8),
        lambda: kc.QuantizedEmbedding(IDS, WIDTH, bits=4),
    ):
        with strategy.scope():
            try:
                make().build((None,))
            except ValueError as error:
                messages.append(str(error))
    return messages


def main(folder, ports, index):
    workers = [f"localhost:{port}" for port in ports.split(",")]
    os.environ["TF_CONFIG"] = json.dumps(
        {
            "cluster": {"worker": workers},
            "task": {"type": "worker", "index": int(index)},
        }
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    path = pathlib.Path(folder, f"refused-{index}.json")
    path.write_text(json.dumps(refused(strategy)))
    for name in MODELS:
        path = pathlib.Path(folder, f"{name}-{index}.npz")
        np.savez(path, **train(name, strategy))


if __name__ == "__main__":
    main(*sys.argv[1:])
