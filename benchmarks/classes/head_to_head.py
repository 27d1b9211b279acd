"""Which of the best ways to train very many classes is ahead of the others?

    python -m benchmarks classes.head_to_head --seeds 0,1,2

Each method makes as many steps as fit into the time of those that `--reference`
made in `classes.equal_time`; the time of a step is measured in turns, on one
thread. Numbers of samples and rates are those chosen there, or the best of
`--samples` and `--rates`. What `--bounds` names makes all steps of the
reference, whatever they take.
"""
# ruff: noqa: E402

import functools
import statistics
import time

from benchmarks.common.threads import use_one_thread

use_one_thread()

import numpy as np

from benchmarks.classes import equal_time
from benchmarks.classes.methods import METHODS
from benchmarks.classes.tasks import QUICK
from benchmarks.classes.tasks import TASKS
from benchmarks.common import tables
from benchmarks.common.arguments import Flag
from benchmarks.common.arguments import reader
from benchmarks.common.benchmark import FOLDER
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.common.best_rows import check_names
from benchmarks.common.record import Record
from benchmarks.common.timing import StepClock
from benchmarks.common.timing import take_turns

Row = equal_time.Row
# Of tasks that the record does not have.
_QUICK_RATE, _QUICK_STEPS = 1e-2, 30


class HeadToHead(Benchmark):
    settings = {
        "turns": Flag(12, "in which steps are timed"),
        "turn_steps": Flag(10, "steps of a turn"),
    }
    choices = {
        "tasks": ("ptb", "gutenberg", "gowalla"),
        "reference": Flag("CANE in one group", "whose time all have"),
        "rates": Flag((), "instead of known ones", reader((0.0,))),
        "samples": Flag(
            (), "sampled classes, instead of known ones", reader((0,))
        ),
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
    columns = {
        **{
            name: equal_time.EqualTime.columns[name]
            for name in (
                *("task", "method", "candidates", "noises", "perplexity"),
                *("accuracy", "NDCG@20", "recall@20", "MRR"),
            )
        },
        "rate": tables.figure("rate", "{:g}"),
        "time of a step": tables.figure("relative_time", "{:.2f}"),
        "steps": tables.figure("steps", "{:,.0f}"),
        "seeds": tables.seeds,
    }

    @functools.cached_property
    def known(self):
        """Rows of the record of `classes.equal_time`, by name."""
        rows = Record(None, FOLDER / "classes/equal_time.json").rows
        known = {row["name"]: row for row in rows}
        alike = "CANE by default", "CANE in one group"
        for names in (alike, alike[::-1]):
            others = {name.replace(*names): row for name, row in known.items()}
            known = others | known
        return known

    def rows(self):
        """Of each method that number of samples which was chosen."""
        args = self.args
        known = {task.name: task for task in (*TASKS, *QUICK)}
        check_names("tasks", args.tasks, known)
        check_names("methods", args.methods, METHODS)
        check_names("bounds", args.bounds, METHODS)
        check_names("reference", [args.reference], METHODS)
        found = []
        for name in args.tasks:
            for method in (*args.methods, *args.bounds):
                rows = equal_time.rows_of(known[name], method)
                if args.samples and METHODS[method].is_rival:
                    found += [
                        row for row in rows if row.samples in args.samples
                    ]
                else:
                    found += sorted(rows, key=self.score, reverse=True)[:1]
        return found

    def score(self, row):
        """Validation by which the row was chosen, the better the higher."""
        if row.name not in self.known:
            return -np.inf
        figures = first_figures(self.known[row.name])
        return row.task.sign * figures["valid"][row.task.metric]

    def together(self, row):
        return row.task

    def measure_together(self, rows, seed):
        (task,) = {row.task for row in rows}
        data = task.load(None if task in QUICK else self.folder)
        reference, *_ = equal_time.rows_of(task, self.args.reference)
        trainings = {
            row: equal_time.Training(
                row, data, seed, self.rates(row, seed), self.jit_compile
            )
            for row in dict.fromkeys([reference, *rows])
        }
        seconds = self.seconds_of_steps(trainings)
        for row in rows:
            relative = seconds[row] / seconds[reference]
            training = trainings.pop(row)
            steps = self.steps(reference)
            if row.name.split("; ")[1] not in self.args.bounds:
                steps /= relative
            training.max_steps = round(steps)
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
        if self.args.rates:
            return self.args.rates
        if row.name not in self.known:
            return (_QUICK_RATE,)
        return (first_figures(self.known[row.name])["rate"],)

    def steps(self, row):
        """What the row made in its time, in the mean of seeds."""
        if row.name not in self.known:
            return _QUICK_STEPS
        return tables.mean(self.known[row.name], "steps")

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


def first_figures(row):
    """Figures of the seed that settings were chosen on."""
    return next(run["figures"] for run in row["runs"] if run["seed"] == 0)


main = functools.partial(run, HeadToHead)
