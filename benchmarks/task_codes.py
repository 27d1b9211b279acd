"""Do codes that learn from the task beat codes learned from a table?

Trains a text classifier with an embedding table, learns codes for the table
and fine-tunes the codebooks with the task: once with the codes fixed, once
with codes that follow the task (`recode_every`). Beside them, codes learned
end to end with the classifier, from no table, their codewords side by side,
in as many epochs as the table and the fine-tuning take together.

    python benchmarks/task_codes.py

Needs the folder `20newsgroups` of the data folder: `train.jsonl.xz` and
`test.jsonl.xz`, a text and a label a line. Results are kept in a JSON file as
they come, and what stands there is not run again.
"""
# ruff: noqa: E402

import argparse
import json
import lzma
import os
import pathlib
import statistics
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import keras_compembed as kc
from keras_compembed.utils.files import replacing

SHAPES = "4x16,8x16,16x16"
CLASSES = 20


def main(arguments=None):
    args = parse(arguments)
    rows = []
    if args.output.exists():
        rows = json.loads(args.output.read_text())
    texts = load_generated() if args.quick else load_texts(args.data)
    data = vectorize(*texts, args)
    for seed in range(args.seeds):
        done = {(r["method"], r["shape"]) for r in rows if r["seed"] == seed}
        wanted = [
            (method, shape)
            for shape in args.shapes.split(",")
            for method in METHODS
            if (method, shape) not in done
        ]
        if ("table", None) in done and not wanted:
            continue
        table_model = train(build(table(args), seed), data, args.epochs, args)
        if ("table", None) not in done:
            wanted = [("table", None), *wanted]
        for method, shape in wanted:
            model, size = table_model, None
            if shape is not None:
                sizes = tuple(int(size) for size in shape.split("x"))
                model = METHODS[method](table_model, sizes, data, seed, args)
                freeze(model)
                size = kc.reports.size_report(model).ratio
            accuracy = model.evaluate(*data[1], verbose=0)[1]
            rows.append(
                {
                    "method": method,
                    "shape": shape,
                    "seed": seed,
                    "accuracy": accuracy,
                    "times_smaller": size,
                }
            )
            print(rows[-1], flush=True)
            with replacing(args.output, overwrite=True) as path:
                text = json.dumps(rows, indent=1) + "\n"
                pathlib.Path(path).write_text(text)
    print_table(rows)
    return rows


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data",
        default=os.environ.get("COMPEMBED_DATA"),
        help="data folder; default: the environment variable COMPEMBED_DATA",
    )
    parser.add_argument("--shapes", default=SHAPES, help="MxK,MxK,...")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--fine-tune-epochs", type=int, default=4)
    parser.add_argument("--recode-every", type=int, default=50)
    parser.add_argument("--vocabulary-size", type=int, default=20_000)
    parser.add_argument("--embedding-dim", type=int, default=128)
    parser.add_argument("--length", type=int, default=200, help="words read")
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path(__file__).with_suffix(".json"),
    )
    parser.add_argument(
        "--quick", action="store_true", help="small, to see that it runs"
    )
    args = parser.parse_args(arguments)
    if args.quick:
        args.shapes, args.seeds, args.epochs = "2x8", 1, 1
        args.fine_tune_epochs, args.recode_every = 1, 2
        args.vocabulary_size, args.embedding_dim, args.length = 300, 16, 10
    return args


def load_texts(folder):
    if folder is None:
        sys.exit("Name the data folder: --data, or COMPEMBED_DATA.")
    parts = []
    for name in ("train", "test"):
        path = pathlib.Path(folder) / "20newsgroups" / f"{name}.jsonl.xz"
        with lzma.open(path, "rt", encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        parts.append(
            (
                [line["text"] for line in lines],
                [line["label"] for line in lines],
            )
        )
    return parts


def load_generated():
    """Texts whose words tell the class."""
    rng = np.random.default_rng(0)
    parts = []
    for size in (400, 100):
        labels = rng.integers(CLASSES, size=size)
        words = labels[:, None] * 10 + rng.integers(10, size=(size, 8))
        texts = [" ".join(f"w{word}" for word in row) for row in words]
        parts.append((texts, labels.tolist()))
    return parts


def vectorize(train_part, test_part, args):
    """`(ids, labels)` of training and test texts."""
    vectorizer = keras.layers.TextVectorization(
        max_tokens=args.vocabulary_size, output_sequence_length=args.length
    )
    vectorizer.adapt(np.array(train_part[0], dtype=object))
    classes = {label: i for i, label in enumerate(sorted(set(train_part[1])))}
    order = np.random.default_rng(0).permutation(len(train_part[0]))
    parts = []
    for texts, labels in (train_part, test_part):
        ids = vectorizer(np.array(texts, dtype=object)).numpy().astype("int32")
        parts.append((ids, np.array([classes[label] for label in labels])))
    parts[0] = tuple(values[order] for values in parts[0])
    return parts


def build(embedding, seed):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            embedding,
            keras.layers.Dropout(0.3),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def table(args):
    return keras.layers.Embedding(
        args.vocabulary_size, args.embedding_dim, mask_zero=True, name="words"
    )


def train(model, data, epochs, args, rate=2e-3, callbacks=()):
    steps = epochs * -(-len(data[0][0]) // 64)
    model.compile(
        keras.optimizers.Adam(
            keras.optimizers.schedules.CosineDecay(rate, steps)
        ),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    model.fit(
        *data[0],
        batch_size=64,
        epochs=epochs,
        verbose=0,
        callbacks=list(callbacks),
    )
    return model


def fine_tuned(table_model, shape, data, seed, args, recode_every=None):
    model = kc.compression.compress_model(
        table_model,
        *shape,
        min_bytes=0,
        recode_every=recode_every,
        seed=seed,
        verbose=0,
    )
    callbacks = [kc.compression.RecodeEmbeddings()] if recode_every else []
    return train(model, data, args.fine_tune_epochs, args, callbacks=callbacks)


def following(table_model, shape, data, seed, args):
    return fine_tuned(table_model, shape, data, seed, args, args.recode_every)


def end_to_end(table_model, shape, data, seed, args):
    layer = kc.CodeEmbedding(
        args.vocabulary_size,
        args.embedding_dim,
        *shape,
        composition="concat",
        learn_codes="softmax",
        mask_zero=True,
        name="words",
    )
    epochs = args.epochs + args.fine_tune_epochs
    return train(build(layer, seed), data, epochs, args)


METHODS = {
    "fixed": fine_tuned,
    "following": following,
    "end to end": end_to_end,
}


def freeze(model):
    layer = model.get_layer("words")
    if layer.learn_codes is not None:
        layer.freeze_codes()


def print_table(rows):
    groups = {}
    for row in rows:
        key = (row["shape"], row["method"])
        groups.setdefault(key, []).append(row)
    print("| codes | times smaller | method | accuracy | seeds |")
    print("|---|---|---|---|---|")
    for (shape, method), group in groups.items():
        accuracies = [100 * row["accuracy"] for row in group]
        spread = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
        size = group[0]["times_smaller"]
        print(
            f"| {shape or '-'} | {f'{size:.0f}' if size else '1'} | {method} "
            f"| {statistics.mean(accuracies):.1f} +- {spread:.1f} "
            f"| {len(group)} |"
        )


if __name__ == "__main__":
    main()
