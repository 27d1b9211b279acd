"""What do whole models cost in LiteRT, with tables and with codes?

Files of models with random weights, a text at a time, on one thread, each in
turns with that of float32 tables; ratios are of medians. The
encoder-decoder is two files, which decode greedily.
"""

import dataclasses
import functools
import itertools
import pathlib
import tempfile

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.baselines import RandomCodeLearner
from benchmarks.common import litert
from benchmarks.common import models
from benchmarks.common.arguments import Flag
from benchmarks.common.arguments import code_shape
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from examples import compress_text_classifier as demo

TOP = 10
# Classes of the demo's texts.
_DEMO_CLASSES = 279


@dataclasses.dataclass(frozen=True)
class Kind:
    """A model, or several that are used together."""

    title: str
    build: object
    size: models.Size
    best: bool = False


def demo_model(name):
    """Builds the model of `examples.compress_text_classifier`."""

    def build(size):
        args = demo.parse_arguments(["--model", name])
        args.length, args.embedding_dim = size.length, size.width
        return [demo.build_model(args, size.rows, _DEMO_CLASSES)]

    return build


def parts(build):
    """Builds the models that a function of `models` returns before inputs."""
    return lambda size: list(build(size)[:-1])


_DEMO = models.Size(16_000, 256, 128)
KINDS = {
    "mean": Kind(
        "mean of words",
        parts(models.pooled_classifier),
        models.Size(30_000, 200, 48),
    ),
    "demo mean": Kind("the demo, mean", demo_model("mean"), _DEMO),
    "demo cnn": Kind("the demo, CNN", demo_model("cnn"), _DEMO),
    "demo lstm": Kind("the demo, LSTM", demo_model("lstm"), _DEMO),
    "transformer": Kind(
        "transformer, 2 layers",
        parts(models.attention_classifier),
        models.Size(30_000, 128, 128),
    ),
    "retrieval": Kind(
        f"two towers, top {TOP}",
        parts(models.retrieval),
        models.Size(30_000, 64, 16),
        best=True,
    ),
    "encoder-decoder": Kind(
        "encoder-decoder, GRU",
        parts(models.encoder_decoder),
        models.Size(8000, 128, 12),
    ),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: a model's file, or its files."""

    name: str
    model: str
    codes: str | None = None
    quantize: str | None = None


def title(row):
    return KINDS[row["row"]["model"]].title


class WholeModels(Benchmark):
    settings = {
        "seconds": Flag(0.6, "of the rounds of a file"),
    }
    choices = {
        "models": tuple(KINDS),
        "codes": ("32x16",),
        "quantize": ("float32", "float16", "int8", "int8_codebooks"),
    }
    quick = {
        "seconds": 0.0,
        "models": ("mean", "encoder-decoder"),
        "codes": ("4x16",),
        "quantize": ("float32", "int8"),
    }

    def rows(self):
        args = self.args
        return [
            row_of(model, codes, quantize)
            for model, codes, quantize in itertools.product(
                args.models, (None, *args.codes), args.quantize
            )
            if quantize != ("float16" if codes else "int8_codebooks")
        ]

    def together(self, row):
        return row.model

    def measure_together(self, rows, seed):
        kind, length = KINDS[rows[0].model], KINDS[rows[0].model].size.length
        size = kind.size
        if self.args.quick:
            length = min(length, 16)
            size = dataclasses.replace(size, rows=600, width=32, length=length)
        keras.utils.set_random_seed(seed)
        made = {None: kind.build(size)}
        shapes = [shapes_of(part, length) for part in made[None]]
        rng = np.random.default_rng(seed)
        first = row_of(rows[0].model)
        with tempfile.TemporaryDirectory() as folder:

            def write(row):
                if row.codes not in made:
                    made[row.codes] = with_codes(made[None], row.codes, seed)
                name = "table" if row == first else "other"
                return [
                    export(part, row, shape, f"{folder}/{name}_{place}.tflite")
                    for place, (part, shape) in enumerate(
                        zip(made[row.codes], shapes, strict=True)
                    )
                ]

            base = write(first)
            player = GreedyFiles if len(base) > 1 else SingleFile
            other = player(base, shapes)
            for row in rows:
                paths = base if row == first else write(row)
                files = player(paths, shapes)
                taken, of_other = litert.in_turns(
                    files.run,
                    other.run,
                    draw(rng, size.rows, (1, length)),
                    self.args.seconds,
                )
                yield {
                    "file_bytes": sum(
                        pathlib.Path(path).stat().st_size for path in paths
                    ),
                    "milliseconds": round(taken * 1e3, 4),
                    "latency_ratio": round(taken / of_other, 3),
                }
        keras.backend.clear_session()


class SingleFile:
    """A model that is one file, as what is timed."""

    def __init__(self, paths, shapes):
        (self._file,) = _open(paths, shapes)

    def run(self, ids):
        """Seconds of one run."""
        return self._file.run(ids)


class GreedyFiles:
    """An encoder and a step of its decoder, as what is timed."""

    def __init__(self, paths, shapes):
        self._encoder, self._step = _open(paths, shapes)

    def run(self, source):
        """Seconds of a sentence, of as many words as `source`, greedily."""
        seconds = self._encoder.run(source)
        (state,) = self._encoder.outputs().values()
        token = np.zeros((1, 1), "int32")
        for _ in range(source.shape[1]):
            seconds += self._step.run({"token": token, "state": state})
            found = self._step.outputs()
            token, state = np.argmax(found["logits"], -1), found["state"]
            token = token.astype("int32")[:, None]
        return seconds


def _open(paths, shapes):
    return [
        litert.File(pathlib.Path(path).read_bytes(), shape)
        for path, shape in zip(paths, shapes, strict=True)
    ]


def draw(rng, rows, shape):
    while True:
        yield rng.integers(rows, size=shape).astype("int32")


def with_codes(parts, codes, seed):
    """Copies of models with random codes."""
    method = kc.methods.Codes(*code_shape(codes), learner=RandomCodeLearner)
    return [
        kc.compress_model(part, method, seed=seed, verbose=0) for part in parts
    ]


def shapes_of(part, length):
    """Dict of the shapes of a model's inputs for one text."""
    shapes = {
        tensor.name: (
            1,
            *(length if n is None else n for n in tensor.shape[1:]),
        )
        for tensor in part.inputs
    }
    if len(shapes) == 1:
        return {None: next(iter(shapes.values()))}
    return shapes


def export(model, row, shapes, path):
    """Writes a file, and returns its path."""
    target = {"min_runtime": None}
    options = {"quantize": row.quantize}
    inputs = model.input if len(model.inputs) > 1 else model.inputs[0]
    if KINDS[row.model].best:
        # Of random weights, 8 bits put others first.
        tolerance = 1e9 if row.quantize else None
        target["tolerance"] = tolerance
        if row.codes is None:
            model = keras.Model(inputs, models.BestItems(TOP)(model.outputs[0]))
        else:
            options["top_k"] = TOP
    options["target"] = kc.export.Target(**target)
    kc.export_litert(model, path, overwrite=True, verbose=0, **options)
    return path


def row_of(model, codes=None, quantize="float32"):
    name = f"{f'codes {codes}' if codes else 'tables'}, {quantize}"
    return Row(name, model, codes, None if quantize == "float32" else quantize)


main = functools.partial(run, WholeModels)
