"""Are frozen features classified as well and as fast as by other trees?

Tables 1 to 3 of the paper: a linear layer by `CANESoftmax` with a tree,
baselines, and the trees of the package vowpalwabbit, if it is installed. Job
titles are the mean of the vectors of their words, 1,016 classes. Glosses are
of WordNet's nouns, as vectors of all-MiniLM-L6-v2; classes are hypernyms, the
3,887 of five or more glosses, or with `--tasks 'all glosses'` all 16,470.
Rates are the best of four on the validation part, with the first seed; all
glosses take those of glosses. Times are of the processor on one thread.
Paper: https://arxiv.org/abs/1711.00658.
"""
# ruff: noqa: E402

import dataclasses
import functools
import importlib.util
import pathlib
import time

from benchmarks.common.threads import use_one_thread

use_one_thread()

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from benchmarks import baselines
from benchmarks.classes.methods import LOSSES
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.common.best_rows import check_names
from benchmarks.common.best_rows import climb
from benchmarks.common.timing import StepClock
from benchmarks.data import class_tasks
from benchmarks.data import vectors
from benchmarks.data.glosses import gloss_vectors

PACKAGE = "vowpalwabbit"
OPTIONS = {
    "Recall Tree": "--recall_tree {classes} -b 24",
    "LOMTree": "--log_multi {classes} -b 24",
    # A tournament in which nobody may lose.
    "Filter Tree": "--ect {classes} --error 0 -b 24",
}
# Candidates and noises; baselines sample as many as the first of them.
SPLITS = {
    "titles": ((1, 9), (5, 5), (9, 1)),
    "glosses": ((10, 10), (5, 15), (15, 5), (1, 9), (5, 5), (9, 1)),
}
# Of how many glosses a class has at least.
LEAST = {"glosses": 5, "all glosses": 1}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    task: str
    name: str
    loss: str | None = None
    candidates: int = 0
    noises: int = 0
    rates: tuple = (2e-3, 8e-3, 3.2e-2, 0.128)


def rows_of(task):
    row = functools.partial(Row, task)
    splits = SPLITS[task.removeprefix("all ")]
    number = sum(splits[0])
    return (
        row("full softmax", "full"),
        *(row(f"CANE {c}+{n}", "cane", c, n) for c, n in splits),
        row("CANE 10+100 shared", "cane", 10, 100),
        row(f"sampled softmax {number}", "sampled", 0, number),
        row(f"NCE {number}", "nce", 0, number),
        row(f"BlackOut {number}", "blackout", 0, number),
        row("hierarchical softmax", "hierarchical"),
        *(row(name, rates=(0.02, 0.1, 0.5, 2.5)) for name in OPTIONS),
    )


class TreeClassifiers(Benchmark):
    settings = {"epochs": 10, "batch_size": 256, "branching": 10}
    choices = {
        "tasks": Flag(("titles",), "among titles, glosses, all glosses"),
        "cache": Flag(
            pathlib.Path("build", "glosses"), "folder of vectors of glosses"
        ),
    }
    quick = {"epochs": 2, "batch_size": 50}

    def rows(self):
        check_names("tasks", self.args.tasks, ("titles", *LEAST))
        known = importlib.util.find_spec(PACKAGE) is not None
        rows = [row for task in self.args.tasks for row in rows_of(task)]
        return [row for row in rows if row.loss or known]

    @functools.lru_cache(maxsize=1)  # noqa: B019
    def task(self, name, seed):
        if self.args.quick:
            return class_tasks.synthetic_classes(100, 1000, 16, seed=seed)
        if name == "titles":
            return title_vectors(self.folder)
        return gloss_vectors(self.folder, self.args.cache, LEAST[name])

    def measure(self, row, seed):
        train = train_keras if row.loss else train_vowpal_wabbit
        first = self.args.seeds[0]
        known = None if seed == first else self.figures_of(row, first)
        if row.task == "all glosses":
            smaller = dataclasses.replace(row, task="glosses")
            known = self.figures_of(smaller, first)
        rates = row.rates if known is None else (known["rate"],)
        task, found = self.task(row.task, seed), {}

        def score_of(rate):
            found[rate] = train(row, task, rate, seed, self)
            print(f"  rate {rate:g}: {found[rate]}", flush=True)
            return found[rate]["valid"]

        tried = climb(rates, rates[len(rates) // 2], score_of)
        rate = max(tried, key=tried.get)
        tried = {f"{rate:g}": score for rate, score in tried.items()}
        return {"rate": rate, "tried": tried, **found[rate]}


def title_vectors(folder):
    """Job titles, each the mean of the vectors of its words."""
    words, table = vectors.load_vectors(folder / vectors.REVIEWS)
    places = {word: place for place, word in enumerate(words)}
    names, parts = class_tasks.job_title_texts(folder)
    found = {}
    for part, rows in parts.items():
        x = np.zeros((len(rows), table.shape[1]), "float32")
        for row, (title, _) in zip(x, rows, strict=True):
            known = [
                places[word]
                for word in class_tasks.words_of(title)
                if word in places
            ]
            if known:
                row[:] = table[known].mean(axis=0)
        x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-6)
        found[part] = x, np.array([label for _, label in rows], "int32")
    return class_tasks.ClassTask(names, **found)


def train_keras(row, task, rate, seed, benchmark):
    """Dict of figures of a layer of this package."""
    args = benchmark.args
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    x, y = task.train
    head = make_head(row, task, seed, args.branching)
    model = keras.Sequential([keras.Input(x.shape[1:]), head])
    steps = args.epochs * -(-len(y) // args.batch_size)
    schedule = keras.optimizers.schedules.CosineDecay(rate, steps, alpha=0.02)
    name = "full" if row.loss == "hierarchical" else row.loss
    loss = LOSSES[name](row.noises, args.batch_size)
    model.compile(
        kc.optimizers.SparseRowOptimizer(keras.optimizers.Adam(schedule)),
        loss,
        jit_compile=benchmark.jit_compile,
    )
    clock = StepClock(time.process_time)
    model.fit(
        x,
        y,
        batch_size=args.batch_size,
        epochs=args.epochs,
        verbose=0,
        callbacks=[clock],
    )
    figures = {"train_seconds": round(clock.seconds, 2)}
    if row.loss == "cane":
        model.compile(loss=loss, metrics=[kc.Coverage()], jit_compile=False)
        found = model.evaluate(*task.test, verbose=0, return_dict=True)
        figures["coverage"] = round(float(found["coverage"]), 4)
        # Search is what prediction is measured by.
        kc.classes.calibrate_beam(head, task.valid[0], verbose=0)
    best = tf.function(lambda x: head.top_k(x, 1)[0][:, 0])

    def answers(x):
        size = args.batch_size
        batches = [
            tf.constant(x[start : start + size])
            for start in range(0, len(x), size)
        ]
        best(batches[0])
        start = time.process_time()
        found = [best(batch) for batch in batches]
        return np.concatenate(found), time.process_time() - start

    return {**figures, **judge(task, answers)}


def make_head(row, task, seed, branching):
    """The layer of classes of a row, over a tree of the means of classes."""
    x, y = task.train
    counts = np.maximum(task.counts, 1)
    tree = kc.classes.ClassTree.from_labels(
        x, y, branching, task.num_classes, seed=seed, verbose=0
    )
    if row.loss == "hierarchical":
        return baselines.HierarchicalSoftmax(tree, class_counts=counts)
    if row.loss == "cane":
        selector = kc.classes.BeamTree(tree, max_frontier=16)
    else:
        selector = kc.classes.AllClasses()
        if row.noises:
            # It is not asked by baselines, which sample as many as both.
            selector = kc.classes.FrequentClasses(counts)
    return kc.CANESoftmax(
        task.num_classes,
        sampling=kc.Sampling(
            selector,
            num_candidates=max(1, row.candidates),
            num_noises=row.noises if row.candidates else max(1, row.noises - 1),
            shared=row.noises >= 100,
        ),
        class_counts=counts,
        seed=seed,
    )


def train_vowpal_wabbit(row, task, rate, seed, benchmark):
    """Dict of figures of a tree of VowpalWabbit."""
    from vowpalwabbit import Workspace

    options = OPTIONS[row.name].format(classes=task.num_classes)
    learner = Workspace(f"{options} -l {rate} --random_seed {seed} --quiet")
    x, y = task.train
    examples = [
        learner.example(line_of(features, label))
        for features, label in zip(x, y, strict=True)
    ]
    rng = np.random.default_rng(seed)
    seconds = 0.0
    for _ in range(benchmark.args.epochs):
        order = rng.permutation(len(examples))
        start = time.process_time()
        for place in order:
            learner.learn(examples[place])
        seconds += time.process_time() - start
    for example in examples:
        learner.finish_example(example)

    def answers(x):
        asked = [learner.example(line_of(features)) for features in x]
        start = time.process_time()
        found = [learner.predict(example) for example in asked]
        seconds = time.process_time() - start
        for example in asked:
            learner.finish_example(example)
        return np.array(found) - 1, seconds

    figures = judge(task, answers)
    learner.finish()
    return {"train_seconds": round(seconds, 2), **figures}


def line_of(features, label=None):
    """An example as VowpalWabbit reads it; its labels begin with 1."""
    label = "" if label is None else label + 1
    values = " ".join(f"{i}:{value:.6g}" for i, value in enumerate(features))
    return f"{label} | {values}"


def judge(task, answers):
    """Shares of right answers, and milliseconds of one in the test part."""
    valid, _ = answers(task.valid[0])
    test, seconds = answers(task.test[0])
    return {
        "valid": round(float(np.mean(valid == task.valid[1])), 4),
        "accuracy": round(float(np.mean(test == task.test[1])), 4),
        "predict_ms": round(1e3 * seconds / len(test), 5),
    }


main = functools.partial(run, TreeClassifiers)
