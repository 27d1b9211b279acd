"""Do straight-through gradients find clusters, and what does it take?

    python -m benchmarks codes.clusters --seeds 0,1,2,3,4 \\
        --picture docs/clusters.png

Figure 2 (c) and (d) of Chen, Min & Sun: 10,000 rows in 100 clusters, one
codebook of 100 codewords, so that learning is k-means. Straight-through
gradients at a falling and a constant temperature, and soft codes.
"""

import dataclasses
import functools
import pathlib

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from benchmarks.common import tables
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from keras_compembed.utils.extras import require
from keras_compembed.utils.files import replacing

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


COLORS = {
    Row("straight-through, falling temperature"): "#0b6e99",
    Row("straight-through, constant temperature", falls=False): "#e08214",
    Row("soft codes, falling temperature", estimator="soft"): "#8c8c8c",
}


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
        "picture": Flag(None, "file to draw", pathlib.Path),
    }
    quick = {
        "num_rows": 300,
        "clusters": 5,
        "batch_size": 50,
        "iterations": 60,
        "evaluations": 3,
    }
    columns = {
        "": tables.field("name"),
        "loss": tables.figure("last.loss", "{:.3f}"),
        "NMI": tables.figure("last.nmi", "{:.3f}"),
        "loss in training": tables.figure("last.training_loss", "{:.3f}"),
        "its lowest": tables.figure("lowest_training_loss", "{:.3f}"),
        "codes changing": tables.figure("last.changed", "{:.3f}"),
        "loss of true clusters": tables.figure("true_loss", "{:.3f}"),
    }

    def rows(self):
        return list(COLORS)

    def measure(self, row, seed):
        args = self.args
        table, clusters = clustered_table(args.num_rows, args.clusters, seed)
        curve = Curve(table, clusters)
        self.learner(row, seed).train(table, callbacks=[curve])
        return {
            "last": {name: values[-1] for name, values in curve.values.items()},
            "lowest_training_loss": min(curve.values["training_loss"]),
            "true_loss": loss_of_clusters(table, clusters),
            "curve": curve.values,
        }

    def learner(self, row, seed):
        args = self.args
        temperature = SCHEDULE["base"]
        if row.falls:
            temperature = kc.learners.TemperatureSchedule(**SCHEDULE)
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

    def finish(self, rows):
        if self.args.picture:
            draw(rows, self.args.picture)


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


def draw(rows, path):
    figures = require("matplotlib.figure", "plots")
    figure = figures.Figure(figsize=(9, 3.6), layout="constrained")
    loss_axes, nmi_axes = figure.subplots(1, 2)
    for row, color in zip(rows, COLORS.values(), strict=False):
        curves = tables.figures(row, "curve")
        for axes, name, style in (
            (loss_axes, "loss", "-"),
            (nmi_axes, "nmi", "-"),
            (loss_axes, "training_loss", ":"),
        ):
            values = np.array([curve[name] for curve in curves])
            axes.plot(
                curves[0]["step"],
                values.mean(axis=0),
                style,
                c=color,
                label=row["name"] if style == "-" else None,
            )
            if style == "-":
                axes.fill_between(
                    curves[0]["step"],
                    values.min(axis=0),
                    values.max(axis=0),
                    color=color,
                    alpha=0.2,
                    lw=0,
                )
    true_loss = tables.mean(rows[0], "true_loss")
    loss_axes.axhline(true_loss, color="black", lw=0.8, ls="--")
    loss_axes.annotate(
        "true clusters",
        (rows[0]["settings"]["iterations"], true_loss),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        fontsize=8,
    )
    loss_axes.set_yscale("log")
    loss_axes.set_ylabel("squared loss (dotted: in training)")
    nmi_axes.set_ylabel("NMI of codes and clusters")
    for axes in (loss_axes, nmi_axes):
        axes.set_xlabel("step")
        axes.grid(alpha=0.25)
    figure.legend(
        *nmi_axes.get_legend_handles_labels(),
        loc="outside upper center",
        ncols=3,
        frameon=False,
        fontsize=8,
    )
    with replacing(path, overwrite=True) as temporary:
        figure.savefig(temporary, dpi=150)


main = functools.partial(run, Clusters)
