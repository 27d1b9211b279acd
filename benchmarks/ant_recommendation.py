"""How small can the tables of a recommender's users and items be?

Matrix factorisation of Gowalla check-ins, trained by `fit` with a softmax over
the places of the batch. What is trained is the product of the vectors of a
user and a place, each pulled into the unit ball; to rank places, a multiple of
the logarithm of their visits is added, the same for all rows.

The rows: full tables on both sides, narrower ones, and `ANTEmbedding` on both
sides, with room for a few non-zeros in each row of T (`storage="sparse"`):

- trained from a random start, with anchors that stand for nothing;
- with anchors that stand for the busiest users and places, where rows of users
  and places start at the anchors that they are related to, and those numbers
  are not shrunk: what they share visits with, or those that are nearest by the
  leading singular vectors of all visits;
- fitted to the full tables and trained further;
- with room for all numbers, of which `l1` alone makes zeros, after epochs
  without: two short vectors give each other no gradient to grow by.

Parameters are numbers: anchors and the non-zeros of T.

    COMPEMBED_DATA=... python benchmarks/ant_recommendation.py

The data folder holds `gowalla/train.txt.xz` and `test.txt.xz`: a line a user,
with the ids of places after the user's. A tenth of the training pairs is held
out. Recall on it chooses the epoch of tables, and the settings: of rows that
were run with several (`--learning-rate`) the table shows the best. Recall and
NDCG are of the first 20 of all places that a user has not been to in training.

Narrower tables stand for low-rank factorisation too: vectors of 8 numbers and
a matrix that makes them 64 give the scores that vectors of 8 numbers give.

Results are kept in a JSON file as they come; what stands there is not run
again. Rows are chosen by `--rows`, a regular expression. Paper:
https://arxiv.org/abs/2003.08197
"""
# ruff: noqa: E402

import argparse
import dataclasses
import hashlib
import json
import lzma
import os
import pathlib
import re
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from record import write_record

import keras_compembed as kc

FOLDER = pathlib.Path(__file__).parent
TOP = 20
# Of sparse rows, enough to let go of numbers that do nothing.
SMALL_L1 = 1e-7
# Times longer at the start than the layer's own, or a row's first steps would
# be much too short for vectors that need each other's gradients.
LONGER = 5
# Anchors that an id is related to.
RELATED = 4
# Settings that make a difference to figures.
SETTINGS = (
    "dim",
    "num_anchors",
    "epochs",
    "batch_size",
    "learning_rate",
    "fine_tune_rate",
    "score",
    "temperature",
    "popularity",
    "dense_epochs",
    "valid_users",
    "seed",
    "quick",
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: String.
        width: Integer, numbers of a vector in tables, or None.
        nonzeros: Integer, room in a row of T, or None.
        fitted: Boolean. Whether anchors and T are fitted to the full tables.
        l1: Number, for T with room for all numbers, or None.
        relations: None, `"nearest"` or `"visits"`.
    """

    name: str
    width: int | None = None
    nonzeros: int | None = None
    fitted: bool = False
    l1: float | None = None
    relations: str | None = None


def all_rows(args):
    """The table's rows, the most telling first."""
    rows = [Row("tables", width=args.dim)]
    for size in args.nonzeros:
        rows += [
            Row(f"ANT, {size}", nonzeros=size),
            Row(f"ANT, {size}, fitted", nonzeros=size, fitted=True),
            Row(f"narrow tables, {size}", width=size),
        ]
    for name in RELATIONS:
        rows += [
            Row(f"ANT, {size}, {name}", nonzeros=size, relations=name)
            for size in args.nonzeros
        ]
    rows += [Row(f"ANT, l1 {l1:g}", l1=l1) for l1 in args.l1]
    return [row for row in rows if re.search(args.rows, row.name)]


def main(arguments=None):
    args = parse(arguments)
    settings = {name: getattr(args, name) for name in SETTINGS}
    lines = []
    if args.output.exists():
        lines = json.loads(args.output.read_text())["rows"]
    pairs = make_pairs(args) if args.quick else read_pairs(args)
    for row in all_rows(args):
        key = dataclasses.asdict(row) | {"settings": settings}
        if any(key.items() <= line.items() for line in lines):
            continue
        print(row.name, flush=True)
        lines.append(key | run(row, pairs, args))
        save(args.output, lines)
    print_table(lines)
    return lines


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
    parser.add_argument("--rows", default="", help="regular expression")
    parser.add_argument(
        "--nonzeros",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[4, 8, 2],
        help="room in a row of T, and columns of narrow tables",
    )
    parser.add_argument(
        "--l1",
        type=lambda text: [float(part) for part in text.split(",")],
        default=[3e-5],
    )
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--num-anchors", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--learning-rate", type=float, default=3e-2)
    parser.add_argument(
        "--score",
        default="ball",
        choices=("ball", "product"),
        help="of vectors; tables of few columns may want the product",
    )
    parser.add_argument("--temperature", type=float, default=0.15)
    parser.add_argument(
        "--popularity",
        type=float,
        default=0.6,
        help="of the logarithm of visits, in the ranking",
    )
    parser.add_argument(
        "--dense-epochs",
        type=int,
        default=2,
        help="epochs before l1 sets in",
    )
    parser.add_argument(
        "--fine-tune-rate",
        type=float,
        default=1e-2,
        help="of what is fitted to tables",
    )
    parser.add_argument(
        "--cache",
        type=pathlib.Path,
        default=FOLDER.parent / "build" / "ant_recommendation",
        help="folder of the full tables",
    )
    parser.add_argument("--valid-users", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path(__file__).with_suffix(".json"),
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small, on made-up visits, to see that it runs",
    )
    args = parser.parse_args(arguments)
    if args.quick:
        args.dim, args.num_anchors, args.nonzeros = 8, 10, [2]
        args.epochs, args.batch_size, args.valid_users = 4, 16, 100
        args.l1, args.dense_epochs = [1e-3], 1
    elif not args.data:
        sys.exit("Name the data folder: --data, or COMPEMBED_DATA.")
    return args


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Users and the places they visited.

    Attributes:
        num_users, num_items: Integers.
        train, valid, test: int32 arrays `(pairs, 2)`, sorted by user.
    """

    num_users: int
    num_items: int
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray

    @classmethod
    def split(cls, train, test):
        """Holds a tenth of training pairs out."""
        order = np.random.default_rng(0).permutation(len(train))
        held = len(train) // 10
        sizes = np.concatenate([train, test]).max(axis=0) + 1
        parts = (train[order[held:]], train[order[:held]], test)
        return cls(*sizes.tolist(), *map(_by_user, parts))


def _by_user(pairs):
    return pairs[np.argsort(pairs[:, 0], kind="stable")].astype("int32")


def read_pairs(args):
    parts = []
    for name in ("train", "test"):
        path = pathlib.Path(args.data) / "gowalla" / f"{name}.txt.xz"
        pairs = []
        with lzma.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                user, *items = map(int, line.split())
                pairs += [(user, item) for item in items]
        parts.append(np.array(pairs))
    return Pairs.split(*parts)


def make_pairs(args):
    """Users and items of five kinds, who mostly keep to theirs."""
    rng = np.random.default_rng(args.seed)
    users, items = np.divmod(np.arange(150 * 100), 100)
    alike = users % 5 == items % 5
    visited = rng.random(len(users)) < np.where(alike, 0.7, 0.02)
    pairs = np.stack([users, items], axis=1)[visited]
    tested = rng.random(len(pairs)) < 0.2
    return Pairs.split(pairs[~tested], pairs[tested])


def run(row, pairs, args):
    keras.utils.set_random_seed(args.seed)
    sides = [make_side(row, pairs, side, args) for side in range(2)]
    best = BestEpoch(sides, row, pairs, args)
    batches = Batches(pairs.train, args.batch_size, args.seed)
    rate = args.fine_tune_rate if row.fitted else args.learning_rate
    model = make_model(sides, rate, len(batches) * args.epochs, args)
    start = time.time()
    model.fit(batches, epochs=args.epochs, callbacks=[best], verbose=0)
    seconds = time.time() - start
    if row.width == args.dim:
        path = tables_path(args)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, side0=best.vectors[0], side1=best.vectors[1])
    seen = np.concatenate([pairs.train, pairs.valid])
    users = np.unique(pairs.test[:, 0])
    recall, ndcg = rank(*best.tables, users, seen, pairs.test)
    figures = {
        "recall": recall,
        "ndcg": ndcg,
        "valid_recall": best.recall,
        "epoch": best.epoch,
        "parameters": best.parameters,
        "times_smaller": args.dim
        * (pairs.num_users + pairs.num_items)
        / best.parameters,
        "seconds": round(seconds),
        "by_epoch": best.log,
    }
    print(f"  recall {recall:.4f}, {best.parameters:,} numbers", flush=True)
    return figures


def make_side(row, pairs, side, args):
    """The embedding of users (side 0) or items (side 1)."""
    count = (pairs.num_users, pairs.num_items)[side]
    seed = args.seed + side
    if row.width:
        return keras.layers.Embedding(
            count,
            row.width,
            embeddings_initializer=keras.initializers.RandomNormal(
                stddev=0.1, seed=seed
            ),
        )
    arguments = {"num_anchors": args.num_anchors, "seed": seed}
    if row.l1 is not None:
        arguments.update(l1=0.0, storage="lazy")
    else:
        arguments.update(
            l1=SMALL_L1, storage="sparse", max_nonzeros=row.nonzeros
        )
    if row.fitted:
        path = tables_path(args)
        if not path.exists():
            sys.exit("Run the row of tables first: its tables are needed.")
        table = np.load(path)[f"side{side}"]
        return kc.ANTEmbedding.from_table(
            table, non_negative=True, verbose=0, **arguments
        )
    if row.relations:
        counts = np.bincount(pairs.train[:, side], minlength=count)
        arguments.update(
            anchors_initializer=kc.anchors.Frequency(counts, seed),
            relations=RELATIONS[row.relations](pairs, side, count, args),
        )
    else:
        arguments["anchors_initializer"] = kc.anchors.Dynamic(seed)
    layer = kc.ANTEmbedding(count, args.dim, **arguments)
    layer.build()
    start = layer.get_transform().dense_rows() * LONGER
    if row.relations:
        start_related(start, layer, row.nonzeros)
    layer.assign_transform(start)
    return layer


def start_related(start, layer, room):
    """Lets rows of T start at anchors that stand for related ids."""
    offsets, columns = layer.relations.free_entries(layer.anchor_ids)
    for row in np.flatnonzero(np.diff(offsets)):
        related = columns[offsets[row] : offsets[row + 1]][:room]
        start[row] = 0
        start[row, related] = LONGER * 0.1


def tables_path(args):
    settings = repr([getattr(args, name) for name in SETTINGS])
    digest = hashlib.sha256(settings.encode()).hexdigest()[:8]
    return args.cache / f"tables-{digest}.npz"


def visits(pairs, side, count, args):
    """Relates users of the same places, or places of the same users."""
    rng = np.random.default_rng(args.seed)
    # In random order, so that a window holds any of them.
    train = rng.permutation(pairs.train)
    train = train[np.argsort(train[:, 1 - side], kind="stable")]
    ends = np.flatnonzero(np.diff(train[:, 1 - side])) + 1
    documents = np.split(train[:, side], ends)
    return kc.anchors.Relations.from_tokens(
        documents, count, window=10, min_count=2, top=5
    )


def nearest(pairs, side, count, args):
    """Relates each with those anchors whose visits are most like its own."""
    counts = np.bincount(pairs.train[:, side], minlength=count)
    anchors = kc.anchors.Frequency(counts, args.seed).choose(
        count, args.num_anchors
    )
    points = visit_space(pairs, side, count, args)
    number = min(RELATED, len(anchors))
    related = tf.math.top_k(points @ points[anchors].T, number).indices
    ids = np.repeat(np.arange(count), number)
    related = anchors[related.numpy().ravel()]
    return kc.anchors.Relations(np.stack([ids, related], axis=1), count)


def visit_space(pairs, side, count, args):
    """Directions of the leading singular vectors of the visits."""
    other = (pairs.num_users, pairs.num_items)[1 - side]
    ids = pairs.train[:, [side, 1 - side]].astype("int64")
    ids = ids[np.lexsort(ids.T[::-1])]
    busy = [np.bincount(column) for column in ids.T]
    weights = (busy[0][ids[:, 0]] * busy[1][ids[:, 1]]) ** -0.5
    matrix = tf.SparseTensor(ids, weights.astype("float32"), (count, other))
    rng = np.random.default_rng(args.seed)
    width = min(32, count, other)
    points = rng.normal(size=(count, width)).astype("float32")
    for _ in range(4):
        points, _ = np.linalg.qr(points)
        back = tf.sparse.sparse_dense_matmul(matrix, points, adjoint_a=True)
        points = tf.sparse.sparse_dense_matmul(matrix, back).numpy()
    length = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.maximum(length, 1e-12)


RELATIONS = {"nearest": nearest, "visits": visits}


class Batches(keras.utils.PyDataset):
    """Pairs in random order, each labelled with its place in the batch."""

    def __init__(self, pairs, batch_size, seed):
        super().__init__()
        self.pairs, self.batch_size = pairs, batch_size
        self.rng = np.random.default_rng(seed)
        self.on_epoch_end()

    def on_epoch_end(self):
        self.order = self.rng.permutation(len(self.pairs))

    def __len__(self):
        return len(self.pairs) // self.batch_size

    def __getitem__(self, index):
        start = index * self.batch_size
        users, items = self.pairs[self.order[start : start + self.batch_size]].T
        return (users, items), np.arange(self.batch_size)


def make_model(sides, rate, steps, args):
    """Logits of each user of a batch for the batch's places.

    A place is in a batch as often as it is popular, so that logits come to
    say how much more a user likes it than others do.
    """
    users, items = (keras.Input((), dtype="int32") for _ in range(2))
    user_vectors, item_vectors = (
        scaled(side(ids), args)
        for side, ids in zip(sides, (users, items), strict=True)
    )
    logits = keras.ops.matmul(user_vectors, keras.ops.transpose(item_vectors))
    model = keras.Model([users, items], logits)
    rate = keras.optimizers.schedules.CosineDecay(rate, steps, alpha=0.05)
    model.compile(
        # A row is looked up rarely: with the usual 0.999 its first steps
        # would be much too long.
        kc.optimizers.SparseRowOptimizer(
            keras.optimizers.Adam(rate, beta_2=0.99)
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    return model


def scaled(vectors, args):
    """Vectors whose products are logits."""
    if args.score == "product":
        return vectors
    squares = keras.ops.sum(keras.ops.square(vectors), axis=-1, keepdims=True)
    # A cosine where vectors are long. A plain cosine would not mind how short
    # they are, and l1 would shorten them without end.
    length = keras.ops.sqrt(args.temperature * (squares + 1))
    return vectors / length


def ranking_tables(sides, pairs, args):
    """Tables whose products rank items for users."""
    users, items = (
        keras.ops.convert_to_numpy(scaled(tf.constant(side_table(side)), args))
        for side in sides
    )
    visits = np.bincount(pairs.train[:, 1], minlength=pairs.num_items)
    offsets = args.popularity * np.log1p(visits[:, None])
    ones = np.ones((pairs.num_users, 1))
    return tuple(
        np.concatenate(parts, axis=1).astype("float32")
        for parts in ((users, ones), (items, offsets))
    )


class BestEpoch(keras.callbacks.Callback):
    """Keeps the tables of the epoch with the best recall on pairs held out.

    With l1, which sets in after some epochs, those of the last epoch: others
    are larger.
    """

    def __init__(self, sides, row, pairs, args):
        super().__init__()
        self.sides, self.row = sides, row
        self.pairs, self.args = pairs, args
        users = np.unique(pairs.valid[:, 0])
        users = np.random.default_rng(0).permutation(users)
        self.users = users[: args.valid_users]
        self.recall, self.log = -1.0, []

    def on_epoch_begin(self, epoch, logs=None):
        self.start = time.time()
        if self.row.l1 is not None and epoch == self.args.dense_epochs:
            for side in self.sides:
                side.l1 = self.row.l1

    def on_epoch_end(self, epoch, logs=None):
        tables = ranking_tables(self.sides, self.pairs, self.args)
        parameters = sum(map(count_parameters, self.sides))
        recall, _ = rank(
            *tables, self.users, self.pairs.train, self.pairs.valid
        )
        self.log.append([round(recall, 4), parameters])
        print(
            f"  epoch {epoch + 1}: loss {logs['loss']:.3f}, "
            f"valid {recall:.4f}, {parameters:,} numbers, "
            f"{time.time() - self.start:.0f} s",
            flush=True,
        )
        if self.row.l1 is not None or recall > self.recall:
            self.recall, self.epoch = recall, epoch + 1
            self.tables, self.parameters = tables, parameters
            self.vectors = [side_table(side) for side in self.sides]


def side_table(side):
    if isinstance(side, kc.ANTEmbedding):
        return side.embeddings
    return side.get_weights()[0]


def count_parameters(side):
    if isinstance(side, kc.ANTEmbedding):
        return side.num_anchors * side.output_dim + side.nnz
    return side.count_params()


def rank(user_table, item_table, users, seen, relevant):
    """Mean recall and NDCG of the first 20 items not seen.

    Args:
        user_table, item_table: Arrays of vectors.
        users: Array of ids, each in a pair of `relevant`.
        seen, relevant: Arrays `(pairs, 2)` of users and items.
    """
    num_items = len(item_table)
    seen, relevant = (
        np.sort(part[:, 0].astype("int64") * num_items + part[:, 1])
        for part in (seen, relevant)
    )
    discount = 1 / np.log2(np.arange(2, 2 + TOP))
    ideal = np.cumsum(discount)
    recalls, ndcgs = [], []
    for start in range(0, len(users), 512):
        part = np.sort(users[start : start + 512]).astype("int64")
        scores = tf.matmul(
            user_table[part], item_table, transpose_b=True
        ).numpy()
        rows, items = _of_users(seen, part, num_items)
        scores[rows, items] = -np.inf
        top = tf.math.top_k(scores, min(TOP, num_items)).indices.numpy()
        hits = np.isin(part[:, None] * num_items + top, relevant)
        rows, _ = _of_users(relevant, part, num_items)
        counts = np.bincount(rows, minlength=len(part))
        recalls.append(hits.sum(axis=1) / counts)
        gains = hits @ discount[: hits.shape[1]]
        ndcgs.append(gains / ideal[np.minimum(counts, TOP) - 1])
    return tuple(
        float(np.concatenate(values).mean()) for values in (recalls, ndcgs)
    )


def _of_users(keys, users, num_items):
    """Places in `users`, and items, of the sorted keys that are theirs."""
    starts = np.searchsorted(keys, users * num_items)
    stops = np.searchsorted(keys, (users + 1) * num_items)
    rows = np.repeat(np.arange(len(users)), stops - starts)
    found = [
        keys[start:stop] for start, stop in zip(starts, stops, strict=True)
    ]
    return rows, np.concatenate(found) % num_items


def save(path, lines):
    write_record(path, "python benchmarks/ant_recommendation.py", rows=lines)


def print_table(lines):
    best = {}
    for line in lines:
        other = best.get(line["name"])
        if other is None or other["valid_recall"] < line["valid_recall"]:
            best[line["name"]] = line
    print(
        "| row | numbers | times smaller | recall@20 | NDCG@20 | valid recall "
        "| epoch | rate | s |"
    )
    print("|" + "---|" * 9)
    for line in best.values():
        print(
            f"| {line['name']} | {line['parameters']:,} "
            f"| {line['times_smaller']:.1f} | {line['recall']:.4f} "
            f"| {line['ndcg']:.4f} | {line['valid_recall']:.4f} "
            f"| {line['epoch']} | {line['settings']['learning_rate']:g} "
            f"| {line['seconds']} |"
        )


if __name__ == "__main__":
    main()
