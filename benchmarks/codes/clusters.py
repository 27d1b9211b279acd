"""Do straight-through gradients find clusters, and what does it take?

Figure 2 (c) and (d) of Chen, Min & Sun: 10,000 rows in 100 clusters, one
codebook of 100 codewords, so that learning is k-means. Straight-through
gradients at a falling and a constant temperature, and soft codes.
"""

import dataclasses
import functools

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run

DIMENSIONS = 10
# Centres are some 4.5 apart.
DEVIATION = 0.1
SCHEDULE = {"base": 1.0, "rate": 0.01, "floor": 0.03}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    falls: bool = True
    estimator: str = "straight_through"


ROWS = (
    Row("straight-through, falling temperature"),
    Row("straight-through, constant temperature", falls=False),
    Row("soft codes, falling temperature", estimator="soft"),
)


class Clusters(Benchmark):
    settings = {
        "num_rows": 10_000,
        "clusters": 100,
        "iterations": 4000,
        "batch_size": 500,
        "learning_rate": 0.05,
    }
    choices = {
        "evaluations": 40,
    }
    quick = {
        "num_rows": 300,
        "clusters": 5,
        "batch_size": 50,
        "iterations": 60,
        "evaluations": 3,
    }

    def rows(self):
        return list(ROWS)

    def measure(self, row, seed):
        args = self.args
        table, clusters = clustered_table(args.num_rows, args.clusters, seed)
        curve = Curve(table, clusters)
        self.learner(row, seed).train(table, callbacks=[curve])
        return {
            "last": {name: values[-1] for name, values in curve.values.items()},
            "lowest_training_loss": min(curve.values["training_loss"]),
            "true_loss": loss_of_clusters(table, clusters),
        }

    def learner(self, row, seed):
        args = self.args
        temperature = SCHEDULE["base"]
        if row.falls:
            temperature = tuple(SCHEDULE.values())
        return kc.learners.KDCodeLearner(
            num_codebooks=1,
            codebook_size=args.clusters,
            composition="sum",
            logits="free",
            estimator=row.estimator,
            temperature=temperature,
            training=kc.learners.Training(
                iterations=args.iterations,
                batch_size=args.batch_size,
                learning_rate=args.learning_rate,
                validation_interval=args.iterations // args.evaluations,
            ),
            refine=False,
            seed=seed,
            verbose=0,
        )


def clustered_table(num_rows, num_clusters, seed):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(num_clusters, DIMENSIONS))
    clusters = np.arange(num_rows) % num_clusters
    noise = DEVIATION * rng.normal(size=(num_rows, DIMENSIONS))
    return (centres[clusters] + noise).astype("float32"), clusters


class Curve(keras.callbacks.Callback):
    """Evaluates the codes of all rows as they are learned."""

    def __init__(self, table, clusters):
        super().__init__()
        self.table, self.clusters = table, clusters
        self.codes = None
        names = "step", "loss", "training_loss", "nmi", "changed"
        self.values = {name: [] for name in names}

    def on_epoch_end(self, epoch, logs=None):
        logits = self.model.logits(np.arange(len(self.table)))
        codes = tf.argmax(logits, axis=-1).numpy()
        errors = self.table - self.model.decode(codes)
        changed = 1.0
        if self.codes is not None:
            changed = float((codes != self.codes).mean())
        self.codes = codes
        for name, value in (
            ("step", int(self.model.optimizer.iterations)),
            ("loss", float(np.square(errors).sum(axis=1).mean())),
            ("training_loss", logs["loss"]),
            ("nmi", mutual_information(codes[:, 0], self.clusters)),
            ("changed", changed),
        ):
            self.values[name].append(round(value, 4))


def mutual_information(labels, others):
    """Mutual information of two labellings over the mean of entropies."""
    counts = np.zeros((labels.max() + 1, others.max() + 1))
    np.add.at(counts, (labels, others), 1)
    joint = counts / len(labels)
    entropies = entropy(joint.sum(axis=0)) + entropy(joint.sum(axis=1))
    if not entropies:
        return 1.0
    return 2 * (1 - entropy(joint) / entropies)


def entropy(shares):
    shares = shares[shares > 0]
    return float(-(shares * np.log(shares)).sum())


def loss_of_clusters(table, clusters):
    """The loss if each cluster were found, and its mean the codeword."""
    total = sum(
        np.square(rows - rows.mean(axis=0)).sum()
        for rows in (table[clusters == c] for c in range(clusters.max() + 1))
    )
    return float(total / len(table))


main = functools.partial(run, Clusters)
