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

    python -m benchmarks anchors.recommendation

The data folder holds `gowalla/train.txt.xz` and `test.txt.xz`: a line a user,
with the ids of places after the user's. A tenth of the training pairs is held
out. Recall on it chooses the epoch of tables, and the settings. Recall and NDCG
are of the first 20 of all places that a user has not been to in training.

Narrower tables stand for low-rank factorisation too: vectors of 8 numbers and
a matrix that makes them 64 give the scores that vectors of 8 numbers give.

Paper: https://arxiv.org/abs/2003.08197
"""

import dataclasses
import functools
import hashlib
import pathlib
import sys
import time

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from benchmarks.anchors.numbers import count_numbers
from benchmarks.common import tables
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.data import visits

TOP = 20
# Of sparse rows, enough to let go of numbers that do nothing.
SMALL_L1 = 1e-7
# Times longer at the start than the layer's own, or a row's first steps would
# be much too short for vectors that need each other's gradients.
LONGER = 5
# Anchors that an id is related to.
RELATED = 4


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


class Recommendation(Benchmark):
    settings = {
        "dim": 64,
        "num_anchors": 256,
        "epochs": 6,
        "batch_size": 1024,
        "learning_rate": 3e-2,
        "fine_tune_rate": Flag(1e-2, "of what is fitted to tables"),
        "score": Flag(
            "ball",
            "of vectors; tables of few columns may want the product",
            choices=("ball", "product"),
        ),
        "temperature": 0.15,
        "popularity": Flag(0.6, "of the logarithm of visits, in the ranking"),
        "dense_epochs": Flag(2, "epochs before l1 sets in"),
        "valid_users": 3000,
    }
    choices = {
        "nonzeros": Flag(
            (4, 8, 2), "room in a row of T, and columns of narrow tables"
        ),
        "l1": (3e-5,),
        "cache": Flag(
            pathlib.Path("build", "ant_recommendation"),
            "folder of the full tables",
        ),
    }
    quick = {
        "dim": 8,
        "num_anchors": 10,
        "nonzeros": (2,),
        "epochs": 4,
        "batch_size": 16,
        "valid_users": 100,
        "l1": (1e-3,),
        "dense_epochs": 1,
    }
    columns = {
        "row": tables.field("name"),
        "numbers": tables.figure("parameters", "{:,.0f}"),
        "times smaller": tables.figure("times_smaller"),
        "recall@20": tables.figure("recall", "{:.4f}"),
        "NDCG@20": tables.figure("ndcg", "{:.4f}"),
        "valid recall": tables.figure("valid_recall", "{:.4f}"),
        "epoch": tables.figure("epoch", "{:.0f}"),
        "rate": tables.field("settings.learning_rate", "{:g}"),
        "s": tables.figure("seconds", "{:.0f}"),
    }

    def rows(self):
        sizes = self.args.nonzeros
        rows = [Row("tables", width=self.args.dim)]
        for size in sizes:
            rows += [
                Row(f"ANT, {size}", nonzeros=size),
                Row(f"ANT, {size}, fitted", nonzeros=size, fitted=True),
                Row(f"narrow tables, {size}", width=size),
            ]
        for name in RELATIONS:
            rows += [
                Row(f"ANT, {size}, {name}", nonzeros=size, relations=name)
                for size in sizes
            ]
        return rows + [Row(f"ANT, l1 {l1:g}", l1=l1) for l1 in self.args.l1]

    @functools.cached_property
    def pairs(self):
        if self.args.quick:
            return visits.generated()
        return visits.gowalla(self.folder / "gowalla")

    def measure(self, row, seed):
        args, pairs = self.args, self.pairs
        keras.utils.set_random_seed(seed)
        path = self.tables_path(seed)
        sides = [
            make_side(row, pairs, side, seed, path, args) for side in range(2)
        ]
        best = BestEpoch(sides, row, pairs, args)
        batches = Batches(pairs.train, args.batch_size, seed)
        rate = args.fine_tune_rate if row.fitted else args.learning_rate
        model = make_model(sides, rate, len(batches) * args.epochs, args)
        start = time.time()
        model.fit(batches, epochs=args.epochs, callbacks=[best], verbose=0)
        seconds = time.time() - start
        if row.width == args.dim:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, side0=best.vectors[0], side1=best.vectors[1])
        seen = np.concatenate([pairs.train, pairs.valid])
        users = np.unique(pairs.test[:, 0])
        recall, ndcg = rank(*best.tables, users, seen, pairs.test)
        numbers = args.dim * (pairs.num_users + pairs.num_items)
        return {
            "recall": recall,
            "ndcg": ndcg,
            "valid_recall": best.recall,
            "epoch": best.epoch,
            "parameters": best.parameters,
            "times_smaller": numbers / best.parameters,
            "seconds": round(seconds),
            "by_epoch": best.log,
        }

    def tables_path(self, seed):
        settings = repr([self.recorded, seed, self.args.quick])
        digest = hashlib.sha256(settings.encode()).hexdigest()[:8]
        return self.args.cache / f"tables-{digest}.npz"


def make_side(row, pairs, side, seed, path, args):
    """The embedding of users (side 0) or items (side 1)."""
    count = (pairs.num_users, pairs.num_items)[side]
    if row.width:
        return keras.layers.Embedding(
            count,
            row.width,
            embeddings_initializer=keras.initializers.RandomNormal(
                stddev=0.1, seed=seed + side
            ),
        )
    own_seed = seed + side
    arguments = {"num_anchors": args.num_anchors, "seed": own_seed}
    if row.l1 is not None:
        arguments.update(l1=0.0, storage="lazy")
    else:
        arguments.update(
            l1=SMALL_L1, storage=kc.transforms.SparseRows(row.nonzeros)
        )
    if row.fitted:
        if not path.exists():
            sys.exit("Run the row of tables first: its tables are needed.")
        table = np.load(path)[f"side{side}"]
        arguments["l1"] = kc.transforms.L1(arguments["l1"])  # non-negative
        return kc.ANTEmbedding.from_table(
            table, max_nonzeros=row.nonzeros, verbose=0, **arguments
        )
    if row.relations:
        counts = np.bincount(pairs.train[:, side], minlength=count)
        arguments.update(
            anchors_initializer=kc.anchors.Frequency(counts, own_seed),
            relations=RELATIONS[row.relations](
                pairs, side, count, args.num_anchors, seed
            ),
        )
    else:
        arguments["anchors_initializer"] = kc.anchors.Dynamic(own_seed)
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


def shared_visits(pairs, side, count, num_anchors, seed):
    """Relates users of the same places, or places of the same users."""
    rng = np.random.default_rng(seed)
    # In random order, so that a window holds any of them.
    train = rng.permutation(pairs.train)
    train = train[np.argsort(train[:, 1 - side], kind="stable")]
    ends = np.flatnonzero(np.diff(train[:, 1 - side])) + 1
    documents = np.split(train[:, side], ends)
    return kc.anchors.Relations.from_tokens(
        documents, count, window=10, min_count=2, top=5
    )


def nearest(pairs, side, count, num_anchors, seed):
    """Relates each with those anchors whose visits are most like its own."""
    counts = np.bincount(pairs.train[:, side], minlength=count)
    anchors = kc.anchors.Frequency(counts, seed).choose(count, num_anchors)
    points = visit_space(pairs, side, count, seed)
    number = min(RELATED, len(anchors))
    related = tf.math.top_k(points @ points[anchors].T, number).indices
    ids = np.repeat(np.arange(count), number)
    related = anchors[related.numpy().ravel()]
    return kc.anchors.Relations(np.stack([ids, related], axis=1), count)


def visit_space(pairs, side, count, seed):
    """Directions of the leading singular vectors of the visits."""
    other = (pairs.num_users, pairs.num_items)[1 - side]
    ids = pairs.train[:, [side, 1 - side]].astype("int64")
    ids = ids[np.lexsort(ids.T[::-1])]
    busy = [np.bincount(column) for column in ids.T]
    weights = (busy[0][ids[:, 0]] * busy[1][ids[:, 1]]) ** -0.5
    matrix = tf.SparseTensor(ids, weights.astype("float32"), (count, other))
    rng = np.random.default_rng(seed)
    width = min(32, count, other)
    points = rng.normal(size=(count, width)).astype("float32")
    for _ in range(4):
        points, _ = np.linalg.qr(points)
        back = tf.sparse.sparse_dense_matmul(matrix, points, adjoint_a=True)
        points = tf.sparse.sparse_dense_matmul(matrix, back).numpy()
    length = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.maximum(length, 1e-12)


RELATIONS = {"nearest": nearest, "visits": shared_visits}


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
        parameters = sum(map(count_numbers, self.sides))
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
        return np.asarray(side.embeddings)
    return side.get_weights()[0]


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


main = functools.partial(run, Recommendation)
