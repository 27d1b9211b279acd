"""What does a text cost in MediaPipe, with codes and with the float32 table?

Writes files from text to probabilities that differ in their table alone, and
runs them in turns in MediaPipe's `TextClassifier`, one text at a time. Weights
are random, as large as trained ones. Of each file, the largest difference of a
probability from Keras is kept too.

    python -m benchmarks text.runtimes

Models are those of `text.vocabulary`; texts are docstrings.
"""

import contextlib
import dataclasses
import functools
import itertools
import os
import tempfile
import time

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.common import litert
from benchmarks.common import tables
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.data import labelled_texts
from benchmarks.text import vocabulary
from benchmarks.text.vocabulary import FLOAT32
from benchmarks.text.vocabulary import INT8
from benchmarks.text.vocabulary import PIECES
from benchmarks.text.vocabulary import STORAGES
from benchmarks.text.vocabulary import WORDS

NUM_CLASSES = 150
CODES_INT8 = "codes, int8"


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: String.
        task: String, whose model it is.
        tokenizer: String, `PIECES` or `WORDS`.
        storage: String, one of `STORAGES` or `CODES_INT8`.
    """

    name: str
    task: str
    tokenizer: str
    storage: str


class Runtimes(Benchmark):
    settings = {"vocabulary_size": 8_000, "num_texts": 50}
    choices = {"seconds": 5.0, "tasks": tuple(vocabulary.TASKS)}
    quick = {
        "vocabulary_size": 60,
        "num_texts": 4,
        "seconds": 0.01,
        "tasks": ("generated",),
    }
    columns = {
        "model": tables.field("row.task"),
        "tokenizer": tables.field("row.tokenizer"),
        "table": tables.field("row.storage"),
        "file, KB": tables.figure("file_bytes", "{:,.0f}", 1e-3),
        "ms a text": tables.figure("milliseconds", "{:.2f}"),
        "to float32": tables.figure("latency_ratio", "{:.2f}"),
        "from Keras": tables.figure("max_error", "{:.0e}"),
    }

    def rows(self):
        return [
            Row(f"{task}, {kind}, {storage}", task, kind, storage)
            for task in self.args.tasks
            for kind in (PIECES, WORDS)
            for storage in (*STORAGES, CODES_INT8)
        ]

    def together(self, row):
        return row.task, row.tokenizer

    def measure_together(self, rows, seed):
        tokenizer = self.tokenizer(*self.together(rows[0]))
        texts = self.texts.test[0][: self.args.num_texts]
        models = self.models(rows[0].task, tokenizer, seed)
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            files, exports, errors = {}, {}, {}
            for storage, model in models.items():
                path = os.path.join(folder, f"{storage}.tflite")
                exports[storage] = kc.export.export_litert(
                    model,
                    path,
                    runtime="mediapipe",
                    labels=[f"class {i}" for i in range(NUM_CLASSES)],
                    quantize="int8" if INT8 in storage else None,
                    tolerance=1.0,
                    verbose=0,
                )
                errors[storage] = difference(path, model, texts)
                files[storage] = stack.enter_context(vocabulary.opened(path))
            for row in rows:
                taken, of_first = litert.in_turns(
                    timed(files[row.storage]),
                    timed(files[FLOAT32]),
                    itertools.cycle(texts),
                    self.args.seconds,
                    least=len(texts),
                )
                yield {
                    "file_bytes": exports[row.storage].file_bytes,
                    "milliseconds": 1e3 * taken,
                    "latency_ratio": taken / of_first,
                    "max_error": errors[row.storage],
                }

    def models(self, task, tokenizer, seed):
        """The model from text with each kind of table."""
        keras.utils.set_random_seed(seed)
        settings = vocabulary.TASKS.get(task, vocabulary.QUICK)
        model = vocabulary.build(
            task,
            settings,
            tokenizer.sequence_length,
            tokenizer.vocabulary_size,
            NUM_CLASSES,
        )
        table = model.get_layer("words").embeddings
        table.assign(keras.random.normal(table.shape, stddev=0.5, seed=seed))
        models = {FLOAT32: model, INT8: model}
        for storage, method in vocabulary.methods(settings).items():
            models[storage] = vocabulary.compress(model, method, None, seed)
        models[CODES_INT8] = models[vocabulary.CODES]
        return {
            storage: vocabulary.with_tokenizer(tokenizer, each)
            for storage, each in models.items()
        }

    @functools.cached_property
    def texts(self):
        if self.args.tasks == ("generated",):
            rows = labelled_texts.generated(200, 5, 40)
            return labelled_texts.split([rows], 0)
        return labelled_texts.load("docstrings")

    def tokenizer(self, task, kind):
        return vocabulary.train_tokenizer(
            kind, self.texts, self.args.vocabulary_size, task
        )


def difference(path, model, texts):
    """The largest difference of a probability in MediaPipe from Keras."""
    wanted = model.predict(np.array(texts, object), verbose=0)
    largest = 0.0
    with vocabulary.opened(path, max_results=-1) as classifier:
        for text, row in zip(texts, wanted, strict=True):
            (head,) = classifier.classify(text).classifications
            for found in head.categories:
                error = abs(found.score - row[found.index])
                largest = max(largest, float(error))
    return largest


def timed(classifier):
    """A function of a text that returns the seconds of an answer."""

    def run(text):
        start = time.perf_counter()
        classifier.classify(text)
        return time.perf_counter() - start

    return run


main = functools.partial(run, Runtimes)
