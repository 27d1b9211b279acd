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
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.data import text_ids
from benchmarks.data.vectors import load_glove
from keras_compembed.anchors.anchor_initializer import Dynamic
from keras_compembed.anchors.anchor_initializer import Given
from keras_compembed.anchors.anchor_initializer import Mixed
from keras_compembed.anchors.sparse_coding import sparse_code

# Adam's rate falls to this part of its start, not to 0: T must be able to
# settle.
_LAST_RATE = 0.02
_TEST_BATCH = 512
_TUNING_RATE, _TUNING_EPOCHS = 5e-4, 2


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
NEWSGROUPS_CNN = Task(
    "newsgroups cnn", "20newsgroups", "cnn", 100, 128, 6, 64, 2e-3, 0.5
)
# As wide as the vectors of GloVe.
IMDB_50, NEWSGROUPS_CNN_50 = (
    dataclasses.replace(task, name=f"{task.name} 50", width=50)
    for task in (IMDB, NEWSGROUPS_CNN)
)
QUICK_CNN = Task("words cnn", "generated", "cnn", 12, 8, 2, 32, 1e-2, 0.1, 4)


def ant(num_anchors=10, l1=1e-4, **arguments):
    return {"num_anchors": num_anchors, "l1": l1, **arguments}


def imdb_rows():
    signed = ant(l1=0.0, non_negative=False)
    return [
        Row("full table", IMDB),
        Row("l1 3e-5", IMDB, ant(l1=3e-5)),
        Row("l1 1e-4", IMDB, ant()),
        Row("by tf-idf", IMDB, ant(), "tf-idf"),
        Row("by tf-idf, WordNet", IMDB, ant(), "tf-idf", relations="wordnet"),
        Row("subgradient", IMDB, signed, subgradient=3e-5),
        Row("full table", IMDB_50),
        Row("full table, GloVe / 5", IMDB_50, None, "glove", 0.2),
        Row("l1 1e-4", IMDB_50, ant()),
        Row("by tf-idf, GloVe", IMDB_50, ant(), "tf-idf, glove"),
    ]


def newsgroups_rows():
    def kept(task, more="", anchors="dynamic", relations=None, **settings):
        # Anchors start with numbers of about 1.
        length = {128: 11.3, 50: 7.1}[task.width]
        if "glove" in anchors:
            length = 1.0
        layer = ant(50, 0.1, threshold="learning_rate", **settings)
        name = "250,000 kept"
        name += f", by {anchors}" * (anchors != "dynamic") + more
        return Row(name, task, layer, anchors, length, relations, 250_000)

    wide, cnn = NEWSGROUPS_CNN, NEWSGROUPS_CNN_50
    by_glove = functools.partial(kept, cnn, anchors="tf-idf, glove")
    fitted = {"fit": 4, "non_negative": False}
    sets = {"num_mixtures": 5, "activation": "softmax"}
    return [
        Row("full table", wide),
        kept(wide),
        kept(wide, "", "tf-idf"),
        kept(wide, ", WordNet", "tf-idf", "wordnet"),
        kept(wide, ", co-occurrence", "tf-idf", "co-occurrence"),
        Row("full table", cnn, kept_nonzeros=0),
        Row("full table, GloVe", cnn, None, "glove", kept_nonzeros=0),
        Row("full table, GloVe / 5", cnn, None, "glove", 0.2, None, 0),
        kept(cnn),
        by_glove(),
        kept(cnn, "", "tf-idf"),
        kept(cnn, ", own entry 0.1", "tf-idf", own=0.1),
        kept(cnn, "", "frequency, glove"),
        by_glove(", own entry 0.1", own=0.1),
        kept(cnn, ", own entry 0.1", "frequency, glove", own=0.1),
        by_glove(", T of GloVe", **fitted),
        kept(cnn, ", signed", non_negative=False),
        kept(cnn, ", negative pairs", negative_weight=10.0),
        kept(cnn, ", five sets", **sets),
        kept(cnn, ", five sets, T 30 times", scale=30.0, **sets),
    ]


def quick_rows():
    words = Task("words", "generated", "mean", 12, 8, 3, 32, 2e-2)
    layer, sets = ant(4, 1e-3), {"num_mixtures": 2, "activation": "softmax"}
    return [
        Row("full table", words),
        Row("l1 1e-3", words, layer),
        Row("mixture", QUICK_CNN, ant(4, 1e-3, **sets)),
    ]


class Classification(Benchmark):
    choices = {
        "tasks": tuple(
            task.name
            for task in (IMDB, NEWSGROUPS_CNN, IMDB_50, NEWSGROUPS_CNN_50)
        ),
    }
    quick = {"tasks": ("words", "words cnn")}

    def rows(self):
        rows = [*quick_rows(), *imdb_rows(), *newsgroups_rows()]
        return [row for row in rows if row.task.name in self.args.tasks]

    @functools.lru_cache(maxsize=1)  # noqa: B019
    def texts(self, task):
        folder = None if task.data == "generated" else self.folder
        return text_ids.read(task.data, folder, task.length)

    def measure(self, row, seed):
        keras.utils.set_random_seed(seed)
        task, texts = row.task, self.texts(row.task)
        start = time.time()
        model = build(self.embedding(row, seed), task, texts.num_classes)
        steps = task.epochs * -(-len(texts.train[0]) // task.batch_size)
        rate = keras.optimizers.schedules.CosineDecay(
            task.learning_rate, steps, alpha=_LAST_RATE
        )
        self.fit(model, rate, task, task.epochs)
        seconds = time.time() - start
        layer = model.get_layer("words")
        if row.kept_nonzeros:
            transform = layer.get_transform()
            layer.assign_transform(transform.keep_largest(row.kept_nonzeros))
        if row.layer:
            model = kc.strip(model)
        tuned = _TUNING_EPOCHS if row.kept_nonzeros is not None else 0
        self.fit(model, _TUNING_RATE, task, tuned)
        size = kc.size_report(model).embeddings[0]
        whole = size.input_dim * size.output_dim
        parameters = size.num_values if row.layer else whole
        return {
            "parameters": parameters,
            "times_fewer": whole / parameters,
            "nonzeros": size.num_nonzeros,
            "bytes": size.stored_bytes,
            "train": accuracy(model, texts.train),
            "valid": accuracy(model, texts.valid),
            "test": accuracy(model, texts.test),
            "seconds": round(seconds),
        }

    def fit(self, model, rate, task, epochs):
        compile_model(model, rate, self.jit_compile)
        if epochs:
            model.fit(
                *self.texts(task).train,
                batch_size=task.batch_size,
                epochs=epochs,
                verbose=0,
            )

    def embedding(self, row, seed):
        texts = self.texts(row.task)
        size = len(texts.words), row.task.width
        shared = {"mask_zero": row.task.encoder == "mean", "name": "words"}
        glove = None
        if "glove" in row.anchors:
            glove = row.length * glove_table(texts.words, seed)
        if row.layer is None:
            layer = keras.layers.Embedding(*size, **shared)
            if glove is not None:
                layer.build()
                layer.set_weights([glove])
            return layer
        settings = dict(row.layer)
        number, sets = settings.pop("num_anchors"), {}
        num_sets = sets["num_sets"] = settings.pop("num_mixtures", 1)
        sets["mixture"] = settings.pop("activation", None)
        if row.subgradient:
            sets["regularizer"] = keras.regularizers.L1(row.subgradient)
        own, fit = settings.pop("own", 1), settings.pop("fit", None)
        scale = settings.pop("scale", 1)
        ids = self.chosen(row, texts, seed, number // num_sets)
        parts = []
        for index in range(num_sets):
            basis = Dynamic(num_sets * seed + index)
            basis = basis.vectors(number // num_sets, size[1])
            basis *= row.length / np.sqrt(size[1])
            parts.append(Given(basis if glove is None else glove[ids], ids))
        layer = kc.ANTEmbedding(
            *size,
            number,
            parts[0] if num_sets == 1 else Mixed(parts),
            kc.anchors.Transform(**sets),
            kc.anchors.L1(**settings),
            self.relations(row.relations, texts),
            **shared,
        )
        layer.build()
        transform = layer.get_transform()
        if fit:
            transform = sparse_code(glove, glove[ids], fit, False)
        table = transform.dense_rows() * scale
        table[ids[ids >= 0]] *= own
        layer.assign_transform(table)
        return layer

    def relations(self, name, texts):
        if name == "co-occurrence":
            ignored = text_ids.PAD, text_ids.UNKNOWN
            return near_words(texts.train[0], len(texts.words), ignored)
        return name and read_wordnet(texts.words, self.folder)

    def chosen(self, row, texts, seed, number):
        """Ids of the words that are anchors; -1 for none."""
        by, chosen = row.anchors.removesuffix(", glove"), Dynamic(seed)
        if by == "frequency":
            chosen = kc.anchors.Frequency(texts.counts, seed=seed)
        if by == "tf-idf":
            documents = [ids[ids > text_ids.UNKNOWN] for ids in texts.train[0]]
            chosen = kc.anchors.Frequency(documents=documents, seed=seed)
        return chosen.choose(len(texts.words), number)


def compile_model(model, rate, jit_compile):
    model.compile(
        keras.optimizers.Adam(rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=jit_compile,
    )


def glove_table(words, seed):
    """Vectors of GloVe; short random ones for words that it lacks."""
    known, vectors = load_glove()
    rng = np.random.default_rng(seed)
    table = rng.uniform(-0.25, 0.25, (len(words), vectors.shape[1]))
    table = table.astype("float32")
    places = {word: place for place, word in enumerate(known)}
    for row, word in enumerate(words):
        if word in places:
            table[row] = vectors[places[word]]
    return table


def near_words(tokens, number, ignore=()):
    """Relations of words that are often within 10 words of each other."""
    kept = {"top": 10, "min_count": 3, "min_information": 1.0}
    return kc.anchors.Relations.from_tokens(
        tokens, number, ignore=ignore, **kept
    )


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


main = functools.partial(run, Classification)
