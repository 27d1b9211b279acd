"""What do the ways to hold the transform of an `ANTEmbedding` cost?

Prints the time of a training step as the table grows, for each `storage`,
with Adam as it is and in `SparseRowOptimizer`. All take turns in one process;
the figures are medians over rounds, and the fastest round. Every table is
looked up at as many different rows, spread over it. Then it trains a table of
1,000,000 rows and 1,000 anchors in a process of its own and prints the most
memory that this took.

    python benchmarks/ant_storage.py
"""
# ruff: noqa: E402

import argparse
import functools
import os
import pathlib
import re
import resource
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from record import write_record

import keras_compembed as kc

OPTIMIZERS = {
    "Adam": keras.optimizers.Adam,
    "SparseRowOptimizer(Adam)": lambda: kc.optimizers.SparseRowOptimizer(
        "adam"
    ),
}
VARIANTS = (
    ("dense", "Adam"),
    ("lazy", "Adam"),
    ("lazy", "SparseRowOptimizer(Adam)"),
    ("sparse", "SparseRowOptimizer(Adam)"),
)


def main(arguments=None):
    args = parse(arguments)
    if args.memory_of is not None:
        prepare(*VARIANTS[args.memory_of], args.input_dims[0], args)()
        print(peak_bytes())
        return None
    rows = [row for size in args.input_dims for row in time_steps(size, args)]
    memory = measure_memory(args)
    save(args, rows, memory)
    print_table(rows)
    for row in memory:
        print(
            f"{row['storage']}, {row['optimizer']}, {row['input_dim']:,} x "
            f"{row['num_anchors']:,}: {row['peak_bytes'] / 1e9:.2f} GB at most"
        )
    return rows, memory


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
    parser.add_argument("--num-anchors", type=int, default=100)
    parser.add_argument("--output-dim", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--length", type=int, default=100)
    parser.add_argument("--steps", type=int, default=5, help="a round's")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--memory",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[1_000_000, 1000],
        help="rows and anchors of the table whose memory is measured",
    )
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
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
        args.input_dims, args.num_anchors, args.output_dim = [100, 1000], 5, 8
        args.batch_size, args.length = 8, 4
        args.steps, args.rounds = 2, 2
        args.memory = [2000, 20]
    return args


def time_steps(input_dim, args):
    fits = {variant: prepare(*variant, input_dim, args) for variant in VARIANTS}
    seconds = {variant: [] for variant in fits}
    for _ in range(args.rounds):
        for variant, fit in fits.items():
            start = clocks()
            fit()
            seconds[variant].append(clocks() - start)
    keras.backend.clear_session()
    for (storage, optimizer), times in seconds.items():
        milliseconds = np.array(times) / args.steps * 1e3
        wall, cpu = np.median(milliseconds, axis=0).round(2).tolist()
        yield {
            "input_dim": input_dim,
            "storage": storage,
            "optimizer": optimizer,
            "milliseconds": wall,
            "fastest": round(float(milliseconds[:, 0].min()), 2),
            "cpu_milliseconds": cpu,
        }


def prepare(storage, optimizer, input_dim, args):
    """Fits a model once, which traces it, and returns what does so again."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((args.length,), dtype="int32"),
            kc.ANTEmbedding(
                input_dim,
                args.output_dim,
                num_anchors=args.num_anchors,
                storage=storage,
            ),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(2),
        ]
    )
    model.compile(
        OPTIMIZERS[optimizer](),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    rng = np.random.default_rng(0)
    examples = args.batch_size * args.steps
    smallest = min(args.input_dims)
    ids = rng.integers(smallest, size=(examples, args.length))
    data = tf.data.Dataset.from_tensor_slices(
        (ids * (input_dim // smallest), rng.integers(2, size=examples))
    ).batch(args.batch_size)
    fit = functools.partial(model.fit, data, shuffle=False, verbose=0)
    fit()
    return fit


def clocks():
    return np.array([time.perf_counter(), time.process_time()])


def measure_memory(args):
    num_rows, num_anchors = args.memory
    rows = []
    for place, (storage, optimizer) in enumerate(VARIANTS):
        if storage != "sparse":
            continue
        command = [
            sys.executable,
            __file__,
            f"--memory-of={place}",
            f"--input-dims={num_rows}",
            f"--num-anchors={num_anchors}",
            f"--output-dim={args.output_dim}",
            f"--batch-size={args.batch_size}",
            f"--length={args.length}",
        ]
        result = subprocess.run(command, capture_output=True, check=True)
        rows.append(
            {
                "input_dim": num_rows,
                "num_anchors": num_anchors,
                "storage": storage,
                "optimizer": optimizer,
                "peak_bytes": int(result.stdout.split()[-1]),
            }
        )
    return rows


def peak_bytes():
    """The most memory that this process had."""
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        # Not `ru_maxrss`, which a process on Linux inherits from its parent.
        (line,) = re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())
        return 1024 * int(line)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def save(args, rows, memory):
    settings = vars(args).items()
    write_record(
        args.output,
        "python benchmarks/ant_storage.py",
        settings={
            key: value
            for key, value in settings
            if key not in ("output", "memory_of")
        },
        rows=rows,
        memory=memory,
    )


def print_table(rows):
    keys = "milliseconds", "fastest", "cpu_milliseconds"
    print("| input_dim | storage | optimizer | ms a step | fastest | cpu ms |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        figures = " | ".join(f"{row[key]:.1f}" for key in keys)
        print(
            f"| {row['input_dim']:,} | {row['storage']} | {row['optimizer']} "
            f"| {figures} |"
        )


if __name__ == "__main__":
    main()
