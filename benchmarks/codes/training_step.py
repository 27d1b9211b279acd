"""What does a training step cost with each of the layers?

A classifier averages words of a table, codes, quantized rows or anchors, and is
trained by `fit`. All take turns in one process, on one thread if
`OMP_NUM_THREADS=1` asks for it; ratios are to the table with Keras's own Adam,
medians over rounds. Words are drawn by Zipf's law.
"""

import dataclasses
import functools
import itertools

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from benchmarks.common import timing
from benchmarks.common.arguments import Flag
from benchmarks.common.arguments import code_shape
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run

OPTIMIZERS = {
    "Adam": keras.optimizers.Adam,
    "SparseRowOptimizer(Adam)": lambda: kc.optimizers.SparseRowOptimizer(
        "adam"
    ),
}
# Ending of the name of an optimizer in a model that XLA compiles.
XLA = ", XLA"


def codes(args, **options):
    sizes = zip(CODE_SHAPE, code_shape(args.code_shape), strict=True)
    return kc.CodeEmbedding, {**dict(sizes), **options}


def anchors(args, **options):
    return kc.ANTEmbedding, {"num_anchors": args.num_anchors, **options}


CODE_SHAPE = "num_codebooks", "codebook_size"
in_training = functools.partial(codes, composition="concat")
lazy = functools.partial(anchors, transform="lazy")
# A class, and its options.
LAYERS = {
    "table": lambda args: (keras.layers.Embedding, {}),
    "codes, fixed": codes,
    "codes, fixed, pooled": functools.partial(codes, combiner="mean"),
    "codes that follow": functools.partial(codes, codes="follow"),
    "codes, nearest": functools.partial(in_training, codes="nearest"),
    "codes, softmax": functools.partial(in_training, codes="softmax"),
    "int4": lambda args: (kc.QuantizedEmbedding, {"bits": 4}),
    "int4, rows learn": lambda args: (
        *(kc.QuantizedEmbedding, {"bits": 4, "learn_rows": True}),
    ),
    "anchors": anchors,
    "anchors, lazy": lazy,
    "anchors, lazy, pooled": functools.partial(lazy, combiner="mean"),
    "anchors, sparse": functools.partial(anchors, transform="sparse"),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: a layer, an optimizer, and the layer's rows."""

    name: str
    layer: str
    optimizer: str
    input_dim: int


class TrainingStep(Benchmark):
    settings = {
        "output_dim": 128,
        "code_shape": Flag("32x16", "codebooks x codewords"),
        "num_anchors": 100,
        "classes": 20,
        "batch_size": 128,
        "length": 48,
        "steps": Flag(10, "of a round"),
        "rounds": 9,
    }
    choices = {
        "input_dims": (5000, 50_000, 250_000),
        "xla": Flag(0, "1: also rows that XLA compiles"),
    }
    quick = {
        "input_dims": (500,),
        "output_dim": 16,
        "code_shape": "4x4",
        "num_anchors": 10,
        "batch_size": 8,
        "length": 4,
        "steps": 2,
        "rounds": 2,
    }

    def rows(self):
        endings = ("", XLA) if self.args.xla else ("",)
        optimizers = map("".join, itertools.product(OPTIMIZERS, endings))
        combinations = itertools.product(
            self.args.input_dims, LAYERS, optimizers
        )
        return [
            Row(f"{layer}; {optimizer}", layer, optimizer, size)
            for size, layer, optimizer in combinations
        ]

    def together(self, row):
        return row.input_dim

    def measure_together(self, rows, seed):
        size = rows[0].input_dim
        table = Row("table; Adam", "table", "Adam", size)
        # The table first: what is late runs in a fuller memory.
        fits = {
            row: timing.timed(self.prepare(row, seed))
            for row in dict.fromkeys([table, *rows])
        }
        rounds = timing.take_turns(fits, range(self.args.rounds))
        for row in rows:
            # Of a round: what else the machine does slows both alike.
            ratios = rounds[row][:, 1] / rounds[table][:, 1]
            yield {
                **timing.summarize(rounds[row] / self.args.steps),
                "ratio": round(float(np.median(ratios)), 3),
            }
        keras.backend.clear_session()

    def prepare(self, row, seed):
        """Fits a model once, which traces it, and gives what does so again."""
        args = self.args
        keras.utils.set_random_seed(seed)
        layer, options = LAYERS[row.layer](args)
        ids = keras.Input((args.length,), dtype="int32")
        hidden = layer(row.input_dim, args.output_dim, **options)(ids)
        if "combiner" not in options:
            hidden = keras.layers.GlobalAveragePooling1D()(hidden)
        model = keras.Model(ids, keras.layers.Dense(args.classes)(hidden))
        rng = np.random.default_rng(seed)
        odds = 1 / np.arange(1, row.input_dim + 1)
        size = args.batch_size * args.steps, args.length
        ids = rng.choice(row.input_dim, size=size, p=odds / odds.sum())
        labels = rng.integers(args.classes, size=len(ids))
        data = tf.data.Dataset.from_tensor_slices((ids.astype("int32"), labels))
        model.compile(
            OPTIMIZERS[row.optimizer.removesuffix(XLA)](),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=row.optimizer.endswith(XLA),
        )
        batches = data.batch(args.batch_size)

        def fit(_=None):
            model.fit(batches, shuffle=False, verbose=0)

        fit()
        return fit


main = functools.partial(run, TrainingStep)
