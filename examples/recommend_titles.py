"""Recommends the known job titles that best match a typed title.

A text encoder is trained to classify titles into the occupations of O*NET. A
table has its vector of each known title. Both tables become codes, and the
LiteRT file returns the ten best titles. The baseline has the same encoder and
titles with float32 tables, trained as long.

    python -m examples.recommend_titles --data folder
    python -m examples.recommend_titles --data folder --titles "chef,nurse"
    python -m examples.recommend_titles --data folder --save titles

The folder is the same as for `examples.job_titles`.
"""

import argparse
import json
import os
import pathlib
import shlex
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import keras_compembed as kc
from examples import job_titles

# Titles to return.
TOP = 10
SHOWN = "truck driver at night,python developer,head chef,school nurse"
SAMPLE = 100  # Test titles kept with a saved model.
QUICK = {
    "generated": True,
    "buckets": 2048,
    "length": 32,
    "width": 32,
    "epochs": 6,
    "fine_tune_epochs": 2,
    "batch_size": 64,
    "titles": "junior red baker,blue tailor for hire",
}
CARD = {
    "summary": "Recommends the ten best of {items:,} known job titles for a "
    "typed title.",
    "license": "cc-by-4.0",
    "data": "The titles are those of the O*NET database "
    "(https://www.onetcenter.org/database.html), in the folder given by "
    "`--data` or the environment variable `COMPEMBED_DATA`. An encoder of "
    "words, word pairs and character n-grams was trained to predict the "
    "occupations of the known titles, {occupations:,} in all. Its table was "
    "compressed to codes, and the encoder was fine-tuned. The vectors of the "
    "known titles are a second table, compressed to codes as well.",
    "results": "How often a title of the right occupation is among the "
    "first recommendations, for {test_titles:,} other titles:\n\n"
    "| model | bytes of the file | first | first 5 | first 10 |\n"
    "|---|---:|---:|---:|---:|\n"
    "| float32 tables, in Keras | {table_bytes:,} | {table[top_1]:.1%} | "
    "{table[top_5]:.1%} | {table[top_10]:.1%} |\n"
    "| codes, in Keras | | {keras[top_1]:.1%} | {keras[top_5]:.1%} | "
    "{keras[top_10]:.1%} |\n"
    "| codes, in LiteRT | {file_bytes:,} | {litert[top_1]:.1%} | "
    "{litert[top_5]:.1%} | {litert[top_10]:.1%} |\n\n"
    "Both models had equal training.",
    "limits": "Titles are English, of the United States, and at most "
    "{max_letters} letters long. The model returns ten titles for any text, "
    "related or not: check their scores, which are cosines. Do not use it to "
    "decide about people.",
    "attribution": "This model includes information from the O*NET database "
    "by the U.S. Department of Labor, Employment and Training Administration "
    "(USDOL/ETA), used under the CC BY 4.0 licence "
    "(https://creativecommons.org/licenses/by/4.0/). O*NET is a trademark of "
    "USDOL/ETA. Titles were put in lower case and selected, and this model "
    "was trained on them. USDOL/ETA has not approved, endorsed or tested "
    "these modifications.",
    "outputs": "The cosines of the typed title and each known title. The "
    "LiteRT file returns the ten best instead: `ids`, which are lines of "
    "`labels.txt` counted from 0, and `scores`.",
    "files": {
        "model.keras": "the Keras model, float32, both tables in codes; "
        "`kc.top_k_model(model, 10)` has the outputs of the file",
        "model.tflite": "the LiteRT file, int8 weights",
        "labels.txt": "one known title per line, in the order of ids",
        "sample.json": f"{SAMPLE} test titles with their ids, and the outputs "
        "of the file",
    },
    "language": "en",
    "tags": ["recommender"],
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
    parser.add_argument(
        "--output", default="build/recommend_titles", help="folder"
    )
    parser.add_argument(
        "--max-letters", type=int, default=24, help="of a title"
    )
    parser.add_argument(
        "--buckets", type=int, default=1 << 14, help="rows of the encoder"
    )
    parser.add_argument(
        "--length", type=int, default=64, help="ids of a title, at most"
    )
    parser.add_argument("--width", type=int, default=64, help="of vectors")
    parser.add_argument(
        "--part-codebooks", type=int, default=16, help="of the encoder"
    )
    parser.add_argument(
        "--item-codebooks", type=int, default=32, help="of known titles"
    )
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--fine-tune-epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument(
        "--titles", default=SHOWN, help="titles to match, comma-separated"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", help="folder for a preset")
    parser.add_argument(
        "--quick", action="store_true", help="seconds: made-up titles"
    )
    args = parser.parse_args(argv)
    args.generated = False
    if args.quick:
        vars(args).update(QUICK)
    elif not args.data:
        parser.error("--data or COMPEMBED_DATA must be a folder")
    return args


def read_parts(args):
    """Names of occupations, and three lists of `(title, occupation)`."""
    if args.generated:
        names, pairs = job_titles.generated()
    else:
        names, pairs = job_titles.read_occupations(args.data)
    pairs = [pair for pair in pairs if len(pair[0]) <= args.max_letters]
    return names, job_titles.split(pairs, args.seed)


def occupations_by_title(pairs):
    """Dict from each title, in order, to the set of its occupations."""
    places = {}
    for title, place in sorted(pairs):
        places.setdefault(title, set()).add(place)
    return places


def build_classifier(args, num_classes):
    """An encoder from ids to a unit vector, and a layer of classes."""
    return keras.Sequential(
        [
            keras.Input((args.length,), dtype="int32", name="ids"),
            keras.layers.Embedding(
                args.buckets, args.width, mask_zero=True, name="parts"
            ),
            keras.layers.GlobalAveragePooling1D(name="mean"),
            keras.layers.UnitNormalization(name="vector"),
            # Otherwise logits of unit vectors would hardly differ.
            keras.layers.Rescaling(16.0),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(num_classes),
        ]
    )


def train(model, dataset, args, epochs, learning_rate):
    # The same order of examples for all models.
    keras.utils.set_random_seed(args.seed)
    steps = epochs * -(-len(dataset[0][1]) // args.batch_size)
    rate = keras.optimizers.schedules.CosineDecay(
        learning_rate, steps, alpha=0.02
    )
    model.compile(
        keras.optimizers.Adam(rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        *dataset[0],
        validation_data=dataset[1],
        batch_size=args.batch_size,
        epochs=epochs,
        verbose=2,
    )


def train_classifiers(dataset, args, num_classes):
    """A classifier with a table, and one with codes; both are fine-tuned."""
    keras.utils.set_random_seed(args.seed)
    classifier = build_classifier(args, num_classes)
    train(classifier, dataset, args, args.epochs, args.learning_rate)
    small = kc.compress_model(
        classifier,
        {"parts": kc.methods.Codes(args.part_codebooks, 16)},
        seed=args.seed,
        # Frequent parts become more accurate.
        sample_inputs=dataset[0][0],
    )
    for model in (classifier, small):
        train(
            model, dataset, args, args.fine_tune_epochs, args.learning_rate / 5
        )
    return classifier, small


def make_recommender(classifier, ids_of_items, make_items):
    """A model from the ids of a text to its cosine with each item.

    Args:
        classifier: A model of `build_classifier`.
        ids_of_items: Integer array, the texts of items as ids.
        make_items: Function from a table, one row per item, to a layer.
    """
    (ids,) = classifier.inputs
    vector = classifier.get_layer("vector").output
    table = keras.Model(ids, vector).predict(ids_of_items, verbose=0)
    items = make_items(table)
    return keras.Model(ids, items(vector, reverse=True), name="recommender")


def float_items(table):
    items = keras.layers.ReversibleEmbedding(*table.shape, name="items")
    items.build((None,))
    items.set_weights([table])
    return items


def hits(answers, right):
    """Shares of texts with a right item in the top 1, 5 and 10.

    Args:
        answers: List of lists of sets, the occupations of each item.
        right: List of sets, the occupations of each text.
    """
    found = np.array(
        [
            [bool(of_text & of_item) for of_item in row]
            for row, of_text in zip(answers, right, strict=True)
        ]
    )
    return {f"top_{k}": float(found[:, :k].any(1).mean()) for k in (1, 5, TOP)}


def make_card(args, command):
    inputs = (
        "Ids of the parts of a title in lower case. The parts are each word "
        "(letters and digits) as `<word>` and a blank, each pair of "
        "neighbouring words as `<one> <two>`, and each n-gram of 3 to 5 "
        "characters of `<word>`. A part counts once. Its id is `1 + "
        f"CRC32(part) % {args.buckets - 1}`. The first {args.length} ids are "
        "used, padded with zeros at the end. `vectorize` of "
        "`examples/job_titles.py` computes them. To test an implementation in "
        "your app, compare it with the ids in `sample.json`."
    )
    return CARD | {"command": command, "inputs": inputs}


def main(argv=None):
    args = parse_arguments(argv)
    output = pathlib.Path(args.output)
    output.mkdir(parents=True, exist_ok=True)
    if args.save:
        # Fail early if the folder cannot be created.
        pathlib.Path(args.save).mkdir(parents=True, exist_ok=True)
    command = "python -m examples.recommend_titles "
    command += shlex.join(sys.argv[1:] if argv is None else argv)
    card = make_card(args, command)

    names, parts = read_parts(args)
    dataset = []
    for part in parts:
        labels = np.array([place for _, place in part], "int32")
        ids = job_titles.vectorize([title for title, _ in part], args)
        dataset.append((ids, labels))
    known = occupations_by_title(parts[0])
    asked = occupations_by_title(parts[2])
    titles, of_titles = list(known), list(known.values())
    print(
        f"{len(dataset[0][1])} training pairs, {len(known)} known titles, "
        f"{len(asked)} test titles, {len(names)} occupations"
    )
    classifier, small = train_classifiers(dataset, args, len(names))

    print("Learning codes of the known titles")
    ids_of_items = job_titles.vectorize(titles, args)
    full = make_recommender(classifier, ids_of_items, float_items)
    model = make_recommender(
        small,
        ids_of_items,
        lambda table: kc.CodeEmbedding.from_table(
            table, args.item_codebooks, seed=args.seed, name="items"
        ),
    )
    path = output / "recommender.tflite"
    export = kc.export_litert(
        model, path, top_k=TOP, quantize="int8", overwrite=True
    )
    phone = kc.export.LiteRTModel(path)

    print("Testing")
    x = job_titles.vectorize(list(asked), args)
    answers = {
        "litert": phone.predict(x)["ids"],
        "keras": kc.top_k_model(model, TOP).predict(x, verbose=0)["ids"],
        "table": np.argsort(-full.predict(x, verbose=0))[:, :TOP],
    }
    figures = {
        "file_bytes": export.file_bytes,
        "table_bytes": kc.export_litert(
            full, output / "table.tflite", quantize=None, overwrite=True
        ).file_bytes,
        "seed": args.seed,
        "items": len(known),
        "occupations": len(names),
        "test_titles": len(asked),
        "max_letters": args.max_letters,
    }
    for name, ids in answers.items():
        of_answers = [[of_titles[place] for place in row] for row in ids]
        figures[name] = hits(of_answers, list(asked.values()))
    (output / "results.json").write_text(json.dumps(figures, indent=2) + "\n")
    model.save(output / "recommender.keras")
    (output / "titles.txt").write_text("\n".join(titles), "utf-8")
    if args.save:
        sample = {
            "titles": list(asked)[:SAMPLE],
            "ids": [row[row > 0].tolist() for row in x[:SAMPLE]],
            "answers": answers["litert"][:SAMPLE].tolist(),
        }
        files = {"model.tflite": path, "labels.txt": titles}
        files["sample.json"] = sample
        kc.save_preset(
            model, args.save, card, figures, files=files, overwrite=True
        )

    shown = [title.strip() for title in args.titles.split(",")]
    best = phone.predict(job_titles.vectorize(shown, args))
    for title, ids, scores in zip(
        shown, best["ids"], best["scores"], strict=True
    ):
        print(f"\n{title}")
        for place, score in zip(ids[:5], scores, strict=False):
            print(f"  {score:5.2f}  {titles[place]}")
    print()
    for name, bytes_ in (
        ("litert", figures["file_bytes"]),
        ("table", figures["table_bytes"]),
    ):
        shares = ", ".join(f"{share:.1%}" for share in figures[name].values())
        print(f"{name}: {bytes_:,} bytes; right in the top 1, 5, 10: {shares}")
    print(f"Model, titles and results: {output}")
    return figures


if __name__ == "__main__":
    main()
