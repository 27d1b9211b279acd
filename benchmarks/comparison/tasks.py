"""What tables are trained for: classes of texts."""

import dataclasses

import keras
import numpy as np

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


TASKS = (
    Texts("clinc150", "mean", 6_000, 128, 28, epochs=24),
    Texts("20newsgroups", "mean", 16_000, 128, 200, epochs=16),
    Texts("docstrings", "cnn", 16_000, 128, 96, epochs=12),
)
QUICK = (Texts("generated", "mean", 300, 16, 12, epochs=2),)


class TextTask:
    """Data, and models that are trained on it."""

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
