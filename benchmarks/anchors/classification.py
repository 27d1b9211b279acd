"""How few parameters does a text classifier's embedding need?

Table 1 of Liang et al. (https://arxiv.org/abs/2003.08197) on IMDB and 20
Newsgroups: a full `Embedding`, then an `ANTEmbedding` in many settings.
Parameters are the anchors and the non-zeros of T. All rows train for the same
epochs and are tested after the last one.
"""

import dataclasses
import functools
import pathlib
import tarfile
import tempfile
import time

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.data import text_ids
from examples.plots import plot_accuracy_against_size
from keras_compembed.anchors.anchor_initializer import Dynamic
from keras_compembed.anchors.anchor_initializer import Given
from keras_compembed.anchors.anchor_initializer import Mixed

# Adam's rate falls to this part of its start, not to 0: T must be able to
# settle.
_LAST_RATE = 0.02
_TEST_BATCH = 512
_TUNING_RATE, _TUNING_EPOCHS = 5e-4, 2
# Near words of a word that co-occurrence relates it to.
_NEAREST = 10


@dataclasses.dataclass(frozen=True)
class Task:
    """A data set and the classifier that is trained on it."""

    name: str
    data: str
    encoder: str
    length: int
    width: int
    epochs: int
    batch_size: int
    learning_rate: float
    dropout: float = 0.0
    filters: int = 100


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    task: Task
    layer: dict | None = None
    anchors: str = "dynamic"
    length: float = 1.0
    relations: str | None = None
    kept_nonzeros: int | None = None
    subgradient: float = 0.0


IMDB = Task("imdb", "imdb", "mean", 400, 64, 8, 128, 3e-3)
NEWSGROUPS = Task(
    "newsgroups", "20newsgroups", "mean", 300, 256, 10, 128, 5e-3, 0.3
)
NEWSGROUPS_CNN = Task(
    "newsgroups cnn", "20newsgroups", "cnn", 100, 128, 6, 64, 2e-3, 0.5
)


def ant(num_anchors=10, l1=1e-4, **arguments):
    return {"num_anchors": num_anchors, "l1": l1, **arguments}


def imdb_rows():
    def row(name, layer=None, *args, **kwargs):
        return Row(name, IMDB, layer, *args, **kwargs)

    def by_l1(l1):
        return row(f"l1 {l1:.0e}".replace("e-0", "e-"), ant(10, l1))

    def kept(nonzeros):
        name = f"{nonzeros:,} kept"
        layer = ant(10, 1e-5)
        return row(name, layer, length=8.0, kept_nonzeros=nonzeros)

    target = ant(10, 1e-5, target_nonzeros=50_000)
    signed = ant(10, 0.0, non_negative=False)
    return [
        row("full table"),
        *map(by_l1, (3e-5, 1e-4, 1e-5, 3e-4, 1e-3)),
        *map(kept, (80_000, 40_000)),
        row("by tf-idf", ant(), "tf-idf"),
        row("by tf-idf, WordNet", ant(), "tf-idf", relations="wordnet"),
        row("by frequency", ant(), "frequency"),
        row("by frequency, WordNet", ant(), "frequency", relations="wordnet"),
        row("target 50,000", target),
        row("subgradient", signed, subgradient=3e-5),
    ]


def newsgroups_rows(task, length):
    # Anchors start with numbers of about 1.
    def row(name, layer=None, *args, **kwargs):
        if layer is not None:
            kwargs.setdefault("length", length)
        return Row(name, task, layer, *args, **kwargs)

    def layer(**kwargs):
        return ant(50, 0.1, threshold="learning_rate", **kwargs)

    def kept(name="250,000 kept", *args, nonzeros=250_000, **kwargs):
        return row(name, layer(), *args, kept_nonzeros=nonzeros, **kwargs)

    def by(anchors, relations=None, name=""):
        name = f"250,000 kept, by {anchors}{name}"
        return kept(name, anchors, relations=relations)

    def mixture(kind):
        return row(f"two sets, {kind}", layer(num_mixtures=2, activation=kind))

    signed = layer(non_negative=False)
    return [
        row("full table"),
        kept(),
        by("tf-idf"),
        by("tf-idf", "wordnet", ", WordNet"),
        by("tf-idf", "wordnet, two steps", ", WordNet, two steps"),
        by("tf-idf", "co-occurrence", ", co-occurrence"),
        by("frequency"),
        kept("130,000 kept", nonzeros=130_000),
        *map(mixture, ("sparsemax", "softmax", "entmax")),
        row("250,000 kept, signed", signed, kept_nonzeros=250_000),
    ]


def quick_rows():
    words = Task("words", "generated", "mean", 12, 8, 3, 32, 2e-2)
    cnn = Task("words cnn", "generated", "cnn", 12, 8, 2, 32, 5e-3, 0.1, 4)
    mixture = ant(4, 1e-3, num_mixtures=2, activation="sparsemax")
    layer, signed = ant(4, 1e-3), ant(4, 0.0, non_negative=False)
    kept = {"length": 2.0, "kept_nonzeros": 150}
    return [
        Row("full table", words),
        Row("l1 1e-3", words, layer),
        Row("frequency", words, layer, "frequency", **kept),
        Row("relations", words, layer, "tf-idf", relations="co-occurrence"),
        Row("subgradient", words, signed, subgradient=1e-3),
        Row("mixture", cnn, mixture),
    ]


class Classification(Benchmark):
    choices = {
        "tasks": (IMDB.name, NEWSGROUPS.name, NEWSGROUPS_CNN.name),
        "picture": Flag(None, "folder for pictures ant_TASK.png", pathlib.Path),
    }
    quick = {"tasks": ("words", "words cnn")}

    def rows(self):
        rows = [
            *(quick_rows() if self.args.quick else ()),
            *imdb_rows(),
            *newsgroups_rows(NEWSGROUPS, 16.0),
            *newsgroups_rows(NEWSGROUPS_CNN, 11.3),
        ]
        return [row for row in rows if row.task.name in self.args.tasks]

    @functools.lru_cache(maxsize=1)  # noqa: B019
    def texts(self, task):
        folder = None if task.data == "generated" else self.folder
        return text_ids.read(task.data, folder, task.length)

    def measure(self, row, seed):
        return Training(row, self.texts(row.task), seed, self).measure()

    def finish(self, rows):
        if self.args.picture is None:
            return
        for task in self.args.tasks:
            of_task = [
                row for row in rows if row["row"]["task"]["name"] == task
            ]
            path = self.args.picture / f"ant_{task.replace(' ', '_')}.png"
            draw(of_task, path)


class Training:
    """Trains and measures one row."""

    def __init__(self, row, texts, seed, benchmark):
        self.row, self.task, self.seed = row, row.task, seed
        self.texts, self.benchmark = texts, benchmark

    def measure(self):
        keras.utils.set_random_seed(self.seed)
        start = time.time()
        model = self.train(self.embedding())
        seconds = time.time() - start
        layer = model.get_layer("words")
        if self.row.kept_nonzeros:
            transform = layer.get_transform()
            layer.assign_transform(
                transform.keep_largest(self.row.kept_nonzeros)
            )
        if isinstance(layer, kc.ANTEmbedding):
            model = kc.strip(model)
            layer = model.get_layer("words")
        self.compile(model, keras.optimizers.Adam(_TUNING_RATE))
        if self.row.kept_nonzeros:
            model.fit(
                *self.texts.train,
                batch_size=self.task.batch_size,
                epochs=_TUNING_EPOCHS,
                verbose=0,
            )
        size = kc.size_report(model).embeddings[0]
        parameters = size.num_values
        if size.num_anchors is None:
            parameters = size.input_dim * size.output_dim
        whole = len(self.texts.words) * self.task.width
        return {
            "parameters": parameters,
            "times_fewer": whole / parameters,
            "nonzeros": size.num_nonzeros,
            "bytes": size.stored_bytes,
            "train": accuracy(model, self.texts.train),
            "valid": accuracy(model, self.texts.valid),
            "test": accuracy(model, self.texts.test),
            "seconds": round(seconds),
        }

    def train(self, embedding):
        task = self.task
        model = build(embedding, task, self.texts.num_classes)
        steps = task.epochs * -(-len(self.texts.train[0]) // task.batch_size)
        rate = keras.optimizers.schedules.CosineDecay(
            task.learning_rate, steps, alpha=_LAST_RATE
        )
        self.compile(model, keras.optimizers.Adam(rate))
        model.fit(
            *self.texts.train,
            batch_size=task.batch_size,
            epochs=task.epochs,
            verbose=0,
        )
        return model

    def compile(self, model, optimizer):
        model.compile(
            optimizer,
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            jit_compile=self.benchmark.jit_compile,
        )

    def embedding(self):
        row, texts = self.row, self.texts
        if row.layer is None:
            return keras.layers.Embedding(
                len(texts.words),
                self.task.width,
                mask_zero=self.task.encoder == "mean",
                name="words",
            )
        regularizer = None
        if row.subgradient:
            regularizer = keras.regularizers.L1(row.subgradient)
        arguments = options(row.layer, regularizer)
        anchors = self.anchors(row.layer)
        if row.relations:
            ids = anchors.choose(len(texts.words), row.layer["num_anchors"])
            arguments["relations"] = find_relations(
                row.relations, texts, ids, self.benchmark
            )
        arguments["anchors"] = anchors
        return kc.ANTEmbedding(
            len(texts.words),
            self.task.width,
            mask_zero=self.task.encoder == "mean",
            name="words",
            **arguments,
        )

    def anchors(self, layer):
        row, texts = self.row, self.texts
        sets = layer.get("num_mixtures", 1)
        if row.anchors == "frequency":
            chosen = kc.anchors.Frequency(texts.counts, seed=self.seed)
        elif row.anchors == "tf-idf":
            chosen = kc.anchors.Frequency(tf_idf(texts), seed=self.seed)
        else:
            chosen = Dynamic(self.seed)
        shape = layer["num_anchors"] // sets, self.task.width
        ids = chosen.choose(len(texts.words), shape[0])
        parts = []
        for seed in range(sets):
            basis = Dynamic(sets * self.seed + seed).vectors(*shape)
            basis *= row.length / np.sqrt(self.task.width)
            parts.append(Given(basis, ids=ids))
        return parts[0] if sets == 1 else Mixed(parts)


def options(settings, regularizer=None):
    """Arguments of `ANTEmbedding` from settings as a record has them."""
    arguments = dict(settings)
    own = {
        name: arguments.pop(name)
        for name in ("non_negative", "threshold", "target_nonzeros")
        if name in arguments
    }
    arguments["l1"] = kc.anchors.L1(arguments["l1"], **own)
    sets = arguments.pop("num_mixtures", 1)
    activation = arguments.pop("activation", None)
    arguments["transform"] = kc.anchors.Transform(
        mixture=activation, num_sets=sets, regularizer=regularizer
    )
    return arguments


def tf_idf(texts):
    """The TF-IDF of words in training texts, as `anchors.Frequency` has it."""
    ids = texts.train[0]
    documents = [np.unique(row) for row in ids]
    frequency = np.bincount(ids.ravel(), minlength=len(texts.words))
    inside = np.bincount(np.concatenate(documents), minlength=len(texts.words))
    scores = frequency * np.log(len(ids) / np.maximum(inside, 1))
    scores[[text_ids.PAD, text_ids.UNKNOWN]] = 0
    return scores


def find_relations(name, texts, ids, benchmark):
    """Relations by the name of a row, those of `ids` at least."""
    if name == "co-occurrence":
        return kc.anchors.Relations.from_tokens(
            texts.train[0],
            len(texts.words),
            top=_NEAREST,
            min_count=3,
            min_information=1.0,
            ignore=(text_ids.PAD, text_ids.UNKNOWN),
        )
    found = read_wordnet(texts.words, benchmark.folder)
    if name == "wordnet, two steps":
        return found | two_steps(found, ids)
    return found


def two_steps(relations, ids):
    """Relations of `ids` with what is related to those related to them."""
    number = relations.input_dim
    first, second = np.divmod(relations.keys, number)
    kept = np.isin(first, ids)
    first, middle = first[kept], second[kept]
    starts = np.searchsorted(relations.keys, middle * number)
    ends = np.searchsorted(relations.keys, (middle + 1) * number)
    last = [second[a:b] for a, b in zip(starts, ends, strict=True)]
    pairs = np.repeat(first, ends - starts), np.concatenate(last)
    return kc.anchors.Relations(np.stack(pairs, axis=1), number)


def read_wordnet(words, folder):
    archive = folder / "wordnet30" / "dict.tar.xz"
    with tempfile.TemporaryDirectory() as unpacked:
        with tarfile.open(archive) as tar:
            tar.extractall(unpacked, filter="data")
        return kc.anchors.Relations.from_wordnet(
            words, pathlib.Path(unpacked) / "dict"
        )


def build(embedding, task, num_classes):
    layers = keras.layers
    inputs = keras.Input((task.length,), dtype="int32")
    hidden = embedding(inputs)
    if task.encoder == "mean":
        hidden = layers.GlobalAveragePooling1D()(hidden)
    else:
        hidden = layers.Concatenate()(
            [
                layers.GlobalMaxPooling1D()(
                    layers.Conv1D(task.filters, size, activation="relu")(hidden)
                )
                for size in (3, 4, 5)
            ]
        )
    hidden = layers.Dropout(task.dropout)(hidden)
    return keras.Model(inputs, layers.Dense(num_classes)(hidden))


def accuracy(model, part):
    return model.evaluate(*part, batch_size=_TEST_BATCH, verbose=0)[1]


def draw(rows, path):
    """Accuracy against the bytes of table or anchors and sparse rows."""
    points = []
    for row in rows:
        full = row["name"] == "full table"
        kept = row["name"] == f"{row['row']['kept_nonzeros'] or 0:,} kept"
        if full or kept or row["name"].startswith("l1 "):
            figures = row["runs"][0]["figures"]
            size = f"{figures['nonzeros']:,} non-zeros" if not full else ""
            points.append(
                {
                    "name": size or "baseline: full table",
                    "embedding_bytes": figures["bytes"],
                    "keras_accuracy": figures["test"],
                }
            )
    if len(points) > 1:
        plot_accuracy_against_size(points, path, overwrite=True)


main = functools.partial(run, Classification)
