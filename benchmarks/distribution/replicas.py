"""Do two replicas on two cores train twice as many examples as one on one?

Models with a layer of each method, and with plain `Embedding` and `Dense`, are
trained by `fit` and by steps of one's own, with the same batch on each replica:
one model on one core, two replicas under `tf.distribute.MirroredStrategy` on
two, and two programs on a core each, which share nothing. What the programs
fall behind twice one is the machine's doing, and what replicas fall behind the
programs is what they say to each other.

    python -m benchmarks distribution.replicas

Layouts take turns, each in a process of its own; figures are medians over
turns. Needs two cores, and Linux, where a process can be held to a core.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import multiprocessing
import os
import statistics
import time

from benchmarks.common.threads import use_one_thread

# Read by the processes that this one starts: each replica computes in one
# thread.
use_one_thread()

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import keras_compembed as kc  # noqa: E402
from benchmarks.common import tables  # noqa: E402
from benchmarks.common.arguments import Flag  # noqa: E402
from benchmarks.common.benchmark import Benchmark  # noqa: E402
from benchmarks.common.benchmark import run  # noqa: E402

# Of each layout, the cores of its processes.
LAYOUTS = {"one": [(0,)], "replicas": [(0, 1)], "programs": [(0,), (1,)]}
LOOPS = ("fit", "steps")
_LENGTH, _STEPS_TO_TRACE = 20, 3


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: String.
        model: String, of `MODELS`.
        loop: `"fit"` or `"steps"`.
    """

    name: str
    model: str
    loop: str


class Replicas(Benchmark):
    settings = {
        "vocabulary": Flag(100_000, "rows of tables"),
        "classes": 10_000,
        "width": 64,
        "batch_size": Flag(256, "of a replica"),
        "steps": Flag(40, "that are timed"),
        "turns": 3,
    }
    choices = {"layouts": tuple(LAYOUTS)}
    quick = {
        "layouts": ("replicas",),
        "vocabulary": 200,
        "classes": 30,
        "width": 8,
        "batch_size": 4,
        "steps": 2,
        "turns": 1,
    }
    columns = {
        "examples a s": tables.figure("one", "{:,.0f}"),
        "two replicas": tables.figure("replicas", "{:,.0f}"),
        "two programs": tables.figure("programs", "{:,.0f}"),
    }

    def rows(self):
        return [
            Row(f"{model} by {loop}", model, loop)
            for model in MODELS
            for loop in LOOPS
        ]

    def together(self, row):
        return None

    def measure_together(self, rows, seed):
        layouts = self.args.layouts
        rates = {(row, layout): [] for row in rows for layout in layouts}
        for _, layout in itertools.product(range(self.args.turns), layouts):
            for row, rate in zip(
                rows, examples_a_second(layout, rows, self.args), strict=True
            ):
                rates[row, layout].append(rate)
        for row in rows:
            yield {
                layout: statistics.median(rates[row, layout])
                for layout in layouts
            }


def examples_a_second(layout, rows, args):
    """List of examples a second of each of the rows, over all processes."""
    cores = LAYOUTS[layout]
    context = multiprocessing.get_context("spawn")
    os.environ["TF_NUM_INTEROP_THREADS"] = str(len(cores[0]))
    # Programs meet before each model: both then have the machine's other load.
    barrier = context.Barrier(len(cores))
    with concurrent.futures.ProcessPoolExecutor(
        len(cores), context, initializer=_take, initargs=(barrier,)
    ) as executor:
        found = [executor.submit(rates_of, rows, args, own) for own in cores]
        found = [each.result() for each in found]
    return [sum(rates) for rates in zip(*found, strict=True)]


def _take(barrier):
    global _barrier
    _barrier = barrier


def rates_of(rows, args, cores):
    """Examples a second of each of the rows, in this process."""
    with contextlib.suppress(AttributeError, OSError):
        # There may be one core, or another system: for a test, that will do.
        os.sched_setaffinity(0, cores)
    strategy = tf.distribute.get_strategy()
    if len(cores) > 1:
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration() for _ in cores]
        )
        names = [f"CPU:{number}" for number in range(len(cores))]
        strategy = tf.distribute.MirroredStrategy(names)
    size = args.batch_size * len(cores)
    rates = []
    for row in rows:
        keras.utils.set_random_seed(0)
        with strategy.scope():
            model, data = MODELS[row.model](args, size)
        data = data.repeat()
        train = by_fit if row.loop == "fit" else by_steps
        _barrier.wait()
        seconds = train(model, data, strategy, args.steps)
        rates.append(size * args.steps / seconds)
        keras.backend.clear_session()
    return rates


def by_fit(model, data, strategy, steps):
    """Seconds of steps of `fit`."""
    options = {"shuffle": False, "verbose": 0}
    model.fit(data, steps_per_epoch=_STEPS_TO_TRACE, **options)
    clock = _EpochClock()
    model.fit(data, steps_per_epoch=steps, callbacks=[clock], **options)
    return clock.seconds


class _EpochClock(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 0:
            self._start = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.seconds = time.perf_counter() - self._start


def by_steps(model, data, strategy, steps):
    """Seconds of steps in a loop of one's own."""
    with strategy.scope():
        model.optimizer.build(model.trainable_variables)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x, y, model(x, training=True))
            loss /= strategy.num_replicas_in_sync
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    @tf.function
    def train_step(batch):
        losses = strategy.run(step, args=batch)
        return strategy.reduce("SUM", losses, axis=None)

    batches = iter(strategy.experimental_distribute_dataset(data))
    for _ in range(_STEPS_TO_TRACE):
        train_step(next(batches))
    start = time.perf_counter()
    for _ in range(steps):
        loss = train_step(next(batches))
    float(loss)
    return time.perf_counter() - start


def averaged(make_layer):
    """A classifier of means of rows."""

    def make(args, size):
        rows = make_layer(args)
        return classifier(
            args, size, rows, keras.layers.GlobalAveragePooling1D()
        )

    return make


def pooled(make_layer):
    """The same, by a layer that takes the mean itself."""
    return lambda args, size: classifier(args, size, make_layer(args))


def classifier(args, size, *layers):
    inputs = keras.Input((_LENGTH,), dtype="int32")
    model = keras.Sequential([inputs, *layers, keras.layers.Dense(20)])
    return compiled(model, args.vocabulary, 20, size)


def codes(cls, learn_codes=None):
    """A layer of codes: any that are given, or learned from the beginning."""

    def make(args):
        options = {}
        if learn_codes == "follow":
            rng = np.random.default_rng(0)
            options["codes"] = rng.integers(16, size=(args.vocabulary, 16))
        return cls(
            args.vocabulary,
            args.width,
            num_codebooks=16,
            codebook_size=16,
            learn_codes=learn_codes,
            **options,
        )

    return make


def rounded(cls):
    return lambda args: cls(
        args.vocabulary, args.width, bits=4, learn_rows=True
    )


def anchors(cls, storage=None):
    return lambda args: cls(
        args.vocabulary, args.width, num_anchors=20, storage=storage
    )


def features(args):
    """Rows that a network computes from features."""
    rng = np.random.default_rng(0)
    tower = keras.Sequential(
        [
            keras.Input((16,)),
            keras.layers.Dense(args.width, "relu"),
            keras.layers.Dense(args.width),
        ]
    )
    known = rng.normal(size=(args.vocabulary, 16)).astype("float32")
    return kc.FeatureEmbedding(known, tower)


def with_classes(make_head, loss):
    """A classifier of a mean of rows, of very many classes."""

    def make(args, size):
        model = keras.Sequential(
            [
                keras.Input((_LENGTH,), dtype="int32"),
                keras.layers.Embedding(1000, args.width),
                keras.layers.GlobalAveragePooling1D(),
                make_head(args),
            ]
        )
        return compiled(model, 1000, args.classes, size, loss)

    return make


def layers_of_dense(args, size):
    """A network without a table: eight products of matrices."""
    wide = [keras.layers.Dense(8 * args.width, "relu") for _ in range(8)]
    model = keras.Sequential(
        [keras.Input((_LENGTH,), dtype="int32"), *wide, keras.layers.Dense(20)]
    )
    return compiled(model, 100, 20, size)


def compiled(model, vocabulary, classes, size, loss=None):
    """The model, compiled, and a batch for it over and over."""
    if loss is None:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(
        kc.optimizers.SparseRowOptimizer(keras.optimizers.Adam()), loss
    )
    rng = np.random.default_rng(0)
    ids = rng.integers(vocabulary, size=(8 * size, _LENGTH)).astype("int32")
    labels = rng.integers(classes, size=8 * size).astype("int32")
    data = tf.data.Dataset.from_tensor_slices((ids, labels))
    return model, data.batch(size, drop_remainder=True)


MODELS = {
    "Embedding": averaged(
        lambda args: keras.layers.Embedding(args.vocabulary, args.width)
    ),
    "CodeEmbedding": averaged(codes(kc.CodeEmbedding)),
    "CodeEmbedding, nearest": averaged(codes(kc.CodeEmbedding, "nearest")),
    "CodeEmbedding, softmax": averaged(codes(kc.CodeEmbedding, "softmax")),
    "CodeEmbedding, follow": averaged(codes(kc.CodeEmbedding, "follow")),
    "CodeEmbedReduce": pooled(codes(kc.CodeEmbedReduce)),
    "QuantizedEmbedding": averaged(rounded(kc.QuantizedEmbedding)),
    "QuantizedEmbedReduce": pooled(rounded(kc.QuantizedEmbedReduce)),
    "ANTEmbedding": averaged(anchors(kc.ANTEmbedding)),
    "ANTEmbedding, lazy": averaged(anchors(kc.ANTEmbedding, "lazy")),
    "ANTEmbedding, sparse": averaged(anchors(kc.ANTEmbedding, "sparse")),
    "ANTEmbedReduce": pooled(anchors(kc.ANTEmbedReduce)),
    "FeatureEmbedding": averaged(features),
    "Dense": layers_of_dense,
    "full softmax": with_classes(
        lambda args: keras.layers.Dense(args.classes),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    ),
    "CANESoftmax": with_classes(
        lambda args: kc.CANESoftmax(
            args.classes, class_counts=np.ones(args.classes)
        ),
        kc.CANELoss(),
    ),
}
main = functools.partial(run, Replicas)
