"""Compares training on a GPU with training on the processor, for every layer.

    python tools/gpu_check.py                 # on a GPU: at most 8 minutes
    python tools/gpu_check.py --device cpu    # on two logical processors
    python tools/gpu_check.py --quick --only codes

Each row of the first table trains a model for 5 steps on the device, and in
eager steps on the processor, from the same weights and batches. "off" is the
largest difference of a loss or a weight, in units of what rounding explains.
The second table has times of steps, as ratios to that of a Keras `Embedding`.
The third lists the ops that have no GPU kernel in TensorFlow, so that they run
on the processor. Ends with 1 if a row differs, fails or is not reached.
"""

import argparse
import collections
import functools
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests/support"))

import keras
import layer_cases
import numpy as np
import tensorflow as tf
from layer_cases import BATCH_SIZE
from layer_cases import LayerCase
from tensorflow.python.framework import kernels

import keras_compembed as kc

STEPS, SECONDS, MEMORY_MB = 5, 420, 4096
# Sums of some hundred float32 products in another order differ by 1e-5 of
# their size. Adam divides gradients by their size: a weight of size 1 that it
# moves by 0.1 is off by some 1e-5.
RTOL, ATOL = 1e-4, 1e-5
# Of half precision. Four roundings of gradients of size 1, twice over.
EPSILONS, RATE = {"mixed_bfloat16": 2**-8, "mixed_float16": 2**-11}, 0.1
# Rows, width, texts, their words, rounds.
TIMED = 100_000, 64, 512, 32, 10
# Kinds of layers that train in different ways.
KINDS = (
    *("codes", "codes-softmax", "codes-pooled", "reversible"),
    *("rounded-learned", "anchors-lazy", "anchors-sparse"),
    *("anchors-trained-places", "hash", "classes-tree", "classes-frequent"),
)
QUICK = ("codes", "codes-softmax", "anchors-lazy", "classes-tree")
# Half precision rounds scores: what is chosen by them may be another class.
MIXED = ("codes", "rounded-learned", "anchors-lazy", "classes-frequent")


def rows_of(make, *args, **kwargs):
    """Makes a `SparseRowOptimizer` of a kind of Keras's optimizers."""
    return lambda: kc.optimizers.SparseRowOptimizer(make(*args, **kwargs))


adam = rows_of(keras.optimizers.Adam, 0.02)
OPTIMIZERS = {
    "SGD": rows_of(keras.optimizers.SGD, 0.1, momentum=0.9, nesterov=True),
    "RMSprop": rows_of(keras.optimizers.RMSprop, 0.01, momentum=0.5),
    "Adagrad": rows_of(keras.optimizers.Adagrad, 0.05),
    "AdamW": rows_of(keras.optimizers.AdamW, 0.02, weight_decay=0.1),
    "Nadam": rows_of(keras.optimizers.Nadam, 0.02),
}
# What a layer may become in training, and how.
STATES = {
    "codes-follow": ("recode", lambda layer: layer.recode()),
}


def selectors():
    """Those that the cases of layers leave out."""
    classes = kc.classes
    yield "classes-all", classes.AllClasses


CASES = {case.name: case for case in layer_cases.CASES}
for name, make_selector in selectors():
    make = layer_cases.head(make_selector)
    CASES[name] = LayerCase(name, make, layer_cases.Classes())


class Losses(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.values = []

    def on_train_batch_end(self, batch, logs=None):
        self.values.append(logs["loss"])


def compiled(case, optimizer=None, **how):
    layer = case.make()
    model = case.task.wrap(layer)
    how = {"jit_compile": False, **how}
    model.compile(optimizer or adam(), case.task.loss(layer), **how)
    return model, layer


def results(model, losses):
    """Losses and weights, as files hold them: rows that owe have paid."""
    for layer in model.layers:
        layer.save_own_variables({})
    weights = {weight.path: weight.numpy() for weight in model.weights}
    return {"losses": np.array(losses, "float64"), **weights}


def by_fit(case, change=None, policy="float32", optimizer=None, **how):
    keras.config.set_dtype_policy(policy)
    try:
        optimizer = optimizer and optimizer()
        model, layer = compiled(case, optimizer, **how)
        losses = []
        for changing in (None, change) if change else (None,):
            if changing:
                changing(layer)
            callback = Losses()
            model.fit(
                *case.task.examples(STEPS * BATCH_SIZE),
                batch_size=BATCH_SIZE,
                shuffle=False,
                verbose=0,
                callbacks=[callback],
            )
            losses += callback.values
        return results(model, losses)
    finally:
        keras.config.set_dtype_policy("float32")


def own_step(model, loss_function):
    @tf.function
    def step(inputs, labels):
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True)
            loss = loss_function(labels, outputs) + sum(model.losses)
        variables = model.trainable_variables
        model.optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    return step


def by_own_loop(case):
    """Losses are means of all steps so far, as `fit` gives them."""
    model, layer = compiled(case)
    model.optimizer.build(model.trainable_variables)
    step = own_step(model, case.task.loss(layer))
    examples = case.task.examples(STEPS * BATCH_SIZE)
    batches = tf.data.Dataset.from_tensor_slices(examples)
    batches = batches.batch(BATCH_SIZE, drop_remainder=True)
    losses = [step(*batch).numpy() for batch in batches]
    graph = step.get_concrete_function(*batches.element_spec).graph
    for op in ops_without_kernel(graph.as_graph_def()):
        ON_PROCESSOR[op].add(case.name)
    return results(model, np.cumsum(losses) / np.arange(1, STEPS + 1))


ON_PROCESSOR = collections.defaultdict(set)


@functools.cache
def kernels_of(op):
    found = kernels.get_registered_kernels_for_op(op).kernel
    return [each for each in found if each.device_type in ("GPU", "DEFAULT")]


def ops_without_kernel(graph):
    """Names and types of ops of a graph that no GPU kernel takes."""

    def takes(kernel, node):
        return all(
            set(node.attr[limit.name].list.type or [node.attr[limit.name].type])
            <= set(limit.allowed_values.list.type)
            for limit in kernel.constraint
            if limit.allowed_values.list.type
        )

    for part in (
        graph.node,
        *(each.node_def for each in graph.library.function),
    ):
        for node in part:
            if not any(takes(kernel, node) for kernel in kernels_of(node.op)):
                types = {
                    tf.as_dtype(each.type).name
                    for each in node.attr.values()
                    if each.type
                }
                # Messages of assertions, and where calls go, are no work.
                if types - {"string"}:
                    yield f"{node.op} of {', '.join(sorted(types))}"


@functools.cache
def on_processor(name):
    return by_fit(CASES[name], run_eagerly=True)


def plan(place, strategies, quick):
    """Yields name, way, scope, two functions that train, and tolerances.

    The first function trains on the device, the second in eager steps.
    """
    cases, kinds = (QUICK, QUICK[:3]) if quick else (CASES, KINDS)
    few = slice(1 if quick else None)

    def row(name, way, train=by_fit, scope=place, **how):
        there = functools.partial(train, CASES[name], **how)
        return name, way, scope, there, lambda: on_processor(name), (RTOL, ATOL)

    def changed(name, way, bounds=(RTOL, ATOL), **how):
        there = functools.partial(by_fit, CASES[name], **how)
        here = functools.partial(there, run_eagerly=True)
        return name, way, place, there, here, bounds

    for name in cases:
        yield row(name, "fit")
        yield row(name, "own loop", by_own_loop)
    for way, strategy in strategies.items():
        for name in kinds:
            yield row(name, way, scope=strategy.scope)
    for name in kinds:
        yield row(name, "jit_compile", jit_compile=True)
    for name, (way, change) in list(STATES.items())[few]:
        yield changed(name, way, change=change)
    for way, make in list(OPTIMIZERS.items())[few]:
        yield changed("anchors-lazy", way, optimizer=make)
    for policy, epsilon in EPSILONS.items():
        for name in MIXED[few]:
            # Steps of SGD are gradients, which are off by their rounding.
            sgd = functools.partial(keras.optimizers.SGD, RATE)
            bounds = 8 * epsilon, 8 * epsilon * RATE
            yield changed(name, policy, bounds, policy=policy, optimizer=sgd)


def largest_difference(found, expected, bounds):
    """In units of the bounds, and what differs so."""
    rtol, atol = bounds
    worst = 0.0, ""
    pairs = zip(found.values(), expected.items(), strict=True)
    for one, (path, other) in pairs:
        one, other = one.astype("float64"), other.astype("float64")
        off = np.abs(one - other) / (atol + rtol * np.abs(other))
        off = np.nan_to_num(off, nan=np.inf).max(initial=0)
        worst = max(worst, (float(off), path))
    return worst


def run(row):
    """What a row is off by, where, and the seconds it took."""
    _, _, scope, there, here, bounds = row
    start = time.perf_counter()
    with tf.device("CPU:0"):
        keras.utils.set_random_seed(0)
        expected = here()
    with scope():
        keras.utils.set_random_seed(0)
        found = there()
    off, path = largest_difference(found, expected, bounds)
    return off, path, time.perf_counter() - start


def embeddings(rows, width):
    yield "Embedding", keras.layers.Embedding(rows, width)
    yield "CodeEmbedding", kc.CodeEmbedding(rows, width)
    yield (
        "CodeEmbedding, softmax",
        kc.CodeEmbedding(rows, width, 8, 16, codes="softmax"),
    )
    yield "QuantizedEmbedding", kc.QuantizedEmbedding(rows, width, bits=4)
    yield (
        "QuantizedEmbedding, learn_rows",
        kc.QuantizedEmbedding(rows, width, bits=4, learn_rows=True),
    )
    yield "ANTEmbedding", kc.ANTEmbedding(rows, width, 50)


def step_times(sizes):
    """Milliseconds of a step of each layer, in several rounds."""
    rows, width, batch, length, rounds = sizes
    rng = np.random.default_rng(0)
    ids = tf.constant(rng.integers(rows, size=(batch, length)), "int32")
    labels = tf.ones((batch, 1))
    steps = {}
    for name, layer in embeddings(rows, width):
        pool = keras.layers.GlobalAveragePooling1D()
        inputs = keras.Input((length,), dtype="int32")
        dense = keras.layers.Dense(1)
        model = keras.Sequential([inputs, layer, pool, dense])
        model.compile(adam(), "mse")
        model.optimizer.build(model.trainable_variables)
        steps[name] = own_step(model, keras.losses.MeanSquaredError())
    times = collections.defaultdict(list)
    for turn in range(rounds + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            for _ in range(STEPS):
                loss = step(ids, labels)
            loss.numpy()
            seconds = (time.perf_counter() - start) / STEPS
            if turn:  # The first round traces.
                times[name].append(1e3 * seconds)
    return {name: np.array(values) for name, values in times.items()}


def find_devices(kind):
    """A device's name, and strategies: of one device, and of two logical."""
    physical = tf.config.list_physical_devices(kind)[0]
    tf.config.set_visible_devices(physical, kind)
    limit = MEMORY_MB if kind == "GPU" else None
    logical = tf.config.LogicalDeviceConfiguration(memory_limit=limit)
    tf.config.set_logical_device_configuration(physical, [logical] * 2)
    across = tf.distribute.HierarchicalCopyAllReduce
    return f"{kind}:{0 if kind == 'GPU' else 1}", {
        way: tf.distribute.MirroredStrategy(
            [f"{kind}:{place}" for place in range(number)],
            cross_device_ops=across(),
        )
        for number, way in ((1, "mirrored, one"), (2, "mirrored, two"))
    }


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    parser.add_argument(
        "--device", choices=("gpu", "cpu"), default="gpu" if has_gpu else "cpu"
    )
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--only", help="rows whose layer has this in its name")
    arguments = parser.parse_args(argv)
    if arguments.device == "gpu" and not has_gpu:
        parser.error("TensorFlow finds no GPU.")
    tf.get_logger().setLevel("ERROR")
    tf.config.experimental.enable_tensor_float_32_execution(False)
    device, strategies = find_devices(arguments.device.upper())
    place = functools.partial(tf.device, device)
    print(f"TensorFlow {tf.__version__}, Keras {keras.__version__}, {device}\n")
    print(f"{'layer':24}{'way':16}{'off':>8}{'seconds':>9}")
    start, bad = time.perf_counter(), 0
    for row in plan(place, strategies, arguments.quick):
        name, way, *_ = row
        if arguments.only and arguments.only not in name:
            continue
        line, off, path, seconds = f"{name:24}{way:16}", np.inf, "", 0.0
        if time.perf_counter() - start > SECONDS:
            path = "not reached"
        else:
            try:
                off, path, seconds = run(row)
            except Exception as error:
                path = f"{type(error).__name__}: {error}"[:300]
        verdict = "" if off <= 1 else f"  DIFFERS: {path}"
        bad += off > 1
        print(f"{line}{off:8.3f}{seconds:9.1f}{verdict}", flush=True)
    with place():
        sizes = (2000, 16, 32, 10, 2) if arguments.quick else TIMED
        times = step_times(sizes)
    usual = times["Embedding"]
    print(f"\nStep of Embedding: {np.median(usual):.2f} ms. Of others:")
    for name, values in times.items():
        print(f"{name:32}{np.median(values / usual):8.2f}")
    print("\nWithout a GPU kernel:")
    for op, names in sorted(ON_PROCESSOR.items()):
        print(f"{op:32} {', '.join(sorted(names))}")
    print(f"\n{bad} rows differ" if bad else "\nAll rows agree")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
