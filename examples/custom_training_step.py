"""Trains compressed layers in a custom loop, on one or several devices.

Trains two text classifiers with a `CANESoftmax` over the classes. The first
has a `CodeEmbedding`, which learns codes in training, the second an
`ANTEmbedding`. Instead of `fit`, each step takes gradients with a
`tf.GradientTape` and applies them with the optimizer; with `--devices 2`, it
runs under `strategy.run`. By default, the texts are the docstrings of the
installed packages, and the class of a docstring is its module.

    python -m examples.custom_training_step
    python -m examples.custom_training_step --devices 2
    python -m examples.custom_training_step --fit     # the same with `fit`
"""

import argparse
import json
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from examples import labelled_texts
from examples.devices import mirrored_strategy

QUICK = {
    "data": "generated",
    "embedding_dim": 8,
    "num_codebooks": 4,
    "num_anchors": 8,
    "l1": 1e-4,
    "num_candidates": 5,
    "num_noises": 5,
    "learning_rate": 2e-2,
    "length": 12,
    "epochs": 6,
    "batch_size": 32,
}


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--data",
        default="docstrings",
        help="docstrings, imdb, 20newsgroups, generated, or a .csv or .tsv "
        "file with the columns label and text",
    )
    parser.add_argument(
        "--data-dir", help="folder that holds imdb or 20newsgroups already"
    )
    parser.add_argument("--output", default="build/own_step", help="folder")
    parser.add_argument(
        "--vocabulary-size", type=int, default=20_000, help="at most"
    )
    parser.add_argument("--embedding-dim", type=int, default=64)
    parser.add_argument("--num-codebooks", type=int, default=16)
    parser.add_argument("--num-anchors", type=int, default=40)
    parser.add_argument("--l1", type=float, default=1e-5)
    parser.add_argument("--num-candidates", type=int, default=20)
    parser.add_argument("--num-noises", type=int, default=20)
    parser.add_argument("--length", type=int, default=100, help="words read")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument(
        "--batch-size", type=int, default=64, help="over all devices"
    )
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument(
        "--devices",
        type=int,
        default=1,
        help="above 1: use MirroredStrategy on this number of GPUs, or of "
        "logical CPU devices without a GPU",
    )
    parser.add_argument(
        "--fit", action="store_true", help="train by `fit`, to compare"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--quick", action="store_true", help="seconds: tiny, generated texts"
    )
    args = parser.parse_args(argv)
    if args.quick:
        vars(args).update(QUICK)
    if args.devices < 1 or args.batch_size % args.devices:
        parser.error("--batch-size must be a multiple of --devices")
    return args


def make_strategy(devices):
    """The default strategy for one device, else a mirrored one."""
    if devices == 1:
        return tf.distribute.get_strategy()
    return mirrored_strategy(devices)


def load_texts(args):
    if args.data == "generated":
        pairs = labelled_texts.generated(1000, 20, num_words=10)
        return labelled_texts.split([pairs], args.seed)
    return labelled_texts.load(args.data, args.data_dir, args.seed)


def build_model(name, num_words, counts, args):
    shape = num_words, args.embedding_dim
    if name == "codes":
        embedding = kc.CodeEmbedding(
            *shape,
            num_codebooks=args.num_codebooks,
            codes="softmax",
            mask_zero=True,
            name="words",
        )
    else:
        embedding = kc.ANTEmbedding(
            *shape,
            num_anchors=args.num_anchors,
            l1=args.l1,
            mask_zero=True,
            name="words",
        )
    return keras.Sequential(
        [
            keras.Input((args.length,), dtype="int32", name="ids"),
            embedding,
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(args.embedding_dim, activation="tanh"),
            kc.CANESoftmax(
                len(counts),
                sampling=kc.Sampling(
                    num_candidates=args.num_candidates,
                    num_noises=args.num_noises,
                ),
                class_counts=counts,
                seed=args.seed,
            ),
        ]
    )


def make_step(model, loss, optimizer, strategy):
    """A function that trains on a batch and returns the loss."""
    devices = strategy.num_replicas_in_sync

    def step_of_device(ids, labels):
        with tf.GradientTape() as tape:
            # Pass features to the loss unchanged: the tensor is marked with
            # its layer of classes.
            features = model(ids, training=True)
            # Keras already divides its loss by the number of devices, but not
            # the losses of layers and regularizers.
            value = loss(labels, features) + sum(model.losses) / devices
        variables = model.trainable_variables
        # `apply` also makes the proximal step of an `ANTEmbedding`.
        optimizer.apply(tape.gradient(value, variables), variables)
        return value

    @tf.function
    def step(ids, labels):
        values = strategy.run(step_of_device, args=(ids, labels))
        return strategy.reduce("SUM", values, axis=None)

    return step


def train(model, data, args, strategy):
    """Trains for several epochs on shuffled full batches."""
    ids, labels = data
    loss = kc.CANELoss()
    with strategy.scope():
        optimizer = keras.optimizers.Adam(args.learning_rate)
        # A `tf.function` cannot make the optimizer's slots.
        optimizer.build(model.trainable_variables)
        if args.fit:
            model.compile(optimizer, loss, jit_compile=False)
    step = make_step(model, loss, optimizer, strategy)
    rng = np.random.default_rng(args.seed)
    size = len(ids) // args.batch_size * args.batch_size
    for epoch in range(args.epochs):
        order = rng.permutation(len(ids))[:size]
        if args.fit:
            history = model.fit(
                ids[order],
                labels[order],
                batch_size=args.batch_size,
                shuffle=False,
                verbose=0,
            )
            (value,) = history.history["loss"]
        else:
            batches = tf.data.Dataset.from_tensor_slices(
                (ids[order], labels[order])
            ).batch(args.batch_size)
            batches = strategy.experimental_distribute_dataset(batches)
            value = np.mean([step(*batch) for batch in batches])
        print(f"Epoch {epoch + 1}: loss {value:.4f}")


def accuracy(model, data, args):
    """Share of texts with the right class ranked first."""
    ids, labels = data
    predictor = kc.top_k_model(model, k=1)
    best = [
        predictor(ids[start : start + args.batch_size])["ids"][:, 0]
        for start in range(0, len(ids), args.batch_size)
    ]
    return float(np.mean(np.concatenate(best) == labels))


def main(argv=None):
    args = parse_arguments(argv)
    strategy = make_strategy(args.devices)
    output = pathlib.Path(args.output)
    output.mkdir(parents=True, exist_ok=True)

    print(f"Reading {args.data}")
    dataset = load_texts(args)
    words, dataset = dataset.as_ids(args.vocabulary_size, args.length)
    train_data, test_data = dataset.train, dataset.test
    counts = np.bincount(train_data[1], minlength=len(dataset.classes))
    print(
        f"{len(train_data[0])} training texts, {len(test_data[0])} test "
        f"texts, {len(counts)} classes, {len(words)} words"
    )
    rows = []
    for name in ("codes", "anchors"):
        keras.utils.set_random_seed(args.seed)
        print(f"Training with {name}")
        with strategy.scope():
            model = build_model(name, len(words), counts, args)
        train(model, train_data, args, strategy)
        with strategy.scope():
            # The copy has weights for inference only.
            model = kc.strip(model)
        # Without the optimizer, which has slots of the old weights.
        model = keras.Sequential([*model.inputs, *model.layers])
        model.save(output / f"{name}.keras")
        report = kc.size_report(model)
        print(report)
        rows.append(
            {
                "name": name,
                "word_bytes": report.embedding_bytes,
                "table_bytes": 4 * len(words) * args.embedding_dim,
                "accuracy": accuracy(model, test_data, args),
            }
        )
    (output / "results.json").write_text(json.dumps(rows, indent=2) + "\n")
    for row in rows:
        print(
            f"{row['name']:8} test accuracy "
            f"{100 * row['accuracy']:.2f} %, embedding {row['word_bytes']:,} "
            f"bytes (as a table {row['table_bytes']:,})"
        )
    print(f"\nModels and results: {output}")
    return rows


if __name__ == "__main__":
    main()
