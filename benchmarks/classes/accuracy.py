"""Do candidates and noises train classifiers as good as the full softmax?

    python -m benchmarks classes.accuracy
    python -m benchmarks classes.accuracy --task clinc150

Table 3 and Figure 2 of the paper on job titles (1,016 classes) and intents
(150): a mean of embeddings of hashed words and n-grams, `CANESoftmax` with 10
candidates and noises together, and its rivals with 10 samples. Each row has the
learning rate that is best on the validation part. Coverage is how often
candidates hold the label of a test example.

Paper: https://arxiv.org/abs/1711.00658
"""

import dataclasses
import functools

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from benchmarks import baselines
from benchmarks.common import tables
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import FOLDER
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.common.timing import StepClock
from benchmarks.data import class_tasks

# Each row is a model of its own, which TensorFlow takes for a mistake.
tf.get_logger().setLevel("ERROR")

TOP = 5
TASKS = ("job_titles", "clinc150", "synthetic_100")


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
    }
    quick = {
        "task": "synthetic_100",
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

        def rival(name, head, noises=0, power=0.75):
            return Row(name, head, noises=noises, power=power)

        few, half, many = 1, number // 2, number - 1
        means = {"tree": "means"}
        return [
            Row("full softmax", "full"),
            rival(f"sampled softmax {number}", "sampled", number),
            rival(f"sampled softmax {10 * number}", "sampled", 10 * number),
            rival(f"NCE {number}", "nce", number),
            rival(f"BlackOut {number}", "blackout", number, 0.4),
            Row("hierarchical softmax", "hierarchical", **means),
            Row("adaptive softmax", "adaptive"),
            *(cane(n, number - n) for n in (few, half, many)),
            *(
                cane(n, number - n, ", separate", estimate="separate")
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
        return class_tasks.synthetic_classes(100, 1000, args.width, seed=seed)

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
        return {
            "learning_rate": rate,
            "valid_accuracy_by_learning_rate": tuning,
            "seconds": round(clock.seconds, 2),
            "steps": clock.steps,
            "valid": valid,
            "test": self.evaluate(model, "test"),
        }

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


main = functools.partial(run, Accuracy)
