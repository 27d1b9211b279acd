"""What do training and prediction over many classes cost?

Prints the time of a training step by plain `fit` as classes grow: of
`CANESoftmax` over a tree, as it is by default and with a narrow beam and
shared noises, with frequent classes as candidates, over subsets by frequency,
of sampled softmax and of the softmax over all classes, by this package and by
Keras's `Dense`; then that of the best 5 classes, by beam search and by all
scores, in Keras and in LiteRT files. What is compared takes turns in one
process; the figures are medians over rounds, with processor time beside, as
both grow apart where other work shares the machine. Labels follow Zipf's law;
weights are random, so that beams of different examples have little in common.

    python benchmarks/class_speed.py
"""
# ruff: noqa: E402

import argparse
import functools
import gc
import os
import pathlib
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from record import write_record

import keras_compembed as kc

OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(0.01),
    "SparseRowOptimizer(Adam)": lambda: kc.optimizers.SparseRowOptimizer(
        "adam"
    ),
}
DenseLoss = functools.partial(
    keras.losses.SparseCategoricalCrossentropy, from_logits=True
)
# Name, layer, loss, optimizer, XLA.
VARIANTS = (
    ("tree 10+10", "tree", kc.CANELoss, "SGD", False),
    ("tree 10+10", "tree", kc.CANELoss, "SGD", True),
    ("tree 10+10", "tree", kc.CANELoss, "SparseRowOptimizer(Adam)", False),
    ("tree 10+10", "tree", kc.CANELoss, "SparseRowOptimizer(Adam)", True),
    ("tree 10+10, beam 3, blocks of 20", "narrow", kc.CANELoss, "SGD", False),
    ("tree 10+10, beam 3, blocks of 20", "narrow", kc.CANELoss, "SGD", True),
    ("frequent 10+30, blocks of 20", "frequent", kc.CANELoss, "SGD", False),
    ("frequent 10+30, blocks of 20", "frequent", kc.CANELoss, "SGD", True),
    ("subsets 40+1", "subsets", kc.CANELoss, "SGD", False),
    (
        "sampled softmax 40",
        "frequent",
        functools.partial(kc.baselines.SampledSoftmaxLoss, 40),
        "SGD",
        False,
    ),
    ("full softmax", "frequent", kc.baselines.FullSoftmaxLoss, "SGD", False),
    ("full softmax", "frequent", kc.baselines.FullSoftmaxLoss, "SGD", True),
    ("Dense of Keras", "dense", DenseLoss, "SGD", False),
    ("Dense of Keras", "dense", DenseLoss, "SGD", True),
)


def main(arguments=None):
    args = parse(arguments)
    training, prediction, litert = [], [], []
    for number in args.num_classes:
        heads = make_heads(number, args)
        training += time_steps(number, heads, args)
        save(args, training, prediction, litert)
        # Slots of optimizers are as large as the layers.
        gc.collect()
        prediction += time_top_k(number, heads, args)
        save(args, training, prediction, litert)
        if number <= args.most_litert:
            litert += time_litert(number, heads, args)
        save(args, training, prediction, litert)
        del heads
        keras.backend.clear_session()
        gc.collect()
    print_tables(training, prediction, litert)
    return training, prediction, litert


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--num-classes",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[10_000, 100_000, 1_000_000],
    )
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20, help="a round's")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--most-scores",
        type=int,
        default=100_000,
        help="classes above which no softmax over all is trained, nor XLA "
        "looks for the best of all: a batch's scores take gigabytes",
    )
    parser.add_argument(
        "--most-litert",
        type=int,
        default=100_000,
        help="classes above which no LiteRT file is made, as the converter "
        "fails to write more than 2 GB",
    )
    parser.add_argument("--predictions", type=int, default=30, help="of each")
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path(__file__).with_suffix(".json"),
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few classes and steps, to see that it runs",
    )
    args = parser.parse_args(arguments)
    if args.quick:
        args.num_classes, args.width, args.batch_size = [300, 1200], 8, 16
        args.steps, args.rounds, args.predictions = 2, 2, 3
        args.most_scores = args.most_litert = 300
    return args


def make_heads(number, args):
    """Layers by name, built, with random weights."""
    tree = kc.trees.ClassTree.random(number, branching=10, seed=0)
    counts = 1e6 / np.arange(1, number + 1)
    subsets = kc.candidates.FrequencySubsets(counts, seed=0)
    frequent = kc.candidates.FrequentClasses(counts)
    beam_tree = kc.candidates.BeamTree
    heads = {
        "tree": kc.CANESoftmax(number, beam_tree(tree)),
        "narrow": kc.CANESoftmax(
            number, beam_tree(tree, beam_width=3), share_noises=20
        ),
        "frequent": kc.CANESoftmax(
            number, frequent, 10, 30, share_noises=20, class_counts=counts
        ),
        "subsets": kc.CANESoftmax(number, subsets, 40, 1),
    }
    if number <= args.most_scores:
        heads["dense"] = keras.layers.Dense(number)
    for head in heads.values():
        head.build((None, args.width))
        for seed, weight in enumerate(head.trainable_weights):
            weight.assign(
                0.1 * tf.random.stateless_normal(weight.shape, (0, seed))
            )
    return heads


def time_steps(number, heads, args):
    fits = {}
    for variant in VARIANTS:
        full = variant[0] in ("full softmax", "Dense of Keras")
        if full and number > args.most_scores:
            continue
        steps = args.steps if not full else max(1, args.steps // 10)
        fits[variant] = steps, prepare(variant, heads, number, steps, args)
    seconds = {variant: [] for variant in fits}
    for _ in range(args.rounds):
        for variant, (steps, fit) in fits.items():
            start = clocks()
            fit()
            seconds[variant].append((clocks() - start) / steps)
    for (name, _, _, optimizer, jit_compile), times in seconds.items():
        yield {
            "num_classes": number,
            "name": name,
            "optimizer": optimizer,
            "jit_compile": jit_compile,
            **summarize(times),
        }


def prepare(variant, heads, number, steps, args):
    """Fits a model once, which traces it, and returns what does so again."""
    _, head, loss, optimizer, jit_compile = variant
    model = keras.Sequential([keras.Input((args.width,)), heads[head]])
    model.compile(OPTIMIZERS[optimizer](), loss(), jit_compile=jit_compile)
    rng = np.random.default_rng(0)
    examples = args.batch_size * steps
    shares = np.cumsum(1 / np.arange(1, number + 1))
    ranks = np.searchsorted(shares / shares[-1], rng.random(examples))
    labels = rng.permutation(number)[np.minimum(ranks, number - 1)]
    features = rng.standard_normal((examples, args.width), "float32")
    data = tf.data.Dataset.from_tensor_slices(
        (features, labels.astype("int32"))
    ).batch(args.batch_size, drop_remainder=True)
    fit = functools.partial(model.fit, data, shuffle=False, verbose=0)
    fit()
    return fit


def time_top_k(number, heads, args):
    plain = heads["frequent"]

    def by_scores(features):
        scores = tf.matmul(features, plain.kernel.value, transpose_b=True)
        return tf.math.top_k(scores + plain.bias.value, 5)

    rng = np.random.default_rng(1)
    for batch_size in (1, args.batch_size):
        functions = {}
        for name, function in (
            ("beam of 10", functools.partial(heads["tree"].top_k, k=5)),
            # At least as wide as classes are asked for.
            ("beam of 5", functools.partial(heads["narrow"].top_k, k=5)),
            ("all scores", by_scores),
        ):
            for jit_compile in (False, True):
                all_of_many = name == "all scores" and number > args.most_scores
                if jit_compile and all_of_many:
                    # It sorts all scores, in several gigabytes.
                    continue
                functions[name, jit_compile] = tf.function(
                    function, jit_compile=jit_compile
                )
        seconds = {key: [] for key in functions}
        for turn in range(args.predictions + 1):
            shape = (batch_size, args.width)
            features = tf.constant(rng.standard_normal(shape, "float32"))
            for key, function in functions.items():
                start = clocks()
                _ = [part.numpy() for part in function(features)]
                if turn:
                    seconds[key].append(clocks() - start)
        for (name, jit_compile), times in seconds.items():
            yield {
                "num_classes": number,
                "batch_size": batch_size,
                "name": name,
                "jit_compile": jit_compile,
                **summarize(times),
            }


class BestClasses(keras.layers.Layer):
    """The best 5 of all scores."""

    def call(self, inputs):
        scores, ids = tf.math.top_k(inputs, 5)
        return {"ids": ids, "scores": scores}

    def compute_output_spec(self, inputs):
        shape = (*inputs.shape[:-1], 5)
        return {
            "ids": keras.KerasTensor(shape, dtype="int32"),
            "scores": keras.KerasTensor(shape, dtype="float32"),
        }


def time_litert(number, heads, args):
    inputs = keras.Input((args.width,), batch_size=1)
    dense = keras.layers.Dense(number)
    scores = dense(inputs)
    dense.set_weights(
        [heads["frequent"].kernel.numpy().T, heads["frequent"].bias]
    )
    models = {
        "beam of 10": (keras.Model(inputs, heads["tree"](inputs)), 5),
        "beam of 5": (keras.Model(inputs, heads["narrow"](inputs)), 5),
        "all scores": (keras.Model(inputs, BestClasses()(scores)), None),
    }
    rows, runs = [], []
    with tempfile.TemporaryDirectory() as folder:
        for quantize in (None, "int8"):
            for name, (model, top_k) in models.items():
                export = kc.export.export_litert(
                    model,
                    pathlib.Path(folder) / f"{len(rows)}.tflite",
                    top_k=top_k,
                    quantize=quantize,
                    # Of random weights, 8 bits put others first.
                    tolerance=None if quantize is None else 1e9,
                    verbose=0,
                )
                rows.append(
                    {
                        "num_classes": number,
                        "name": name,
                        "quantize": quantize,
                        "file_bytes": export.file_bytes,
                    }
                )
                runs.append(load(export.path))
        seconds = [[] for _ in runs]
        rng = np.random.default_rng(2)
        for turn in range(args.predictions + 1):
            features = rng.standard_normal((1, args.width), "float32")
            for run, times in zip(runs, seconds, strict=True):
                taken = run(features)
                if turn:
                    times.append(taken)
    return [
        {**row, **summarize(times)}
        for row, times in zip(rows, seconds, strict=True)
    ]


def load(path):
    """A function of features that gives the time of a prediction."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=path, num_threads=1)
    interpreter.allocate_tensors()
    place = interpreter.get_input_details()[0]["index"]

    def run(features):
        interpreter.set_tensor(place, features)
        start = clocks()
        interpreter.invoke()
        return clocks() - start

    return run


def clocks():
    return np.array([time.perf_counter(), time.process_time()])


def summarize(times):
    milliseconds = np.array(times) * 1e3
    wall, cpu = np.median(milliseconds, axis=0).round(3).tolist()
    return {
        "milliseconds": wall,
        "fastest": round(float(milliseconds[:, 0].min()), 3),
        "cpu_milliseconds": cpu,
    }


def save(args, training, prediction, litert):
    settings = vars(args).items()
    write_record(
        args.output,
        "python benchmarks/class_speed.py",
        settings={key: value for key, value in settings if key != "output"},
        load_average=[round(load, 2) for load in os.getloadavg()],
        training=training,
        prediction=prediction,
        litert=litert,
    )


def print_tables(training, prediction, litert):
    keys = "milliseconds", "fastest", "cpu_milliseconds"
    for rows, columns in (
        (training, ("num_classes", "name", "optimizer", "jit_compile")),
        (prediction, ("num_classes", "batch_size", "name", "jit_compile")),
        (litert, ("num_classes", "name", "quantize", "file_bytes")),
    ):
        print(f"\n| {' | '.join(columns)} | ms | fastest | cpu ms |")
        print("|---" * (len(columns) + 3) + "|")
        for row in rows:
            parts = [row[column] for column in columns]
            parts = [f"{x:,}" if type(x) is int else str(x) for x in parts]
            parts += [f"{row[key]:.2f}" for key in keys]
            print(f"| {' | '.join(parts)} |")


if __name__ == "__main__":
    main()
