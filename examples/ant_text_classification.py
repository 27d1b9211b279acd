"""Trains a text classifier with an `ANTEmbedding` and exports it.

Training makes the transform of the layer sparse. The example also trains a
baseline with a full table, writes LiteRT files and runs them on the test
texts. By default, the texts are the docstrings of the installed packages, and
the class of a docstring is its module.

    python -m examples.ant_text_classification
    python -m examples.ant_text_classification --data imdb --l1 3e-5
    python -m examples.ant_text_classification --devices 2
"""

import argparse
import contextlib
import json
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import keras_compembed as kc
from examples import labelled_texts
from examples.devices import mirrored_strategy
from keras_compembed.export.interpreter import LiteRTModel

QUICK = {
    "data": "generated",
    "embedding_dim": 8,
    "num_anchors": 8,
    "l1": 1e-3,
    "learning_rate": 2e-2,
    "length": 12,
    "epochs": 4,
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
    parser.add_argument("--output", default="build/ant", help="folder")
    parser.add_argument(
        "--vocabulary-size", type=int, default=50_000, help="at most"
    )
    parser.add_argument("--embedding-dim", type=int, default=128)
    parser.add_argument("--num-anchors", type=int, default=40)
    parser.add_argument(
        "--l1",
        type=float,
        default=3e-6,
        help="larger values give fewer non-zeros; the start value with "
        "--target-nonzeros",
    )
    parser.add_argument(
        "--target-nonzeros", type=int, help="target that adapts l1 in training"
    )
    parser.add_argument("--length", type=int, default=200, help="words read")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--classes", type=int, help="keep the most frequent")
    parser.add_argument(
        "--devices",
        type=int,
        default=1,
        help="above 1: use MirroredStrategy on this number of GPUs, or of "
        "logical CPU devices without a GPU",
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


def make_scope(devices):
    """The scope of a strategy; an empty context for one device."""
    if devices == 1:
        return contextlib.nullcontext()
    return mirrored_strategy(devices).scope()


def load_texts(args):
    if args.data == "generated":
        pairs = labelled_texts.generated(500, 4, num_words=50)
        return labelled_texts.split([pairs], args.seed)
    return labelled_texts.load(
        args.data, args.data_dir, args.seed, args.classes
    )


def build_model(embedding, args, num_classes):
    return keras.Sequential(
        [
            keras.Input((args.length,), dtype="int32", name="ids"),
            embedding,
            keras.layers.Dropout(0.2),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(num_classes, activation="softmax"),
        ]
    )


def train(model, dataset, args):
    steps = args.epochs * -(-len(dataset.train[0]) // args.batch_size)
    rate = keras.optimizers.schedules.CosineDecay(
        args.learning_rate, steps, alpha=0.02
    )
    model.compile(
        keras.optimizers.Adam(rate),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    model.fit(
        *dataset.train,
        validation_data=dataset.validation,
        batch_size=args.batch_size,
        epochs=args.epochs,
        verbose=2,
    )


def main(argv=None):
    args = parse_arguments(argv)
    scope = make_scope(args.devices)
    keras.utils.set_random_seed(args.seed)
    output = pathlib.Path(args.output)
    output.mkdir(parents=True, exist_ok=True)

    print(f"Reading {args.data}")
    dataset = load_texts(args)
    words, dataset = dataset.as_ids(args.vocabulary_size, args.length)
    ids, labels = dataset.test
    print(
        f"{len(dataset.train[0])} training texts, {len(ids)} test texts, "
        f"{len(dataset.classes)} classes, {len(words)} words"
    )
    shape = len(words), args.embedding_dim
    models = {}
    with scope:
        embeddings = {
            "table": keras.layers.Embedding(
                *shape, mask_zero=True, name="words"
            ),
            "anchors": kc.ANTEmbedding(
                *shape,
                num_anchors=args.num_anchors,
                l1=kc.anchors.L1(args.l1, target_nonzeros=args.target_nonzeros),
                mask_zero=True,
                name="words",
            ),
        }
        for name, embedding in embeddings.items():
            print(f"Training with {name}")
            models[name] = build_model(embedding, args, len(dataset.classes))
            train(models[name], dataset, args)
    # From now on, rows of T are sparse.
    models["anchors"] = kc.strip(models["anchors"])

    rows = []
    for name, trained in models.items():
        # Without the optimizer state, which is of the dense transform.
        model = keras.Sequential([*trained.inputs, *trained.layers])
        model.save(output / f"{name}.keras")
        path = output / f"{name}.tflite"
        export = kc.export_litert(
            model, path, quantize=None, overwrite=True, verbose=0
        )
        sizes = kc.size_report(model)
        size = sizes.embeddings[0]
        outputs = LiteRTModel(path).predict(ids)
        rows.append(
            {
                "name": name,
                "parameters": size.num_values or size.input_dim * shape[1],
                "nonzeros": size.num_nonzeros,
                "file_bytes": export.file_bytes,
                "keras_accuracy": accuracy(model.predict(ids), labels),
                "litert_accuracy": accuracy(outputs, labels),
            }
        )
    (output / "results.json").write_text(json.dumps(rows, indent=2) + "\n")
    (output / "vocabulary.txt").write_text("\n".join(words), encoding="utf-8")
    print(sizes)
    print(format_table(rows))
    print(f"\nModels and results: {output}")
    return rows


def accuracy(probabilities, labels):
    return float(np.mean(np.argmax(probabilities, axis=-1) == labels))


def format_table(rows):
    lines = [
        f"\n{'':10}{'parameters':>12}{'':>8}{'non-zeros':>11}{'file':>12}"
        f"{'':>8}{'accuracy':>10}{'LiteRT':>9}"
    ]
    first = rows[0]
    for row in rows:
        fewer = first["parameters"] / row["parameters"]
        smaller = first["file_bytes"] / row["file_bytes"]
        nonzeros = "" if row["nonzeros"] is None else f"{row['nonzeros']:,}"
        lines.append(
            f"{row['name']:10}{row['parameters']:12,}{fewer:7.1f}x"
            f"{nonzeros:>11}{row['file_bytes']:12,}{smaller:7.1f}x"
            f"{100 * row['keras_accuracy']:9.2f}%"
            f"{100 * row['litert_accuracy']:8.2f}%"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
