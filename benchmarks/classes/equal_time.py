"""Which way to train very many classes is best in the same processor time?

    python -m benchmarks classes.equal_time --seeds 0,1,2

Models of words, job titles, places and answers of a graph are trained by
`CANESoftmax` and its rivals, for the same processor seconds on one thread, with
the same optimizer and schedule. The number of sampled classes and the learning
rate are the best by the validation part, with the first seed. Other seeds are
for the full softmax and the best of the rivals and of CANE.
"""
# ruff: noqa: E402

import dataclasses
import functools
import time

from benchmarks.common.threads import use_one_thread

use_one_thread()

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.classes.methods import METHODS
from benchmarks.classes.methods import Method
from benchmarks.classes.methods import make_head
from benchmarks.classes.methods import make_loss
from benchmarks.classes.methods import sizes
from benchmarks.classes.tasks import QUICK
from benchmarks.classes.tasks import TASKS
from benchmarks.common import tables
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.common.best_rows import check_names
from benchmarks.common.best_rows import climb
from benchmarks.common.timing import TimedTraining

# Rows of each side of a task that are run with more seeds.
BEST = 3
# Shares of the time after which models are evaluated on the way.
MARKS = (0.25, 0.5)
FULL = "full softmax"


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    task: object
    method: Method
    samples: int


class EqualTime(Benchmark):
    # The record tells which rates were tried.
    choices = {
        "rates": Flag((2e-3, 5e-3, 1.25e-2, 3e-2, 7.5e-2), "to choose from"),
        "tasks": tuple(task.name for task in TASKS),
        "methods": tuple(METHODS),
    }
    quick = {
        "rates": (1e-2, 3e-2),
        "tasks": tuple(task.name for task in QUICK),
        "methods": ("sampled softmax", "CANE 1/4 frequent", FULL),
    }
    columns = {
        "task": tables.field("row.task.name"),
        "method": lambda row: row["name"].split("; ")[1],
        "candidates": lambda row: numbers_of(row)[0],
        "noises": lambda row: numbers_of(row)[1],
        "perplexity": tables.figure("test.perplexity"),
        "accuracy": tables.figure("test.accuracy", scale=100, unit=" %"),
        "NDCG@20": tables.figure("test.ndcg", "{:.4f}"),
        "recall@20": tables.figure("test.recall", "{:.4f}"),
        "MRR": tables.figure("test.mrr", "{:.4f}"),
        "hits@10": tables.figure("test.hits_10", "{:.4f}"),
        "rate": tables.figure("rate", "{:g}"),
        "steps": tables.figure("steps", "{:,.0f}"),
        "seeds": tables.seeds,
    }

    def rows(self):
        """By numbers of samples, the full softmax at once, then by method."""
        args = self.args
        known = {task.name: task for task in (*TASKS, *QUICK)}
        check_names("tasks", args.tasks, known)
        check_names("methods", args.methods, METHODS)
        tasks = [known[name] for name in args.tasks]
        found = [
            row
            for name in args.methods
            for task in tasks
            for row in rows_of(task, name)
        ]
        return sorted(found, key=place_of)

    def turns(self, rows):
        """Rows of a number of samples, then the best of a task again."""
        first, *others = self.args.seeds
        yield from ((first, [row]) for row in rows)
        for task in dict.fromkeys(row.task for row in rows):
            alike = [row for row in rows if row.task == task]
            for seed in others:
                yield from ((seed, [row]) for row in self.best(alike, first))

    def best(self, rows, seed):
        """The full softmax, and the best of its rivals and of CANE."""
        scores = {row: self.figures_of(row, seed) for row in rows}
        scores = {
            row: row.task.sign * figures["valid"][row.task.metric]
            for row, figures in scores.items()
            if figures is not None
        }
        found = sorted(scores, key=scores.get, reverse=True)
        full, rivals, cane = (
            [row for row in found if side(row.method) == name]
            for name in ("full", "rival", "cane")
        )
        return full + rivals[:BEST] + cane[:BEST]

    def measure(self, row, seed):
        started = time.process_time()
        training = Training(
            row,
            self.task(row.task),
            seed,
            self.rates(row, seed),
            self.jit_compile,
        )
        figures = training.measure()
        return figures | {"cpu_seconds": time.process_time() - started}

    def rates(self, row, seed):
        """Learning rates to try, of another seed that of the first."""
        first = self.args.seeds[0]
        known = None if seed == first else self.figures_of(row, first)
        return self.args.rates if known is None else (known["rate"],)

    @functools.cache  # noqa: B019
    def task(self, settings):
        return settings.load(None if settings in QUICK else self.folder)


class Training:
    """Trains and measures one row: compiled once, trained at several rates."""

    def __init__(self, row, task, seed, rates, jit_compile):
        self.row, self.task, self.seed = row, task, seed
        self.rates, self.jit_compile = rates, jit_compile
        # Steps instead of the task's seconds.
        self.max_steps = None
        keras.backend.clear_session()
        keras.utils.set_random_seed(seed)
        self.model = self.make_model()
        self.variables = [
            *self.model.variables,
            *self.model.optimizer.variables,
        ]
        self.start = [variable.numpy() for variable in self.variables]
        self.kept = {}

    def measure(self):
        middle = self.rates[len(self.rates) // 2]
        tried = climb(self.rates, middle, self.score_of)
        rate = max(tried, key=tried.get)
        weights, clock, valid = self.kept[rate]
        self.model.set_weights(weights)
        metric = self.row.task.metric
        return {
            "rate": rate,
            "valid": valid,
            "test": self.figures("test"),
            "seconds": round(clock.seconds, 2),
            "steps": clock.steps,
            "curve": clock.curve,
            "tried": {
                f"{rate:g}": valid[metric]
                for rate, (_, _, valid) in self.kept.items()
            },
        }

    def score_of(self, rate):
        """Of a run from the start, the better the higher."""
        for variable, value in zip(self.variables, self.start, strict=True):
            variable.assign(value)
        clock = self.train(rate)
        valid = self.figures("valid")
        self.kept[rate] = self.model.get_weights(), clock, valid
        print(f"  rate {rate:g}: {valid}", flush=True)
        return self.row.task.sign * valid[self.row.task.metric]

    def make_model(self):
        row, task = self.row, self.task
        inputs, features, context = task.features()
        head = make_head(row.method, row.samples, task, self.seed)
        model = keras.Model(inputs, head(features, context=context))
        model.compile(
            kc.optimizers.SparseRowOptimizer(
                keras.optimizers.Adam(global_clipnorm=1.0)
            ),
            loss=make_loss(row.method, row.samples, task),
            jit_compile=self.jit_compile,
        )
        model.optimizer.build(model.trainable_variables)
        return model

    def train(self, rate):
        """The `TimedTraining` of a run."""
        clock = TimedTraining(
            rate,
            self.row.task.seconds,
            MARKS,
            lambda: {"valid": self.figures("valid", is_curve=True)},
            self.max_steps,
            time.process_time,
        )
        # The clock stops it.
        self.fit(self.seed, clock, epochs=1_000_000)
        return clock

    def fit(self, seed, clock, **kwargs):
        """Trains on batches in the order of a seed."""
        self.model.fit(
            Batches(self.task, np.random.default_rng(seed)),
            shuffle=False,
            verbose=0,
            callbacks=[*self.task.callbacks(self.model), clock],
            **kwargs,
        )

    def figures(self, part, **kwargs):
        found = self.task.figures(self.model, part, **kwargs)
        return {name: round(value, 4) for name, value in found.items()}


class Batches(keras.utils.PyDataset):
    """Batches of a task, all of one shape."""

    def __init__(self, task, rng):
        super().__init__()
        self.task, self.rng = task, rng
        self.on_epoch_end()

    def on_epoch_end(self):
        self.arrays = self.task.epoch(self.rng)

    def __len__(self):
        return len(self.arrays[0]) // self.task.settings.batch_size

    def __getitem__(self, index):
        size = self.task.settings.batch_size
        rows = slice(index * size, (index + 1) * size)
        return tuple(array[rows] for array in self.arrays)


def rows_of(task, name):
    """Rows of a method of `METHODS`, if it is for this task."""
    method = METHODS[name]
    if not method.needs.issubset(task.has):
        return []
    return [
        Row(
            f"{task.name}; {name}" + (f"; {samples}" if samples else ""),
            task,
            method,
            samples,
        )
        for samples in method.samples or task.samples
        if samples in task.samples or samples < min(task.samples)
    ]


def place_of(row):
    """What rows are sorted by: numbers of samples as in their task."""
    numbers = row.task.samples
    if row.samples in numbers:
        return numbers.index(row.samples)
    return len(numbers) if row.samples else 0


def side(method):
    """`"full"`, `"rival"` or `"cane"`."""
    if method.is_rival:
        return "full" if method.loss == "full" else "rival"
    return "cane"


def numbers_of(row):
    """Candidates and noises of a row of the record, "" where there are none."""
    method = Method(**row["row"]["method"])
    samples = row["row"]["samples"]
    if method.is_rival:
        return "", samples or ""
    if method.selector == "auto":
        return "auto", "auto"
    return sizes(method, samples)


main = functools.partial(run, EqualTime)
