"""What tables are trained for: classes of texts, and places to visit."""

import dataclasses

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.data import visits
from examples import labelled_texts


@dataclasses.dataclass(frozen=True)
class Texts:
    """A classifier of texts."""

    name: str
    encoder: str
    vocabulary_size: int
    width: int
    length: int
    epochs: int
    first_rate: float = 3e-3
    batch_size: int = 64

    def load(self, folder):
        return TextTask(self, folder)


@dataclasses.dataclass(frozen=True)
class Visits:
    """A recommender of places: users and places have vectors."""

    name: str
    width: int
    epochs: int
    first_rate: float = 1e-2
    batch_size: int = 1024
    temperature: float = 0.15
    popularity: float = 0.6
    valid_users: int = 3000

    def load(self, folder):
        return VisitTask(self, folder)


TASKS = (
    Texts("clinc150", "mean", 6_000, 128, 28, epochs=24),
    Texts("20newsgroups", "mean", 16_000, 128, 200, epochs=16),
    Texts("docstrings", "cnn", 16_000, 128, 96, epochs=12),
    Visits("gowalla", width=64, epochs=6),
)
QUICK = (
    Texts("generated", "mean", 300, 16, 12, epochs=2),
    Visits("made up", 8, epochs=2, batch_size=16, valid_users=100),
)


class Task:
    """Data, and models that are trained on it."""

    mask_zero = False
    digest = None

    def table_model(self):
        """The model with float32 tables."""
        return self.build(
            {
                name: keras.layers.Embedding(
                    *shape, mask_zero=self.mask_zero, name=name
                )
                for name, shape in self.tables.items()
            }
        )

    def steps(self, epochs):
        return epochs * -(-self.size // self.settings.batch_size)

    def train(self, model, epochs, rate, seed, callbacks=(), fit=None):
        """Trains by Adam, whose rate falls to 0 as a cosine.

        Returns what `fit` returns: by default, the model's own.
        """
        keras.utils.set_random_seed(seed)
        self.compile(model, epochs, rate)
        return self.fit(fit or model.fit, epochs, seed, callbacks)

    def schedule(self, epochs, rate):
        return keras.optimizers.schedules.CosineDecay(rate, self.steps(epochs))


class TextTask(Task):
    metrics = {"accuracy": "accuracy"}

    def __init__(self, settings, folder):
        self.settings = settings
        if settings.name == "clinc150":
            texts = labelled_texts.intents(folder)
        elif settings.name == "generated":
            rows = labelled_texts.generated(400, 5, 40)
            texts = labelled_texts.split([rows], 0)
        else:
            has_folder = settings.name == "20newsgroups"
            texts = labelled_texts.load(
                settings.name, folder / settings.name if has_folder else None
            )
        self.digest = texts.digest()
        vocabulary, self.data = texts.as_ids(
            settings.vocabulary_size, settings.length
        )
        self.size = len(self.data.train[0])
        self.mask_zero = settings.encoder == "mean"
        self.tables = {"words": (len(vocabulary), settings.width)}
        counts = np.bincount(
            self.data.train[0].ravel(), minlength=len(vocabulary)
        )
        self.counts = {"words": counts.astype("float32")}

    def build(self, layers):
        encoder = [
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dropout(0.3),
        ]
        if self.settings.encoder == "cnn":
            encoder = [
                keras.layers.Dropout(0.3),
                keras.layers.Conv1D(96, 3, activation="relu"),
                keras.layers.GlobalMaxPooling1D(),
                keras.layers.Dropout(0.5),
            ]
        return keras.Sequential(
            [
                keras.Input((self.settings.length,), dtype="int32"),
                layers["words"],
                *encoder,
                keras.layers.Dense(
                    len(self.data.classes), activation="softmax"
                ),
            ]
        )

    def compile(self, model, epochs, rate):
        model.compile(
            keras.optimizers.Adam(self.schedule(epochs, rate)),
            "sparse_categorical_crossentropy",
            metrics=["accuracy"],
            jit_compile=False,
        )

    def fit(self, fit, epochs, seed, callbacks):
        return fit(
            *self.data.train,
            batch_size=self.settings.batch_size,
            epochs=epochs,
            verbose=0,
            callbacks=list(callbacks),
        )

    def scores(self, model, part):
        """Dict of the figures on `"validation"` or `"test"` texts."""
        ids, labels = getattr(self.data, part)
        found = model.predict(ids, batch_size=256, verbose=0).argmax(-1)
        return {"accuracy": float(np.mean(found == labels))}


class VisitTask(Task):
    metrics = {"recall": "recall@20", "ndcg": "NDCG@20"}
    # Times longer than a layer's own, or two vectors would be too short to
    # give each other gradients.
    SCALE = 4.0

    def __init__(self, settings, folder):
        self.settings = settings
        if settings.name == "made up":
            pairs = visits.generated()
        else:
            pairs = visits.gowalla(folder / settings.name)
        self.pairs = pairs
        self.size = len(pairs.train)
        numbers = {"users": pairs.num_users, "items": pairs.num_items}
        self.tables = {
            name: (number, settings.width) for name, number in numbers.items()
        }
        self.counts = {
            name: np.bincount(ids, minlength=numbers[name]).astype("float32")
            for name, ids in zip(numbers, pairs.train.T, strict=True)
        }
        users = np.random.default_rng(0).permutation(
            np.unique(pairs.valid[:, 0])
        )
        self.valid_users = users[: settings.valid_users]

    def build(self, layers):
        inputs = [keras.Input((), dtype="int32") for _ in layers]
        users, items = (
            self.inside(layers[name](ids))
            for name, ids in zip(("users", "items"), inputs, strict=True)
        )
        logits = keras.ops.matmul(users, keras.ops.transpose(items))
        return keras.Model(inputs, logits)

    def inside(self, vectors):
        """Vectors pulled into a ball: products are those of cosines in it."""
        vectors = self.SCALE * vectors
        squares = keras.ops.sum(
            keras.ops.square(vectors), axis=-1, keepdims=True
        )
        return vectors / keras.ops.sqrt(
            self.settings.temperature * (squares + 1)
        )

    def compile(self, model, epochs, rate):
        rate = self.schedule(epochs, rate)
        model.compile(
            # A row is looked up rarely: with the usual 0.999 its first steps
            # would be much too long.
            kc.optimizers.SparseRowOptimizer(
                keras.optimizers.Adam(rate, beta_2=0.99)
            ),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False,
        )

    def fit(self, fit, epochs, seed, callbacks):
        batches = visits.Batches(
            self.pairs.train, self.settings.batch_size, seed
        )
        callbacks = list(callbacks)
        return fit(batches, epochs=epochs, verbose=0, callbacks=callbacks)

    def vectors(self, layer):
        ids = np.arange(layer.input_dim, dtype="int32")
        parts = [
            self.inside(layer(ids[start : start + 8192]))
            for start in range(0, len(ids), 8192)
        ]
        return np.concatenate([keras.ops.convert_to_numpy(x) for x in parts])

    def scores(self, model, part):
        """Dict of the figures on `"validation"` or `"test"` visits."""
        pairs, settings = self.pairs, self.settings
        users, items = (
            self.vectors(model.get_layer(name)) for name in self.tables
        )
        offsets = settings.popularity * np.log1p(self.counts["items"])
        tables = (
            np.append(users, np.ones((len(users), 1), "float32"), axis=1),
            np.append(items, offsets[:, None].astype("float32"), axis=1),
        )
        if part == "validation":
            found = visits.rank(
                *tables, self.valid_users, pairs.train, pairs.valid
            )
        else:
            seen = np.concatenate([pairs.train, pairs.valid])
            found = visits.rank(
                *tables, np.unique(pairs.test[:, 0]), seen, pairs.test
            )
        return dict(zip(self.metrics, found, strict=True))
