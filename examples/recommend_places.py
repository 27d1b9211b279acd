"""Recommends places to users, from what they visited, in small LiteRT files.

A `CANESoftmax` ranks places by their cosines with a user's vector. In training,
each user has a vector. In use, it is the mean vector of visited places, less
what similar users visit. Nothing is stored for users, and new users need no
training. Codes of the table are trained in the same way.

    python -m examples.recommend_places --data folder

In the folder, lines of `train.txt` and `test.txt`, or `.txt.xz`, are a user and
places, in numbers. On Gowalla, recall@20 and NDCG@20 are .186, .155 (table),
.184, .153 (large) and .170, .141 (small), in some 15 minutes on one core.
"""

import argparse
import lzma
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import keras_compembed as kc

# Places to recommend, clusters of places, and the length of a step.
TOP, CLUSTERS, STEP = 20, 256, 0.9
TEMPERATURE, BATCH_SIZE = 0.1, 4096
METHODS = {
    "large": kc.methods.Codes(72, 16),
    "small": kc.methods.Codes(12, 64),
}


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="folder")
    parser.add_argument("--output", default="build/recommend_places")
    parser.add_argument("--width", type=int, default=128, help="of vectors")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--fine-tune-epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def read(folder, name):
    """Dict from users to their places. 0 is padding: places begin at 1."""
    paths = [*pathlib.Path(folder).glob(f"{name}.txt*")]
    if len(paths) != 1:
        raise SystemExit(f"--data must have one {name}.txt. Received: {folder}")
    (path,) = paths
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        rows = [np.array(line.split(), "int32") for line in file]
    return {row[0]: row[1:] + 1 for row in rows if len(row) > 1}


def build_model(counts, width):
    """A model from the places of a user to a head over all places."""
    history = keras.Input((None,), dtype="int32", name="history")
    # Rows of length 1.
    start = keras.initializers.RandomNormal(stddev=width**-0.5)
    places = keras.layers.Embedding(len(counts), width, start, name="places")
    x = keras.layers.GlobalAveragePooling1D(name="user")(
        places(history), mask=history > 0
    )
    options = {"class_embedding": places, "temperature": TEMPERATURE}
    x = kc.CANESoftmax(len(counts), counts, **options)(x)
    return keras.Model(history, x)


def batches(known, users):
    """Parts of the users with their padded places, of about equal length."""
    users = sorted(users, key=lambda user: len(known[user]))
    for start in range(0, len(users), 256):
        part = users[start : start + 256]
        rows = [known[user] for user in part]
        yield part, keras.utils.pad_sequences(rows, padding="post")


def train(model, known, rate, epochs):
    """Trains with a vector for each user, which begins as the mean."""
    encoder = keras.Model(model.input, model.get_layer("user").output)
    users, means = [], []
    for part, places in batches(known, known):
        users += part
        means.append(keras.ops.normalize(encoder(places)))
    means = np.concatenate(means)
    start = keras.initializers.Constant(means)
    user = keras.Input((), dtype="int32")
    x = keras.layers.Embedding(*means.shape, start)(user)
    factors = keras.Model(user, model.layers[-1](x))
    # One example for each visit.
    rows = [known[user] for user in users]
    x = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    steps = epochs * -(-len(x) // BATCH_SIZE)
    rate = keras.optimizers.schedules.CosineDecay(rate, steps)
    adam = keras.optimizers.Adam(rate, beta_2=0.99)
    factors.compile(kc.optimizers.SparseRowOptimizer(adam), kc.CANELoss())
    y = np.concatenate(rows)
    factors.fit(x, y, batch_size=BATCH_SIZE, epochs=epochs, verbose=2)


def finish(model, counts):
    """Takes what similar users visit off the vectors of users.

    This is a step of gradient ascent of the likelihood of visits, with clusters
    for places.
    """
    head = model.layers[-1]
    ids = np.array_split(np.arange(len(counts), dtype="int32"), 16)
    places = model.get_layer("places")
    table = np.concatenate([keras.ops.normalize(places(x)) for x in ids])
    # Codes of one codebook are clusters.
    clusters = kc.CodeEmbedding.from_table(
        table, 1, CLUSTERS, sample_weight=counts, verbose=0
    )
    centres = clusters.codebooks.numpy()[0]
    visits = np.bincount(
        clusters.codes[:, 0], np.exp(head.bias), minlength=CLUSTERS
    )
    # The share of each cluster in visits of users with this vector.
    shares = keras.layers.Dense(CLUSTERS, "softmax")
    mean = keras.layers.Dense(centres.shape[1], use_bias=False)
    x = keras.layers.UnitNormalization()(model.get_layer("user").output)
    x = x - STEP * mean(shares(x))
    shares.set_weights([centres.T / TEMPERATURE, np.log(visits + 1e-9)])
    mean.set_weights([centres])
    return keras.Model(model.input, head(x))


def evaluate(model, known, test):
    """Recall and NDCG of places that are not known, means over users."""
    discounts = 1 / np.log2(np.arange(2, TOP + 2))
    results = []
    for part, seen in batches(known, known.keys() & test):
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
    largest = max(row.max() for row in [*known.values(), *test.values()])
    counts = np.concatenate([*known.values()])
    counts = np.bincount(counts, minlength=largest + 1)
    model = build_model(counts, args.width)
    train(model, known, 0.02, args.epochs)
    # All places count the same in means.
    table = model.get_layer("places").embeddings
    table.assign(keras.ops.normalize(table))
    results = {"table": evaluate(finish(model, counts), known, test)}
    longest = max(map(len, known.values()))
    rows = [*known.values()][:100]
    samples = keras.utils.pad_sequences(rows, longest, padding="post")
    for name, method in METHODS.items():
        # Errors of popular places cost most.
        method = method.for_table(sample_weight=counts**0.5)
        small = kc.compress_model(model, {"places": method}, seed=args.seed)
        train(small, known, 0.005, args.fine_tune_epochs)
        small = finish(small, counts)
        results[name] = evaluate(small, known, test)
        # The history is passed twice: as input, and as places to exclude.
        predictor = kc.top_k_model(small, TOP, num_excluded=longest)
        path = output / f"{name}.tflite"
        export = kc.export_litert(
            predictor,
            path,
            sample_inputs=[samples, samples],
            # The temperature makes errors of scores ten times larger.
            target=kc.export.Target(tolerance=0.2),
            overwrite=True,
        )
        results[name]["file_bytes"] = export.file_bytes
    print(results)
    return results


if __name__ == "__main__":
    main()
