"""Do straight-through gradients find clusters, and what does it take?

Repeats the experiment of Chen, Min & Sun (2018, section 3) on synthetic
clusters: 10,000 rows in 100 well separated clusters of 10 dimensions, and one
codebook of 100 codewords, so that a code is a cluster and learning is k-means.
Each row has logits of its own. Compared are the straight-through gradient at a
temperature that falls, the same at a constant temperature, and softmax
weights in place of the choice (soft codes) at the temperature that falls.

By step: the squared loss of the codes, that of what training has in their
place, the normalized mutual information of codes and clusters, and the share
of rows whose code changed since the last evaluation. Results go into a JSON
file beside this one; with `--picture` they are drawn, as in Figure 3 (c) and
(d) of the paper.

    python benchmarks/synthetic_clusters.py --picture docs/clusters.png
"""

import argparse
import json
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.utils.extras import require
from keras_compembed.utils.files import replacing

DIMENSIONS = 10
# Centres are some 4.5 apart.
DEVIATION = 0.1
SCHEDULE = {"base": 1.0, "rate": 0.01, "floor": 0.03}
METHODS = {
    "straight-through, falling temperature": {"falls": True},
    "straight-through, constant temperature": {"falls": False},
    "soft codes, falling temperature": {"falls": True, "estimator": "soft"},
}
COLORS = ("#0b6e99", "#e08214", "#8c8c8c")
SETTINGS = (
    "rows",
    "clusters",
    "iterations",
    "batch_size",
    "learning_rate",
    "seeds",
)


def main(arguments=None):
    args = parse(arguments)
    curves, true_losses = [], []
    for seed in range(args.seeds):
        table, clusters = clustered_table(args.rows, args.clusters, seed)
        true_losses.append(loss_of_clusters(table, clusters))
        for method in METHODS:
            curve = Curve(table, clusters)
            learner = make_learner(method, seed, args)
            learner.train(table, callbacks=[curve])
            curves.append({"method": method, "seed": seed, **curve.values})
            print(f"seed {seed}, {method}: {curve}", flush=True)
    report = {
        "command": "python benchmarks/synthetic_clusters.py",
        **{name: getattr(args, name) for name in SETTINGS},
        "temperature": SCHEDULE,
        "loss_of_true_clusters": round(float(np.mean(true_losses)), 4),
        "methods": [summary(method, curves) for method in METHODS],
        "curves": curves,
    }
    with replacing(args.output, overwrite=True) as path:
        pathlib.Path(path).write_text(json.dumps(report) + "\n")
    print_table(report)
    if args.picture:
        draw(report, args.picture)
    return report


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=4000)
    parser.add_argument("--evaluations", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=500)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path(__file__).with_suffix(".json"),
    )
    parser.add_argument("--picture", type=pathlib.Path, help="file to draw")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few rows and steps, to see that it runs",
    )
    args = parser.parse_args(arguments)
    if args.quick:
        args.rows, args.clusters, args.batch_size = 300, 5, 50
        args.iterations, args.evaluations, args.seeds = 60, 3, 1
    return args


def clustered_table(num_rows, num_clusters, seed):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(num_clusters, DIMENSIONS))
    clusters = np.arange(num_rows) % num_clusters
    noise = DEVIATION * rng.normal(size=(num_rows, DIMENSIONS))
    return (centres[clusters] + noise).astype("float32"), clusters


def make_learner(method, seed, args):
    settings = dict(METHODS[method])
    temperature = SCHEDULE["base"]
    if settings.pop("falls"):
        temperature = kc.learners.TemperatureSchedule(**SCHEDULE)
    return kc.learners.KDCodeLearner(
        num_codebooks=1,
        codebook_size=args.clusters,
        composition="sum",
        logits="free",
        temperature=temperature,
        learning_rate=args.learning_rate,
        batch_size=args.batch_size,
        iterations=args.iterations,
        validation_interval=args.iterations // args.evaluations,
        refine=False,
        seed=seed,
        verbose=0,
        **settings,
    )


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

    def __str__(self):
        return ", ".join(f"{k} {v[-1]}" for k, v in self.values.items())


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
    return sum(
        np.square(rows - rows.mean(axis=0)).sum()
        for rows in (table[clusters == c] for c in range(clusters.max() + 1))
    ) / len(table)


def summary(method, curves):
    """Last values over seeds, and the lowest training loss on the way."""
    curves = [curve for curve in curves if curve["method"] == method]
    row = {"method": method}
    for name in ("loss", "nmi", "training_loss", "changed"):
        last = [curve[name][-1] for curve in curves]
        row[name] = round(float(np.mean(last)), 4)
        row[f"{name}_range"] = [min(last), max(last)]
    lowest = [min(curve["training_loss"]) for curve in curves]
    row["lowest_training_loss"] = round(float(np.mean(lowest)), 4)
    return row


def print_table(report):
    columns = {
        "loss": "loss",
        "nmi": "NMI",
        "training_loss": "loss in training",
        "lowest_training_loss": "its lowest",
        "changed": "codes changing",
    }
    print("| " + " | ".join(["", *columns.values()]) + " |")
    print("|" + "---|" * (len(columns) + 1))
    for row in report["methods"]:
        cells = [row["method"]]
        for name in columns:
            cell = f"{row[name]:.3f}"
            if f"{name}_range" in row:
                low, high = row[f"{name}_range"]
                cell += f" ({low:.3f} to {high:.3f})"
            cells.append(cell)
        print("| " + " | ".join(cells) + " |")
    print(f"True clusters: loss {report['loss_of_true_clusters']:.3f}")


def draw(report, path):
    figures = require("matplotlib.figure", "plots")
    figure = figures.Figure(figsize=(9, 3.6), layout="constrained")
    loss_axes, nmi_axes = figure.subplots(1, 2)
    for method, color in zip(METHODS, COLORS, strict=True):
        curves = [c for c in report["curves"] if c["method"] == method]
        steps = curves[0]["step"]
        for axes, name, style in (
            (loss_axes, "loss", "-"),
            (nmi_axes, "nmi", "-"),
            (loss_axes, "training_loss", ":"),
        ):
            values = np.array([curve[name] for curve in curves])
            label = method if style == "-" else None
            axes.plot(steps, values.mean(axis=0), style, c=color, label=label)
            if style == "-":
                axes.fill_between(
                    steps,
                    values.min(axis=0),
                    values.max(axis=0),
                    color=color,
                    alpha=0.2,
                    lw=0,
                )
    loss_axes.axhline(
        report["loss_of_true_clusters"], color="black", lw=0.8, ls="--"
    )
    loss_axes.annotate(
        "true clusters",
        (report["iterations"], report["loss_of_true_clusters"]),
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


if __name__ == "__main__":
    main()
