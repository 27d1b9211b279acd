"""Makes the embedding of a text classifier 10 to 40 times smaller.

Trains a classifier, learns codes for its embedding table, replaces the layer
and fine-tunes. Then writes LiteRT files and runs them on the test set. The
baseline with the table is fine-tuned as long, for a fair comparison. By
default, the texts are the docstrings of the installed packages, and the class
of a docstring is its module.

    python -m examples.compress_text_classifier
    python -m examples.compress_text_classifier --seeds 5
    python -m examples.compress_text_classifier --data imdb --model lstm
    python -m examples.compress_text_classifier --data reviews.csv
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# TensorFlow splits sums by threads. With a fixed number of threads, results are
# the same on any number of cores.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "2")

import keras
import numpy as np

import keras_compembed as kc
from examples import labelled_texts
from examples.plots import plot_accuracy_against_size
from examples.plots import plot_code_balance
from keras_compembed.export.interpreter import LiteRTModel

CODE_SHAPES = ((64, 16), (32, 16))
# Encoders from word vectors to a text vector: CNN, the paper's LSTM, mean.
ENCODERS = {
    "cnn": lambda: [
        keras.layers.Dropout(0.3),
        keras.layers.Conv1D(96, 3, activation="relu"),
        keras.layers.GlobalMaxPooling1D(),
    ],
    "lstm": lambda: [keras.layers.LSTM(150)],
    "mean": lambda: [keras.layers.GlobalAveragePooling1D()],
}
SAMPLE = 100  # Test texts kept with a saved model.


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--data",
        default="docstrings",
        help="docstrings, imdb, 20newsgroups, or a .csv or .tsv file with "
        "the columns label and text",
    )
    parser.add_argument(
        "--data-dir", help="folder that holds imdb or 20newsgroups already"
    )
    parser.add_argument("--output", default="build/demo", help="folder")
    parser.add_argument("--model", default="cnn", choices=tuple(ENCODERS))
    parser.add_argument("--vocabulary-size", type=int, default=16_000)
    parser.add_argument("--embedding-dim", type=int, default=256)
    parser.add_argument("--length", type=int, default=128, help="words read")
    parser.add_argument("--epochs", type=int, default=12, help="at most")
    parser.add_argument("--fine-tune-epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seeds",
        type=int,
        default=1,
        help="number of trainings of each model, to show the mean; the data "
        "split depends on --seed only",
    )
    parser.add_argument("--classes", type=int, help="keep the most frequent")
    parser.add_argument(
        "--save",
        help="folder for the smallest model as a preset (see "
        "`kc.save_preset`), trained with the first seed",
    )
    args = parser.parse_args(argv)
    if args.seeds < 1:
        parser.error(f"--seeds must be positive. Received: {args.seeds}")
    return args


def build_model(args, vocabulary_size, num_classes):
    """The classifier: 256-wide embedding, then one of `ENCODERS`."""
    layers = keras.layers
    # First, because layers draw seeds when they are created.
    encoder = ENCODERS[args.model]()
    return keras.Sequential(
        [
            keras.Input((args.length,), dtype="int32", name="ids"),
            layers.Embedding(vocabulary_size, args.embedding_dim, name="words"),
            *encoder,
            layers.Dropout(0.5),
            layers.Dense(num_classes, activation="softmax"),
        ],
        name="classifier",
    )


def train(model, dataset, args, epochs, learning_rate):
    """Trains a model and keeps the weights of its best epoch."""
    model.compile(
        keras.optimizers.Adam(learning_rate),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    best = keras.callbacks.EarlyStopping(
        "val_accuracy", patience=2, restore_best_weights=True
    )
    model.fit(
        *dataset.train,
        validation_data=dataset.validation,
        batch_size=args.batch_size,
        epochs=epochs,
        callbacks=[best],
    )


def accuracy(probabilities, labels):
    return float(np.mean(np.argmax(probabilities, axis=-1) == labels))


def litert_accuracy(path, ids, labels):
    """Accuracy of a LiteRT file on the test set, with a progress bar."""
    model = LiteRTModel(path)
    progress = keras.utils.Progbar(len(ids), unit_name="text")
    outputs = []
    for start in range(0, len(ids), 32):
        outputs.append(model(ids[start : start + 32]))
        progress.update(min(start + 32, len(ids)))
    return accuracy(np.concatenate(outputs), labels)


def latency_ratios(paths, ids, seconds=1.0):
    """Median time of a text, relative to the first file, timed in turns."""
    models = [LiteRTModel(path) for path in paths]
    ratios = [1.0]
    for model in models[1:]:
        end, times = time.perf_counter() + seconds, []
        while len(times) < 10 or time.perf_counter() < end:
            row = len(times) % len(ids)
            clock = [time.perf_counter()]
            for each in (models[0], model):
                each(ids[row : row + 1])
                clock.append(time.perf_counter())
            times.append(np.diff(clock))
        of_first, taken = np.median(times[1:], axis=0)
        ratios.append(float(taken / of_first))
    return ratios


def embedding_bytes(model, quantize):
    """Bytes of the embedding in the file."""
    layer = model.get_layer("words")
    width = 1 if quantize == "int8" else 4
    if isinstance(layer, kc.CodeEmbedding):
        codewords = int(np.prod(layer.codebooks.shape))
        return int(np.prod(layer.packed_codes.shape)) + width * codewords
    return width * layer.input_dim * layer.output_dim


def train_models(dataset, args, vocabulary_size, seed):
    """Dict of models: the table, fine-tuned table, and fine-tuned codes."""
    keras.utils.set_random_seed(seed)
    print(f"Training the baseline, seed {seed}")
    baseline = build_model(args, vocabulary_size, len(dataset.classes))
    train(baseline, dataset, args, args.epochs, 1.5e-3)
    tuned = keras.models.clone_model(baseline)
    tuned.set_weights(baseline.get_weights())
    models = {"baseline": baseline, "baseline fine-tuned": tuned}
    for num_codebooks, codebook_size in CODE_SHAPES:
        name = f"codes {num_codebooks}x{codebook_size}"
        print(f"Compressing to {name}")
        models[name] = kc.compress_model(
            baseline,
            {"words": kc.methods.Codes(num_codebooks, codebook_size)},
            seed=seed,
            # Frequent words become more accurate.
            sample_inputs=dataset.train[0],
        )
    for name, model in models.items():
        if model is not baseline:
            print(f"Fine-tuning {name}")
            # The same order of examples for all models.
            keras.utils.set_random_seed(seed)
            train(model, dataset, args, args.fine_tune_epochs, 2e-4)
    return models


def export_models(models, folder, ids, labels):
    """Writes all models and their LiteRT files; returns rows and paths."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, paths = [], []
    for name, model in models.items():
        print(f"Exporting and testing {name}")
        model.save(folder / f"{name.replace(' ', '_')}.keras")
        keras_accuracy = accuracy(model.predict(ids), labels)
        for quantize in (None, "int8"):
            kind = quantize or "float32"
            path = folder / f"{name.replace(' ', '_')}_{kind}.tflite"
            export = kc.export_litert(
                model, path, quantize=quantize, overwrite=True
            )
            paths.append(path)
            rows.append(
                {
                    "name": f"{name} {kind}",
                    "embedding_bytes": embedding_bytes(model, quantize),
                    "file_bytes": export.file_bytes,
                    "keras_accuracy": keras_accuracy,
                    "litert_accuracy": litert_accuracy(path, ids, labels),
                }
            )
    return rows, paths


def summarize(rows_by_seed):
    """Rows of means, with the accuracy of each seed and LiteRT's range."""
    summary = []
    for rows in zip(*rows_by_seed, strict=True):
        row = dict(rows[0])
        for kind in ("keras_accuracy", "litert_accuracy"):
            values = [one[kind] for one in rows]
            row[kind] = statistics.mean(values)
            row[f"{kind}_by_seed"] = values
        row["accuracy_range"] = [min(values), max(values)]
        summary.append(row)
    return summary


def make_figures(rows_by_seed, dataset, digest, args):
    """Figures of the first seed's smallest model, and of all seeds."""
    table = "baseline fine-tuned float32"
    figures = {
        **rows_by_seed[0][-1],
        "seed": args.seed,
        "data": args.data,
        "texts": digest,
        "train_texts": len(dataset.train[0]),
        "test_texts": len(dataset.test[0]),
        "classes": len(dataset.classes),
        "seeds": len(rows_by_seed),
    }
    for kind, name in (("of_seeds", figures["name"]), ("table", table)):
        rows = [row for rows in rows_by_seed for row in rows]
        rows = [row for row in rows if row["name"] == name]
        values = [row["keras_accuracy"] for row in rows]
        figures[kind] = {
            "file_bytes": rows[0]["file_bytes"],
            "mean": statistics.mean(values),
            "deviation": statistics.stdev(values) if values[1:] else 0.0,
        }
    return figures


def make_card(args, command):
    """What `saved_models/` says of the model, with figures by name."""
    spread, note = "", ""
    if args.seeds > 1:
        spread = " ± {table[deviation]:.1%}"
        note = (
            "\n\nThe accuracy of the table is the mean and standard deviation "
            "of {seeds} trainings. With codes they are {of_seeds[mean]:.1%} ± "
            "{of_seeds[deviation]:.1%}. This model is the first of them."
        )
    results = (
        "Accuracy on {test_texts:,} held-out texts:\n\n"
        "| model | bytes of the file | accuracy |\n|---|---:|---:|\n"
        "| float32 table, in Keras | {table[file_bytes]:,} | "
        "{table[mean]:.1%}" + spread + " |\n"
        "| codes, in Keras | | {keras_accuracy:.1%} |\n"
        "| codes, in LiteRT | {file_bytes:,} | {litert_accuracy:.1%} |" + note
    )
    card = {
        "summary": "Predicts the class of a text, one of {classes}.",
        "license": "other",
        "command": command,
        "data": "A model with a float32 table was trained on "
        "{train_texts:,} texts of {data} (digest {texts}). Codes were learned "
        "for the table, and the model was fine-tuned.",
        "results": results,
        "limits": "Its errors have not been studied. The licence of its texts "
        "applies to the model.",
        "inputs": f"The ids of the first {args.length} words of a text, as "
        "given by `keras.layers.TextVectorization` with `vocabulary.txt`: "
        "lower case, no punctuation, zeros at the end.",
        "outputs": "The probability of each class in `labels.txt`.",
        "files": {
            "model.keras": "the Keras model, float32, with an embedding of "
            f"{CODE_SHAPES[-1][0]} x {CODE_SHAPES[-1][1]} codes",
            "model.tflite": "the LiteRT file, int8 weights",
            "labels.txt": "one class per line",
            "vocabulary.txt": "one word per line; the line is the id; the "
            "first two are the padding and the unknown word",
            "sample.json": f"{SAMPLE} test texts with labels, and the "
            "accuracy on them",
        },
        "task": "text-classification",
        "language": "en",
    }
    if args.data == "docstrings":
        card |= {
            "summary": "Predicts the module of a Python docstring, one of "
            "{classes} of the standard library, numpy, keras and tensorflow.",
            "license": "apache-2.0",
            "data": "A model with a float32 table was trained on "
            "{train_texts:,} docstrings of the installed packages (digest "
            "{texts}). Codes were learned for the table, and the model was "
            "fine-tuned.",
            "limits": "This is a demonstration: it has only these modules. "
            "Other versions of the packages have other docstrings, and other "
            "CPUs round differently, which changes the figures.",
            "attribution": "The docstrings in `sample.json` are copyright of "
            "their authors, under the licences of Python (PSF), numpy (BSD), "
            "and keras and tensorflow (Apache-2.0).",
        }
    return card


def save_smallest(args, card, model, figures, dataset, texts, vocabulary):
    """Writes the folder of `saved_models/`."""
    ids, labels = (part[:SAMPLE] for part in dataset.test)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.tflite"
        export = kc.export_litert(model, path, quantize="int8")
        sample = {
            "texts": texts[:SAMPLE],
            "labels": labels.tolist(),
            "keras_accuracy": accuracy(model.predict(ids), labels),
            "litert_accuracy": litert_accuracy(path, ids, labels),
        }
        return kc.save_preset(
            model,
            args.save,
            card,
            figures={**figures, "file_bytes": export.file_bytes},
            files={
                "model.tflite": path,
                "labels.txt": list(dataset.classes),
                "vocabulary.txt": list(vocabulary),
                "sample.json": sample,
            },
            overwrite=True,
        )


def format_accuracy(values):
    """Mean of the seeds, and their standard deviation if there are several."""
    text = f"{100 * statistics.mean(values):.2f}%"
    if len(values) > 1:
        text += f" +- {100 * statistics.stdev(values):.2f}"
    return text


def format_table(rows):
    lines = [
        f"{'':28}{'embedding':>12}{'':>8}{'file':>12}{'':>8}"
        f"{'accuracy':>16}{'accuracy':>16}{'latency':>9}",
        f"{'':28}{'bytes':>12}{'ratio':>8}{'bytes':>12}{'ratio':>8}"
        f"{'Keras':>16}{'LiteRT':>16}{'ratio':>9}",
    ]
    first = rows[0]
    for row in rows:
        smaller = first["embedding_bytes"] / row["embedding_bytes"]
        lines.append(
            f"{row['name']:28}{row['embedding_bytes']:12,}{smaller:7.1f}x"
            f"{row['file_bytes']:12,}"
            f"{first['file_bytes'] / row['file_bytes']:7.1f}x"
            f"{format_accuracy(row['keras_accuracy_by_seed']):>16}"
            f"{format_accuracy(row['litert_accuracy_by_seed']):>16}"
            f"{row['latency_ratio']:9.2f}"
        )
    seeds = len(first["keras_accuracy_by_seed"])
    if seeds > 1:
        lines.append(f"Mean and standard deviation of {seeds} seeds.")
    return "\n".join(lines)


def main(argv=None):
    args = parse_arguments(argv)
    output = pathlib.Path(args.output)
    output.mkdir(parents=True, exist_ok=True)
    if args.save:
        # Fail early if the folder cannot be created.
        pathlib.Path(args.save).mkdir(parents=True, exist_ok=True)
        command = "python -m examples.compress_text_classifier "
        command += shlex.join(sys.argv[1:] if argv is None else argv)
        card = make_card(args, command)

    print(f"Reading {args.data}")
    dataset = labelled_texts.load(
        args.data, args.data_dir, args.seed, args.classes
    )
    digest, texts = dataset.digest(), dataset.test[0]
    vocabulary, dataset = dataset.as_ids(args.vocabulary_size, args.length)
    ids, labels = dataset.test
    print(
        f"{len(dataset.train[0])} training texts, {len(ids)} test texts, "
        f"{len(dataset.classes)} classes, {len(vocabulary)} words "
        f"(digest {digest})"
    )

    rows_by_seed = []
    for seed in range(args.seed, args.seed + args.seeds):
        models = train_models(dataset, args, len(vocabulary), seed)
        first = seed == args.seed
        folder = output if first else output / f"seed_{seed}"
        rows, paths = export_models(models, folder, ids, labels)
        rows_by_seed.append(rows)
        if first:
            *_, smallest = models.values()
            first_paths = paths
    rows = summarize(rows_by_seed)
    print("Timing the files")
    ratios = latency_ratios(first_paths, ids)
    for row, ratio in zip(rows, ratios, strict=True):
        row["latency_ratio"] = ratio

    (output / "vocabulary.txt").write_text(
        "\n".join(vocabulary), encoding="utf-8"
    )
    (output / "results.json").write_text(json.dumps(rows, indent=2) + "\n")
    plot_accuracy_against_size(
        rows, output / "accuracy_against_size.png", overwrite=True
    )
    layer = smallest.get_layer("words")
    path = output / "code_balance.png"
    plot_code_balance(layer.codes, path, layer.codebook_size, overwrite=True)
    if args.save:
        figures = make_figures(rows_by_seed, dataset, digest, args)
        save_smallest(args, card, smallest, figures, dataset, texts, vocabulary)
    print(kc.size_report(smallest))
    print()
    print(format_table(rows))
    print(f"\nResults and pictures: {output}")
    return rows


if __name__ == "__main__":
    main()
