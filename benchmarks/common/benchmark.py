"""The runner: rows are measured, kept in a record, and printed."""

import dataclasses
import itertools
import pathlib
import sys

from benchmarks.common import tables
from benchmarks.common.arguments import command
from benchmarks.common.arguments import parse
from benchmarks.common.record import Record

FOLDER = pathlib.Path(__file__).parents[1]


class Benchmark:
    """One question: its rows, how one is measured, and the table's columns."""

    settings = {}
    choices = {}
    quick = {}

    def __init__(self, args, record):
        self.args, self.record = args, record

    def rows(self):
        """List of frozen dataclasses with a `name`, the most telling first."""
        raise NotImplementedError

    def measure(self, row, seed):
        """Dict of the figures of a row."""
        raise NotImplementedError

    def together(self, row):
        """What rows have in common that are measured together."""
        return row

    def turns(self, rows):
        """Yields pairs of a seed and rows that are measured together."""
        for seed in self.args.seeds:
            for _, group in itertools.groupby(rows, self.together):
                yield seed, list(group)

    def measure_together(self, rows, seed):
        """Yields the figures of each of the rows."""
        for row in rows:
            yield self.measure(row, seed)

    def finish(self, rows):
        """Called with the rows of the record, e.g. to draw them."""

    def has(self, row, seed):
        return self.record.has(row.name, fields(row), self.recorded, seed)

    def figures_of(self, row, seed):
        """Figures of a row that stands in the record, or None."""
        if not self.has(row, seed):
            return None
        found = self.record.find(row.name, fields(row), self.recorded)
        return next(
            run["figures"] for run in found["runs"] if run["seed"] == seed
        )

    @property
    def recorded(self):
        """Dict of the settings, as a record keeps them."""
        return {name: getattr(self.args, name) for name in self.settings}

    @property
    def jit_compile(self):
        """For `compile`: XLA takes longer than a quick run."""
        return False if self.args.quick else "auto"

    @property
    def folder(self):
        """The data folder; without one, the run ends."""
        if self.args.data is None:
            sys.exit("Name the data folder: --data, or COMPEMBED_DATA.")
        return self.args.data

    @classmethod
    def called(cls):
        """The name that `python -m benchmarks` knows it by."""
        return ".".join(cls.__module__.split(".")[-2:])

    @classmethod
    def about(cls):
        """What it is about, as `--help` shows it."""
        return sys.modules[cls.__module__].__doc__

    @classmethod
    def path(cls, args):
        """Path of its record."""
        return FOLDER / (cls.called().replace(".", "/") + ".json")


def run(benchmark_class, arguments=None):
    """Measures what the record lacks, and prints the table."""
    name = benchmark_class.called()
    args = parse(benchmark_class, name, arguments)
    made_with = command(benchmark_class, name, args)
    record = Record(name, args.output, made_with)
    benchmark = benchmark_class(args, record)
    rows = [row for row in benchmark.rows() if args.rows.search(row.name)]
    if not rows:
        sys.exit(f"No row is asked for. Received: --rows {args.rows.pattern!r}")
    settings = benchmark.recorded
    for seed, group in benchmark.turns(rows):
        missing = [row for row in group if not benchmark.has(row, seed)]
        if not missing:
            continue
        print("; ".join(row.name for row in missing), flush=True)
        measured = benchmark.measure_together(missing, seed)
        for row, figures in zip(missing, measured, strict=True):
            record.add(row.name, fields(row), settings, seed, figures)
            print(f"  {summary(figures)}", flush=True)
    found = [record.find(row.name, fields(row), settings) for row in rows]
    found = [row for row in found if row is not None]
    print(tables.of_rows(found))
    benchmark.finish(found)
    return found


def fields(row):
    """Dict of a row without its name."""
    values = dataclasses.asdict(row)
    del values["name"]
    return values


def summary(figures):
    """The plain numbers among figures, on one line."""
    return ", ".join(
        f"{name} {value:.4g}"
        for name, value in figures.items()
        if isinstance(value, float | int)
    )
