"""Does the search for a size choose what is best by hand?

Trains a text classifier, and stores its table in a part of its bytes: in the
largest setting of each method that fits, one after another, and as
`compress_model(max_bytes=...)` chooses. Whatever it is, the model is then tuned
for as many epochs at the same rates, and so is the table; what is best on
validation texts is run on test texts. Bytes are those of the table's constants
in a LiteRT file with `quantize="int8"`; accuracies are Keras's.

    python -m benchmarks codes.budget --seeds 0,1,2

Needs the folders `clinc150` and `20newsgroups` of the data folder. The task
`docstrings` is that of `examples.compress_text_classifier`, a CNN; the others
average the words of a text.
"""

import dataclasses
import functools
import math
import os
import tempfile
import time

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.common import tables
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.data import labelled_texts

QUANTIZE = "int8"
TABLE, SEARCH = "table", "search"


@dataclasses.dataclass(frozen=True)
class TaskSettings:
    """Words of the vocabulary and of a text, columns, and passes."""

    vocabulary_size: int
    output_dim: int
    length: int
    epochs: int
    tuning_epochs: int


TASKS = {
    "clinc150": TaskSettings(6_000, 128, 28, 30, 15),
    "20newsgroups": TaskSettings(16_000, 128, 200, 12, 6),
    "docstrings": TaskSettings(16_000, 256, 128, 8, 5),
}
QUICK = TaskSettings(300, 16, 12, 1, 1)


def rounded(bits):
    """Rows of so many bits and of any rank, which tuning trains."""

    def family(width):
        ranks = [*range(1, width), None]
        return [
            kc.methods.Rounded(bits, rank=rank, learn_rows=True)
            for rank in ranks
        ]

    return family


# The settings of each method, those of fewer bytes first.
FAMILIES = {
    "int8": rounded(8),
    "int4": rounded(4),
    "int2": rounded(2),
    "codes of 16": lambda width: [
        kc.methods.Codes(m, 16) for m in range(1, 65)
    ],
    "codes of 256": lambda width: [
        kc.methods.Codes(m, 256) for m in range(1, 33)
    ],
    "codes of a factor": lambda width: [
        kc.methods.Codes(m, 16, rank=width // 4) for m in range(1, 65)
    ],
    "anchors": lambda width: [
        kc.methods.Anchors(100, nonzeros) for nonzeros in range(1, 17)
    ],
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: String.
        task: String.
        ratio: Integer, how many times fewer bytes than the float32 table.
        family: String, of `FAMILIES`, or `TABLE` or `SEARCH`.
    """

    name: str
    task: str
    ratio: int
    family: str


class Budget(Benchmark):
    settings = {
        "rates": Flag((2e-3, 5e-4), "learning rates to choose from"),
        "batch_size": 64,
    }
    choices = {
        "tasks": tuple(TASKS),
        "ratios": (16, 64, 128),
        "families": (TABLE, *FAMILIES, SEARCH),
        "num_tuned": Flag(3, "of what the search tries"),
    }
    quick = {
        "tasks": ("generated",),
        "ratios": (4,),
        "families": (TABLE, "int4", "codes of 16", SEARCH),
        "rates": (2e-3,),
    }
    columns = {
        "task": tables.field("row.task"),
        "times smaller": tables.field("row.ratio"),
        "method": tables.field("row.family"),
        "settings": lambda row: row["runs"][0]["figures"]["method"],
        "KB": tables.figure("bytes", "{:.1f}", 1e-3),
        "accuracy": tables.figure("accuracy", scale=100, unit=" %"),
        "untuned": tables.figure("untuned", scale=100, unit=" %"),
        "seeds": tables.seeds,
    }

    def rows(self):
        args = self.args
        found = []
        for task in args.tasks:
            if TABLE in args.families:
                found.append(Row(f"{task}, table", task, 1, TABLE))
            found += [
                Row(f"{task}, 1/{ratio}, {family}", task, ratio, family)
                for ratio in args.ratios
                for family in args.families
                if family != TABLE
            ]
        return found

    def measure(self, row, seed):
        model = self.trained(row.task, seed)
        data = self.texts(row.task)
        layer = model.get_layer("words")
        limit = 4 * layer.input_dim * layer.output_dim // row.ratio
        if row.family == SEARCH:
            return self.searched(row, model, data, limit, seed)
        started = time.process_time()
        if row.family == TABLE:
            small, method, size = copy_of(model), "float32", limit
        else:
            found = largest(FAMILIES[row.family], layer, limit)
            if found is None:
                return {"method": "none fits", "bytes": None}
            method, size = found.name, bytes_of(found, layer)
            small = kc.compression.compress_model(
                model,
                method=found,
                min_bytes=0,
                layer_settings=self.weights(row.task),
                seed=seed,
                verbose=0,
            )
        untuned = accuracy(small, data.test)
        return {
            "method": method,
            "bytes": size,
            "untuned": untuned,
            **self.tuned(small, row.task, seed),
            "cpu_seconds": time.process_time() - started,
        }

    def searched(self, row, model, data, limit, seed):
        """Figures of what the search chooses, which it tunes itself."""
        settings = self.task(row.task)
        rate = self.args.rates[0]
        search = kc.compression.BudgetSearch(
            quantize=QUANTIZE,
            train_data=data.train,
            validation_data=data.validation,
            epochs=settings.tuning_epochs,
            num_tuned=self.args.num_tuned,
            fit_options={"batch_size": self.args.batch_size},
            compile=lambda copy: self.compile(
                copy, data, settings.tuning_epochs, rate
            ),
        )
        started = time.process_time(), time.perf_counter()
        others = file_bytes(model) - math.prod(
            model.get_layer("words").embeddings.shape
        )
        small = kc.compression.compress_model(
            model,
            max_bytes=others + limit,
            search=search,
            min_bytes=0,
            layer_settings=self.weights(row.task),
            seed=seed,
            verbose=0,
        )
        ended = time.process_time(), time.perf_counter()
        return {
            "method": search.frontier.chosen.name,
            "bytes": file_bytes(small) - others,
            "valid": accuracy(small, data.validation),
            "accuracy": accuracy(small, data.test),
            "cpu_seconds": ended[0] - started[0],
            "seconds": ended[1] - started[1],
        }

    def tuned(self, model, task, seed):
        """Accuracies after tuning at the rate that is best in validation."""
        data, start = self.texts(task), model.get_weights()
        best = None
        for rate in self.args.rates:
            model.set_weights(start)
            epochs = self.task(task).tuning_epochs
            self.train(model, data, epochs, rate, seed)
            valid = accuracy(model, data.validation)
            if best is None or valid > best["valid"]:
                best = {
                    "valid": valid,
                    "accuracy": accuracy(model, data.test),
                    "rate": rate,
                }
        return best

    @functools.lru_cache(maxsize=1)  # noqa: B019
    def trained(self, task, seed):
        data, settings = self.texts(task), self.task(task)
        keras.utils.set_random_seed(seed)
        model = build(task, settings, len(data.classes))
        return self.train(model, data, settings.epochs, 2e-3, seed)

    def train(self, model, data, epochs, rate, seed):
        keras.utils.set_random_seed(seed)
        self.compile(model, data, epochs, rate)
        model.fit(
            *data.train,
            batch_size=self.args.batch_size,
            epochs=epochs,
            verbose=0,
        )
        return model

    def compile(self, model, data, epochs, rate):
        batches = -(-len(data.train[0]) // self.args.batch_size)
        model.compile(
            keras.optimizers.Adam(
                keras.optimizers.schedules.CosineDecay(rate, epochs * batches)
            ),
            "sparse_categorical_crossentropy",
            metrics=["accuracy"],
            jit_compile=False,
        )

    def task(self, name):
        return TASKS.get(name, QUICK)

    def weights(self, task):
        """Rows count by the root of how often their words occur."""
        settings = self.task(task)
        ids = self.texts(task).train[0].ravel()
        counts = np.bincount(ids, minlength=settings.vocabulary_size)
        return {"words": {"sample_weight": np.sqrt(1 + counts)}}

    @functools.lru_cache(maxsize=1)  # noqa: B019
    def texts(self, name):
        """A `TextDataset` of ids."""
        settings = self.task(name)
        if name == "clinc150":
            found = labelled_texts.intents(self.folder)
        elif name == "generated":
            rows = labelled_texts.generated(400, 5, 40)
            found = labelled_texts.split([rows], 0)
        else:
            folder = self.folder / name if name == "20newsgroups" else None
            found = labelled_texts.load(name, folder)
        return found.as_ids(settings.vocabulary_size, settings.length)[1]


def build(task, settings, num_classes):
    layers = keras.layers
    encoder = [layers.GlobalAveragePooling1D(), layers.Dropout(0.3)]
    if task == "docstrings":
        encoder = [
            layers.Dropout(0.3),
            layers.Conv1D(96, 3, activation="relu"),
            layers.GlobalMaxPooling1D(),
            layers.Dropout(0.5),
        ]
    return keras.Sequential(
        [
            keras.Input((settings.length,), dtype="int32"),
            layers.Embedding(
                settings.vocabulary_size,
                settings.output_dim,
                mask_zero=task != "docstrings",
                name="words",
            ),
            *encoder,
            layers.Dense(num_classes, activation="softmax"),
        ]
    )


def copy_of(model):
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    return copy


def accuracy(model, part):
    ids, labels = part
    return float(np.mean(model.predict(ids, verbose=0).argmax(-1) == labels))


def file_bytes(model):
    with tempfile.TemporaryDirectory() as folder:
        export = kc.export.export_litert(
            model,
            os.path.join(folder, "model.tflite"),
            quantize=QUANTIZE,
            # Of random words, int8 may change the class. Bytes are the same.
            tolerance=1.0,
            verbose=0,
        )
    return export.file_bytes


def bytes_of(method, layer):
    return method.litert_bytes(layer.input_dim, layer.output_dim, QUANTIZE)


def largest(family, layer, limit):
    """The method of a family that takes most bytes within a limit, or None."""
    shape = layer.input_dim, layer.output_dim
    fits = [
        (bytes_of(method, layer), place, method)
        for place, method in enumerate(family(layer.output_dim))
        if not method.reason_against(*shape)
        and bytes_of(method, layer) <= limit
    ]
    return max(fits, default=(None,), key=lambda fit: fit[:2])[-1]


main = functools.partial(run, Budget)
