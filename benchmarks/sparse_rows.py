"""What does a training step cost as the table grows?

Trains a classifier whose `CodeEmbedding` learns its codes from a table of
queries, `learn_codes="softmax"` and `composition="concat"`, by `fit`, with
`SparseRowOptimizer(Adam)` and with Adam as it is, and prints the time of a
step. Both take turns in one process; the figures are medians over rounds, and
the fastest round. Processor time, of all threads, is what remains comparable
where the machine has other things to do.

    python benchmarks/sparse_rows.py

The ids of a batch are uniform: the largest number of different rows.
"""
# ruff: noqa: E402

import argparse
import functools
import os
import pathlib
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from record import write_record

import keras_compembed as kc

OPTIMIZERS = {
    "SparseRowOptimizer(Adam)": lambda: kc.optimizers.SparseRowOptimizer(
        "adam"
    ),
    "Adam": keras.optimizers.Adam,
}


def main(arguments=None):
    args = parse(arguments)
    rows = []
    for input_dim in args.input_dims:
        fits = {
            name: prepare(make_optimizer(), input_dim, args)
            for name, make_optimizer in OPTIMIZERS.items()
        }
        seconds = {name: [] for name in fits}
        for _ in range(args.rounds):
            for name, fit in fits.items():
                start = clocks()
                fit()
                seconds[name].append(clocks() - start)
        for name, times in seconds.items():
            milliseconds = np.array(times) / args.steps * 1e3
            wall, cpu = np.median(milliseconds, axis=0).round(2).tolist()
            rows.append(
                {
                    "input_dim": input_dim,
                    "optimizer": name,
                    "milliseconds": wall,
                    "fastest": round(float(milliseconds[:, 0].min()), 2),
                    "cpu_milliseconds": cpu,
                }
            )
        keras.backend.clear_session()
    save(args, rows)
    print_table(rows)
    return rows


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--input-dims",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[10_000, 100_000, 1_000_000],
    )
    parser.add_argument("--output-dim", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--steps", type=int, default=10, help="a round's")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path(__file__).with_suffix(".json"),
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small tables and few steps, to see that it runs",
    )
    args = parser.parse_args(arguments)
    if args.quick:
        args.input_dims, args.output_dim = [100, 1000], 32
        args.batch_size, args.length = 8, 4
        args.steps, args.rounds = 2, 2
    return args


def prepare(optimizer, input_dim, args):
    """Fits a model once, which traces it, and returns what does so again."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((args.length,), dtype="int32"),
            kc.CodeEmbedding(
                input_dim,
                args.output_dim,
                composition="concat",
                learn_codes="softmax",
            ),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(2),
        ]
    )
    model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    rng = np.random.default_rng(0)
    examples = args.batch_size * args.steps
    data = tf.data.Dataset.from_tensor_slices(
        (
            rng.integers(input_dim, size=(examples, args.length)),
            rng.integers(2, size=examples),
        )
    ).batch(args.batch_size)
    fit = functools.partial(model.fit, data, shuffle=False, verbose=0)
    fit()
    return fit


def clocks():
    return np.array([time.perf_counter(), time.process_time()])


def save(args, rows):
    settings = vars(args).items()
    write_record(
        args.output,
        "python benchmarks/sparse_rows.py",
        settings={key: value for key, value in settings if key != "output"},
        rows=rows,
    )


def print_table(rows):
    keys = "milliseconds", "fastest", "cpu_milliseconds"
    print("| input_dim | optimizer | ms a step | fastest | processor ms |")
    print("|---|---|---|---|---|")
    for row in rows:
        figures = " | ".join(f"{row[key]:.1f}" for key in keys)
        print(f"| {row['input_dim']:,} | {row['optimizer']} | {figures} |")


if __name__ == "__main__":
    main()
