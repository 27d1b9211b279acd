"""What is best at so many bytes: codes, rounded rows, or an older idea?

Trains a classifier of mean word vectors with each embedding, at a part of the
bytes of the float32 table, and writes it as a LiteRT file with
`quantize="int8"`. Accuracy is that of the file, and bytes are what it holds of
the embedding. Settings of a method are the largest that fit.

    python -m benchmarks codes.baselines --seeds 0,1,2

What is trained from scratch has as many epochs as a trained table and what is
made of it have together: half each. Rates are chosen by the accuracy on the
validation texts, from the same for all, and so is that of the table that
others are made of.

Needs the folder `clinc150` of the data folder, with `data_full.json.xz`.
"""

import dataclasses
import functools
import math
import pathlib
import sys
import tempfile

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.common import tables
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.data import labelled_texts
from keras_compembed import baselines
from keras_compembed import methods
from keras_compembed.baselines.embedding_baseline import EmbeddingBaseline

QUANTIZE = "int8"


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: String, of a way in `SCRATCH`, `TUNED` or `ROUNDED`, or
            `"table"`.
        part: Integer, the bytes of the table over those allowed.
    """

    name: str
    part: int = 1


def hashed(shape, size, **kwargs):
    return baselines.HashEmbedding(*shape, size, **kwargs)


def quotient_remainder(operation):
    def make(shape, size, **kwargs):
        # The fewest rows first: as many quotients as remainders.
        number = min(shape[0], int(shape[0] ** 0.5) + size)
        return baselines.QuotientRemainderEmbedding(
            *shape, number, operation, **kwargs
        )

    return make


def tensor_train(shape, size, **kwargs):
    return baselines.TensorTrainEmbedding(*shape, size, **kwargs)


def word2ket(shape, size, **kwargs):
    return baselines.Word2KetEmbedding(*shape, 2, size, **kwargs)


def deep_hash(shape, size, **kwargs):
    return baselines.DeepHashEmbedding(*shape, 128, (size,), **kwargs)


# Trained from scratch: functions of the table's shape and one integer.
SCRATCH = {
    "hash embedding": hashed,
    "quotient x remainder": quotient_remainder("multiply"),
    "quotient + remainder": quotient_remainder("add"),
    "tensor train": tensor_train,
    "word2ketXS": word2ket,
    "deep hashing": deep_hash,
}


def rounded(size, learn_rows=True):
    return methods.Rounded(4, rank=size, learn_rows=learn_rows)


def nearest(size):
    return methods.Codes(size, 16, composition="concat")


def sums(size):
    return methods.Codes(size, 16)


def coded_factor(size):
    return methods.Codes(size, 16, rank=2 * size)


# Trained from scratch with integers that are learned: their `Method`.
LEARNED = {"narrow int4 rows": rounded, "codes, nearest": nearest}
# Made of a trained table, and tuned.
TUNED = {
    "narrow int4 rows, of a table": rounded,
    "codes, of a table": sums,
    "codes of a factor, of a table": coded_factor,
    "tensor train, of a table": methods.TensorTrain,
    "hash embedding, of a table": methods.Hashed,
}
# Made of a trained table, and not tuned.
ROUNDED = {f"int{bits} rows": methods.Rounded(bits) for bits in (8, 4, 2)}


def setting(row):
    """A cell: what a row's embedding was made with."""
    (found, *_) = tables.figures(row, "setting") or ("-",)
    return found


class Baselines(Benchmark):
    settings = {
        "epochs": 10,
        "rates": Flag((3e-3, 1e-2, 3e-2), "rates to choose from"),
        "embedding_dim": 128,
        "length": Flag(28, "words read"),
    }
    choices = {"parts": Flag((16, 64), "bytes of the table over those allowed")}
    quick = {
        "parts": (8,),
        "epochs": 2,
        "rates": (1e-2,),
        "embedding_dim": 16,
        "length": 8,
    }
    columns = {
        "times smaller": tables.field("row.part", empty="1"),
        "method": tables.field("name"),
        "settings": setting,
        "bytes": tables.figure("bytes", "{:,.0f}"),
        "accuracy": tables.figure("accuracy", scale=100, unit=" %"),
        "rate": tables.figure("rate", "{:g}"),
        "seeds": tables.seeds,
    }

    def rows(self):
        names = (*SCRATCH, *LEARNED, *TUNED)
        return [
            Row("table"),
            *map(Row, ROUNDED),
            *(Row(name, part) for part in self.args.parts for name in names),
        ]

    def measure(self, row, seed):
        size, count, setting = self.largest(row)
        if row.name in ROUNDED:
            table, rate = self.table_model(seed)
            found = [(self.compressed(row, size, table, seed), rate)]
        else:
            found = [
                (self.trained(row, size, rate, seed), rate)
                for rate in self.args.rates
            ]
        validation = self.texts.validation
        scores = [self.keras_accuracy(model, validation) for model, _ in found]
        model, rate = found[int(np.argmax(scores))]
        layer = model.get_layer("words")
        if getattr(layer, "learn_codes", None) is not None:
            layer.freeze_codes()
        if getattr(layer, "learn_rows", False):
            layer.freeze_rows()
        return {
            "setting": setting,
            "bytes": count,
            "rate": rate,
            "validation_accuracy": max(scores),
            "keras_accuracy": self.keras_accuracy(model, self.texts.test),
            **self.file_figures(model),
        }

    def largest(self, row):
        """The largest size of a method that fits, its bytes and settings."""
        input_dim, output_dim = shape = self.shape
        if row.name == "table":
            return None, input_dim * output_dim, None
        if row.name in ROUNDED:
            method = ROUNDED[row.name]
            return None, method.litert_bytes(*shape, QUANTIZE), method.name
        most = 4 * input_dim * output_dim // row.part
        size, step = 0, 1 << 12
        while step:
            if self.count(row, size + step) <= most:
                size += step
            else:
                step //= 2
        if not size:
            sys.exit(f"{row.name} needs more than {most:,} bytes. See --parts.")
        if row.name in SCRATCH:
            text = settings_of(SCRATCH[row.name](shape, size))
        else:
            text = (LEARNED | TUNED)[row.name](size).name
        return size, self.count(row, size), text

    def count(self, row, size):
        """Bytes of a method at a size."""
        if row.name in SCRATCH:
            layer = SCRATCH[row.name](self.shape, size)
            return layer.litert_bytes(QUANTIZE)
        method = (LEARNED | TUNED)[row.name](size)
        if method.reason_against(*self.shape) is not None:
            return math.inf
        return method.litert_bytes(*self.shape, QUANTIZE)

    def trained(self, row, size, rate, seed):
        epochs = self.args.epochs
        if row.name in TUNED:
            table, _ = self.table_model(seed)
            model = self.compressed(row, size, table, seed)
            return self.train(model, rate, epochs - epochs // 2)
        keras.utils.set_random_seed(seed)
        options = {"mask_zero": True, "name": "words"}
        if row.name == "table":
            layer = keras.layers.Embedding(*self.shape, **options)
        elif row.name in SCRATCH:
            layer = SCRATCH[row.name](self.shape, size, **options)
        else:
            layer = LEARNED[row.name](size)
            if row.name == "codes, nearest":
                options["learn_codes"] = "nearest"
            layer = layer.rows(
                *self.shape, **layer.start(seed).options, **options
            )
        return self.train(self.build(layer), rate, epochs)

    def compressed(self, row, size, table, seed):
        method = ROUNDED[row.name] if size is None else TUNED[row.name](size)
        return kc.compression.compress_model(
            table, method=method, min_bytes=0, seed=seed, verbose=0
        )

    @functools.lru_cache(maxsize=1)  # noqa: B019
    def table_model(self, seed):
        """The model that others are made of, and the rate chosen for it."""
        keras.utils.set_random_seed(seed)
        found = []
        for rate in self.args.rates:
            layer = keras.layers.Embedding(
                *self.shape, mask_zero=True, name="words"
            )
            epochs = self.args.epochs // 2
            model = self.train(self.build(layer), rate, epochs)
            score = self.keras_accuracy(model, self.texts.validation)
            found.append((score, model, rate))
        return max(found, key=lambda each: each[0])[1:]

    def build(self, layer):
        return keras.Sequential(
            [
                keras.Input((self.args.length,), dtype="int32"),
                layer,
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dropout(0.2),
                keras.layers.Dense(
                    len(self.texts.classes), activation="softmax"
                ),
            ]
        )

    def train(self, model, rate, epochs):
        ids, labels = self.texts.train
        steps = epochs * -(-len(ids) // 64)
        schedule = keras.optimizers.schedules.CosineDecay(rate, steps)
        model.compile(
            keras.optimizers.Adam(schedule),
            "sparse_categorical_crossentropy",
            jit_compile=self.jit_compile,
        )
        model.fit(ids, labels, batch_size=64, epochs=epochs, verbose=0)
        return model

    def accuracy(self, predict, part):
        ids, labels = part
        return float(np.mean(np.argmax(predict(ids), axis=1) == labels))

    def keras_accuracy(self, model, part):
        return self.accuracy(functools.partial(model.predict, verbose=0), part)

    def file_figures(self, model):
        """Bytes of the LiteRT file, and its accuracy on test texts."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.tflite"
            export = kc.export.export_litert(
                model, path, quantize=QUANTIZE, tolerance=1.0, verbose=0
            )
            runner = kc.export.LiteRTModel(path)
            return {
                "file_bytes": export.file_bytes,
                "accuracy": self.accuracy(runner.predict, self.texts.test),
            }

    @functools.cached_property
    def shape(self):
        return len(self.vocabulary), self.args.embedding_dim

    @functools.cached_property
    def vocabulary(self):
        return self.texts_and_vocabulary[0]

    @functools.cached_property
    def texts(self):
        return self.texts_and_vocabulary[1]

    @functools.cached_property
    def texts_and_vocabulary(self):
        texts = (
            generated()
            if self.args.quick
            else labelled_texts.intents(self.folder)
        )
        return texts.as_ids(None, self.args.length)


def settings_of(layer):
    """What a layer has besides its sizes, as text."""
    config = layer.get_config()
    base = EmbeddingBaseline(1, 1).get_config()
    return ", ".join(
        f"{name}={value}"
        for name, value in config.items()
        if name not in base and value is not None
    )


def generated():
    """Texts whose words tell the class."""
    rng = np.random.default_rng(0)
    parts = []
    for size in (400, 60, 60):
        labels = rng.integers(10, size=size).astype("int32")
        words = labels[:, None] * 40 + rng.integers(40, size=(size, 6))
        texts = [" ".join(f"w{word}" for word in row) for row in words]
        parts.append((texts, labels))
    return labelled_texts.TextDataset([f"c{k}" for k in range(10)], *parts)


main = functools.partial(run, Baselines)
