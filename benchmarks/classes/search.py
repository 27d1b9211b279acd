"""How much of the classes must be scored to find the best ones?

    python -m benchmarks classes.search

Models of places, words and made-up classes are trained by `CANESoftmax` by
default. `fit_search` then sorts their classes into lists, and opens as many as
the recall asked for needs on validation features. LiteRT files of one example
take turns on one thread: a plain product with all classes, the layer as it was
trained, and searches.
"""

import dataclasses
import functools
import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from benchmarks.classes import equal_time
from benchmarks.classes.methods import METHODS
from benchmarks.classes.tasks import QUICK
from benchmarks.classes.tasks import Labels
from benchmarks.classes.tasks import Visits
from benchmarks.classes.tasks import Words
from benchmarks.classes.tasks import class_table
from benchmarks.common import litert
from benchmarks.common import tables
from benchmarks.common import timing
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run

TASKS = (
    Visits("gowalla"),
    Words("gutenberg", seconds=120.0, curve_batches=1),
    Labels("synthetic_100k", curve_examples=1),
)
PRODUCT, ALL = "plain product", "all classes"
METHOD = METHODS["CANE by default"]


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    task: object
    k: int
    recall: object


class Search(Benchmark):
    settings = {
        "rate": Flag(1.25e-2, "of learning, the highest"),
        "examples": Flag(2000, "by which a search is fitted, and tested"),
        "rounds": Flag(300, "examples that a file is timed on"),
    }
    choices = {
        "recalls": Flag((0.9, 0.95, 0.99), "to fit a search for"),
        "ks": Flag((1, 10), "numbers of classes to find"),
        "tasks": tuple(task.name for task in TASKS),
    }
    quick = {
        "examples": 100,
        "rounds": 3,
        "recalls": (0.8,),
        "ks": (1,),
        "tasks": tuple(task.name for task in QUICK),
    }
    columns = {
        "task": tables.field("row.task.name"),
        "classes": tables.figure("num_classes", "{:,.0f}"),
        "width": tables.figure("width", "{:.0f}"),
        "k": tables.field("row.k"),
        "fitted for": tables.field("row.recall"),
        "recall": tables.figure("recall", "{:.3f}"),
        "classes scored": tables.figure("share", scale=100, unit=" %"),
        "milliseconds": tables.figure("milliseconds", "{:.3f}"),
        "times faster": tables.figure("times_faster", "{:.1f}"),
    }

    def rows(self):
        known = {task.name: task for task in (*TASKS, *QUICK)}
        return [
            Row(f"{name}, {k}, {recall}", known[name], k, recall)
            for name in self.args.tasks
            for k in self.args.ks
            for recall in (PRODUCT, ALL, *self.args.recalls)
        ]

    def together(self, row):
        return row.task.name, row.k

    def measure_together(self, rows, seed):
        trained = self.trained(rows[0].task, seed)
        k = rows[0].k
        vectors, biases = class_table(trained.head)
        best = best_classes(trained.test, vectors, biases, k)
        found, runs = {}, {}
        with tempfile.TemporaryDirectory() as folder:
            (product,) = (
                row
                for row in self.rows()
                if self.together(row) == self.together(rows[0])
                and row.recall == PRODUCT
            )
            for place, row in enumerate(dict.fromkeys([product, *rows])):
                head = trained.head
                if row.recall not in (PRODUCT, ALL):
                    head = kc.candidates.fit_search(
                        head, trained.valid, row.recall, k
                    )
                    found[row] = search_figures(head, trained.test, best)
                if row.recall == PRODUCT:
                    model = plain_product(vectors, biases, k)
                else:
                    inputs = keras.Input((vectors.shape[1],), batch_size=1)
                    model = keras.Model(inputs, head(inputs))
                    model = kc.top_k_model(model, k)
                path = pathlib.Path(folder) / f"{place}.tflite"
                kc.export.export_litert(model, path, verbose=0)
                runs[row] = litert.load(path)
            rounds = trained.test[: self.args.rounds, None]
            times = timing.take_turns(runs, rounds)
        times = {row: timing.summarize(taken) for row, taken in times.items()}
        slowest = times[product]["milliseconds"]
        for row in rows:
            taken = times[row]
            yield {
                "num_classes": len(vectors),
                "width": vectors.shape[1],
                **found.get(row, {}),
                **taken,
                "times_faster": round(slowest / taken["milliseconds"], 2),
            }

    @functools.lru_cache(maxsize=1)  # noqa: B019
    def trained(self, task, seed):
        """A trained layer, and features of two parts."""
        row = equal_time.Row("", task, METHOD, 1000)
        data = task.load(None if task in QUICK else self.folder)
        rate = self.args.rate
        training = equal_time.Training(
            row, data, seed, (rate,), self.jit_compile
        )
        training.train(rate)
        return Trained(
            training.model.layers[-1],
            *(
                data.queries(training.model, part, self.args.examples)
                for part in ("valid", "test")
            ),
        )


@dataclasses.dataclass
class Trained:
    """A layer of classes, and features of examples."""

    head: kc.CANESoftmax
    valid: np.ndarray
    test: np.ndarray


class Best(keras.layers.Layer):
    """The ids of the best logits."""

    def __init__(self, k, **kwargs):
        super().__init__(**kwargs)
        self.k = k

    def call(self, logits):
        scores, ids = tf.math.top_k(logits, self.k)
        return {"ids": ids, "scores": scores}


def plain_product(vectors, biases, k):
    """A model of a Dense layer, and the best of its outputs."""
    inputs = keras.Input((vectors.shape[1],), batch_size=1)
    dense = keras.layers.Dense(len(vectors))
    model = keras.Model(inputs, Best(k)(dense(inputs)))
    dense.set_weights([vectors.T, biases])
    return model


def best_classes(features, vectors, biases, k):
    """Ids of the `k` classes of the highest scores, `(examples, k)`."""
    found = []
    for start in range(0, len(features), 256):
        scores = features[start : start + 256] @ vectors.T + biases
        found.append(np.argpartition(-scores, k - 1, axis=1)[:, :k])
    return np.concatenate(found)


def search_figures(head, features, best):
    """What a search finds, and what it scores for that."""
    k = best.shape[1]
    ids = np.concatenate(
        [
            head.top_k(features[start : start + 256], k)[0].numpy()
            for start in range(0, len(features), 256)
        ]
    )
    number, capacity = head.selector.lists.shape
    scored = head.selector.num_probes * capacity
    return {
        "recall": float(np.mean((ids[:, :, None] == best[:, None]).any(2))),
        "num_lists": number,
        "lists": head.selector.num_probes,
        "share": scored / head.num_classes,
    }


main = functools.partial(run, Search)
