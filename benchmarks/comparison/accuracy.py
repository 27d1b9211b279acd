"""Which way to store a table is best, at so many bytes, for which model?

Classifiers of texts are trained with their tables stored in a 16th, 64th and
128th of the float32 bytes, each method in its largest setting that fits. All
train for equally many epochs: what is made of a trained table has half of them
before, and the table has the better of both ways. Rates are chosen on the first
seed; the other seeds are for the table and the best six of a task and size.
`search` is what a `Budget` makes.
Trained tables are kept in `--cache`.
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import math
import os
import pathlib
import tempfile
import time

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.common.best_rows import check_names
from benchmarks.common.best_rows import climb
from benchmarks.comparison.methods import QUANTIZE
from benchmarks.comparison.methods import WAYS
from benchmarks.comparison.pictures import draw
from benchmarks.comparison.tasks import QUICK
from benchmarks.comparison.tasks import TASKS
from keras_compembed.utils.files import replacing

TABLE, SEARCH = "table", "search"
# Methods of a task and size that are run with more seeds.
BEST = 6
# Of what the search tries, how many it tunes.
NUM_TUNED = 3


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    task: object
    ratio: int
    method: str


def row_of_table(task):
    return Row(f"{task.name}, {TABLE}", task, 1, TABLE)


class Accuracy(Benchmark):
    settings = {
        "rates": Flag((3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1), "to choose from"),
    }
    choices = {
        "tasks": tuple(task.name for task in TASKS),
        "ratios": (64, 16, 128),
        "methods": (TABLE, *WAYS, SEARCH),
        "cache": Flag(
            pathlib.Path("build", "comparison"), "folder of trained tables"
        ),
        "picture": Flag(None, "folder for pictures", pathlib.Path),
    }
    quick = {
        "tasks": tuple(task.name for task in QUICK),
        "ratios": (4,),
        "methods": (TABLE, "int4", "quotient x remainder", SEARCH),
        "rates": (3e-3, 1e-2),
    }

    def rows(self):
        args = self.args
        known = {task.name: task for task in (*TASKS, *QUICK)}
        check_names("tasks", args.tasks, known)
        check_names("methods", args.methods, (TABLE, *WAYS, SEARCH))
        tasks = [known[name] for name in args.tasks]
        found = [row_of_table(task) for task in tasks if TABLE in args.methods]
        return found + [
            Row(f"{task.name}, 1/{ratio}, {method}", task, ratio, method)
            for ratio in args.ratios
            for task in tasks
            for method in args.methods
            if method != TABLE
        ]

    def turns(self, rows):
        """Rows of a task and size, then the best of them with more seeds."""
        first, *others = self.args.seeds
        groups = itertools.groupby(rows, lambda row: (row.task, row.ratio))
        for _, group in groups:
            group = list(group)
            yield from ((first, [row]) for row in group)
            for seed in others:
                for row in self.again(rows, group[0]):
                    yield seed, [row]

    def again(self, rows, row):
        """Rows of the task and size of one that are run with more seeds."""
        if row.ratio == 1:
            return []
        found = [x for x in rows if (x.task, x.method) == (row.task, TABLE)]
        alike = [x for x in rows if (x.task, x.ratio) == (row.task, row.ratio)]
        return found + self.best(alike, self.args.seeds[0])

    def best(self, rows, seed):
        """The best in validation of those that have figures, best first."""
        valid = {row: (self.figures_of(row, seed) or {}) for row in rows}
        valid = {
            row: figures["valid"]
            for row, figures in valid.items()
            if row.method != SEARCH and figures.get("valid") is not None
        }
        return sorted(valid, key=valid.get, reverse=True)[:BEST]

    def measure(self, row, seed):
        started = time.process_time()
        task = self.task(row.task)
        if row.method == TABLE:
            figures = self.of_table(row, task, seed)
        elif row.method == SEARCH:
            figures = self.searched(row, task, seed)
        else:
            figures = self.of_way(row, task, seed)
        return figures | {
            "data": task.digest,
            "cpu_seconds": time.process_time() - started,
        }

    def of_table(self, row, task, seed):
        """Figures of the table, after the better of two schedules."""
        size = sum(4 * math.prod(shape) for shape in task.tables.values())
        earlier = self.first_figures(row, seed)
        found = []
        for schedule in ("whole", "halves"):
            if earlier and earlier["method"] != f"float32, {schedule}":
                continue
            if schedule == "whole":
                found.append((schedule, self.new_table_model(task, seed), 0))
            else:
                half = self.half(task)
                found.append((schedule, self.started_model(task, seed), half))
        runs = [
            {
                "method": f"float32, {schedule}",
                "bytes": size,
                **self.tuned(task, model, seed, spent, earlier),
            }
            for schedule, model, spent in found
        ]
        best = max(runs, key=lambda figures: figures["valid"])
        if earlier is None:
            best["schedules"] = {x["method"]: x["tried"] for x in runs}
        return best | {"start": self.start(task, seed)[1]}

    def of_way(self, row, task, seed):
        way = WAYS[row.method]
        chosen = {}
        for name, shape in task.tables.items():
            limit = 4 * math.prod(shape) // row.ratio
            chosen[name] = way.largest(shape, task.counts[name], limit)
        if None in chosen.values():
            return {"method": "none fits", "bytes": None}
        table_model, spent = None, 0
        if way.is_of_table:
            table_model, spent = self.started_model(task, seed), self.half(task)
        model = way.model(task, chosen, table_model, seed)
        steps = task.steps(task.settings.epochs - spent)
        names = dict.fromkeys(method.name for method in chosen.values())
        return {
            "method": "; ".join(names),
            "bytes": sum(
                method.litert_bytes(*task.tables[name], QUANTIZE)
                for name, method in chosen.items()
            ),
            **self.tuned(
                task,
                model,
                seed,
                spent,
                self.first_figures(row, seed),
                functools.partial(way.callbacks, task, chosen, steps),
                way.fit(task, chosen, model, seed),
            ),
        }

    def searched(self, row, task, seed):
        """Figures of what the search for a size chooses."""
        model = self.started_model(task, seed)
        epochs = task.settings.epochs - self.half(task)
        (shape,) = task.tables.values()
        data = kc.compression.TuningData(
            task.data.train,
            task.data.validation,
            epochs=epochs,
            num_tuned=NUM_TUNED,
            fit_options={"batch_size": task.settings.batch_size},
            compile=lambda copy: task.compile(
                copy, epochs, task.settings.first_rate
            ),
        )
        others = file_bytes(model) - math.prod(shape)
        budget = kc.Budget(
            others + 4 * math.prod(shape) // row.ratio,
            data=data,
            quantize=QUANTIZE,
            sample_weight={"words": (1 + task.counts["words"]) ** 0.5},
        )
        small = kc.compress_model(
            model, budget, ["words"], seed=seed, verbose=0
        )
        return {
            "method": budget.frontier.chosen.name,
            "bytes": file_bytes(small) - others,
            "rate": task.settings.first_rate,
            "valid": score(task, small),
            "test": task.scores(small, "test"),
        }

    def first_figures(self, row, seed):
        """Figures of the first seed, for another one."""
        first = self.args.seeds[0]
        return None if seed == first else self.figures_of(row, first)

    def tuned(
        self,
        task,
        model,
        seed,
        spent,
        earlier=None,
        callbacks=lambda: (),
        fit=None,
    ):
        """Figures after the epochs that are left, at the best rate."""
        start, kept = model.get_weights(), {}

        def score_of(rate):
            model.set_weights(start)
            epochs = task.settings.epochs - spent
            small = task.train(model, epochs, rate, seed, callbacks(), fit)
            trained = model if fit is None else small
            kept[rate] = trained, trained.get_weights()
            return score(task, trained)

        rates = (earlier["rate"],) if earlier else self.args.rates
        tried = climb(rates, task.settings.first_rate, score_of)
        rate = max(tried, key=tried.get)
        trained, weights = kept[rate]
        trained.set_weights(weights)
        return {
            "rate": rate,
            "valid": tried[rate],
            "test": task.scores(trained, "test"),
            "tried": sorted(tried.items()),
        }

    def started_model(self, task, seed):
        """A model that was trained with tables for half of the epochs."""
        model = task.table_model()
        model.set_weights(self.start(task, seed)[0])
        return model

    def start(self, task, seed):
        """Its weights, and figures: those of the cache, or trained."""
        made_of = [task.settings, task.digest, task.tables, self.recorded, seed]
        digest = hashlib.sha256(repr(made_of).encode()).hexdigest()[:12]
        path = self.args.cache / f"{task.settings.name}-{digest}.npz"
        if not path.exists():
            self.train_start(task, seed, path)
        with np.load(path) as arrays:
            weights = [arrays[f"w{n}"] for n in range(len(arrays.files) - 1)]
            return weights, json.loads(str(arrays["figures"]))

    def train_start(self, task, seed, path):
        first, rates = self.args.seeds[0], self.args.rates
        known = self.figures_of(row_of_table(task.settings), first)
        if known is not None:
            rates = (known["start"]["rate"],)
        elif seed != first:
            rates = (self.start(task, first)[1]["rate"],)
        model = self.new_table_model(task, seed)
        start, kept = model.get_weights(), {}

        def score_of(rate):
            model.set_weights(start)
            task.train(model, self.half(task), rate, seed)
            kept[rate] = model.get_weights()
            return score(task, model)

        tried = climb(rates, task.settings.first_rate, score_of)
        rate = max(tried, key=tried.get)
        figures = {"rate": rate, "tried": sorted(tried.items())}
        arrays = {f"w{n}": array for n, array in enumerate(kept[rate])}
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, overwrite=True) as beside:
            with open(beside, "wb") as file:
                np.savez(file, figures=json.dumps(figures), **arrays)

    def new_table_model(self, task, seed):
        keras.utils.set_random_seed(seed)
        return task.table_model()

    def half(self, task):
        return task.settings.epochs // 2

    @functools.lru_cache(maxsize=1)  # noqa: B019
    def task(self, settings):
        is_made_up = settings in QUICK
        return settings.load(None if is_made_up else self.folder)

    def finish(self, found):
        if self.args.picture is not None:
            draw(found, self.args.picture)


def score(task, model):
    """The figure by which settings are chosen."""
    return task.scores(model, "validation")["accuracy"]


def file_bytes(model):
    with tempfile.TemporaryDirectory() as folder:
        export = kc.export_litert(
            model,
            os.path.join(folder, "model.tflite"),
            quantize=QUANTIZE,
            # Of random words, int8 may change the class. Bytes are the same.
            target=kc.export.Target(tolerance=1.0),
            verbose=0,
        )
    return export.file_bytes


main = functools.partial(run, Accuracy)
