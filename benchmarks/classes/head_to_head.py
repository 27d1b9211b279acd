"""Which way to train very many classes is best in the same processor time?

Models of words, places, job titles and answers of a graph are trained by
`CANESoftmax` and baselines. Each method gets the processor time of `STEPS`
steps of `--reference`, which is measured in turns, on one thread. The learning
rate is the task's, or the best of `--rates` on the validation part with the
first seed. What `--bounds` names makes all steps.
"""
# ruff: noqa: E402

import dataclasses
import functools
import statistics
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
from benchmarks.classes.tasks import QUICK
from benchmarks.classes.tasks import TASKS
from benchmarks.common.arguments import Flag
from benchmarks.common.arguments import reader
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.common.best_rows import check_names
from benchmarks.common.best_rows import climb
from benchmarks.common.timing import StepClock
from benchmarks.common.timing import TimedTraining
from benchmarks.common.timing import take_turns

# Steps of the reference: a minute or two of one thread.
STEPS = {
    "ptb": 2692,
    "gutenberg": 4750,
    "gowalla": 4371,
    "job_titles": 2206,
    "wordnet": 1989,
}
RATES = {"job_titles": 2e-3, "wordnet": 3e-2}
# Sampled classes of baselines, where 1,000 are not the best.
SAMPLES = {
    ("gowalla", "sampled softmax"): 4000,
    ("wordnet", "sampled softmax"): 4000,
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    task: object
    method: Method
    samples: int


class HeadToHead(Benchmark):
    settings = {
        "turns": Flag(12, "in which steps are timed"),
        "turn_steps": Flag(10, "steps of a turn"),
    }
    choices = {
        "tasks": ("ptb", "gutenberg", "gowalla"),
        "reference": Flag("CANE in one group", "whose time all have"),
        "rates": Flag((), "to choose from", reader((0.0,))),
        "samples": Flag((), "sampled classes of baselines", reader((0,))),
        "methods": (
            "CANE by default",
            "CANE in one group",
            "CANE 1/4 frequent",
            "sampled softmax",
            "sampled softmax by counts",
            "in-batch softmax",
            "NCE",
        ),
        "bounds": Flag(
            (), "methods that make all steps of the reference", reader(("",))
        ),
    }
    quick = {
        "turns": 1,
        "turn_steps": 2,
        "tasks": (QUICK[0].name,),
        "reference": "CANE 1/4 frequent",
        "methods": ("CANE 1/4 frequent", "NCE"),
    }

    def rows(self):
        args = self.args
        known = {task.name: task for task in (*TASKS, *QUICK)}
        check_names("tasks", args.tasks, known)
        check_names("methods", args.methods, METHODS)
        check_names("bounds", args.bounds, METHODS)
        check_names("reference", [args.reference], METHODS)
        return [
            row_of(known[task], name, samples)
            for task in args.tasks
            for name in (*args.methods, *args.bounds)
            for samples in (has_samples(name) and args.samples or (None,))
        ]

    def together(self, row):
        return row.task

    def measure_together(self, rows, seed):
        (task,) = {row.task for row in rows}
        data = task.load(None if task in QUICK else self.folder)
        reference = row_of(task, self.args.reference)
        trainings = {
            row: Training(
                row, data, seed, self.rates(row, seed), self.jit_compile
            )
            for row in dict.fromkeys([reference, *rows])
        }
        seconds = self.seconds_of_steps(trainings)
        steps = STEPS.get(task.name, 30)
        for row in rows:
            relative = seconds[row] / seconds[reference]
            training = trainings.pop(row)
            training.limit = steps * seconds[reference]
            if row.name.split("; ")[1] in self.args.bounds:
                training.steps = steps
            started = time.process_time()
            yield {
                **training.measure(),
                "relative_time": round(relative, 4),
                "cpu_seconds": time.process_time() - started,
            }

    def rates(self, row, seed):
        """Learning rates to try, of another seed that of the first."""
        first = self.args.seeds[0]
        chosen = None if seed == first else self.figures_of(row, first)
        if chosen is not None:
            return (chosen["rate"],)
        return self.args.rates or (RATES.get(row.task.name, 1.25e-2),)

    def seconds_of_steps(self, trainings):
        """Median over turns of processor seconds a step, by row."""
        args = self.args

        def timer(training):
            def run(seed):
                clock = StepClock(time.process_time)
                # The first step of a turn is not timed.
                training.fit(
                    seed, clock, epochs=1, steps_per_epoch=args.turn_steps + 1
                )
                return clock.seconds / args.turn_steps

            return run

        # The first turn traces and compiles.
        times = take_turns(
            {row: timer(training) for row, training in trainings.items()},
            range(args.turns + 1),
        )
        return {
            row: statistics.median(turns[1:]) for row, turns in times.items()
        }


def has_samples(name):
    """Whether a method of `METHODS` is a baseline that samples classes."""
    return METHODS[name].is_baseline and METHODS[name].samples is None


def row_of(task, name, samples=None):
    """The row of a method of `METHODS`."""
    method = METHODS[name]
    if samples is None:
        samples = method.samples
        if samples is None:
            samples = SAMPLES.get((task.name, name), task.samples)
    ending = f"; {samples}" if samples else ""
    return Row(f"{task.name}; {name}{ending}", task, method, samples)


class Training:
    """Trains and measures one row: compiled once, trained at several rates."""

    def __init__(self, row, task, seed, rates, jit_compile):
        self.row, self.task, self.seed = row, task, seed
        self.rates, self.jit_compile = rates, jit_compile
        # Seconds, or steps.
        self.limit = self.steps = None
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
        weights, valid, steps = self.kept[rate]
        self.model.set_weights(weights)
        metric = self.row.task.metric
        return {
            "rate": rate,
            "valid": valid,
            "test": self.figures("test"),
            "steps": steps,
            "tried": {
                f"{rate:g}": valid[metric]
                for rate, (_, valid, _) in self.kept.items()
            },
        }

    def score_of(self, rate):
        """Of a run from the start, the better the higher."""
        for variable, value in zip(self.variables, self.start, strict=True):
            variable.assign(value)
        steps = self.train(rate)
        valid = self.figures("valid")
        self.kept[rate] = self.model.get_weights(), valid, steps
        print(f"  rate {rate:g}: {valid}", flush=True)
        return self.row.task.sign * valid[self.row.task.metric]

    def make_model(self):
        row, task = self.row, self.task
        inputs, features = task.features()
        head = make_head(row.method, row.samples, task, self.seed)
        model = keras.Model(inputs, head(features))
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
        # The clock stops it.
        clock = TimedTraining(rate, self.limit, self.steps, time.process_time)
        self.fit(self.seed, clock, epochs=1_000_000)
        return clock.steps

    def fit(self, seed, clock, **kwargs):
        """Trains on batches in the order of a seed."""
        self.model.fit(
            Batches(self.task, np.random.default_rng(seed)),
            shuffle=False,
            verbose=0,
            callbacks=[*self.task.callbacks(self.model), clock],
            **kwargs,
        )

    def figures(self, part):
        found = self.task.figures(self.model, part)
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


main = functools.partial(run, HeadToHead)
