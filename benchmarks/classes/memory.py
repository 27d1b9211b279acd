"""How much memory do training and evaluation over many classes take?

Prints, for `CANESoftmax` as it is by default and for the softmax over all
classes, the bytes of all variables, of the model and of its optimizer, and the
most memory that a process took in steps of training, and in the exact
evaluation of as many examples, on top of what it had before. Each row has a
process of its own.

    python -m benchmarks classes.memory
"""

import dataclasses
import functools
import multiprocessing
import os
from unittest import mock

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.classes.speed import OPTIMIZERS
from benchmarks.common import tables
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.common.peak_memory import counting

DEFAULT, FULL = "CANESoftmax by default", "full softmax"
LOSSES = {DEFAULT: kc.CANELoss, FULL: kc.baselines.FullSoftmaxLoss}
SPARSE_ADAM = "SparseRowOptimizer(Adam)"


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: String.
        method: String, of `LOSSES`.
        optimizer: String, of `OPTIMIZERS`.
        num_classes: Integer.
    """

    name: str
    method: str
    optimizer: str
    num_classes: int


class Memory(Benchmark):
    settings = {
        "width": 256,
        "batch_size": 256,
        "steps": Flag(5, "of training, and of evaluation"),
    }
    choices = {
        "num_classes": (10_000, 100_000, 1_000_000),
        "most_scores": Flag(
            100_000,
            "classes above which no softmax over all is trained: a batch's "
            "scores take gigabytes",
        ),
    }
    quick = {
        "num_classes": (3000,),
        "width": 8,
        "batch_size": 16,
        "steps": 1,
        "most_scores": 3000,
    }
    columns = {
        "": tables.field("row.method"),
        "optimizer": tables.field("row.optimizer"),
        "classes": tables.field("row.num_classes", "{:,}"),
        "MB of variables": tables.figure("variable_bytes", "{:,.0f}", 1e-6),
        "MB more in training": tables.figure("training_bytes", "{:,.0f}", 1e-6),
        "MB more in evaluation": tables.figure(
            "evaluation_bytes", "{:,.0f}", 1e-6
        ),
    }

    def rows(self):
        return [
            Row(f"{method}, {optimizer}, {number}", method, optimizer, number)
            for method, optimizer in (
                (DEFAULT, "SGD"),
                (DEFAULT, SPARSE_ADAM),
                (FULL, "SGD"),
            )
            for number in self.args.num_classes
            if method != FULL or number <= self.args.most_scores
        ]

    def measure(self, row, seed):
        context = multiprocessing.get_context("spawn")
        # With oneDNN, TensorFlow keeps what was freed, such as what tables
        # started from, and steps seem to take nothing.
        environment = mock.patch.dict(os.environ, TF_ENABLE_ONEDNN_OPTS="0")
        with environment, context.Pool(1) as pool:
            return pool.apply(figures_of, (row, self.args, seed))


def figures_of(row, args, seed):
    """Trains and evaluates in this process."""
    keras.utils.set_random_seed(seed)
    number, examples = row.num_classes, args.batch_size * args.steps
    counts = number / np.arange(1, number + 1)
    head = kc.CANESoftmax(number, class_counts=counts)
    model = keras.Sequential([keras.Input((args.width,)), head])
    model.compile(OPTIMIZERS[row.optimizer](), LOSSES[row.method]())
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((examples, args.width), "float32")
    labels = rng.integers(number, size=examples).astype("int32")
    model.optimizer.build(model.trainable_variables)
    taken = {}
    for name, run_on in (
        ("training_bytes", functools.partial(model.fit, shuffle=False)),
        ("evaluation_bytes", model.evaluate),
    ):
        # Traced, with so few examples that their scores are small.
        run_on(features[:2], labels[:2], verbose=0)
        with counting() as count:
            run_on(features, labels, batch_size=args.batch_size, verbose=0)
        taken[name] = count()
    variables = [*model.variables, *model.optimizer.variables]
    return {
        "variable_bytes": sum(
            variable.numpy().nbytes for variable in variables
        ),
        **taken,
    }


main = functools.partial(run, Memory)
