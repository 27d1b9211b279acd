"""From the places a user has been to, to those to visit next.

A recommender of next items, on the check-ins of Gowalla. The vectors of what a
user has seen and of what can be recommended are one table: the `Embedding` of
the input is the `class_embedding` of a `CANESoftmax`. Five losses train the
same model, each for the same processor time: `CANELoss`, the softmax over all
items, sampled softmax, gBCE and SCE. Each has its better of two learning rates,
by users' places held out. The best model is exported, and the LiteRT file
recommends to a user.

    python -m examples.next_item --data folder
    python -m examples.next_item --data folder --losses CANE --user 7

The data have no order in time: a user's places are in a new order in each
epoch, and the mean of those before stands for them. Where yours have one, put a
`keras.layers.GRU(return_sequences=True)` in place of the mean.

The folder holds `gowalla/train.txt.xz` and `gowalla/test.txt.xz`: a line a
user, with the ids of places after the user's.
"""

import argparse
import json
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from benchmarks import baselines
from benchmarks.common.timing import TimedTraining
from benchmarks.data import visits

# Items that the file answers, and how many new ones are shown.
TOP = 50
SHOWN = 5
# Items are counted from 1. It fills up short histories, in front.
NO_ITEM = 0
QUICK = {
    "generated": True,
    "width": 16,
    "batch_size": 10,
    "steps": 10,
    "history": 30,
    "samples": 20,
    "seconds": 0.4,
    "rates": "3e-2",
}


def sce(args):
    """As many buckets, of as many examples, as its paper has."""
    number = round(2 * (args.batch_size * args.steps) ** 0.5)
    return baselines.SCELoss(number, number, args.samples, ignore_class=NO_ITEM)


LOSSES = {
    "CANE": lambda args: kc.CANELoss(ignore_class=NO_ITEM),
    "full softmax": lambda args: baselines.FullSoftmaxLoss(
        ignore_class=NO_ITEM
    ),
    "sampled softmax": lambda args: kc.SampledSoftmaxLoss(
        args.samples, ignore_class=NO_ITEM
    ),
    "gBCE": lambda args: baselines.GBCELoss(args.samples, ignore_class=NO_ITEM),
    "SCE": sce,
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
    parser.add_argument("--output", default="build/next_item", help="folder")
    parser.add_argument(
        "--losses", default=",".join(LOSSES), help="some of these, by commas"
    )
    parser.add_argument("--width", type=int, default=64, help="of vectors")
    parser.add_argument("--batch-size", type=int, default=64, help="users")
    parser.add_argument(
        "--steps", type=int, default=20, help="items of a user in a batch"
    )
    parser.add_argument(
        "--history", type=int, default=128, help="items read to recommend"
    )
    parser.add_argument(
        "--samples", type=int, default=1000, help="items that baselines sample"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        help="processor time of each training",
    )
    parser.add_argument(
        "--rates", default="5e-3,1.25e-2", help="to choose from, by commas"
    )
    parser.add_argument(
        "--valid-users", type=int, default=3000, help="by whom to choose"
    )
    parser.add_argument(
        "--user", type=int, default=0, help="to recommend to at the end"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--quick", action="store_true", help="seconds: made-up visits"
    )
    args = parser.parse_args(argv)
    args.generated = False
    if args.quick:
        vars(args).update(QUICK)
    elif not args.data:
        parser.error("--data or COMPEMBED_DATA must name a folder")
    args.losses = args.losses.split(",")
    args.rates = [float(rate) for rate in args.rates.split(",")]
    for name in args.losses:
        if name not in LOSSES:
            parser.error(
                f"--losses must be some of {', '.join(LOSSES)}. "
                f"Received: {name!r}"
            )
    return args


def read_visits(args):
    """`Visits`: users and items, in three parts."""
    if args.generated:
        return visits.generated()
    return visits.gowalla(pathlib.Path(args.data) / "gowalla")


def histories(pairs, num_users, length, rng):
    """Items of each user in a random order, `NO_ITEM` in front.

    Args:
        pairs: Array of users and items, counted from 0.
        num_users: Integer.
        length: Integer, items of a user at most.
        rng: NumPy generator.

    Returns:
        int32 array `(num_users, length)`.
    """
    users, items = pairs[np.lexsort((rng.random(len(pairs)), pairs[:, 0]))].T
    counts = np.bincount(users, minlength=num_users)
    # Places from the end.
    place = np.cumsum(counts)[users] - np.arange(len(users))
    rows = np.full((num_users, length), NO_ITEM, "int32")
    kept = place <= length
    rows[users[kept], length - place[kept]] = items[kept] + 1
    return rows


class Epochs(keras.utils.PyDataset):
    """Batches of users' items and the items that follow each of them."""

    def __init__(self, data, args):
        super().__init__()
        self.data, self.args = data, args
        self.rng = np.random.default_rng(args.seed)
        self.on_epoch_end()

    def on_epoch_end(self):
        rows = histories(
            self.data.train, self.data.num_users, self.args.steps + 1, self.rng
        )
        rows = rows[np.sum(rows != NO_ITEM, axis=1) > 1]
        self.rows = self.rng.permutation(rows)

    def __len__(self):
        return len(self.rows) // self.args.batch_size

    def __getitem__(self, index):
        size = self.args.batch_size
        rows = self.rows[index * size : (index + 1) * size]
        return rows[:, :-1], rows[:, 1:]


def build_models(counts, loss, args):
    """A model to train, and one that reads a whole history.

    Args:
        counts: Array, how often each item was visited.
        loss: String, of `LOSSES`.
        args: What `parse_arguments` returns.
    """
    items = keras.layers.Embedding(len(counts), args.width, name="items")
    norm = keras.layers.LayerNormalization()
    dense = keras.layers.Dense(args.width)

    def encode(ids):
        """After each item, a vector of the mean of the items so far."""
        exists = keras.ops.cast(ids != NO_ITEM, "float32")[..., None]
        number = keras.ops.maximum(keras.ops.cumsum(exists, axis=1), 1.0)
        means = keras.ops.cumsum(items(ids) * exists, axis=1) / number
        return dense(norm(means))

    head = kc.CANESoftmax(
        len(counts),
        # As its paper samples; others sample by counts.
        sampling=kc.Sampling(noise="uniform" if loss == "gBCE" else None),
        # Those that nobody was at in training may be visited all the same.
        class_counts=np.maximum(counts, 1),
        class_embedding=items,
        seed=args.seed,
        name="next_item",
    )
    ids = keras.Input((None,), dtype="int32", name="ids")
    history = keras.Input((args.history,), dtype="int32", name="history")
    trained = keras.Model(ids, head(encode(ids)))
    recommender = keras.Model(history, head(encode(history)[:, -1]))
    return trained, recommender


def train(model, data, loss, rate, args):
    """Steps that were made."""
    model.compile(
        # It adds what a row gets from input and output, and leaves the rows
        # that a step does not look up alone.
        kc.optimizers.SparseRowOptimizer(
            keras.optimizers.Adam(global_clipnorm=1.0)
        ),
        loss=LOSSES[loss](args),
        # XLA takes longer than a quick run.
        jit_compile=False if args.quick else "auto",
    )
    clock = TimedTraining(rate, args.seconds, now=time.process_time)
    model.fit(
        Epochs(data, args),
        # The clock stops it.
        epochs=1_000_000,
        shuffle=False,
        verbose=0,
        callbacks=[clock],
    )
    return clock.steps


def items_by_user(pairs, num_users):
    """List of arrays, the items of each user, counted from 1."""
    users, items = pairs[np.argsort(pairs[:, 0], kind="stable")].T
    ends = np.cumsum(np.bincount(users, minlength=num_users))
    return np.split(items + 1, ends[:-1])


def ndcg(hits, number):
    """Of one user's answers.

    Args:
        hits: Boolean array, whether each answer is right, best first.
        number: Integer, how many right answers there are.
    """
    gains = 1 / np.log2(np.arange(2, 2 + len(hits)))
    return float(hits @ gains / gains[:number].sum())


def evaluate(recommender, users, seen, right, data, args):
    """Means over users, of the best items that they have not been to.

    Args:
        recommender: The second of `build_models`.
        users: Array of ids, each with an item in `right`.
        seen, right: Arrays of users and items.
        data: `Visits`.
        args: What `parse_arguments` returns.
    """
    head = recommender.get_layer("next_item")
    rows = histories(
        seen, data.num_users, args.history, np.random.default_rng(args.seed)
    )
    seen, right = (
        items_by_user(part, data.num_users) for part in (seen, right)
    )
    figures = []
    for start in range(0, len(users), 500):
        part = users[start : start + 500]
        features = recommender(rows[part])
        scores = head.scores.score_all(features).numpy()
        scores[:, NO_ITEM] = -np.inf
        for row, user in zip(scores, part, strict=True):
            row[seen[user]] = -np.inf
        best = tf.math.top_k(scores, 20).indices.numpy()
        for row, user in zip(best, part, strict=True):
            hits = np.isin(row, right[user])
            number = len(right[user])
            figures.append([ndcg(hits[:10], number), hits.sum() / number])
    means = np.mean(figures, axis=0)
    return {"ndcg_at_10": float(means[0]), "recall_at_20": float(means[1])}


def best_of_rates(loss, counts, data, args):
    """Figures of a loss, and its recommender, at the better rate."""
    users = np.unique(data.valid[:, 0])
    users = np.random.default_rng(args.seed).permutation(users)
    found = []
    for rate in args.rates:
        keras.backend.clear_session()
        keras.utils.set_random_seed(args.seed)
        trained, recommender = build_models(counts, loss, args)
        steps = train(trained, data, loss, rate, args)
        figures = evaluate(
            recommender,
            users[: args.valid_users],
            data.train,
            data.valid,
            data,
            args,
        )
        print(f"{loss}, rate {rate:g}, {steps:,} steps: {figures}", flush=True)
        found.append(
            ({"rate": rate, "steps": steps, "valid": figures}, recommender)
        )
    figures, recommender = max(
        found, key=lambda pair: pair[0]["valid"]["ndcg_at_10"]
    )
    figures["test"] = evaluate(
        recommender,
        np.unique(data.test[:, 0]),
        np.concatenate([data.train, data.valid]),
        data.test,
        data,
        args,
    )
    return figures, recommender


def table(results):
    """Markdown of what was found, a line a loss."""
    lines = ["| loss | NDCG@10 | recall@20 | rate | steps |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for name, figures in results.items():
        ndcg_at_10, recall = figures["test"].values()
        lines.append(
            f"| {name} | {ndcg_at_10:.4f} | {recall:.4f} "
            f"| {figures['rate']:g} | {figures['steps']:,} |"
        )
    return "\n".join(lines)


def ship(recommender, rows, output):
    """Saves and exports a recommender: a history goes in, items come out.

    Args:
        recommender: The second of `build_models`.
        rows: Array of histories to recommend for.
        output: `pathlib.Path` of a folder.

    Returns:
        Bytes of the file, its answer for `rows`, and which share of the items
        Keras answers in the same places.
    """
    recommender.save(output / "next_item.keras")
    path = output / "next_item.tflite"
    export = kc.export_litert(recommender, path, top_k=TOP, overwrite=True)
    answer = kc.export.LiteRTModel(path).predict(rows)
    expected = kc.top_k_model(recommender, TOP).predict(rows, verbose=0)
    # Items of nearly the same score may change places.
    same = float(np.mean(answer["ids"] == expected["ids"]))
    return export.file_bytes, answer, same


def main(argv=None):
    args = parse_arguments(argv)
    output = pathlib.Path(args.output)
    output.mkdir(parents=True, exist_ok=True)

    data = read_visits(args)
    if not 0 <= args.user < data.num_users:
        sys.exit(
            f"--user must be from 0 to {data.num_users - 1}. "
            f"Received: {args.user}"
        )
    counts = np.bincount(data.train[:, 1] + 1, minlength=data.num_items + 1)
    print(
        f"{len(data.train):,} visits to train on, {data.num_users:,} users, "
        f"{data.num_items:,} places"
    )
    losses, recommenders = {}, {}
    for name in args.losses:
        losses[name], recommenders[name] = best_of_rates(
            name, counts, data, args
        )
    best = max(losses, key=lambda name: losses[name]["valid"]["ndcg_at_10"])

    known = np.concatenate([data.train, data.valid])
    rows = histories(
        known, data.num_users, args.history, np.random.default_rng(args.seed)
    )[[args.user]]
    file_bytes, answer, same = ship(recommenders[best], rows, output)
    been = items_by_user(known, data.num_users)[args.user]
    # The file answers what a user knows, too: the app leaves that out.
    new = ~np.isin(answer["ids"][0], [NO_ITEM, *been])
    # As the data count them, from 0.
    recommended = (answer["ids"][0][new][:SHOWN] - 1).tolist()
    results = {
        "losses": losses,
        "best": best,
        "file_bytes": file_bytes,
        "same_as_keras": same,
        "recommended": recommended,
    }
    (output / "results.json").write_text(json.dumps(results, indent=2) + "\n")

    print(f"\nUser {args.user} has been to {len(been)} places. Next ones:")
    shares = answer["probabilities"][0][new]
    for place, share in zip(recommended, shares, strict=False):
        print(f"  {share:6.2%}  place {place}")
    print(
        f"\n{table(losses)}\n\nThe file is trained by {best} and has "
        f"{file_bytes:,} bytes. Model and results: {output}"
    )
    return results


if __name__ == "__main__":
    main()
