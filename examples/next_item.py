"""Trains a next-item recommender and exports it for phones.

Each line of the data file is a user and this user's items, oldest first,
separated by spaces. Names are any strings:

    anna milk bread butter
    ben bread jam

A GRU reads the last items of a user, and a `CANESoftmax` over all items
predicts the next one. Both share one item table, which is then compressed. The
LiteRT file returns the best items that the user does not have yet.

    python -m examples.next_item --data ratings.txt --user anna
    python -m examples.next_item --quick

Without `--data`, it generates a small file. `items.txt`, next to the LiteRT
file, has the item names: line numbers, from 0, are the ids.
"""

import argparse
import collections
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import keras_compembed as kc

TOP = 10
# The id that pads short histories at the front. It is no item.
PADDING = 0
# Users to test on: ranking all items takes time.
TESTED = 3000


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", help="lines of 'user item item ...'")
    parser.add_argument("--shuffle", action="store_true", help="ignore order")
    parser.add_argument("--output", default="build/next_item", help="folder")
    parser.add_argument("--user", help="user to recommend items to")
    parser.add_argument("--length", type=int, default=50, help="items read")
    parser.add_argument("--width", type=int, default=64, help="of vectors")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=5e-3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="seconds")
    args = parser.parse_args(argv)
    if args.quick:
        args.length, args.width, args.epochs = 10, 32, 8
    return args


def generate(path):
    """Writes a file of users; each walks along one of 10 shelves."""
    rng = np.random.default_rng(0)
    lines = []
    for user in range(500):
        steps = rng.integers(1, 3, size=rng.integers(4, 11))
        places = (rng.integers(20) + np.cumsum(steps)) % 20
        items = [f"shelf{user % 10}-{place}" for place in places]
        lines.append(" ".join([f"user{user}", *items]))
    path.write_text("\n".join(lines) + "\n", "utf-8")


def read_histories(path):
    """Dict from users to their lists of items, all strings."""
    histories = collections.defaultdict(list)
    lines = map(str.split, path.read_text("utf-8").splitlines())
    for user, *items in filter(None, lines):
        histories[user] += items
    # At least one item each to read, to learn and to test.
    return {user: items for user, items in histories.items() if len(items) > 2}


def windows(items, length):
    """Parts of a history: up to `length` items and the next one."""
    ends = range(len(items), 1, -length)
    return [items[max(0, end - length - 1) : end] for end in ends]


def pad(rows, length):
    """int32 array `(rows, length)` of the last items of each row."""
    return keras.utils.pad_sequences(rows, length, value=PADDING)


def build_model(counts, args):
    """A model of the next item at each place of a history."""
    ids = keras.Input((args.length,), dtype="int32", name="history")
    items = keras.layers.Embedding(len(counts), args.width, name="items")
    x = keras.layers.Dropout(0.2)(items(ids))
    x = keras.layers.GRU(args.width, return_sequences=True)(x)
    head = kc.CANESoftmax(
        len(counts), class_counts=counts, class_embedding=items, name="next"
    )
    return keras.Model(ids, head(x))


def train(model, rows, args):
    """Trains to predict each item of a row from earlier ones."""
    adam = keras.optimizers.Adam(args.learning_rate)
    model.compile(
        # A step only updates the table rows that it reads.
        kc.optimizers.SparseRowOptimizer(adam),
        loss=kc.CANELoss(ignore_class=PADDING),
    )
    x, y = rows[:, :-1], rows[:, 1:]
    model.fit(x, y, args.batch_size, args.epochs, verbose=2)


def at_the_end(model):
    """The same model, for the end of a history only."""
    head = model.layers[-1]
    return keras.Model(model.input, head(head.input[:, -1]))


def evaluate(recommender, x, y):
    """Recall and NDCG of the next item, among items not in the history."""
    metrics = [kc.RecallAtK(k=TOP), kc.NDCGAtK(k=TOP)]
    for start in range(0, len(x), 256):
        part = slice(start, start + 256)
        features = recommender(x[part])
        for metric in metrics:
            metric.update_state(y[part], features, exclude=x[part])
    return {metric.name: float(metric.result()) for metric in metrics}


def main(argv=None):
    args = parse_arguments(argv)
    keras.utils.set_random_seed(args.seed)
    output = pathlib.Path(args.output)
    output.mkdir(parents=True, exist_ok=True)
    if args.data is None:
        args.data = output / "ratings.txt"
        generate(args.data)
    histories = read_histories(pathlib.Path(args.data))
    if args.shuffle:
        for items in histories.values():
            np.random.shuffle(items)
    users = list(histories)
    if args.user not in (None, *users):
        raise SystemExit(f"--user must have 3 items. Received: {args.user}")

    # Strings to ids, frequent items first. PADDING has no name.
    counts = collections.Counter(x for row in histories.values() for x in row)
    names = ["", *(name for name, _ in counts.most_common())]
    ids = {name: place for place, name in enumerate(names)}
    rows = [[ids[item] for item in items] for items in histories.values()]
    print(f"{len(users):,} users, {len(names) - 1:,} items")
    if len(names) < args.length + TOP:
        raise SystemExit(f"--length must be at most {len(names) - TOP}.")

    # Hold out the last item of each user for the test.
    known = [row[:-1] for row in rows]
    tested = np.random.permutation(len(rows))[:TESTED]
    x = pad([known[row] for row in tested], args.length)
    y = np.array([rows[row][-1] for row in tested])
    parts = [part for row in known for part in windows(row, args.length)]
    counts = np.bincount(np.concatenate(known), minlength=len(names))
    model = build_model(counts, args)
    train(model, pad(parts, args.length + 1), args)
    recommender = at_the_end(model)
    results = {"table": evaluate(recommender, x, y)}

    # int4 rows need no further training. Codes are smaller: compress `model`
    # and train it for another epoch.
    methods = {"items": kc.methods.Quantized(4)}
    small = kc.compress_model(recommender, methods)
    results["small"] = evaluate(small, x, y)

    # The history is passed twice: as input, and as items to exclude.
    predictor = kc.top_k_model(small, k=TOP, num_excluded=args.length)
    path = output / "next_item.tflite"
    export = kc.export_litert(predictor, path, overwrite=True)
    results["file_bytes"] = export.file_bytes
    (output / "items.txt").write_text("\n".join(names) + "\n", "utf-8")

    user = args.user or users[0]
    history = pad([rows[users.index(user)]], args.length)
    answer = kc.export.LiteRTModel(path).predict([history, history])
    results["recommended"] = [names[place] for place in answer["ids"][0]]
    print(f"\nLast items of {user}: {', '.join(histories[user][-5:])}. Next:")
    shares = answer["probabilities"][0]
    for name, share in zip(results["recommended"], shares, strict=True):
        print(f"  {share:6.2%}  {name}")
    for name in ("table", "small"):
        print(f"{name}: {results[name]}")
    return results


if __name__ == "__main__":
    main()
