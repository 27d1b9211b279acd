"""What do anchors and sparse rows cost in a LiteRT file?

Exports an `ANTEmbedding` with random non-zeros, and the same table as a
`keras.layers.Embedding`, and prints the size of each file and the time of a
look-up of ids drawn uniformly. Files take turns in one process, on one thread;
the figures are medians. `CSR bytes` are those of offsets of 32 bits, columns,
values and anchors, of the types that the file has.

    python benchmarks/ant_litert.py
"""
# ruff: noqa: E402

import argparse
import os
import pathlib
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from record import write_record

import keras_compembed as kc
from keras_compembed.transforms.sparse_transform import SparseTransform
from keras_compembed.transforms.sparse_transform import column_dtype

# Name, whether the length is known, `quantize`, bytes of a number.
FORMS = (
    ("rows, float32", False, None, 4),
    ("rows, float32, static", True, None, 4),
    ("rows, float16", False, "float16", 2),
    ("rows, int8", False, "int8", 1),
)


def main(arguments=None):
    args = parse(arguments)
    layer = make_layer(args)
    table = keras.layers.Embedding(*layer.embeddings.shape)
    table.build()
    table.set_weights([layer.embeddings])
    rows, files = [], []
    with tempfile.TemporaryDirectory() as folder:

        def add(name, layer, static, quantize, csr_bytes):
            length = args.length if static else None
            batch = 1 if static else None
            ids = keras.Input((length,), batch_size=batch, dtype="int32")
            export = kc.export.export_litert(
                keras.Model(ids, layer(ids)),
                pathlib.Path(folder) / f"{len(rows)}.tflite",
                quantize=quantize,
                verbose=0,
            )
            rows.append(
                {
                    "name": name,
                    "file_bytes": export.file_bytes,
                    "csr_bytes": csr_bytes,
                    "max_error": export.max_error,
                    "ops": len(export.ops),
                    "min_runtime": export.min_runtime,
                }
            )
            files.append(prepare(export.path, args.length))

        add("table, float32", table, False, None, None)
        for name, static, quantize, size in FORMS:
            add(name, layer, static, quantize, csr_bytes(layer, size))
        seconds = measure(files, args)
    for row, times in zip(rows, seconds, strict=True):
        row["microseconds"] = round(float(np.median(times)) * 1e6, 1)
    for row in rows:
        ratio = row["microseconds"] / rows[0]["microseconds"]
        row["latency_ratio"] = round(ratio, 2)
    save(args, rows, layer.nnz)
    print_table(rows)
    return rows


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--input-dim", type=int, default=50_000)
    parser.add_argument("--output-dim", type=int, default=64)
    parser.add_argument("--num-anchors", type=int, default=50)
    parser.add_argument(
        "--nonzeros", type=float, default=2.0, help="a row's, on average"
    )
    parser.add_argument("--length", type=int, default=128, help="ids at once")
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path(__file__).with_suffix(".json"),
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a small table and few rounds, to see that it runs",
    )
    args = parser.parse_args(arguments)
    if args.quick:
        args.input_dim, args.length, args.rounds = 2000, 16, 3
    return args


def make_layer(args):
    rng = np.random.default_rng(0)
    shape = args.input_dim, args.num_anchors
    lengths = np.minimum(rng.poisson(args.nonzeros, shape[0]), shape[1])
    columns = [
        np.sort(rng.choice(shape[1], length, replace=False))
        for length in lengths
    ]
    transform = SparseTransform(
        np.append(0, np.cumsum(lengths)),
        np.concatenate(columns).astype(column_dtype(shape[1])),
        rng.uniform(0.1, 1, lengths.sum()).astype("float32"),
        shape[1],
    )
    layer = kc.ANTEmbedding(
        args.input_dim,
        args.output_dim,
        args.num_anchors,
        storage="dense",
        seed=0,
    )
    layer.build()
    layer.anchors.assign(rng.normal(size=layer.anchors.shape))
    layer.assign_transform(transform)
    return layer


def csr_bytes(layer, size):
    column = column_dtype(layer.num_anchors).itemsize
    rows = 4 * (layer.input_dim + 1) + layer.nnz * (column + size)
    return rows + layer.num_anchors * layer.output_dim * size


def prepare(path, length):
    """A function of ids that gives the seconds of a look-up."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=path, num_threads=1)
    place = interpreter.get_input_details()[0]["index"]
    interpreter.resize_tensor_input(place, [1, length])
    interpreter.allocate_tensors()

    def run(ids):
        interpreter.set_tensor(place, ids)
        start = time.perf_counter()
        interpreter.invoke()
        return time.perf_counter() - start

    return run


def measure(files, args):
    rng = np.random.default_rng(1)
    seconds = [[] for _ in files]
    for _ in range(args.rounds):
        ids = rng.integers(args.input_dim, size=(1, args.length))
        for run, times in zip(files, seconds, strict=True):
            times.append(run(ids.astype("int32")))
    return seconds


def save(args, rows, nnz):
    settings = vars(args).items()
    write_record(
        args.output,
        "python benchmarks/ant_litert.py",
        settings={key: value for key, value in settings if key != "output"},
        nonzeros=nnz,
        rows=rows,
    )


def print_table(rows):
    print("| file | bytes | CSR bytes | microseconds | to a table |")
    print("|---|---|---|---|---|")
    for row in rows:
        exact = row["csr_bytes"]
        exact = "" if exact is None else f"{exact:,}"
        print(
            f"| {row['name']} | {row['file_bytes']:,} | {exact} "
            f"| {row['microseconds']:.1f} | {row['latency_ratio']:.2f} |"
        )


if __name__ == "__main__":
    main()
