"""Do candidates and noises train classifiers as good as the full softmax?

Trains a small classifier once for each way to avoid scores of all classes:
`CANESoftmax` with as many candidates and noises as in Tables 1 to 3 of the
paper, 10 together, and its rivals with 10 sampled classes. Encoder, epochs and
batches are the same; each row takes the learning rate that is best on the
validation part.

    python -m benchmarks classes.accuracy
    python -m benchmarks classes.accuracy --task clinc150
    python -m benchmarks classes.accuracy --task synthetic_10k --epochs 3

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
none. Each task has a record of its own.

Paper: https://arxiv.org/abs/1711.00658
"""

import dataclasses
import functools
import statistics
import time

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from benchmarks import baselines
from benchmarks.classes.features_of import features_of
from benchmarks.common import tables
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import FOLDER
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.common.timing import StepClock
from benchmarks.data import class_tasks

# Each row is a model of its own, which TensorFlow takes for a mistake.
tf.get_logger().setLevel("ERROR")

# What a predictor is asked for, and at a time.
TOP = 5
BATCHES = (1, 256)
TASKS = (
    "job_titles",
    "clinc150",
    "synthetic_100",
    "synthetic_10k",
    "synthetic_100k",
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    head: str = "cane"
    candidates: int = 0
    noises: int = 0
    tree: str | None = None
    frontier: int = 16
    power: float = 0.0
    shared: bool = False
    estimate: str = "joint"


class Accuracy(Benchmark):
    settings = {
        "task": Flag("job_titles", choices=TASKS),
        "epochs": 6,
        "learning_rates": (4e-3, 1.6e-2),
        "sampled": 10,
        "batch_size": 256,
        "width": 128,
        "dropout": 0.3,
        "examples": Flag(
            None, "of synthetic training data, None being 10 a class", int
        ),
        "target_recall": 0.99,
    }
    quick = {
        "task": "synthetic_100",
        "examples": 1000,
        "epochs": 2,
        "width": 16,
        "batch_size": 50,
    }
    columns = {
        "row": tables.field("name"),
        "accuracy": tables.figure("test.accuracy", scale=100, unit=" %"),
        f"top {TOP}": tables.figure(
            f"test.top_{TOP}_accuracy", scale=100, unit=" %"
        ),
        "coverage": tables.figure("test.coverage", scale=100, unit=" %"),
        "seconds": tables.figure("seconds"),
        "learning rate": tables.figure("learning_rate", "{:g}"),
        "beam": tables.figure("first.beam_width", "{:.0f}"),
        "recall": tables.figure("first.recall", scale=100, unit=" %"),
        "calibrated beam": tables.figure("calibrated.beam_width", "{:.0f}"),
        "its recall": tables.figure("calibrated.recall", scale=100, unit=" %"),
        "its accuracy": tables.figure(
            "calibrated.accuracy", scale=100, unit=" %"
        ),
        **{
            f"times faster, {size}": tables.figure(
                f"times_faster.{size}.ratio", "{:.2f}"
            )
            for size in BATCHES
        },
    }

    @classmethod
    def path(cls, args):
        return FOLDER / "classes" / f"accuracy_{args.task}.json"

    def rows(self):
        """The full softmax, rivals, the paper's rows, others."""
        number = self.args.sampled

        def cane(candidates, noises, words="", **kwargs):
            kwargs = {"tree": "means"} | kwargs
            name = f"CANE {candidates}+{noises}{words}"
            return Row(name, candidates=candidates, noises=noises, **kwargs)

        few, half, many = 1, number // 2, number - 1
        return [
            Row("full softmax", "full"),
            Row(
                f"sampled softmax {number}",
                "sampled",
                noises=number,
                power=0.75,
            ),
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
                cane(n, number - n, f", {tree} tree", tree=tree)
                for tree in ("random", "refreshed")
                for n in (half, many)
            ),
            cane(half, number - half, ", unigram noise", power=0.75),
            cane(half, number - half, ", frontier 1,024", frontier=1024),
            cane(number, 10 * number, ", shared noises", shared=True),
        ]

    @functools.lru_cache(maxsize=1)  # noqa: B019
    def task(self, seed):
        args = self.args
        if args.task == "job_titles":
            return class_tasks.job_titles(self.folder)
        if args.task == "clinc150":
            return class_tasks.intents(self.folder)
        number = int(args.task.split("_")[1].replace("k", "000"))
        return class_tasks.synthetic_classes(
            number, args.examples, args.width, seed=seed
        )

    def measure(self, row, seed):
        return Training(row, self.task(seed), seed, self).measure()


class Training:
    """Trains and measures one row."""

    def __init__(self, row, task, seed, benchmark):
        self.row, self.task, self.seed = row, task, seed
        self.args, self.jit_compile = benchmark.args, benchmark.jit_compile

    def measure(self):
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

    @property
    def epoch_steps(self):
        return -(-len(self.task.train[1]) // self.args.batch_size)

    def train(self, rate):
        """A model, and the `StepClock` of its training."""
        args, task = self.args, self.task
        keras.utils.set_random_seed(self.seed)
        encoder = make_encoder(task, args)
        model = keras.Sequential(
            [encoder.inputs[0], *encoder.layers, self.make_head(encoder)]
        )
        schedule = keras.optimizers.schedules.CosineDecay(
            rate, args.epochs * self.epoch_steps, alpha=0.02
        )
        model.compile(
            kc.optimizers.SparseRowOptimizer(keras.optimizers.Adam(schedule)),
            loss=self.make_loss(),
            jit_compile=self.jit_compile,
        )
        clock = StepClock()
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
            "sampled": kc.SampledSoftmaxLoss,
            "nce": kc.NCELoss,
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
                self.make_tree(encoder),
                max_frontier=row.frontier,
                refresh_every=(
                    max(1, self.epoch_steps // 2)
                    if row.tree == "refreshed"
                    else None
                ),
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
            seed=self.seed,
        )

    def make_tree(self, encoder):
        row, task, seed = self.row, self.task, self.seed
        trees = kc.trees.ClassTree
        if row.tree in ("random", "refreshed"):
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
        model.compile(
            loss=self.make_loss(),
            metrics=metrics,
            jit_compile=self.jit_compile,
        )
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
            features_of(model, inputs, 1024)
            for inputs, _ in (self.task.valid, self.task.test)
        )
        labels = self.task.test[1]
        best = answers(lambda rows: head.scores.top_k(rows, 1)[0], test)
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


def answers(function, features, batch_size=256):
    """Results for all features, computed a batch at a time."""
    function = tf.function(function, reduce_retracing=True)
    starts = range(0, len(features), batch_size)
    return np.concatenate(
        [function(features[start : start + batch_size]) for start in starts]
    )


def times_faster(head, features):
    """Time of a dense product and `top_k` to that of the layer's search."""
    ids = tf.range(head.num_classes)
    kernel = tf.constant(head.scores.class_vectors(ids))
    bias = tf.constant(head.scores.class_biases(ids))

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


main = functools.partial(run, Accuracy)
