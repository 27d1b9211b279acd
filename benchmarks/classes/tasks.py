"""What classes are trained for: words, job titles, places, answers of a graph.

A task has its data, a model up to the layer of classes, and what the model is
judged by. All batches of a task are of one shape.
"""

import dataclasses
import math

import keras
import numpy as np

from benchmarks.data import class_tasks
from benchmarks.data import links
from benchmarks.data import visits
from benchmarks.data import words

# Label of what does not count.
IGNORED = -1


@dataclasses.dataclass(frozen=True)
class Words:
    """The next word of a text, by an LSTM."""

    name: str
    samples: int = 1000
    batch_size: int = 64
    steps: int = 20
    width: int = 128
    units: int = 128
    batches: int = 64

    metric = "perplexity"
    # What is best is lowest.
    sign = -1

    def load(self, folder):
        return WordTask(self, folder)


@dataclasses.dataclass(frozen=True)
class Labels:
    """The class of a text or of a vector, by a mean of embeddings."""

    name: str
    samples: int = 1000
    batch_size: int = 256
    width: int = 128
    dropout: float = 0.3
    examples: int | None = None

    metric = "accuracy"
    sign = 1

    def load(self, folder):
        return LabelTask(self, folder)


@dataclasses.dataclass(frozen=True)
class Visits:
    """The next of a user's places, by the mean of those before."""

    name: str
    samples: int = 1000
    batch_size: int = 64
    width: int = 64
    steps: int = 20
    history: int = 128
    valid_users: int = 3000

    metric = "ndcg"
    sign = 1

    def load(self, folder):
        return VisitTask(self, folder)


@dataclasses.dataclass(frozen=True)
class Links:
    """What an entity of a graph is linked with, by DistMult."""

    name: str
    samples: int = 1000
    batch_size: int = 512
    width: int = 128
    dropout: float = 0.3

    metric = "mrr"
    sign = 1

    def load(self, folder):
        return LinkTask(self, folder)


TASKS = (
    Words("ptb"),
    Visits("gowalla"),
    Labels("job_titles"),
    Words("gutenberg", batches=16),
    Links("wordnet"),
)
QUICK = (
    Words(
        "made-up words",
        samples=8,
        batch_size=4,
        steps=3,
        width=8,
        units=8,
        batches=10,
    ),
    Labels(
        "synthetic_100",
        samples=20,
        batch_size=50,
        width=16,
        examples=1000,
    ),
    Visits(
        "made-up visits",
        samples=20,
        batch_size=10,
        width=8,
        steps=10,
        history=60,
        valid_users=100,
    ),
    Links(
        "made-up links",
        samples=20,
        batch_size=50,
        width=8,
        dropout=0.0,
    ),
)


class WordTask:
    """Sequences of words, one after the other."""

    def __init__(self, settings, folder):
        self.settings = settings
        if settings.name == "ptb":
            self.text = words.Text(folder / "ptb")
        elif settings.name == "gutenberg":
            self.text = words.Books(folder / "gutenberg_books")
        else:
            self.text = words.MadeUp()
        self.counts = self.text.counts
        self.parts = {
            part: self.text.segments(part, settings.batch_size, settings.steps)
            for part in ("train", "valid", "test")
        }

    def epoch(self, rng):
        """Inputs and labels, batch after batch."""
        return self.parts["train"]

    def features(self):
        """Input and features, Keras tensors."""
        embedding = getattr(self, "class_embedding", None)
        return word_features(len(self.counts), self.settings, embedding)

    def callbacks(self, model):
        return [state_reset(model)]

    def figures(self, model, part):
        size = self.settings.batches * self.settings.batch_size
        arrays = [array[:size] for array in self.parts[part]]
        return {"perplexity": perplexity(model, *arrays)}


class LabelTask:
    """Examples of a label each."""

    def __init__(self, settings, folder):
        self.settings = settings
        if settings.name == "job_titles":
            self.data = class_tasks.job_titles(folder)
        else:
            number = settings.name.split("_")[1].replace("k", "000")
            self.data = class_tasks.synthetic_classes(
                int(number), settings.examples, settings.width
            )
        self.counts = self.data.counts

    def epoch(self, rng):
        inputs, labels = self.data.train
        order = rng.permutation(len(labels))
        return inputs[order], labels[order]

    def features(self):
        encoder = make_encoder(self.data, self.settings)
        return encoder.inputs[0], encoder.outputs[0]

    def callbacks(self, model):
        return []

    def figures(self, model, part):
        inputs, labels = getattr(self.data, part)
        features = features_of(model, inputs, 1000)
        vectors, biases = class_table(model.layers[-1])
        places = []
        for start in range(0, len(labels), 1000):
            rows = slice(start, start + 1000)
            scores = features[rows] @ vectors.T + biases
            own = np.take_along_axis(scores, labels[rows, None], 1)
            # NaN is no answer.
            places.append(np.sum(~(scores <= own), axis=1))
        places = np.concatenate(places)
        return {
            "accuracy": float(np.mean(places == 0)),
            "top_5": float(np.mean(places < 5)),
        }


class VisitTask:
    """Places of users, in any order."""

    def __init__(self, settings, folder):
        self.settings = settings
        if settings.name == "gowalla":
            self.data = visits.gowalla(folder / settings.name)
        else:
            self.data = visits.generated()
        places = self.data.train[:, 1]
        self.counts = np.bincount(places, minlength=self.data.num_items)
        users = np.unique(self.data.valid[:, 0])
        self.valid_users = np.random.default_rng(0).permutation(users)

    def epoch(self, rng):
        rows = self.sequences(self.data.train, self.settings.steps + 1, rng)
        rows = rows[np.sum(rows != IGNORED, axis=1) > 1]
        rows = rng.permutation(rows)
        return rows[:, :-1] + 1, rows[:, 1:]

    def sequences(self, pairs, length, rng):
        """Places of each user in a random order, then `IGNORED`."""
        users, items = pairs[
            np.lexsort((rng.random(len(pairs)), pairs[:, 0]))
        ].T
        counts = np.bincount(users, minlength=self.data.num_users)
        place = np.arange(len(users)) - (np.cumsum(counts) - counts)[users]
        rows = np.full((self.data.num_users, length), IGNORED, "int32")
        kept = place < length
        rows[users[kept], place[kept]] = items[kept]
        return rows

    def features(self):
        # 0 is no place.
        ids = keras.Input((None,), dtype="int32")
        vectors = keras.layers.Embedding(
            self.data.num_items + 1, self.settings.width
        )(ids)
        number = keras.ops.cumsum(keras.ops.ones_like(vectors[..., :1]), axis=1)
        means = keras.ops.cumsum(vectors, axis=1) / number
        means = keras.layers.LayerNormalization()(means)
        return ids, keras.layers.Dense(self.settings.width)(means)

    def callbacks(self, model):
        return []

    def figures(self, model, part):
        """Of the first 20 places that a user has not been to before."""
        users, seen = self.users(part)
        table = np.zeros((self.data.num_users, self.settings.width), "float32")
        table[users] = self.features_of(model, users, seen)
        vectors, biases = class_table(model.layers[-1])
        recall, ndcg = visits.rank(
            np.append(table, np.ones((len(table), 1), "float32"), axis=1),
            np.append(vectors, biases[:, None], axis=1),
            users,
            seen,
            getattr(self.data, part),
        )
        return {"ndcg": ndcg, "recall": recall}

    def users(self, part):
        """Users of a part, some of those of "valid", and visits before it."""
        data = self.data
        if part == "valid":
            return self.valid_users[: self.settings.valid_users], data.train
        seen = np.concatenate([data.train, data.valid])
        return np.unique(data.test[:, 0]), seen

    def features_of(self, model, users, seen):
        """What the model makes of the places that users have been to."""
        history = self.settings.history
        rows = self.sequences(seen, history, np.random.default_rng(0))[users]
        found = []
        for start in range(0, len(rows), 500):
            some = rows[start : start + 500]
            last = np.sum(some != IGNORED, axis=1) - 1
            features = model(some + 1).numpy()
            found.append(features[np.arange(len(some)), np.maximum(last, 0)])
        return np.concatenate(found)


class LinkTask:
    """Questions of a graph."""

    def __init__(self, settings, folder):
        self.settings = settings
        if settings.name == "wordnet":
            self.data = links.wordnet(folder / "wordnet30")
        else:
            self.data = links.generated()
        self.counts = np.bincount(
            self.data.train[:, 2], minlength=self.data.num_entities
        )
        questions = np.concatenate(
            [self.data.train, self.data.valid, self.data.test]
        ).astype("int64")
        # All that is right, sorted by question.
        self.answers = np.unique(
            self.questions(questions) * self.data.num_entities + questions[:, 2]
        )

    def questions(self, rows):
        return rows[:, 0].astype("int64") * self.data.num_relations + rows[:, 1]

    def epoch(self, rng):
        rows = rng.permutation(self.data.train)
        return rows[:, :2], rows[:, 2]

    def features(self):
        asked = keras.Input((2,), dtype="int32")
        width = self.settings.width
        self.class_embedding = keras.layers.Embedding(
            self.data.num_entities,
            width,
            embeddings_initializer=keras.initializers.RandomNormal(
                stddev=width**-0.5
            ),
        )
        factors = keras.layers.Embedding(
            self.data.num_relations,
            width,
            embeddings_initializer=keras.initializers.RandomNormal(
                1.0, stddev=0.3
            ),
        )
        product = self.class_embedding(asked[:, 0]) * factors(asked[:, 1])
        dropout = keras.layers.Dropout(self.settings.dropout)
        return asked, dropout(product)

    def callbacks(self, model):
        return []

    def figures(self, model, part):
        """Of the answer among all that are no other answer."""
        rows = getattr(self.data, part)
        features = features_of(model, rows[:, :2], 1000)
        vectors, biases = class_table(model.layers[-1])
        number, places = self.data.num_entities, []
        for start in range(0, len(rows), 1000):
            some = rows[start : start + 1000]
            scores = features[start : start + 1000] @ vectors.T + biases
            own = np.take_along_axis(scores, some[:, 2:], 1)
            asked = self.questions(some) * number
            ends = np.searchsorted(self.answers, [asked, asked + number])
            for row, (first, last) in enumerate(ends.T):
                scores[row, self.answers[first:last] % number] = -np.inf
            # NaN is no answer.
            places.append(np.sum(~(scores < own), axis=1))
        places = np.concatenate(places)
        return {
            "mrr": float(np.mean(1 / (1 + places))),
            "hits_10": float(np.mean(places < 10)),
        }


def class_table(head):
    """Vectors and biases of all classes."""
    ids = np.arange(head.num_classes, dtype="int32")
    scores = head.scores
    return scores.class_vectors(ids).numpy(), scores.class_biases(ids).numpy()


def features_of(model, inputs, batch_size=None):
    """Features of a model that ends in a layer of classes."""
    encoder = keras.Model(model.inputs, model.layers[-1].input)
    return encoder.predict(inputs, batch_size=batch_size, verbose=0)


def make_encoder(task, args):
    """A model from inputs of a task to features, not trained."""
    inputs, _ = task.train
    layers = [keras.Input(inputs.shape[1:], dtype=inputs.dtype.name)]
    if task.input_dim:
        layers += [
            keras.layers.Embedding(task.input_dim, args.width, mask_zero=True),
            keras.layers.GlobalAveragePooling1D(),
        ]
    else:
        layers.append(
            keras.layers.Dense(
                args.width, kernel_initializer=keras.initializers.Identity()
            )
        )
    layers += [
        keras.layers.LayerNormalization(),
        keras.layers.Dropout(args.dropout),
    ]
    return keras.Sequential(layers)


def word_features(num_words, args, embedding=None):
    """Ids of words, and features of a stateful LSTM."""
    ids = keras.Input(batch_shape=(args.batch_size, args.steps), dtype="int32")
    embedding = embedding or keras.layers.Embedding(num_words, args.width)
    features = embedding(ids)
    features = keras.layers.LSTM(
        args.units, return_sequences=True, stateful=True, unroll=True
    )(features)
    return ids, features


def states_of(model):
    return [
        state
        for layer in model.layers
        if isinstance(layer, keras.layers.LSTM)
        for state in layer.states
    ]


def reset_states(model):
    for layer in model.layers:
        if isinstance(layer, keras.layers.LSTM):
            layer.reset_states()


def state_reset(model):
    """A callback: an epoch begins where the text does."""
    return keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: reset_states(model)
    )


def perplexity(model, inputs, targets):
    """Over all words. Training may go on from the states that it has."""
    states = [state.numpy() for state in states_of(model)]
    reset_states(model)
    loss = model.evaluate(
        inputs, targets, batch_size=model.inputs[0].shape[0], verbose=0
    )
    for state, value in zip(states_of(model), states, strict=True):
        state.assign(value)
    return math.exp(loss)
