"""How well are reviews classified over compressed word vectors?

Table 3 of Shu & Nakayama, 2018 (https://arxiv.org/abs/1711.01068): IMDB, an
LSTM of 150 units, 75,102 vectors of words that are not trained: the table's,
rounded, pruned, or codes learned by `AdditiveQuantizer` or by the paper's
learner.
"""

import dataclasses
import functools
import re
import time

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from benchmarks.common.arguments import Flag
from benchmarks.common.arguments import code_shape
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.data import vectors
from examples import labelled_texts
from keras_compembed.learners import AdditiveQuantizer
from keras_compembed.learners import GumbelCodeLearner
from keras_compembed.learners import Training
from keras_compembed.methods import Codes
from keras_compembed.methods import Pruned
from keras_compembed.methods import Quantized

# Words and marks, as in the texts that the vectors were trained on.
_TOKEN = re.compile(r"[a-z0-9]+(?:'[a-z]+)?|[!?.,;]")
CODES = ("32x16", "16x32", "64x8", "8x64", "16x8", "8x16", "8x8")


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    codes: str | None = None
    by_frequency: bool = False
    steps: int | None = None
    bits: int | None = None
    sparsity: float | None = None

    @property
    def method(self):
        """The `Method` that stores the vectors, or None for the table."""
        if self.codes:
            return Codes(*code_shape(self.codes))
        if self.bits:
            return Quantized(self.bits)
        return self.sparsity and Pruned(self.sparsity)


class Sentiment(Benchmark):
    settings = {
        "epochs": 2,
        "batch_size": 64,
        "learning_rate": Flag(2e-3, "of Adam, from which it falls to 0"),
        "units": 150,
        "length": Flag(400, "words read, from the beginning"),
    }
    choices = {
        "codes": Flag(CODES, "MxK,MxK,..."),
        "gumbel_steps": Flag(200_000, "of GumbelCodeLearner"),
    }
    quick = {
        "epochs": 2,
        "batch_size": 16,
        "learning_rate": 3e-2,
        "units": 4,
        "length": 10,
        "codes": ("4x8",),
        "gumbel_steps": 40,
    }

    def rows(self):
        shapes, steps = self.args.codes, self.args.gumbel_steps
        return [
            Row("table"),
            *(Row(f"int{bits}", bits=bits) for bits in (8, 4, 2)),
            *(Row(f"pruned {x:.0%}", sparsity=x) for x in (0.8, 0.9, 0.95)),
            *(Row(f"codes {x}", x) for x in shapes),
            *(Row(f"codes {x} by frequency", x, True) for x in shapes),
            *(Row(f"Gumbel codes {x}", x, steps=steps) for x in shapes),
        ]

    @functools.cached_property
    def reviews(self):
        if self.args.quick:
            return generated(self.args.length)
        return read(self.folder, self.args.length)

    def measure(self, row, seed):
        table = self.reviews.table
        layer = self.compressed(row, seed)
        composed = table if layer is None else rows_of(layer, len(table))
        start = time.process_time()
        # The LSTM's weights start for numbers of about 1, and learn twice as
        # fast from them. All rows are scaled alike.
        figures = self.train_and_test(composed / table.std(), seed)
        figures["cpu_seconds"] = round(time.process_time() - start, 1)
        difference = np.square(composed - table).sum(dtype="float64")
        energy = np.square(table).sum(dtype="float64")
        return {
            **figures,
            "loss": difference / len(table),
            "relative_error": difference / energy,
            # As the paper counts.
            "counted_bytes": (
                table.nbytes
                if layer is None
                else row.method.litert_bytes(*table.shape)
            ),
        }

    def compressed(self, row, seed):
        """A built layer whose rows are the vectors, or None for the table."""
        table, method = self.reviews.table, row.method
        if method is None:
            return None
        if row.codes:
            # The paper's learner takes long: all seeds have its codes.
            codes, codebooks = self.learned(row, 0 if row.steps else seed)
            return kc.CodeEmbedding(
                *table.shape,
                *code_shape(row.codes),
                codes=codes,
                codebooks=codebooks,
                name="vectors",
            )
        return method.start(seed).from_table(table, name="vectors")

    @functools.cache  # noqa: B019
    def learned(self, row, seed):
        """Codes and codebooks."""
        return learn(row, self.reviews, seed)

    def train_and_test(self, table, seed):
        args, reviews = self.args, self.reviews
        keras.utils.set_random_seed(seed)
        model = build(table, args.units)
        steps = args.epochs * -(-len(reviews.train[1]) // args.batch_size)
        rate = keras.optimizers.schedules.CosineDecay(args.learning_rate, steps)
        model.compile(
            keras.optimizers.Adam(rate, clipnorm=1.0),
            "sparse_categorical_crossentropy",
            metrics=["accuracy"],
            # XLA makes these steps slower on processors.
            jit_compile=False,
        )
        valid = batches(*reviews.valid, 256)
        history = model.fit(
            batches(*reviews.train, args.batch_size, seed),
            epochs=args.epochs,
            validation_data=valid,
            shuffle=False,
            callbacks=[
                keras.callbacks.EarlyStopping(
                    patience=args.epochs, restore_best_weights=True
                )
            ],
            verbose=0,
        ).history
        best = int(np.argmin(history["val_loss"]))
        loss, accuracy = model.evaluate(batches(*reviews.test, 256), verbose=0)
        return {
            "accuracy": accuracy,
            "test_loss": loss,
            "valid_accuracy": history["val_accuracy"][best],
            "valid_loss": history["val_loss"][best],
            "epoch": best + 1,
            "valid_losses": history["val_loss"],
        }


@dataclasses.dataclass(frozen=True)
class Reviews:
    """Reviews as rows of a table of vectors."""

    table: np.ndarray
    train: tuple
    valid: tuple
    test: tuple

    @property
    def counts(self):
        """How often words occur in training reviews."""
        ids = np.concatenate(self.train[0])
        return np.bincount(ids, minlength=len(self.table))


def read(folder, length):
    """The reviews; words that have no vector are left out of them."""
    words, table = vectors.load_vectors(folder / vectors.REVIEWS)
    places = {word: place for place, word in enumerate(words)}
    train, test = labelled_texts.imdb(folder / "imdb")
    order = np.random.default_rng(0).permutation(len(train))
    train = [train[place] for place in order]

    def convert(reviews):
        ids = []
        for _, text in reviews:
            found = _TOKEN.findall(text.lower().replace("<br />", " "))
            known = [places[word] for word in found if word in places]
            ids.append(np.array(known[:length], "int32"))
        labels = [label == "pos" for label, _ in reviews]
        return ids, np.array(labels, "int32")

    held = len(train) // 10
    return Reviews(
        table, convert(train[held:]), convert(train[:held]), convert(test)
    )


def generated(length):
    """Reviews whose words lie on the side of their class."""
    rng = np.random.default_rng(0)
    table = vectors.generated()
    order = np.argsort(table[:, 0])

    def part(size):
        labels = rng.integers(2, size=size, dtype="int32")
        half = len(table) // 2
        ids = [
            order[half * label + rng.integers(half, size=rng.integers(3, 20))]
            for label in labels
        ]
        return [row[:length].astype("int32") for row in ids], labels

    return Reviews(table, part(300), part(50), part(100))


def learn(row, reviews, seed):
    """Codes and codebooks of a row."""
    shape, table = code_shape(row.codes), reviews.table
    if row.steps is None:
        weight = np.sqrt(1 + reviews.counts) if row.by_frequency else None
        learner = AdditiveQuantizer(*shape, seed=seed, verbose=0)
        learner.train(table, sample_weight=weight)
    else:
        learner = GumbelCodeLearner(
            *shape,
            training=Training(iterations=row.steps),
            seed=seed,
            verbose=0,
        )
        learner.train(table)
    return learner.codes, learner.codebooks


def build(table, units):
    """Vectors, which stay, an LSTM, and a softmax over two classes."""
    padded = np.concatenate([np.zeros_like(table[:1]), table])
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(
                *padded.shape,
                embeddings_initializer=as_given(padded),
                mask_zero=True,
                trainable=False,
            ),
            keras.layers.LSTM(units),
            keras.layers.Dense(2, activation="softmax"),
        ]
    )


def batches(reviews, labels, batch_size, seed=None):
    """`tf.data.Dataset` of batches of about equally long reviews."""
    lengths = np.array([len(review) for review in reviews])
    rng = np.random.default_rng(seed)

    def places():
        if seed is None:
            return split(np.argsort(lengths, kind="stable"), batch_size)
        found = []
        # Sorted as a whole, it would always be the same that meet.
        for pool in split(rng.permutation(len(reviews)), 50 * batch_size):
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            found += split(pool, batch_size)
        return [found[place] for place in rng.permutation(len(found))]

    def generate():
        for batch in places():
            # 0 is padding, before the words.
            ids = np.zeros((len(batch), lengths[batch].max()), "int32")
            for row, place in zip(ids, batch, strict=True):
                row[len(row) - lengths[place] :] = reviews[place] + 1
            yield ids, labels[batch]

    dataset = tf.data.Dataset.from_generator(
        generate,
        output_signature=(
            tf.TensorSpec((None, None), "int32"),
            tf.TensorSpec((None,), "int32"),
        ),
    )
    count = len(places())
    return dataset.apply(tf.data.experimental.assert_cardinality(count))


def split(places, size):
    """Parts of an array, all of them but the last of one size."""
    return np.split(places, range(size, len(places), size))


def as_given(table):
    """An initializer."""
    return lambda shape, dtype: tf.constant(table, dtype)


def rows_of(layer, count, chunk=4096):
    """All rows that a layer gives."""
    parts = [
        layer(np.arange(start, min(start + chunk, count), dtype="int32"))
        for start in range(0, count, chunk)
    ]
    return np.concatenate([part.numpy() for part in parts])


main = functools.partial(run, Sentiment)
