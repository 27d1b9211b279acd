"""How large should a vocabulary be, if the whole file counts?

Trains text classifiers with tokenizers of several sizes, and writes each as a
file for MediaPipe, from text to probabilities: the float32 table, the same in
int8, and codes. Whatever the table is, the model is tuned for as many epochs at
the same rates; what is best on validation texts is run on test texts. Bytes are
those of the whole file, the tokenizer's table included; accuracies are those of
the file in MediaPipe.

    python -m benchmarks text.vocabulary --seeds 0,1,2

The task `docstrings` is that of `examples.compress_text_classifier`, a CNN;
`clinc150` averages the words of a text and needs that folder of the data
folder.
"""

import contextlib
import dataclasses
import functools
import os
import tempfile

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.common import tables
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.data import labelled_texts
from keras_compembed.utils.extras import require

PIECES, WORDS = "pieces", "words"
FLOAT32, INT8, INT2, CODES = "float32", "int8", "int2, narrow", "codes"
STORAGES = (FLOAT32, INT8, INT2, CODES)


@dataclasses.dataclass(frozen=True)
class TaskSettings:
    """Columns, codebooks, and passes; by tokenizer, ids and sizes to try.

    Args:
        output_dim: Integer, columns of the table.
        num_codebooks: Integer.
        epochs: Integer, to train the float32 table.
        tuning_epochs: Integer, to train each table further.
        lengths: Dict from the tokenizer to the ids of a text.
        sizes: Dict from the tokenizer to sizes of vocabularies.
    """

    output_dim: int
    num_codebooks: int
    epochs: int
    tuning_epochs: int
    lengths: dict
    sizes: dict


TASKS = {
    "docstrings": TaskSettings(
        output_dim=256,
        num_codebooks=48,
        epochs=8,
        tuning_epochs=5,
        lengths={PIECES: 192, WORDS: 128},
        sizes={PIECES: (2_000, 4_000, 8_000, 16_000), WORDS: (4_000, 16_000)},
    ),
    "clinc150": TaskSettings(
        output_dim=128,
        num_codebooks=16,
        epochs=20,
        tuning_epochs=10,
        lengths={PIECES: 40, WORDS: 28},
        sizes={PIECES: (500, 1_000, 2_000), WORDS: (1_000, 4_000)},
    ),
}
QUICK = TaskSettings(
    output_dim=32,
    num_codebooks=2,
    epochs=1,
    tuning_epochs=1,
    lengths={PIECES: 24, WORDS: 12},
    sizes={PIECES: (60,), WORDS: (50,)},
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: String.
        task: String.
        tokenizer: String, `PIECES` or `WORDS`.
        size: Integer, ids of the vocabulary at most.
        storage: String, one of `STORAGES`.
    """

    name: str
    task: str
    tokenizer: str
    size: int
    storage: str


class Vocabulary(Benchmark):
    settings = {"rate": 2e-3, "batch_size": 64}
    choices = {"tasks": tuple(TASKS)}
    quick = {"tasks": ("generated",)}
    columns = {
        "task": tables.field("row.task"),
        "tokenizer": tables.field("row.tokenizer"),
        "ids": tables.field("row.size", "{:,}"),
        "table": tables.field("row.storage"),
        "file, KB": tables.figure("file_bytes", "{:,.0f}", 1e-3),
        "tokenizer, KB": tables.figure("tokenizer_bytes", "{:,.0f}", 1e-3),
        "accuracy": tables.figure("accuracy", scale=100, unit=" %"),
        "points to float32": tables.figure("difference", "{:+.1f}", 100),
        "seeds": tables.seeds,
    }

    def rows(self):
        return [
            Row(f"{task}, {size} {kind}, {storage}", task, kind, size, storage)
            for task in self.args.tasks
            for kind, sizes in self.task(task).sizes.items()
            for size in sizes
            for storage in STORAGES
        ]

    def together(self, row):
        return row.task, row.tokenizer, row.size

    def measure_together(self, rows, seed):
        row, settings = rows[0], self.task(rows[0].task)
        data = self.texts(row.task)
        tokenizer = self.tokenizer(*self.together(row))
        texts, labels = data.train
        ids = as_ids(tokenizer, texts)
        counts = np.bincount(ids.ravel(), minlength=tokenizer.vocabulary_size)
        keras.utils.set_random_seed(seed)
        model = build(
            row.task,
            settings,
            tokenizer.sequence_length,
            tokenizer.vocabulary_size,
            len(data.classes),
        )
        self.train(model, (ids, labels), settings.epochs, seed)
        weight = np.sqrt(1 + counts)
        models = {
            storage: compress(model, method, weight, seed)
            for storage, method in methods(settings).items()
        }
        # The float32 table and that of int8 are one.
        models[INT8] = models[FLOAT32] = model
        for each in (model, models[INT2], models[CODES]):
            self.train(each, (ids, labels), settings.tuning_epochs, seed)
        first = None
        for row in rows:
            figures = self.file(row, tokenizer, models[row.storage])
            if row.storage == FLOAT32:
                first = figures["accuracy"]
            elif first is not None:
                figures["difference"] = figures["accuracy"] - first
            yield figures

    def file(self, row, tokenizer, model):
        """Figures of the file of a model from ids."""
        whole = with_tokenizer(tokenizer, model)
        texts, labels = self.texts(row.task).test
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.tflite")
            export = kc.export.export_litert(
                whole,
                path,
                runtime="mediapipe",
                labels=self.texts(row.task).classes,
                quantize=None if row.storage == FLOAT32 else "int8",
                # Rounded weights may change the class of a hard text.
                tolerance=None if row.storage == FLOAT32 else 1.0,
                verbose=0,
            )
            found = classify(path, texts)
        keras_found = model.predict(as_ids(tokenizer, texts), verbose=0)
        return {
            "vocabulary_size": tokenizer.vocabulary_size,
            "tokenizer_bytes": export.text_bytes,
            "file_bytes": export.file_bytes,
            "max_error": export.max_error,
            "accuracy": float(np.mean(found == labels)),
            "keras_accuracy": float(
                np.mean(keras_found.argmax(axis=-1) == labels)
            ),
        }

    def train(self, model, data, epochs, seed):
        keras.utils.set_random_seed(seed)
        steps = epochs * -(-len(data[1]) // self.args.batch_size)
        schedule = keras.optimizers.schedules.CosineDecay(self.args.rate, steps)
        model.compile(
            keras.optimizers.Adam(schedule),
            "sparse_categorical_crossentropy",
            jit_compile=False,
        )
        model.fit(
            *data,
            batch_size=self.args.batch_size,
            epochs=epochs,
            verbose=0,
        )

    def task(self, name):
        return TASKS.get(name, QUICK)

    @functools.lru_cache(maxsize=1)  # noqa: B019
    def texts(self, name):
        if name == "clinc150":
            return labelled_texts.intents(self.folder)
        if name == "generated":
            rows = labelled_texts.generated(200, 5, 40)
            return labelled_texts.split([rows], 0)
        return labelled_texts.load(name)

    @functools.lru_cache(maxsize=1)  # noqa: B019
    def tokenizer(self, task, kind, size):
        return train_tokenizer(kind, self.texts(task), size, task)


def train_tokenizer(kind, data, size, task):
    """A tokenizer of the texts that a task trains on."""
    tokenizers = {
        PIECES: kc.text.SentencePieceTokenizer,
        WORDS: kc.text.WordTokenizer,
    }
    return tokenizers[kind].train(
        data.train[0],
        size,
        sequence_length=TASKS.get(task, QUICK).lengths[kind],
    )


def build(task, settings, length, vocabulary_size, num_classes):
    """A classifier of ids: that of the demo, or one that averages."""
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
            keras.Input((length,), dtype="int32"),
            layers.Embedding(
                vocabulary_size,
                settings.output_dim,
                mask_zero=task != "docstrings",
                name="words",
            ),
            *encoder,
            layers.Dense(num_classes, activation="softmax"),
        ]
    )


def methods(settings):
    """How small tables are stored."""
    return {
        INT2: kc.methods.Rounded(
            2, rank=settings.output_dim // 2, learn_rows=True
        ),
        CODES: kc.methods.Codes(settings.num_codebooks, 16),
    }


def compress(model, method, weight, seed):
    return kc.compression.compress_model(
        model,
        method=method,
        min_bytes=0,
        layer_settings={"words": {"sample_weight": weight}},
        seed=seed,
        verbose=0,
    )


def with_tokenizer(tokenizer, model):
    """A model from text, of one from ids."""
    return keras.Sequential(
        [keras.Input((), dtype="string"), tokenizer, *model.layers]
    )


def as_ids(tokenizer, texts):
    """int32 `(texts, length)`."""
    parts = [
        np.asarray(tokenizer(np.array(texts[start : start + 1024], object)))
        for start in range(0, len(texts), 1024)
    ]
    return np.concatenate(parts)


@contextlib.contextmanager
def opened(path, max_results=1):
    """MediaPipe's classifier of a file; of `-1` results, it gives all."""
    tasks = require("mediapipe.tasks.python", "mediapipe")
    text_tasks = require("mediapipe.tasks.python.text", "mediapipe")
    options = text_tasks.TextClassifierOptions(
        base_options=tasks.BaseOptions(model_asset_path=path),
        max_results=max_results,
    )
    create = text_tasks.TextClassifier.create_from_options
    with create(options) as classifier:
        yield classifier


def classify(path, texts):
    """The class of each text, by MediaPipe."""
    with opened(path) as classifier:
        answers = [classifier.classify(text) for text in texts]
    heads = [answer.classifications[0] for answer in answers]
    return np.array([head.categories[0].index for head in heads])


main = functools.partial(run, Vocabulary)
