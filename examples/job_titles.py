"""Classifies job titles into occupations, in a file for phones.

Trains a classifier with a `CANESoftmax` over the 1,016 occupations of O*NET; a
training step scores 20 of them. Then chooses the beam width, writes a LiteRT
file that includes the beam search, and runs it on the test titles.

    python -m examples.job_titles --data folder
    python -m examples.job_titles --data folder --quantize int8
    python -m examples.job_titles --data folder --devices 2
    python -m examples.job_titles --data folder --titles "truck driver,chef"

The folder must have `Occupation Data.txt` and `Alternate Titles.txt` of the
O*NET database as text (https://www.onetcenter.org/database.html). They may be
in a subfolder `onet_titles`, have `_` for blanks, or be compressed by xz.
"""

import argparse
import contextlib
import csv
import itertools
import json
import lzma
import os
import pathlib
import re
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import keras_compembed as kc
from examples.devices import mirrored_strategy

# Occupations to return for a title.
TOP = 5
SHOWN = (
    "truck driver,python developer,head chef,night nurse,primary school "
    "teacher,forklift operator"
)
QUICK = {
    "generated": True,
    "buckets": 2048,
    "length": 32,
    "width": 32,
    "epochs": 4,
    "batch_size": 64,
    "max_frontier": 16,
    "titles": "junior red baker,blue tailor for hire",
}


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data",
        default=os.environ.get("COMPEMBED_DATA"),
        help="folder; default: the environment variable COMPEMBED_DATA",
    )
    parser.add_argument("--output", default="build/job_titles", help="folder")
    parser.add_argument(
        "--buckets", type=int, default=1 << 15, help="rows of the embedding"
    )
    parser.add_argument(
        "--length", type=int, default=64, help="ids of a title, at most"
    )
    parser.add_argument("--width", type=int, default=128, help="of vectors")
    parser.add_argument("--num-candidates", type=int, default=10)
    parser.add_argument("--num-noises", type=int, default=10)
    parser.add_argument(
        "--max-frontier",
        type=int,
        default=64,
        help="nodes of the tree where a search begins",
    )
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--quantize", choices=("float16", "int8"))
    parser.add_argument(
        "--titles", default=SHOWN, help="titles to classify, comma-separated"
    )
    parser.add_argument(
        "--devices",
        type=int,
        default=1,
        help="above 1: use MirroredStrategy on this number of GPUs, or of "
        "logical CPU devices without a GPU",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--quick", action="store_true", help="seconds: made-up titles"
    )
    args = parser.parse_args(argv)
    args.generated = False
    if args.quick:
        vars(args).update(QUICK)
    elif not args.data:
        parser.error("--data or COMPEMBED_DATA must be a folder")
    if args.devices < 1 or args.batch_size % args.devices:
        parser.error("--batch-size must be a multiple of --devices")
    return args


def make_scope(devices):
    """The scope of a strategy; an empty context for one device."""
    if devices == 1:
        return contextlib.nullcontext()
    return mirrored_strategy(devices).scope()


def read_table(folder, name):
    """Rows of a table of O*NET, as strings."""
    folder = pathlib.Path(folder)
    for parent, stem, (ending, opened) in itertools.product(
        (folder, folder / "onet_titles"),
        (name, name.replace(" ", "_")),
        ((".txt", open), (".txt.xz", lzma.open)),
    ):
        path = parent / f"{stem}{ending}"
        if path.exists():
            with opened(path, "rt", encoding="utf-8", newline="") as file:
                # Titles have unpaired quotes.
                rows = csv.reader(file, "excel-tab", quoting=csv.QUOTE_NONE)
                return list(rows)[1:]
    raise SystemExit(f"There is no '{name}.txt' in {folder}.")


def read_titles(folder):
    """Names of occupations, and `(title, occupation)` pairs."""
    occupations = read_table(folder, "Occupation Data")
    places = {row[0]: place for place, row in enumerate(occupations)}
    titles = read_table(folder, "Alternate Titles")
    return (
        [row[1] for row in occupations],
        [(row[1].lower(), places[row[0]]) for row in titles],
    )


def read_occupations(folder):
    """The same, with each occupation's name as a title."""
    names, pairs = read_titles(folder)
    pairs += [(name.lower(), place) for place, name in enumerate(names)]
    return names, sorted(set(pairs))


def generated():
    """The same for 132 made-up occupations."""
    kinds = "red blue green old fast wild dry cold deep soft tall wide"
    jobs = "baker tailor driver nurse clerk smith guard judge miner cook host"
    forms = "{} for hire|junior {}|{} assistant|chief {}|{} at night|{} (temp)"
    names = [f"{kind} {job}" for kind in kinds.split() for job in jobs.split()]
    pairs = [
        (form.format(name), place)
        for place, name in enumerate(names)
        for form in ("{}|the {}|{} two|" + forms).split("|")
    ]
    return names, pairs


def split(pairs, seed):
    """Training, validation and test pairs, split by title."""
    titles = sorted({title for title, _ in pairs})
    parts = np.random.default_rng(seed).integers(10, size=len(titles))
    part_of = dict(zip(titles, parts, strict=True))
    return (
        [pair for pair in pairs if part_of[pair[0]] > 1],
        [pair for pair in pairs if part_of[pair[0]] == 1],
        [pair for pair in pairs if part_of[pair[0]] == 0],
    )


def vectorize(titles, args):
    """Hashed ids of words, word pairs and character n-grams, padded with 0.

    It is easy to write in the language of a phone.
    """
    ids = np.zeros((len(titles), args.length), "int32")
    for row, title in zip(ids, titles, strict=True):
        words = [f"<{word}>" for word in re.findall("[a-z0-9]+", title.lower())]
        features = [f"{word} " for word in words]
        features += map(" ".join, zip(words, words[1:], strict=False))
        features += [
            word[start : start + size]
            for size in (3, 4, 5)
            for word in words
            for start in range(len(word) - size + 1)
        ]
        # Python's own hash differs from run to run.
        hashed = [
            1 + zlib.crc32(feature.encode()) % (args.buckets - 1)
            for feature in dict.fromkeys(features)
        ][: args.length]
        row[: len(hashed)] = hashed
    return ids


def build_model(x, y, num_classes, args):
    """An encoder, and a softmax with a tree built from its vectors."""
    encoder = [
        keras.Input((args.length,), dtype="int32", name="ids"),
        keras.layers.Embedding(args.buckets, args.width, mask_zero=True),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.LayerNormalization(),
        keras.layers.Dropout(0.3),
    ]
    # Even before training, titles that share words have similar vectors.
    features = keras.Sequential(encoder).predict(x, verbose=0)
    tree = kc.classes.ClassTree.from_labels(
        features, y, num_classes=num_classes, seed=args.seed, verbose=0
    )
    print(tree)
    head = kc.CANESoftmax(
        num_classes,
        sampling=kc.Sampling(
            kc.classes.BeamTree(tree, max_frontier=args.max_frontier),
            num_candidates=args.num_candidates,
            num_noises=args.num_noises,
        ),
        class_counts=np.bincount(y, minlength=num_classes),
        seed=args.seed,
        name="occupations",
    )
    return keras.Sequential([*encoder, head])


def train(model, dataset, args):
    steps = args.epochs * -(-len(dataset[0][1]) // args.batch_size)
    rate = keras.optimizers.schedules.CosineDecay(
        args.learning_rate, steps, alpha=0.02
    )
    model.compile(
        # A step only updates the rows that it looks up.
        kc.optimizers.SparseRowOptimizer(keras.optimizers.Adam(rate)),
        loss=kc.CANELoss(),
        metrics=[kc.ClassAccuracy(), kc.ClassAccuracy(k=TOP), kc.Coverage()],
    )
    model.fit(
        *dataset[0],
        validation_data=dataset[1],
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

    names, pairs = (
        generated() if args.generated else read_occupations(args.data)
    )
    dataset = []
    for part in split(pairs, args.seed):
        labels = np.array([place for _, place in part], "int32")
        dataset.append((vectorize([title for title, _ in part], args), labels))
    (x_test, y_test) = dataset[2]
    print(
        f"{len(dataset[0][1])} training titles, {len(y_test)} test titles, "
        f"{len(names)} occupations"
    )
    with scope:
        model = build_model(*dataset[0], len(names), args)
        train(model, dataset, args)
    # Over all classes; training scores a few.
    exact = model.evaluate(x_test, y_test, verbose=0, return_dict=True)

    # Wide enough to match the exact ranking.
    head = model.get_layer("occupations")
    encoder = keras.Model(model.inputs, head.input)
    features = encoder.predict(dataset[1][0], verbose=0)
    recalls = kc.classes.calibrate_beam(head, features, target_recall=0.99)

    # Without the optimizer, which is larger than the model.
    model = keras.Sequential([*model.inputs, *model.layers])
    model.save(output / "job_titles.keras")
    (output / "occupations.txt").write_text("\n".join(names), "utf-8")
    path = output / "job_titles.tflite"
    export = kc.export_litert(
        model, path, top_k=TOP, quantize=args.quantize, overwrite=True
    )
    phone = kc.export.LiteRTModel(path)
    hits = phone.predict(x_test)["ids"] == y_test[:, None]
    results = {
        "accuracy": exact["accuracy"],
        f"top_{TOP}_accuracy": exact[f"top_{TOP}_accuracy"],
        "coverage": exact["coverage"],
        "beam_width": head.selector.beam_width,
        "recall": recalls[head.selector.beam_width],
        "litert_accuracy": float(hits[:, 0].mean()),
        f"litert_top_{TOP}_accuracy": float(hits.any(axis=1).mean()),
        "embedding_bytes": 4 * args.buckets * args.width,
        "file_bytes": export.file_bytes,
    }
    (output / "results.json").write_text(json.dumps(results, indent=2) + "\n")

    titles = [title.strip() for title in args.titles.split(",")]
    answers = phone.predict(vectorize(titles, args))
    for title, ids, shares in zip(
        titles, answers["ids"], answers["probabilities"], strict=True
    ):
        print(f"\n{title}")
        for place, share in zip(ids, shares, strict=True):
            if place >= 0:
                print(f"  {100 * share:5.1f} %  {names[place]}")
    print(
        f"\nTest accuracy: {100 * exact['accuracy']:.1f} %, top-{TOP} "
        f"{100 * exact[f'top_{TOP}_accuracy']:.1f} %. LiteRT "
        f"file: {100 * results['litert_accuracy']:.1f} %, top-{TOP} "
        f"{100 * results[f'litert_top_{TOP}_accuracy']:.1f} %.\n"
        f"The file has {export.file_bytes:,} bytes; the float32 embedding "
        f"alone has {results['embedding_bytes']:,}.\n"
        f"Model, names and results: {output}"
    )
    return results


if __name__ == "__main__":
    main()
