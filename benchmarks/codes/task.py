"""Do codes that learn from the task beat codes learned from a table?

Trains a text classifier with an embedding table, learns codes for the table
and fine-tunes the codebooks with the task: once with the codes fixed, once
with codes that follow the task (`recode_every`). The table is fine-tuned for
as long. Beside them, codes learned end to end with the classifier, from no
table, their codewords side by side, in as many epochs as the table and the
fine-tuning take together.

    python -m benchmarks codes.task --seeds 0,1

Needs the folder `20newsgroups` of the data folder: `train.jsonl.xz` and
`test.jsonl.xz`, a text and a label a line.
"""

import dataclasses
import functools

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.common import tables
from benchmarks.common.arguments import Flag
from benchmarks.common.arguments import code_shape
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.data import labelled_texts

CLASSES = 20


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: String, of a method.
        codes: `"MxK"`, or None for the table.
    """

    name: str
    codes: str | None = None


class Task(Benchmark):
    settings = {
        "epochs": 8,
        "fine_tune_epochs": 4,
        "recode_every": 50,
        "vocabulary_size": 20_000,
        "embedding_dim": 128,
        "length": Flag(200, "words read"),
    }
    choices = {"codes": Flag(("4x16", "8x16", "16x16"), "MxK,MxK,...")}
    quick = {
        "codes": ("2x8",),
        "epochs": 1,
        "fine_tune_epochs": 1,
        "recode_every": 2,
        "vocabulary_size": 300,
        "embedding_dim": 16,
        "length": 10,
    }
    columns = {
        "codes": tables.field("row.codes", empty="-"),
        "times smaller": tables.figure("times_smaller", "{:.0f}", empty="1"),
        "method": tables.field("name"),
        "accuracy": tables.figure("accuracy", scale=100, unit=" %"),
        "seeds": tables.seeds,
    }

    def rows(self):
        return [Row("table")] + [
            Row(method, codes)
            for codes in self.args.codes
            for method in ("fixed", "following", "end to end")
        ]

    def measure(self, row, seed):
        model = self.trained(row, seed)
        layer = model.get_layer("words")
        size = None
        if row.codes:
            if layer.learn_codes is not None:
                layer.freeze_codes()
            size = kc.reports.size_report(model).ratio
        accuracy = model.evaluate(*self.texts[1], verbose=0)[1]
        return {"accuracy": accuracy, "times_smaller": size}

    def trained(self, row, seed):
        args = self.args
        if row.name == "table":
            model = keras.models.clone_model(self.table_model(seed))
            model.set_weights(self.table_model(seed).get_weights())
            return self.train(model, args.fine_tune_epochs)
        if row.name == "end to end":
            epochs = args.epochs + args.fine_tune_epochs
            return self.train(build(self.learned(row), seed), epochs)
        following = row.name == "following"
        model = kc.compression.compress_model(
            self.table_model(seed),
            *code_shape(row.codes),
            min_bytes=0,
            recode_every=args.recode_every if following else None,
            seed=seed,
            verbose=0,
        )
        callbacks = [kc.compression.RecodeEmbeddings()] if following else []
        return self.train(model, args.fine_tune_epochs, callbacks)

    @functools.lru_cache(maxsize=1)  # noqa: B019
    def table_model(self, seed):
        table = keras.layers.Embedding(
            self.args.vocabulary_size,
            self.args.embedding_dim,
            mask_zero=True,
            name="words",
        )
        return self.train(build(table, seed), self.args.epochs)

    def learned(self, row):
        return kc.CodeEmbedding(
            self.args.vocabulary_size,
            self.args.embedding_dim,
            *code_shape(row.codes),
            composition="concat",
            learn_codes="softmax",
            mask_zero=True,
            name="words",
        )

    def train(self, model, epochs, callbacks=()):
        train = self.texts[0]
        steps = epochs * -(-len(train[0]) // 64)
        model.compile(
            keras.optimizers.Adam(
                keras.optimizers.schedules.CosineDecay(2e-3, steps)
            ),
            "sparse_categorical_crossentropy",
            metrics=["accuracy"],
            jit_compile=self.jit_compile,
        )
        model.fit(
            *train,
            batch_size=64,
            epochs=epochs,
            verbose=0,
            callbacks=list(callbacks),
        )
        return model

    @functools.cached_property
    def texts(self):
        """`(ids, labels)` of training and test texts."""
        if self.args.quick:
            train, test = generated()
        else:
            train, test = labelled_texts.newsgroups(
                self.folder / "20newsgroups"
            )
        vectorizer = keras.layers.TextVectorization(
            max_tokens=self.args.vocabulary_size,
            output_sequence_length=self.args.length,
        )
        vectorizer.adapt(np.array([text for _, text in train], dtype=object))
        classes = sorted({label for label, _ in train})
        places = {label: place for place, label in enumerate(classes)}
        order = np.random.default_rng(0).permutation(len(train))
        parts = []
        for rows in ([train[place] for place in order], test):
            texts = np.array([text for _, text in rows], dtype=object)
            ids = vectorizer(texts).numpy().astype("int32")
            parts.append((ids, np.array([places[label] for label, _ in rows])))
        return parts


def generated():
    """Texts whose words tell the class."""
    rng = np.random.default_rng(0)
    parts = []
    for size in (400, 100):
        labels = rng.integers(CLASSES, size=size)
        words = labels[:, None] * 10 + rng.integers(10, size=(size, 8))
        texts = [" ".join(f"w{word}" for word in row) for row in words]
        parts.append(list(zip(labels.tolist(), texts, strict=True)))
    return parts


def build(embedding, seed):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            embedding,
            keras.layers.Dropout(0.3),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(CLASSES, activation="softmax"),
        ]
    )


main = functools.partial(run, Task)
