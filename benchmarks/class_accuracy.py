"""Do candidates and noises train classifiers as good as the full softmax?

Trains a small classifier once for each way to avoid scores of all classes:
`CANESoftmax` with as many candidates and noises as in Tables 1 to 3 of the
paper, 10 together, and its rivals with 10 sampled classes. Encoder, epochs and
batches are the same; each row takes the learning rate that is best on the
validation part.

    COMPEMBED_DATA=... python benchmarks/class_accuracy.py
    COMPEMBED_DATA=... python benchmarks/class_accuracy.py --task clinc150
    python benchmarks/class_accuracy.py --task synthetic_10k --epochs 3

Texts are bags of hashed words, pairs of words and letters; the encoder is the
mean of their embeddings. The tree of classes, of 10 branches, is made from
class means of the encoder before it is trained, or is random. Search begins at
a frontier of 16 entries, unless a row says otherwise: at the default of 1,024,
no tree of a thousand classes is ever searched.

Columns: accuracy over all classes; coverage, how often candidates hold the
label of a test example; recall, how often the search finds the class that is
scored highest of all, first with a beam as wide as in training, then with that
of `calibrate_beam` on the validation part, and the accuracy of what it finds;
how many times faster than a dense product and `top_k` the calibrated search
finds 5 classes, for batches of 1 and of 256; seconds of training steps,
without tracing, by the clock: run nothing else.

The data folder holds `onet_titles` and `clinc150`; synthetic classes need
none. Rows are chosen by `--rows`, a regular expression. Results are kept in a
JSON file as they come; what stands there is not run again.

Paper: https://arxiv.org/abs/1711.00658
"""
# ruff: noqa: E402

import argparse
import dataclasses
import json
import os
import pathlib
import re
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import class_tasks
import keras
import numpy as np
import tensorflow as tf
from record import write_record

import keras_compembed as kc
from keras_compembed import baselines
from keras_compembed.candidates.selector import exact_top_k

# Each row is a model of its own, which TensorFlow takes for a mistake.
tf.get_logger().setLevel("ERROR")

FOLDER = pathlib.Path(__file__).parent
# What a predictor is asked for, and at a time.
TOP = 5
BATCHES = (1, 256)


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: String.
        head: `"cane"`, `"full"`, `"sampled"`, `"nce"`, `"blackout"`,
            `"hierarchical"` or `"adaptive"`.
        candidates: Integer.
        noises: Integer, of rivals the sampled classes.
        tree: `"means"`, `"random"` or None.
        frontier: Integer, as of `BeamTree`.
        power: Number, of class counts, for noise; 0 is uniform.
        shared: Boolean, whether all examples of a batch share noises.
        estimate: `"joint"` or `"separate"`.
    """

    name: str
    head: str = "cane"
    candidates: int = 0
    noises: int = 0
    tree: str | None = None
    frontier: int = 16
    power: float = 0.0
    shared: bool = False
    estimate: str = "joint"


def all_rows(args):
    """The table's rows: the full softmax, rivals, the paper's, the others."""
    number = args.sampled

    def cane(candidates, noises, words="", **kwargs):
        kwargs = {"tree": "means"} | kwargs
        name = f"CANE {candidates}+{noises}{words}"
        return Row(name, candidates=candidates, noises=noises, **kwargs)

    few, half, many = 1, number // 2, number - 1
    rows = [
        Row("full softmax", "full"),
        Row(f"sampled softmax {number}", "sampled", noises=number, power=0.75),
        Row(
            f"sampled softmax {10 * number}",
            "sampled",
            noises=10 * number,
            power=0.75,
        ),
        Row(f"NCE {number}", "nce", noises=number, power=0.75),
        Row(f"BlackOut {number}", "blackout", noises=number, power=0.4),
        Row("hierarchical softmax", "hierarchical", tree="means"),
        Row("adaptive softmax", "adaptive"),
        *(cane(n, number - n) for n in (few, half, many)),
        *(
            cane(n, number - n, ", separate", estimate="separate")
            # With one noise, there is no difference.
            for n in (few, half)
        ),
        *(
            cane(n, number - n, ", random tree", tree="random")
            for n in (half, many)
        ),
        cane(half, number - half, ", unigram noise", power=0.75),
        cane(half, number - half, ", frontier 1,024", frontier=1024),
        cane(number, 10 * number, ", shared noises", shared=True),
    ]
    return [row for row in rows if re.search(args.rows, row.name)]


def main(arguments=None):
    args = parse(arguments)
    task = read_task(args)
    results = Results(args)
    for row in all_rows(args):
        if not results.has(row):
            results.add(row, Run(row, task, args).measure())
    results.print()
    return results.rows


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
    parser.add_argument("--task", choices=_TASKS, default="job_titles")
    parser.add_argument("--rows", default="", help="regular expression")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument(
        "--learning-rates",
        type=lambda text: [float(part) for part in text.split(",")],
        default=[4e-3, 1.6e-2],
    )
    parser.add_argument("--sampled", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument(
        "--examples",
        type=int,
        help="of synthetic training data; default: 10 a class",
    )
    parser.add_argument("--target-recall", type=float, default=0.99)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="100 synthetic classes and few steps, to see that it runs",
    )
    args = parser.parse_args(arguments)
    if args.quick:
        args.task, args.examples = "synthetic_100", 1000
        args.epochs, args.width, args.batch_size = 2, 16, 50
    elif not args.data and not args.task.startswith("synthetic"):
        sys.exit("Name the data folder: --data, or COMPEMBED_DATA.")
    if args.output is None:
        args.output = FOLDER / f"class_accuracy_{args.task}.json"
    return args


_TASKS = (
    "job_titles",
    "clinc150",
    "synthetic_100",
    "synthetic_10k",
    "synthetic_100k",
)


def read_task(args):
    if args.task == "job_titles":
        return class_tasks.job_titles(pathlib.Path(args.data))
    if args.task == "clinc150":
        return class_tasks.intents(pathlib.Path(args.data))
    number = int(args.task.split("_")[1].replace("k", "000"))
    return class_tasks.synthetic_classes(
        number, args.examples, args.width, seed=args.seed
    )


class Run:
    """Trains and measures one row."""

    def __init__(self, row, task, args):
        self.row, self.task, self.args = row, task, args

    def measure(self):
        print(self.row.name, flush=True)
        tuning, best = {}, None
        for rate in self.args.learning_rates:
            model, clock = self.train(rate)
            valid = self.evaluate(model, "valid")
            tuning[rate] = valid["accuracy"]
            if tuning[rate] == max(tuning.values()):
                best = rate, model, clock, valid
        print(f"  valid accuracy by learning rate: {tuning}", flush=True)
        rate, model, clock, valid = best
        figures = {
            "learning_rate": rate,
            "valid_accuracy_by_learning_rate": tuning,
            "seconds": round(clock.seconds, 2),
            "steps": clock.steps,
            "valid": valid,
            "test": self.evaluate(model, "test"),
        }
        if self.row.head == "cane":
            figures |= self.search(model)
        return figures

    def train(self, rate):
        """A model, and the `Clock` of its training."""
        args, task = self.args, self.task
        keras.utils.set_random_seed(args.seed)
        encoder = make_encoder(task, args)
        model = keras.Sequential(
            [encoder.inputs[0], *encoder.layers, self.make_head(encoder)]
        )
        steps = args.epochs * -(-len(task.train[1]) // args.batch_size)
        schedule = keras.optimizers.schedules.CosineDecay(
            rate, steps, alpha=0.02
        )
        model.compile(
            kc.optimizers.SparseRowOptimizer(keras.optimizers.Adam(schedule)),
            loss=self.make_loss(),
        )
        clock = Clock()
        model.fit(
            *task.train,
            batch_size=args.batch_size,
            epochs=args.epochs,
            verbose=0,
            callbacks=[clock],
        )
        return model, clock

    def make_loss(self):
        return {
            "cane": kc.CANELoss,
            "sampled": baselines.SampledSoftmaxLoss,
            "nce": baselines.NCELoss,
            "blackout": baselines.BlackOutLoss,
        }.get(self.row.head, baselines.FullSoftmaxLoss)()

    def make_head(self, encoder):
        row, counts = self.row, self.task.counts
        number = self.task.num_classes
        if row.head == "hierarchical":
            return baselines.HierarchicalSoftmax(
                self.make_tree(encoder), class_counts=counts
            )
        if row.head == "adaptive":
            return baselines.AdaptiveSoftmax(
                number, [number // 8, number // 2], class_counts=counts
            )
        if row.head == "cane":
            selector = kc.candidates.BeamTree(
                self.make_tree(encoder), max_frontier=row.frontier
            )
        else:
            # A selector without a tree, and not asked by rivals.
            selector = kc.candidates.FrequentClasses(np.maximum(counts, 1))
        return kc.CANESoftmax(
            number,
            selector,
            # Rivals sample as many as both together.
            num_candidates=max(1, row.candidates),
            num_noises=row.noises if row.candidates else max(1, row.noises - 1),
            noise=(
                kc.noises.UnigramNoise(np.maximum(counts, 1), row.power)
                if row.power
                else "uniform"
            ),
            share_noises=row.shared,
            estimate=row.estimate,
            class_counts=counts,
            seed=self.args.seed,
        )

    def make_tree(self, encoder):
        row, task, seed = self.row, self.task, self.args.seed
        trees = kc.trees.ClassTree
        if row.tree == "random":
            return trees.random(task.num_classes, branching=10, seed=seed)
        inputs, labels = task.train
        features = encoder.predict(inputs, batch_size=1024, verbose=0)
        return trees.from_labels(
            features,
            labels,
            num_classes=task.num_classes,
            seed=seed,
            verbose=0,
        )

    def evaluate(self, model, part):
        metrics = [kc.ClassAccuracy(), kc.ClassAccuracy(k=TOP)]
        if self.row.head == "cane":
            metrics.append(kc.Coverage())
        model.compile(loss=self.make_loss(), metrics=metrics)
        values = model.evaluate(
            *getattr(self.task, part),
            batch_size=self.args.batch_size,
            verbose=0,
            return_dict=True,
        )
        return {name: round(float(v), 4) for name, v in values.items()}

    def search(self, model):
        """How well, and how fast, beams find the best classes."""
        head = model.layers[-1]
        valid, test = (
            model.predict(inputs, batch_size=1024, verbose=0)
            for inputs, _ in (self.task.valid, self.task.test)
        )
        labels = self.task.test[1]
        best = answers(lambda rows: exact_top_k(head, rows, 1)[0], test)
        figures = {}
        for name in ("first", "calibrated"):
            if name == "calibrated":
                target = self.args.target_recall
                kc.candidates.calibrate_beam(head, valid, target, verbose=0)
            found = answers(lambda rows: head.top_k(rows, 1)[0], test)
            figures[name] = {
                "beam_width": head.selector.beam_width or head.num_candidates,
                "recall": round(float(np.mean(found == best)), 4),
                "accuracy": round(float(np.mean(found[:, 0] == labels)), 4),
            }
        return figures | {"times_faster": times_faster(head, test)}


def make_encoder(task, args):
    """A model from inputs of a task to features, not trained."""
    inputs, _ = task.train
    layers = [keras.Input(inputs.shape[1:], dtype=inputs.dtype.name)]
    if task.input_dim:
        layers += [
            keras.layers.Embedding(task.input_dim, args.width, mask_zero=True),
            keras.layers.GlobalAveragePooling1D(),
        ]
    else:
        layers.append(
            keras.layers.Dense(
                args.width, kernel_initializer=keras.initializers.Identity()
            )
        )
    layers += [
        keras.layers.LayerNormalization(),
        keras.layers.Dropout(args.dropout),
    ]
    return keras.Sequential(layers)


class Clock(keras.callbacks.Callback):
    """Seconds of steps, without the first, which is traced."""

    def __init__(self):
        super().__init__()
        self.seconds, self.steps = 0.0, 0

    def on_train_batch_begin(self, batch, logs=None):
        self.start = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        if self.steps:
            self.seconds += time.perf_counter() - self.start
        self.steps += 1


def answers(function, features, batch_size=256):
    """Results for all features, computed a batch at a time."""
    function = tf.function(function, reduce_retracing=True)
    starts = range(0, len(features), batch_size)
    return np.concatenate(
        [function(features[start : start + batch_size]) for start in starts]
    )


def times_faster(head, features):
    """Time of a dense product and `top_k` to that of the layer's search.

    Returns:
        Dict of the ratio and of both in milliseconds, for each batch size.
    """
    ids = tf.range(head.num_classes)
    kernel = tf.constant(head.class_vectors(ids))
    bias = tf.constant(head.class_biases(ids))

    def dense(rows):
        scores = tf.matmul(rows, kernel, transpose_b=True) + bias
        probabilities, best = tf.math.top_k(tf.nn.softmax(scores), TOP)
        return best, probabilities

    result = {}
    for size in BATCHES:
        rows = tf.constant(np.resize(features, (size, features.shape[1])))
        of_search = milliseconds(lambda rows: head.top_k(rows, TOP), rows)
        of_product = milliseconds(dense, rows)
        result[str(size)] = {
            "ratio": round(of_product / of_search, 2),
            "dense_ms": round(of_product, 3),
            "search_ms": round(of_search, 3),
        }
    return result


def milliseconds(function, rows, seconds=0.3):
    """Median time of a call, after the first."""
    function = tf.function(function, autograph=False)
    function(rows)
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        ids, _ = function(rows)
        ids.numpy()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


class Results:
    """Rows of the table, saved as each comes."""

    def __init__(self, args):
        self.path = args.output
        apart = ("data", "rows", "output", "quick")
        self.settings = {
            name: value
            for name, value in vars(args).items()
            if name not in apart
        }
        self.rows = []
        if self.path.exists():
            record = json.loads(self.path.read_text())
            if record["settings"] == self.settings:
                self.rows = record["rows"]

    def has(self, row):
        wanted = dataclasses.asdict(row).items()
        return any(wanted <= found.items() for found in self.rows)

    def add(self, row, figures):
        # In the way that a file has them.
        figures = json.loads(json.dumps(figures))
        self.rows.append(dataclasses.asdict(row) | figures)
        write_record(
            self.path,
            f"python benchmarks/class_accuracy.py "
            f"--task {self.settings['task']}",
            settings=self.settings,
            rows=self.rows,
        )
        test = figures["test"]
        print(f"  test accuracy {test['accuracy']:.4f}", flush=True)

    def print(self):
        head = (
            "row",
            "accuracy",
            f"top {TOP}",
            "coverage",
            "seconds",
            "learning rate",
            "beam",
            "recall",
            "calibrated beam",
            "recall",
            "accuracy",
            *(f"times faster, {size}" for size in BATCHES),
        )
        print("| " + " | ".join(head) + " |")
        print("|" + "---|" * len(head))
        for row in self.rows:
            test = row["test"]
            cells = [
                row["name"],
                f"{100 * test['accuracy']:.1f} %",
                f"{100 * test[f'top_{TOP}_accuracy']:.1f} %",
                "",
                f"{row['seconds']:.1f}",
                f"{row['learning_rate']:g}",
                *[""] * (len(head) - 6),
            ]
            if "first" in row:
                first, then = row["first"], row["calibrated"]
                cells[3] = f"{100 * test['coverage']:.1f} %"
                cells[6:] = [
                    f"{first['beam_width']}",
                    f"{100 * first['recall']:.1f} %",
                    f"{then['beam_width']}",
                    f"{100 * then['recall']:.1f} %",
                    f"{100 * then['accuracy']:.1f} %",
                    *(
                        f"{row['times_faster'][str(size)]['ratio']:.2f}"
                        for size in BATCHES
                    ),
                ]
            print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
