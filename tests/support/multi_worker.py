"""A worker of several: trains models, and keeps what came of them.

python multi_worker.py FOLDER PORT,PORT INDEX NAME,NAME
"""

import functools
import json
import os
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.learners.task_codes import FollowingCodes

ROWS, LENGTH, IDS, WIDTH, BATCH_SIZE, EPOCHS = 80, 5, 60, 8, 16, 2
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


def adam():
    return kc.optimizers.SparseRowOptimizer(keras.optimizers.Adam(0.02))


def sgd():
    return kc.optimizers.SparseRowOptimizer(keras.optimizers.SGD(0.5))


def classifier(embeddings, optimizer):
    inputs = keras.Input((LENGTH,), dtype="int32")
    pool = keras.layers.GlobalAveragePooling1D()
    vectors = [embedding(inputs) for embedding in embeddings]
    pooled = sum(pool(each) for each in vectors)
    outputs = keras.layers.Dense(2, activation="softmax")(pooled)
    model = keras.Model(inputs, outputs)
    model.compile(
        optimizer,
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=False,
    )
    return model


def codes():
    make = functools.partial(
        kc.CodeEmbedding, IDS, WIDTH, num_codebooks=4, codebook_size=8
    )
    follow = FollowingCodes(recode_every=3)
    # Codes without a seed, and rounded rows, are other ones on each worker
    # until one sends its own to the others.
    layers = [
        make(),
        make(codes="nearest"),
        make(codes="softmax"),
        make(codes=follow),
        kc.QuantizedEmbedding(IDS, WIDTH, bits=4, rank=4),
        kc.QuantizedEmbedding(IDS, WIDTH, bits=8, learn_rows=True),
    ]
    return classifier(layers, sgd())


def anchors():
    layers = [
        kc.ANTEmbedding(IDS, WIDTH, num_anchors=6, l1=1e-3, transform=storage)
        for storage in ("dense", "lazy", "sparse")
    ]
    return classifier(layers, adam())


def frequent():
    return kc.classes.FrequentClasses(COUNTS)


def tree():
    random = kc.classes.ClassTree.random(IDS, 4, seed=0)
    return kc.classes.BeamTree(random, max_frontier=4)


def class_anchors():
    return kc.ANTEmbedding(IDS, WIDTH, num_anchors=9, transform="lazy")


def items():
    features = np.random.default_rng(3).normal(size=(IDS, 5))
    # A bias would move the logits of all classes alike: no gradient, of which
    # Adam makes steps.
    encoder = keras.layers.Dense(WIDTH, use_bias=False)
    return kc.FeatureEmbedding(features, encoder)


HEADS = {
    "items": (frequent, {"class_embedding": items}),
    "labels": (
        frequent,
        {"shared": "labels", "num_noises": 12, "groups": 3},
    ),
    "tree": (
        tree,
        {
            "class_embedding": class_anchors,
            "noise": lambda: kc.classes.LearnedNoise(refresh_every=3),
        },
    ),
    "subsets": (
        lambda: kc.classes.FrequencySubsets(COUNTS, num_subsets=4, seed=0),
        {
            "estimate": "separate",
            "noise": lambda: kc.classes.UnigramNoise(COUNTS),
        },
    ),
}


def head(name):
    selector, settings = HEADS[name]
    settings = {
        key: value() if callable(value) else value
        for key, value in settings.items()
    }
    embedding = settings.pop("class_embedding", None)
    settings = {"num_candidates": 6, "num_noises": 4, **settings}
    return kc.CANESoftmax(
        IDS,
        COUNTS,
        kc.Sampling(selector(), **settings),
        class_embedding=embedding,
        seed=0,
        name=name,
    )


def softmax(name):
    model = keras.Sequential(
        [keras.Input((WIDTH,)), keras.layers.Dense(WIDTH), head(name)]
    )
    model.compile(
        adam(), kc.CANELoss(), metrics=[kc.ClassAccuracy()], jit_compile=False
    )
    return model


MODELS = {
    "codes": (codes, texts),
    "anchors": (anchors, texts),
    "labels": (functools.partial(softmax, "labels"), classes),
    "tree": (functools.partial(softmax, "tree"), classes),
}
# From 0, two codewords of "codes" come as near to a row as float32 can tell,
# and gradients of a row of "anchors" nearly cancel each other out.
SEEDS = {"anchors": 1, "codes": 4}


def train(name, strategy):
    """What a model or a learner does and has after training, by name."""
    keras.utils.set_random_seed(SEEDS.get(name, 0))
    with kc.distribution.multi_worker_fit(strategy):
        if name == "learner":
            model, results = learn(strategy)
        else:
            model, results = fit(name, strategy)
    return {**results, **weights_of(model)}


def weights_of(model):
    return {
        f"weight {number}, {variable.name}": variable.numpy()
        for number, variable in enumerate(model.variables)
    }


def fit(name, strategy):
    make, data = MODELS[name]
    dataset = batches(data)
    with strategy.scope():
        model = make()
    recode = [kc.compression.RecodeEmbeddings()]
    history = model.fit(
        dataset,
        epochs=EPOCHS,
        shuffle=False,
        verbose=0,
        callbacks=recode if make is codes else [],
    ).history
    results = {f"history {key}": values for key, values in history.items()}
    results["evaluated"] = model.evaluate(dataset, verbose=0)
    # Layers of classes return features.
    if data is texts:
        results["predicted"] = model.predict(dataset, verbose=0)
    return model, results


def batches(data):
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = policy
    dataset = tf.data.Dataset.from_tensor_slices(data()).batch(BATCH_SIZE)
    return dataset.with_options(options)


def learn(strategy):
    table = np.random.default_rng(2).normal(size=(100, 6))
    with strategy.scope():
        learner = kc.learners.GumbelCodeLearner(
            num_codebooks=3,
            codebook_size=4,
            training=kc.learners.Training(8, BATCH_SIZE, 1e-2, 4, 100),
            seed=0,
            verbose=0,
        )
    learner.train(table)
    history = learner.history.items()
    return learner, {
        **{f"history {key}": values for key, values in history},
        "codes": learner.codes,
    }


def loop(name, strategy):
    """Losses and weights of a loop that does what `fit` does.

    And how many numbers of gradients workers add up in a step: all of them of
    dense gradients, none of tables of which a step reads some rows.
    """
    keras.utils.set_random_seed(SEEDS.get(name, 0))
    make, data = MODELS[name]
    with strategy.scope():
        model = make()
        model.optimizer.build(model.trainable_variables)

    def step(x, y):
        with tf.GradientTape() as tape:
            # This worker's part of the mean of all.
            loss = model.compute_loss(x, y, model(x, training=True))
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        model.optimizer.apply(gradients, variables)
        return loss

    @tf.function
    def step_of_all(batch):
        losses = strategy.run(step, args=batch)
        return strategy.reduce("SUM", losses, axis=None)

    distributed = strategy.experimental_distribute_dataset(batches(data))
    losses = [
        np.mean([step_of_all(batch) for batch in distributed])
        for _ in range(EPOCHS)
    ]
    graph = step_of_all.get_concrete_function(next(iter(distributed))).graph
    sizes = [
        operation.inputs[0].shape.num_elements() or 0
        for operation in graph.get_operations()
        if operation.type == "CollectiveReduceV2"
    ]
    # One number is the loss.
    added = sum(size for size in sizes if size > 1)
    return {"losses": losses, "added": added, **weights_of(model)}


def messages(strategy):
    """Of what cannot be right on several workers."""
    x, y = texts()
    # As many rows again on the second worker.
    more = 1 + strategy.cluster_resolver.task_id
    uneven = tf.data.Dataset.from_tensor_slices((x, y)).repeat(more).batch(8)
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_distribute.auto_shard_policy = policy
    uneven = uneven.with_options(options)
    layer = class_anchors()
    layer.build((None,))
    with strategy.scope():
        part_outside = classifier([layer], sgd())
        inside = classifier([keras.layers.Embedding(IDS, WIDTH)], "sgd")
    outside = classifier([keras.layers.Embedding(IDS, WIDTH)], "sgd")
    found = {}
    for name, call, data in (
        ("model outside", outside.fit, batches(texts)),
        ("layer outside", part_outside.fit, batches(texts)),
        ("uneven", inside.fit, uneven),
    ):
        try:
            with kc.distribution.multi_worker_fit(strategy):
                call(data, verbose=0)
        except ValueError as error:
            found[name] = str(error)
    return found


def main(folder, ports, index, names):
    workers = [f"localhost:{port}" for port in ports.split(",")]
    os.environ["TF_CONFIG"] = json.dumps(
        {
            "cluster": {"worker": workers},
            "task": {"type": "worker", "index": int(index)},
        }
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def path(name, kind):
        return pathlib.Path(folder, f"{name}-{index}.{kind}")

    for name in names.split(","):
        if name == "messages":
            path(name, "json").write_text(json.dumps(messages(strategy)))
        elif name.startswith("loop "):
            np.savez(path(name, "npz"), **loop(name[len("loop ") :], strategy))
        else:
            np.savez(path(name, "npz"), **train(name, strategy))


if __name__ == "__main__":
    main(*sys.argv[1:])
