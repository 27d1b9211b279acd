"""What do training and prediction over many classes cost?

Times of a training step by plain `fit`, of `CANESoftmax` in several settings
and of baselines, and of the best 5 classes by beam search and by all scores,
in Keras and in LiteRT files. What is compared takes turns in one process;
figures are medians over rounds. Labels follow Zipf's law; weights are random.
"""

import dataclasses
import functools
import gc
import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from benchmarks import baselines
from benchmarks.codes.training_step import OPTIMIZERS as ADAM
from benchmarks.common import litert
from benchmarks.common import timing
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.common.models import BestItems

OPTIMIZERS = {**ADAM, "SGD": lambda: keras.optimizers.SGD(0.01)}
SPARSE = "SparseRowOptimizer(Adam)"
# As many as the layer chooses by default.
MANY = "frequent 250+750"
NARROW = "tree 10+10, beam 3, blocks of 20"


def sampled(number):
    return functools.partial(kc.SampledSoftmaxLoss, number)


# Name, layer, loss, optimizer, with XLA or without.
BOTH = (False, True)
VARIANTS = tuple(
    (name, head, loss, optimizer, jit_compile)
    for name, head, loss, optimizer, compiled in (
        ("tree 10+10", "tree", kc.CANELoss, "SGD", BOTH),
        ("tree 10+10", "tree", kc.CANELoss, SPARSE, BOTH),
        (NARROW, "narrow", kc.CANELoss, "SGD", BOTH),
        (MANY, "many", kc.CANELoss, "SGD", BOTH),
        ("subsets 40+1", "subsets", kc.CANELoss, "SGD", (False,)),
        ("sampled softmax 40", "frequent", sampled(40), "SGD", (False,)),
        ("sampled softmax 1000", "frequent", sampled(1000), "SGD", BOTH),
        ("full softmax", "frequent", baselines.FullSoftmaxLoss, "SGD", BOTH),
        (
            "Dense of Keras",
            "dense",
            functools.partial(
                keras.losses.SparseCategoricalCrossentropy, from_logits=True
            ),
            "SGD",
            BOTH,
        ),
    )
    for jit_compile in compiled
)
OVER_ALL = ("full softmax", "Dense of Keras")
# Whether XLA compiles.
COMPILED = (False, True)
PREDICTIONS = ("beam of 10", "beam of 5", "all scores")


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    part: str
    num_classes: int
    optimizer: str | None = None
    jit_compile: bool | None = None
    batch_size: int | None = None
    quantize: str | None = None


class Speed(Benchmark):
    settings = {
        "width": 256,
        "batch_size": 256,
        "steps": Flag(20, "of a round"),
        "rounds": 5,
        "predictions": Flag(30, "of each"),
    }
    choices = {
        "num_classes": (10_000, 100_000, 1_000_000),
        "most_scores": Flag(100_000, "classes that are all scored"),
        "most_litert": Flag(100_000, "classes in a LiteRT file"),
    }
    quick = {
        "num_classes": (300,),
        "width": 8,
        "batch_size": 16,
        "steps": 2,
        "rounds": 2,
        "predictions": 3,
        "most_scores": 300,
        "most_litert": 300,
    }

    def rows(self):
        return [
            row
            for number in self.args.num_classes
            for rows in (training_rows, prediction_rows, litert_rows)
            for row in rows(number, self.args)
        ]

    def together(self, row):
        return row.num_classes

    def measure_together(self, rows, seed):
        args, number = self.args, rows[0].num_classes
        heads = make_heads(number, args, seed)
        for part, measure in (
            ("training", time_steps),
            ("prediction", time_top_k),
            ("litert", time_litert),
        ):
            wanted = [row for row in rows if row.part == part]
            if wanted:
                yield from measure(wanted, heads, args, seed)
            # Slots of optimizers are as large as the layers.
            gc.collect()
        keras.backend.clear_session()


def training_rows(number, args):
    return [
        Row(name, "training", number, optimizer, jit_compile)
        for name, _, _, optimizer, jit_compile in VARIANTS
        if number <= args.most_scores or name not in OVER_ALL
        if jit_compile in COMPILED
    ]


def prediction_rows(number, args):
    return [
        Row(name, "prediction", number, None, jit_compile, batch_size)
        for batch_size in sorted({1, args.batch_size})
        for name in PREDICTIONS
        for jit_compile in COMPILED
        # XLA sorts all scores, in several gigabytes.
        if not jit_compile or name != "all scores" or number <= args.most_scores
    ]


def litert_rows(number, args):
    return [
        Row(name, "litert", number, quantize=quantize)
        for quantize in (None, "int8")
        for name in PREDICTIONS
        if number <= args.most_litert
    ]


def make_heads(number, args, seed):
    """Layers by name, built, with random weights."""
    tree = kc.classes.ClassTree.random(number, branching=10, seed=seed)
    counts = 1e6 / np.arange(1, number + 1)
    subsets = kc.classes.FrequencySubsets(counts, seed=seed)
    frequent = kc.classes.FrequentClasses(counts)
    beam_tree = kc.classes.BeamTree
    # Fewer in trials.
    head, many = (min(size, number // 6) for size in (250, 750))
    heads = {
        "tree": kc.CANESoftmax(number, sampling=kc.Sampling(beam_tree(tree))),
        "narrow": kc.CANESoftmax(
            number,
            sampling=kc.Sampling(
                beam_tree(tree, beam_width=3), shared="neighbors", groups=20
            ),
        ),
        "frequent": kc.CANESoftmax(
            number,
            sampling=kc.Sampling(
                frequent,
                num_candidates=10,
                num_noises=30,
                shared="neighbors",
                groups=20,
            ),
            class_counts=counts,
        ),
        "many": kc.CANESoftmax(
            number,
            sampling=kc.Sampling(
                kc.classes.FrequentClasses(counts),
                num_candidates=head,
                num_noises=many,
                shared=True,
            ),
            class_counts=counts,
        ),
        "subsets": kc.CANESoftmax(
            number,
            sampling=kc.Sampling(subsets, num_candidates=40, num_noises=1),
        ),
    }
    if number <= args.most_scores:
        heads["dense"] = keras.layers.Dense(number)
    for head in heads.values():
        head.build((None, args.width))
        for place, weight in enumerate(head.trainable_weights):
            weight.assign(
                0.1 * tf.random.stateless_normal(weight.shape, (seed, place))
            )
    return heads


def time_steps(rows, heads, args, seed):
    steps = {
        row: max(1, args.steps // 10) if row.name in OVER_ALL else args.steps
        for row in rows
    }
    variants = {(v[0], *v[3:]): v for v in VARIANTS}
    fits = {}
    for row in rows:
        variant = variants[row.name, row.optimizer, row.jit_compile]
        fit = prepare(variant, heads, row.num_classes, steps[row], args, seed)
        fits[row] = timing.timed(fit)
    rounds = timing.take_turns(fits, range(args.rounds))
    for row in rows:
        yield timing.summarize(rounds[row] / steps[row])


def prepare(variant, heads, number, steps, args, seed):
    """Fits a model once, which traces it, and gives what does so again."""
    _, head, loss, optimizer, jit_compile = variant
    model = keras.Sequential([keras.Input((args.width,)), heads[head]])
    model.compile(OPTIMIZERS[optimizer](), loss(), jit_compile=jit_compile)
    rng = np.random.default_rng(seed)
    examples = args.batch_size * steps
    shares = np.cumsum(1 / np.arange(1, number + 1))
    ranks = np.searchsorted(shares / shares[-1], rng.random(examples))
    labels = rng.permutation(number)[np.minimum(ranks, number - 1)]
    features = rng.standard_normal((examples, args.width), "float32")
    data = tf.data.Dataset.from_tensor_slices(
        (features, labels.astype("int32"))
    ).batch(args.batch_size, drop_remainder=True)

    def fit(_=None):
        model.fit(data, shuffle=False, verbose=0)

    fit()
    return fit


def time_top_k(rows, heads, args, seed):
    plain = heads["frequent"]

    def by_scores(features):
        scores = tf.matmul(features, plain.kernel.value, transpose_b=True)
        return tf.math.top_k(scores + plain.bias.value, 5)

    functions = {
        "beam of 10": functools.partial(heads["tree"].top_k, k=5),
        # At least as wide as classes are asked for.
        "beam of 5": functools.partial(heads["narrow"].top_k, k=5),
        "all scores": by_scores,
    }
    rng = np.random.default_rng(seed + 1)
    for batch_size in sorted({row.batch_size for row in rows}):
        runs = {
            row: timing.timed(
                fetched(functions[row.name], jit_compile=row.jit_compile)
            )
            for row in rows
            if row.batch_size == batch_size
        }
        features = (
            tf.constant(
                rng.standard_normal((batch_size, args.width), "float32")
            )
            for _ in range(args.predictions + 1)
        )
        rounds = timing.take_turns(runs, features)
        for row in runs:
            # The first is traced.
            yield timing.summarize(rounds[row][1:])


def fetched(function, **kwargs):
    """A compiled function whose results are waited for."""
    function = tf.function(function, **kwargs)
    return lambda features: [part.numpy() for part in function(features)]


def time_litert(rows, heads, args, seed):
    inputs = keras.Input((args.width,), batch_size=1)
    dense = keras.layers.Dense(rows[0].num_classes)
    scores = dense(inputs)
    dense.set_weights(
        [heads["frequent"].kernel.numpy().T, heads["frequent"].bias]
    )
    models = {
        "beam of 10": (keras.Model(inputs, heads["tree"](inputs)), 5),
        "beam of 5": (keras.Model(inputs, heads["narrow"](inputs)), 5),
        "all scores": (keras.Model(inputs, BestItems(5)(scores)), None),
    }
    runs, sizes = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            model, top_k = models[row.name]
            # Of random weights, 8 bits put others first.
            tolerance = None if row.quantize is None else 1e9
            export = kc.export_litert(
                model,
                pathlib.Path(folder) / f"{len(runs)}.tflite",
                quantize=row.quantize,
                top_k=top_k,
                target=kc.export.Target(tolerance=tolerance),
                verbose=0,
            )
            runs[row] = timing.timed(litert.File(export.path).run)
            sizes[row] = export.file_bytes
        rng = np.random.default_rng(seed + 2)
        features = (
            rng.standard_normal((1, args.width), "float32")
            for _ in range(args.predictions + 1)
        )
        rounds = timing.take_turns(runs, features)
    for row in rows:
        yield {"file_bytes": sizes[row], **timing.summarize(rounds[row][1:])}


main = functools.partial(run, Speed)
