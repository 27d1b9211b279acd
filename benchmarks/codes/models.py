"""Which models does `compress_model` take, and what files come of them?

Models with random weights, and a copy of each with random codes, saved and
exported. A new process reads the copy's `.keras` file; differences are the
largest of an output, over its largest value, to the copy.
"""

import dataclasses
import functools
import importlib.util
import inspect
import pathlib
import pickle
import subprocess
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from benchmarks.baselines import RandomCodeLearner
from benchmarks.common import models
from benchmarks.common import tables
from benchmarks.common.benchmark import FOLDER
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: a model."""

    name: str
    rows: int
    width: int
    num_codebooks: int = 32


def title(row):
    """What a model is."""
    text = inspect.getdoc(getattr(models, row["name"])).splitlines()[0]
    return text.rstrip(".")


def megabytes(key):
    """A cell: millions of bytes."""
    return tables.figure(key, "{:,.2f}", 1e-6)


class Models(Benchmark):
    settings = {"codebook_size": 16, "length": 32, "layers": 2}
    quick = {"length": 8, "layers": 1}
    columns = {
        "model": title,
        "embeddings, MB": megabytes("before_embedding_bytes"),
        "compressed, MB": megabytes("after_embedding_bytes"),
    }

    def rows(self):
        rows = [
            Row("two_tower", 100_000, 64),
            Row("two_tower_shared", 100_000, 64),
            Row("wide_and_deep", 20_000, 16, 8),
            Row("seq2seq", 20_000, 128),
            Row("subclassed", 50_000, 128),
            Row("tied_language_model", 20_000, 128),
            Row("token_and_position", 30_522, 128),
            Row("transformer_classifier", 30_522, 128),
            Row("bert_backbone", 30_522, 128),
            Row("bert_classifier", 30_522, 128),
            Row("bert_masked_lm", 30_522, 128),
            Row("gpt2_backbone", 50_257, 128),
            Row("gpt2_causal_lm", 50_257, 128),
            Row("llama_causal_lm", 32_000, 128),
            Row("gemma_causal_lm", 32_000, 128),
            Row("t5_backbone", 32_128, 128),
            Row("dlrm", 100_000, 32, 16),
        ]
        if self.args.quick:
            rows = [
                dataclasses.replace(row, rows=1100, width=16, num_codebooks=4)
                for row in rows
            ]
        return [row for row in rows if is_there(package_of(row))]

    def measure(self, row, seed):
        keras.utils.set_random_seed(seed)
        size = models.Size(
            row.rows, row.width, self.args.length, self.args.layers
        )
        model, inputs = getattr(models, row.name)(size)
        method = kc.methods.Codes(
            row.num_codebooks,
            self.args.codebook_size,
            learner=RandomCodeLearner,
        )
        copy = kc.compress_model(
            model, method, seed=seed, sample_inputs=inputs, verbose=0
        )
        with tempfile.TemporaryDirectory() as folder:
            before = files(model, inputs, pathlib.Path(folder) / "before.keras")
            path = pathlib.Path(folder) / "after.keras"
            after = files(copy, inputs, path)
            after["reload_difference"] = reloaded(
                path, copy, inputs, package_of(row)
            )
        return {
            f"{name}_{key}": value
            for name, found in (("before", before), ("after", after))
            for key, value in found.items()
        }


def package_of(row):
    """The package that a model needs, or None."""
    if getattr(models, row.name) in models.HUB:
        return "keras_hub"
    return "keras_rs" if getattr(models, row.name) in models.RS else None


def is_there(package):
    return package is None or importlib.util.find_spec(package) is not None


def files(model, inputs, path):
    """Figures of the files of a model, which are written."""
    model.save(path)
    export, open_length = exported(model, inputs, path.with_suffix(".tflite"))
    return {
        "embedding_bytes": kc.size_report(model).embedding_bytes,
        "keras_bytes": path.stat().st_size,
        "litert_bytes": export.file_bytes,
        "litert_difference": export.max_error,
        "min_runtime": export.min_runtime,
        "open_length": open_length,
    }


def exported(model, inputs, path):
    """A `LiteRTExport`, and whether its axes could stay open."""
    write = functools.partial(
        kc.export_litert, model, path, sample_inputs=inputs, verbose=0
    )
    signature = keras.tree.map_structure(
        lambda array: tf.TensorSpec((None, *array.shape[1:]), array.dtype),
        inputs,
    )
    if not hasattr(model, "operations"):
        return write(input_signature=signature), False
    try:
        return write(), True
    except ValueError as error:
        if "`input_signature`" not in str(error):
            raise
        return write(input_signature=signature), False


_READ = """
import importlib, pickle, sys
path, package = sys.argv[1:]
import keras, keras_compembed, benchmarks.common.models
package and importlib.import_module(package)
with open(path + ".inputs", "rb") as file:
    inputs = pickle.load(file)
outputs = keras.saving.load_model(path)(inputs, training=False)
with open(path + ".outputs", "wb") as file:
    pickle.dump([x.numpy() for x in keras.tree.flatten(outputs)], file)
"""


def reloaded(path, model, inputs, package):
    """Largest difference of a saved model that a new process reads."""
    path = str(path)
    with open(path + ".inputs", "wb") as file:
        pickle.dump(inputs, file)
    command = [sys.executable, "-c", _READ, path, package or ""]
    subprocess.run(command, check=True, cwd=FOLDER.parent)
    with open(path + ".outputs", "rb") as file:
        got = pickle.load(file)
    outputs = keras.tree.flatten(model(inputs, training=False))
    return max(
        float(np.max(np.abs(x - y)) / np.max(np.abs(x)))
        for x, y in zip(map(np.array, outputs), got, strict=True)
    )


main = functools.partial(run, Models)
