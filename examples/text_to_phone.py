"""Trains a text classifier and exports it as one small file for phones.

Trains a tokenizer and a classifier. Compresses its table to int2 rows and to
codes, and fine-tunes each version. The files include the tokenizer and labels;
MediaPipe's `TextClassifier` runs them on phones and in browsers. The result is
the better version within the size limit. The baseline has a float32 table and
is trained as long. By default, the texts are the docstrings of the installed
packages, and the label of a docstring is its module.

    python -m examples.text_to_phone
    python -m examples.text_to_phone --csv mails.csv \\
        --text-column subject --label-column folder
    python -m examples.text_to_phone --text "Sum of an array over an axis."
    python -m examples.text_to_phone --load build/text_to_phone/model.tflite
"""

import argparse
import json
import os
import pathlib
import shlex
import shutil
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# A fixed number of threads: TensorFlow splits sums by threads.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "2")

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from examples import labelled_texts

SHOWN = (
    "Returns the sum of array elements over a given axis.",
    "Open a socket and listen for connections.",
)
# Versions of the table, and `quantize` of their files.
VERSIONS = {
    "float32 table": None,
    "2-bit rows": "int8",
    "codes": "int8",
}
SAMPLE = 100  # Test texts kept with a saved model.
TIMED = 200  # Texts to time.
QUICK = {
    "generated": True,
    "vocabulary_size": 200,
    "width": 32,
    "num_codebooks": 8,
    "epochs": 4,
    "fine_tune_epochs": 2,
}
CARD = {
    "summary": "Predicts the module of a Python docstring, one of {classes}. "
    "Text in, label out: MediaPipe's TextClassifier opens the file as it is, "
    "on phones and in browsers.",
    "license": "apache-2.0",
    "task": "text-classification",
    "language": "en",
    "tags": ["mediapipe"],
    "data": "The model was trained on {training_texts:,} docstrings of "
    "Python, NumPy, Keras and TensorFlow, as installed. Its tokenizer is a "
    "SentencePiece vocabulary of {vocabulary_size:,} pieces learned from the "
    "same texts. The classifier averages the vectors of the pieces. Its table "
    "was compressed to {stored_as}, and the model was fine-tuned.",
    "results": "Accuracy on {test_texts:,} other docstrings:\n\n"
    "| model | bytes of the file | accuracy |\n|---|---:|---:|\n"
    "| float32 table, in MediaPipe | {table[file_bytes]:,} | "
    "{table[file_accuracy]:.1%} |\n"
    "| {stored_as}, in Keras | | {small[keras_accuracy]:.1%} |\n"
    "| {stored_as}, in MediaPipe | {small[file_bytes]:,} | "
    "{small[file_accuracy]:.1%} |\n\n"
    "Both models had equal training. The mean difference of {seeds} trainings "
    "is {mean_gap_points:+.2f} points. The small file takes {time_ratio:.2f} "
    "times as long for a text. Its tokenizer has {tokenizer_bytes:,} bytes.",
    "limits": "It has only these modules and returns one of them for any "
    "text. It is an example of size, not a tool.",
    "inputs": "One text, a string of any length.",
    "outputs": "The probability of each module, in the order of `labels.txt`. "
    "The file holds the labels as well.",
    "files": {
        "model.keras": "the Keras model with its tokenizer, float32 except "
        "for the compressed table",
        "model.tflite": "the LiteRT file for MediaPipe, int8 weights",
        "labels.txt": "one module per line",
        "sample.json": f"{SAMPLE} test texts with labels, and the outputs of "
        "the file",
    },
}


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--csv", help="a .csv or .tsv file with a header")
    parser.add_argument("--text-column", default="text", metavar="NAME")
    parser.add_argument("--label-column", default="label", metavar="NAME")
    parser.add_argument("--output", default="build/text_to_phone")
    parser.add_argument("--vocabulary-size", type=int, default=6000)
    parser.add_argument(
        "--max-bytes", type=int, default=500_000, help="size limit of the file"
    )
    parser.add_argument("--width", type=int, default=128, help="of vectors")
    parser.add_argument("--num-codebooks", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=20, help="at most")
    parser.add_argument("--fine-tune-epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seeds", type=int, default=1, help="number of trainings to average"
    )
    parser.add_argument(
        "--text",
        nargs="+",
        help="texts to classify at the end, or - for lines of standard input "
        "(default: ask in a terminal)",
    )
    parser.add_argument(
        "--load", metavar="FILE", help="only classify, with an existing file"
    )
    parser.add_argument("--save", help="folder for a preset")
    parser.add_argument(
        "--quick", action="store_true", help="seconds: made-up texts"
    )
    args = parser.parse_args(argv)
    args.generated = False
    if args.quick:
        vars(args).update(QUICK)
    if args.save and args.csv:
        parser.error(
            "--save writes a card for the docstrings; for other texts, call "
            "kc.save_preset with your own card"
        )
    if args.seeds < 1:
        parser.error(f"--seeds must be positive. Received: {args.seeds}")
    return args


def read_texts(args):
    """The `TextDataset` to train on."""
    if args.csv is None:
        pairs = (
            labelled_texts.generated(400, 4, 40)
            if args.generated
            else labelled_texts.docstrings()
        )
    else:
        pairs = labelled_texts.read_table(
            args.csv, args.label_column, args.text_column
        )
        whole = [pair for pair in pairs if all(map(str.strip, pair))]
        if len(whole) < len(pairs):
            print(f"{len(pairs) - len(whole)} rows without text or label")
        pairs = whole
    return labelled_texts.split([pairs], args.seed)


def train_models(dataset, args, seed):
    """Dict of the `VERSIONS` that pay, all trained as long."""
    table = train_table(dataset, args, seed)
    models = {"float32 table": table}
    for name, method in (
        ("2-bit rows", kc.methods.Quantized(2, learn_rows=True)),
        ("codes", kc.methods.Codes(args.num_codebooks, 16)),
    ):
        try:
            models[name] = kc.compress_model(
                table,
                {"pieces": method},
                seed=seed,
                # Frequent pieces become more accurate.
                sample_inputs=dataset.train[0],
            )
        except ValueError as error:
            # Codes pay in larger vocabularies.
            print(f"Skipped {name}. {error}")
    for name, model in models.items():
        print(f"Fine-tuning: {name}")
        fine_tune(model, dataset, args, seed)
    # Keep only the quantized rows.
    models["2-bit rows"] = kc.strip(models["2-bit rows"])
    return models


def train_table(dataset, args, seed):
    """A classifier: the mean of the pieces' vectors, and a softmax."""
    keras.utils.set_random_seed(seed)
    tokenizer = kc.text.SentencePieceTokenizer.train(
        # A fixed name, because files contain it.
        dataset.train[0],
        args.vocabulary_size,
        name="tokenizer",
    )
    model = keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            tokenizer,
            keras.layers.Embedding(
                tokenizer.vocabulary_size,
                args.width,
                mask_zero=True,
                name="pieces",
            ),
            keras.layers.GlobalAveragePooling1D(name="mean"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(len(dataset.classes), "softmax", name="classes"),
        ],
        name="text_classifier",
    )
    fit(model, dataset, 1e-2, args.epochs, patience=3)
    return model


def fine_tune(model, dataset, args, seed):
    # The same order of examples for all versions.
    keras.utils.set_random_seed(seed)
    fit(model, dataset, 1e-3, args.fine_tune_epochs, patience=2)


def fit(model, dataset, learning_rate, epochs, patience):
    """Trains a model and keeps the weights of its best epoch."""
    model.compile(
        keras.optimizers.Adam(learning_rate),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    texts, labels = dataset.train
    held, held_labels = dataset.validation
    model.fit(
        tf.constant(texts),
        labels,
        validation_data=(tf.constant(held), held_labels),
        batch_size=64,
        epochs=epochs,
        callbacks=[
            keras.callbacks.EarlyStopping(
                "val_loss", patience=patience, restore_best_weights=True
            )
        ],
        verbose=2,
    )


def measure(model, path, quantize, dataset):
    """Writes the file of a model; returns its size and accuracies.

    The choice among versions uses the validation texts.
    """
    about = {"name": "Text classifier"}
    export = kc.export_litert(
        model,
        path,
        quantize=quantize,
        labels=dataset.classes,
        target=kc.export.Target("mediapipe", metadata=about),
        overwrite=True,
        verbose=0,
    )
    texts, labels = dataset.test
    held, held_labels = dataset.validation
    in_keras = model.predict(tf.constant(texts), verbose=0)
    of_held = model.predict(tf.constant(held), verbose=0)
    with kc.export.MediaPipeModel(path) as phone:
        in_file = phone.predict(texts)
    return {
        "file_bytes": export.file_bytes,
        "held_accuracy": float(np.mean(of_held.argmax(-1) == held_labels)),
        "keras_accuracy": float(np.mean(in_keras.argmax(-1) == labels)),
        "file_accuracy": float(np.mean(in_file.argmax(-1) == labels)),
    }


def time_files(paths, texts):
    """Milliseconds per text of each file, run in turns."""
    phones = [kc.export.MediaPipeModel(path) for path in paths]
    taken = [[] for _ in paths]
    for text in texts:
        for phone, times in zip(phones, taken, strict=True):
            start = time.perf_counter()
            phone(text)
            times.append(time.perf_counter() - start)
    return [1000 * statistics.median(times) for times in taken]


def classify(phone, texts):
    """Prints the best labels of each text."""
    (labels,) = phone.labels.values()
    for text in texts:
        scores = phone(text)
        print(text)
        for place in np.argsort(-scores)[:3]:
            print(f"  {scores[place]:6.1%}  {labels[place]}")


def given_texts(args):
    """Yields the texts to classify."""
    if args.text is None and not sys.stdin.isatty():
        yield from SHOWN
        return
    for text in args.text or ["-"]:
        if text != "-":
            yield text
            continue
        if sys.stdin.isatty():
            print("Type a text (an empty line ends).")
        for line in sys.stdin:
            if not line.strip():
                return
            yield line.strip()


def save(folder, model, path, args, argv, figures, dataset):
    texts, labels = (part[:SAMPLE] for part in dataset.test)
    with kc.export.MediaPipeModel(path) as phone:
        answers = phone.predict(texts)
    sample = {
        "texts": texts,
        "labels": labels.tolist(),
        "answers": answers.argmax(-1).tolist(),
        "probabilities": np.round(answers.max(-1), 4).astype(float).tolist(),
    }
    command = "python -m examples.text_to_phone "
    command += shlex.join(sys.argv[1:] if argv is None else argv)
    kc.save_preset(
        model,
        folder,
        CARD | {"command": command},
        figures,
        files={
            "model.tflite": path,
            "labels.txt": dataset.classes,
            "sample.json": sample,
        },
        overwrite=True,
    )


def choose(row, max_bytes):
    """The name of the best version within the limit, or of the smallest."""
    small = [name for name in row if name != "float32 table"]
    fits = [name for name in small if row[name]["file_bytes"] <= max_bytes]
    if fits:
        return max(fits, key=lambda name: row[name]["held_accuracy"])
    print(f"No file is within {max_bytes:,} bytes.")
    return min(small, key=lambda name: row[name]["file_bytes"])


def summarize(by_seed, stored_as, dataset, args):
    """Figures of the files of the first seed, and of all seeds."""
    gaps = [
        row[stored_as]["file_accuracy"] - row["float32 table"]["file_accuracy"]
        for row in by_seed
    ]
    return {
        "stored_as": stored_as,
        "file_bytes": by_seed[0][stored_as]["file_bytes"],
        "small": by_seed[0][stored_as],
        "table": by_seed[0]["float32 table"],
        "seed": args.seed,
        "seeds": args.seeds,
        "mean_gap_points": 100 * statistics.mean(gaps),
        "by_seed": by_seed,
        "digest": dataset.digest(),
        "classes": len(dataset.classes),
        "training_texts": len(dataset.train[0]),
        "test_texts": len(dataset.test[0]),
    }


def show(figures):
    print(
        f"\n{'':16}{'file bytes':>12}{'in Keras':>10}{'in file':>10}"
        f"{'a text':>11}"
    )
    for name, row in figures["by_seed"][0].items():
        print(
            f"{name:16}{row['file_bytes']:12,}{row['keras_accuracy']:10.1%}"
            f"{row['file_accuracy']:10.1%}"
            f"{figures['milliseconds'][name]:8.2f} ms"
        )
    print(
        f"Tokenizer: {figures['vocabulary_size']:,} pieces, "
        f"{figures['tokenizer_bytes']:,} bytes of each file."
    )
    if figures["seeds"] > 1:
        print(
            f"Mean difference between {figures['stored_as']} and the table, "
            f"over {figures['seeds']} seeds: "
            f"{figures['mean_gap_points']:+.2f} points."
        )


def main(argv=None):
    args = parse_arguments(argv)
    if args.load:
        with kc.export.MediaPipeModel(args.load) as phone:
            classify(phone, given_texts(args))
        return None
    output = pathlib.Path(args.output)
    output.mkdir(parents=True, exist_ok=True)
    dataset = read_texts(args)
    print(
        f"{len(dataset.train[0])} training texts, {len(dataset.test[0])} test "
        f"texts, {len(dataset.classes)} labels (digest {dataset.digest()})"
    )
    by_seed = []
    for seed in range(args.seed, args.seed + args.seeds):
        models = train_models(dataset, args, seed)
        folder = output / f"seed_{seed}"
        folder.mkdir(exist_ok=True)
        paths = {
            name: folder / f"{name.replace(' ', '_')}.tflite" for name in models
        }
        by_seed.append(
            {
                name: measure(models[name], path, VERSIONS[name], dataset)
                for name, path in paths.items()
            }
        )
        if seed == args.seed:
            stored_as = choose(by_seed[0], args.max_bytes)
            small, files = models[stored_as], paths
    figures = summarize(by_seed, stored_as, dataset, args)
    times = time_files(files.values(), dataset.test[0][:TIMED])
    times = dict(zip(files, times, strict=True))
    tokenizer = small.layers[0]
    figures |= {
        "tokenizer_bytes": tokenizer.count_bytes(),
        "vocabulary_size": tokenizer.vocabulary_size,
        "milliseconds": times,
        "time_ratio": times[stored_as] / times["float32 table"],
    }
    (output / "results.json").write_text(json.dumps(figures, indent=2) + "\n")
    small.save(output / "model.keras")
    path = output / "model.tflite"
    shutil.copyfile(files[stored_as], path)
    if args.save:
        save(args.save, small, path, args, argv, figures, dataset)
    show(figures)
    print(f"Open it with MediaPipe's TextClassifier: {path}\n")
    with kc.export.MediaPipeModel(path) as phone:
        classify(phone, given_texts(args))
    return figures


if __name__ == "__main__":
    main()
