"""Recommends places to users, from what they visited, in small LiteRT files.

A user is the mean of the vectors of visited places. A `CANESoftmax` ranks all
places by their cosines with it. Both read one table, and nothing is stored for
a user: new users need no training. Codes of the table are trained further.

    python -m examples.recommend_places --data folder

In the folder, lines of `train.txt` and `test.txt`, or `.txt.xz`, are a user and
places, in numbers. On Gowalla, recall@20 and NDCG@20 are .177, .149 (table),
.172, .144 (large) and .152, .126 (small): one seed, nine minutes of CPU time.
"""

import argparse
import lzma
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import keras_compembed as kc

# Places to recommend, and the most that a training example reads and predicts.
TOP, READ, PREDICTED = 20, 64, 8
METHODS = {
    "large": kc.methods.Codes(72, 16, effort=0.3),
    "small": kc.methods.Codes(20, 16, effort=0.5),
}


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="folder")
    parser.add_argument("--output", default="build/recommend_places")
    parser.add_argument("--width", type=int, default=128, help="of vectors")
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--fine-tune-epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def read(folder, name):
    """Dict from users to their places. 0 is padding: places begin at 1."""
    (path,) = pathlib.Path(folder).glob(f"{name}.txt*")
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        rows = [np.array(line.split(), "int32") for line in file]
    return {row[0]: row[1:] + 1 for row in rows if len(row) > 1}


def pad(rows, value=0):
    return keras.utils.pad_sequences(rows, padding="post", value=value)


class Examples(keras.utils.PyDataset):
    """Splits each history at random: places to read, places to predict."""

    def __init__(self, rows, seed, batch_size=512):
        super().__init__()
        self.rows, self.batch_size = rows, batch_size
        self.rng = np.random.default_rng(seed)
        self.on_epoch_end()

    def __len__(self):
        return -(-len(self.rows) // self.batch_size)

    def __getitem__(self, index):
        start = index * self.batch_size
        x, y = [], []
        for user in self.order[start : start + self.batch_size]:
            places = self.rng.permutation(self.rows[user])
            number = min(PREDICTED, len(places) // 2)
            y.append(places[:number])
            x.append(places[number : number + READ])
        return pad(x), pad(y, value=-1)

    def on_epoch_end(self):
        self.order = self.rng.permutation(len(self.rows))


def build_model(counts, width):
    """A model from the places of a user to a head over all places."""
    history = keras.Input((None,), dtype="int32", name="history")
    places = keras.layers.Embedding(len(counts), width, name="places")
    x = places(history)
    x = keras.layers.GlobalAveragePooling1D()(x, mask=history > 0)
    options = {"class_embedding": places, "temperature": 0.1}
    x = kc.CANESoftmax(len(counts), counts, **options)(x)
    return keras.Model(history, x)


def train(model, rows, rate, epochs, seed):
    examples = Examples(rows, seed)
    rate = keras.optimizers.schedules.CosineDecay(rate, epochs * len(examples))
    adam = keras.optimizers.Adam(rate, beta_2=0.99)
    model.compile(kc.optimizers.SparseRowOptimizer(adam), kc.CANELoss())
    model.fit(examples, epochs=epochs, verbose=2)


def evaluate(model, known, test):
    """Recall and NDCG of places that are not known, means over users."""
    discounts = 1 / np.log2(np.arange(2, TOP + 2))
    # Batches of histories of about equal length.
    users = sorted(known.keys() & test, key=lambda user: len(known[user]))
    results = []
    for start in range(0, len(users), 256):
        part = users[start : start + 256]
        seen = pad([known[user] for user in part])
        ids, _ = model.layers[-1].top_k(model(seen), TOP, exclude=seen)
        for user, best in zip(part, ids.numpy(), strict=True):
            hits, number = np.isin(best, test[user]), len(test[user])
            gain = hits @ discounts / discounts[:number].sum()
            results.append((hits.sum() / number, gain))
    recall, ndcg = np.mean(results, axis=0).tolist()
    return {"recall_at_20": recall, "ndcg_at_20": ndcg}


def main(argv=None):
    args = parse_arguments(argv)
    keras.utils.set_random_seed(args.seed)
    output = pathlib.Path(args.output)
    output.mkdir(parents=True, exist_ok=True)
    known, test = read(args.data, "train"), read(args.data, "test")
    rows = [row for row in known.values() if len(row) > 1]
    largest = max(row.max() for row in [*rows, *test.values()])
    counts = np.bincount(np.concatenate(rows), minlength=largest + 1)
    model = build_model(counts, args.width)
    train(model, rows, 0.01, args.epochs, args.seed)
    results = {"table": evaluate(model, known, test)}
    longest = max(map(len, rows))
    for name, method in METHODS.items():
        # Errors of popular places cost most.
        method = method.for_table(sample_weight=counts)
        small = kc.compress_model(model, {"places": method}, seed=args.seed)
        train(small, rows, 0.003, args.fine_tune_epochs, args.seed)
        results[name] = evaluate(small, known, test)
        # The history is passed twice: as input, and as places to exclude.
        predictor = kc.top_k_model(small, TOP, num_excluded=longest)
        path = output / f"{name}.tflite"
        export = kc.export_litert(predictor, path, overwrite=True)
        results[name]["file_bytes"] = export.file_bytes
    print(results)
    return results


if __name__ == "__main__":
    main()
