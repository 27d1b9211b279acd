"""Trains a language model with tied, compressed word vectors.

Input and output share the vectors of an `ANTEmbedding` or a `CodeEmbedding`.
Each training step scores a part of the vocabulary: the most frequent words, and
noise samples from the others. Prints perplexity over all words, the size of the
vectors, and continues a few texts.

    python -m examples.word_language_model --data ptb
    python -m examples.word_language_model --data book.txt --embedding codes
    python -m examples.word_language_model --data ptb --embedding table
    python -m examples.word_language_model --data ptb --texts "the bank said"

`--data` is a text file (its last tenth is held out), or a folder with
`ptb.train.txt`, `ptb.valid.txt` and `ptb.test.txt`, also compressed by xz.
"""

import argparse
import collections
import json
import lzma
import os
import pathlib
import re

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc

TOP = 5
UNKNOWN = "<unk>"
END = "<eos>"
QUICK = {
    "min_count": 1,
    "width": 24,
    "num_anchors": 12,
    "l1": 1e-4,
    "num_codebooks": 4,
    "num_candidates": 10,
    "num_noises": 10,
    "steps": 8,
    "epochs": 6,
    "batch_size": 16,
    "learning_rate": 2e-2,
    "texts": "w1 w2,w10 w11 w12",
}


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    data = os.environ.get("COMPEMBED_DATA")
    parser.add_argument(
        "--data",
        type=pathlib.Path,
        default=data and pathlib.Path(data) / "ptb",
        help="text; default: ptb in the folder of the environment variable "
        "COMPEMBED_DATA",
    )
    parser.add_argument("--output", default="build/words", help="folder")
    parser.add_argument(
        "--embedding", choices=("anchors", "codes", "table"), default="anchors"
    )
    parser.add_argument(
        "--min-count", type=int, default=3, help="rarer words become unknown"
    )
    parser.add_argument(
        "--width", type=int, default=200, help="of words and LSTM"
    )
    parser.add_argument("--num-anchors", type=int, default=200)
    parser.add_argument(
        "--l1", type=float, default=3e-4, help="larger: fewer parameters"
    )
    parser.add_argument("--num-codebooks", type=int, default=50)
    parser.add_argument(
        "--num-candidates", type=int, default=1000, help="frequent words"
    )
    parser.add_argument(
        "--num-noises", type=int, default=200, help="noise samples of a batch"
    )
    parser.add_argument("--steps", type=int, default=20, help="words read")
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument(
        "--texts",
        default="the company said it,new york stock,a spokesman for",
        help="texts to continue at the end, comma-separated",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--quick", action="store_true", help="seconds: made-up text"
    )
    args = parser.parse_args(argv)
    if args.quick:
        vars(args).update(QUICK)
    elif not args.data:
        parser.error("--data or COMPEMBED_DATA must be a text")
    return args


def read_lines(path):
    """Words of a text, with `END` after each line; reads xz as well."""
    opened = open
    if not path.exists():
        path, opened = path.with_name(f"{path.name}.xz"), lzma.open
    with opened(path, "rt", encoding="utf-8") as file:
        return file.read().replace("\n", f" {END} ").split()


def read_words(path):
    """Words of the three parts of a text."""
    if path.is_dir():
        parts = (
            path / f"ptb.{part}.txt" for part in ("train", "valid", "test")
        )
        return [read_lines(part) for part in parts]
    text = path.read_text("utf-8", errors="replace").lower()
    # `END` comes after paragraphs, not lines; punctuation marks are words.
    text = re.sub(r"\n\s*\n", f" {END} ", text.strip())
    words = re.findall(rf"{END}|\w+(?:['’]\w+)*|[^\w\s]", text)
    first, second = (len(words) * share // 100 for share in (90, 95))
    return [words[:first], words[first:second], words[second:]]


def generated():
    """Texts of 60 words; each word depends on the one before."""
    rng = np.random.default_rng(0)
    parts = []
    for lines in (600, 60, 60):
        starts = rng.integers(60, size=lines)
        words = (starts[:, None] + np.arange(9)) % 60
        parts.append(
            [w for row in words for w in [*(f"w{k}" for k in row), END]]
        )
    return parts


def number_words(parts, min_count):
    """Vocabulary (frequent words first), counts, and the parts as ids."""
    counts = collections.Counter(parts[0])
    kept = {word for word, count in counts.items() if count >= min_count}
    parts = [[w if w in kept else UNKNOWN for w in part] for part in parts]
    counts = collections.Counter(parts[0])
    # Other parts may have words that training lacks.
    counts.setdefault(UNKNOWN, 0)
    vocabulary, counts = zip(*counts.most_common(), strict=True)
    places = {word: place for place, word in enumerate(vocabulary)}
    ids = [np.array([places[w] for w in part], "int32") for part in parts]
    return vocabulary, np.array(counts), ids


def segments(ids, steps):
    """Inputs and targets (one word later) `(segments, steps)`."""
    size = (len(ids) - 1) // steps * steps
    return ids[:size].reshape(-1, steps), ids[1 : size + 1].reshape(-1, steps)


def make_embedding(num_words, args):
    shape = num_words, args.width
    if args.embedding == "anchors":
        # Rare words need large initial weights: from a few small ones, they
        # get no gradient.
        start = keras.initializers.RandomUniform(0.0, args.num_anchors**-0.5)
        return kc.ANTEmbedding(
            *shape,
            num_anchors=args.num_anchors,
            transform=kc.anchors.Transform("lazy", initializer=start),
            l1=args.l1,
            name="words",
        )
    if args.embedding == "codes":
        return kc.CodeEmbedding(
            *shape,
            num_codebooks=args.num_codebooks,
            composition="concat",
            codes="softmax",
            name="words",
        )
    return keras.layers.Embedding(*shape, name="words")


def build_model(counts, args):
    """A model with the same vectors for input and output."""
    embedding = make_embedding(len(counts), args)
    tied = args.embedding != "table"
    head = kc.CANESoftmax(
        len(counts),
        sampling=kc.Sampling(
            kc.classes.FrequentClasses(counts),
            num_candidates=args.num_candidates,
            num_noises=args.num_noises,
            # A single product for all examples of a batch.
            shared=True,
        ),
        # For initial biases and the noise distribution.
        class_counts=counts,
        class_embedding=embedding if tied else None,
        seed=args.seed,
        name="next_word",
    )
    ids = keras.Input((None,), dtype="int32", name="ids")
    features = keras.layers.Dropout(args.dropout)(embedding(ids))
    features = keras.layers.LSTM(args.width, return_sequences=True)(features)
    features = keras.layers.Dropout(args.dropout)(features)
    return keras.Model(ids, head(features))


def train(model, train_data, valid_data, args):
    steps = args.epochs * -(-len(train_data[0]) // args.batch_size)
    rate = keras.optimizers.schedules.CosineDecay(
        args.learning_rate, steps, alpha=0.02
    )
    adam = keras.optimizers.Adam(rate, global_clipnorm=1.0)
    model.compile(
        # A step looks up few words, each twice.
        kc.optimizers.SparseRowOptimizer(adam),
        loss=kc.CANELoss(),
        metrics=[kc.Perplexity(), kc.ClassAccuracy()],
    )
    model.fit(
        *train_data,
        validation_data=valid_data,
        batch_size=args.batch_size,
        epochs=args.epochs,
        verbose=2,
    )


def main(argv=None):
    args = parse_arguments(argv)
    keras.utils.set_random_seed(args.seed)
    output = pathlib.Path(args.output)
    output.mkdir(parents=True, exist_ok=True)

    parts = generated() if args.quick else read_words(args.data)
    vocabulary, counts, ids = number_words(parts, args.min_count)
    train_data, valid_data, test_data = (
        segments(part, args.steps) for part in ids
    )
    print(f"{len(ids[0]):,} training words, {len(vocabulary):,} different")

    model = build_model(counts, args)
    train(model, train_data, valid_data, args)
    # Stores rows of T sparse, and drops the query table of codes.
    model = kc.strip(model)
    figures = model.evaluate(*test_data, verbose=0, return_dict=True)
    # Without the optimizer, which has slots of the old weights.
    model = keras.Model(model.inputs, model.outputs)
    model.save(output / "words.keras")
    (output / "vocabulary.txt").write_text("\n".join(vocabulary), "utf-8")

    predictor = kc.top_k_model(model, k=TOP)
    places = {word: place for place, word in enumerate(vocabulary)}
    next_words = {}
    for text in args.texts.split(","):
        words = text.lower().split()
        row = [places.get(word, places[UNKNOWN]) for word in words]
        answer = predictor(tf.constant([row]))
        # After the last word.
        next_words[text] = [vocabulary[k] for k in answer["ids"][0, -1]]

    size = kc.size_report(model)
    # An untied output is a second table.
    tables = 4 * len(vocabulary) * args.width
    stored = size.embedding_bytes
    if args.embedding == "table":
        stored += tables
    results = {
        "perplexity": figures["perplexity"],
        "accuracy": figures["accuracy"],
        "word_bytes": stored,
        "table_bytes": 2 * tables,
        "next_words": next_words,
    }
    (output / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    print(size)
    for text, words in next_words.items():
        print(f"{text} ... {', '.join(words)}")
    print(
        f"\nTest perplexity: {figures['perplexity']:.1f}. Word vectors take "
        f"{stored:,} bytes. An input and an output table take {2 * tables:,}, "
        f"{2 * tables / stored:.1f} times more.\n"
        f"Model, words and results: {output}"
    )
    return results


if __name__ == "__main__":
    main()
