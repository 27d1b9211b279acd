"""Models that take texts are compressed, searched, reported and exported."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.cli.data_file import read_part
from keras_compembed.compression.copy_check import made_up_inputs
from keras_compembed.compression.id_counts import weights_by_counts
from keras_compembed.reports.scores import scores

layers = keras.layers
# Of variables made from arrays, in Keras.
pytestmark = pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")
WORDS = [f"word{i}" for i in range(600)]
TEXTS = np.array([" ".join(WORDS[i::40]) for i in range(40)], object)
LABELS = np.arange(40) % 3


def vectorization(**options):
    layer = layers.TextVectorization(
        **{"max_tokens": 700, "output_sequence_length": 12, **options}
    )
    layer.adapt(TEXTS)
    return layer


def behind():
    """Of a vectorization."""
    return [
        layers.Embedding(700, 16, name="words"),
        layers.GlobalAveragePooling1D(),
        layers.Dense(3, "softmax", name="classes"),
    ]


def in_sequential():
    """As in Keras's tutorials, without an Input."""
    model = keras.Sequential([vectorization(), *behind()])
    model(tf.constant(TEXTS[:2]))
    return model


def with_a_model_in_it():
    ids = keras.Input((None,), dtype="int64")
    inner = keras.Sequential([ids, *behind()])
    text = keras.Input((1,), dtype="string")
    return keras.Sequential([text, vectorization(), inner])


def within_a_model():
    text = keras.Input((), dtype="string")
    vectors = layers.Embedding(700, 16, name="words")(vectorization()(text))
    features = layers.Conv1D(8, 3)(vectors)
    inner = keras.Model(text, layers.GlobalMaxPooling1D()(features))
    outer = keras.Input((), dtype="string")
    features = inner(outer)
    heads = [
        layers.Dense(n, "softmax", name=f"of_{n}")(features) for n in (3, 4)
    ]
    return keras.Model(outer, heads)


class OfItsOwnClass(keras.Model):
    def __init__(self, vocabulary, **options):
        super().__init__(**options)
        self.vocabulary = vocabulary
        self.text = layers.TextVectorization(
            vocabulary=vocabulary, output_sequence_length=12
        )
        self.words = layers.Embedding(700, 16, name="words")

    def call(self, inputs):
        return keras.ops.mean(self.words(self.text(inputs)), axis=1)

    def get_config(self):
        return {**super().get_config(), "vocabulary": self.vocabulary}


def of_its_own_class():
    model = OfItsOwnClass(WORDS)
    model(tf.constant(TEXTS[:2]))
    return model


def compress(model, **options):
    return kc.compression.compress_model(
        model, **{"min_bytes": 0, "seed": 0, "verbose": 0, **options}
    )


def arrays(outputs):
    return [keras.ops.convert_to_numpy(x) for x in keras.tree.flatten(outputs)]


@pytest.mark.parametrize(
    "make",
    [in_sequential, with_a_model_in_it, within_a_model, of_its_own_class],
)
def test_copy_is_compared_and_saved(make, tmp_path):
    model = make()
    small = compress(model, num_codebooks=4)
    texts = tf.constant(TEXTS[:3])
    if make is not of_its_own_class:
        small.save(tmp_path / "small.keras")
        loaded = keras.saving.load_model(tmp_path / "small.keras")
        for got, wanted in zip(
            arrays(loaded(texts)), arrays(small(texts)), strict=True
        ):
            np.testing.assert_allclose(got, wanted, atol=1e-6)
    is_plain = len(made_up_inputs(model)[0].shape) == 1
    assert all(x.dtype == object for x in made_up_inputs(model)) or is_plain


def test_file_of_a_model_that_wraps_one(tmp_path):
    export = kc.export.export_litert(
        compress(within_a_model(), num_codebooks=4),
        tmp_path / "small.tflite",
        verbose=0,
    )
    assert export.max_error < 1e-6 and export.held_layers == ("words",)


def test_words_that_keras_reads_back_as_lines(tmp_path):
    texts = ["one\x85two three", "\x85 four", "five\u2028 six"]
    text = layers.TextVectorization(output_sequence_length=4)
    text.adapt(texts)
    words = text.get_vocabulary()
    model = keras.Sequential(
        [
            keras.Input((), dtype="string"),
            text,
            layers.Embedding(len(words), 64),
            layers.GlobalAveragePooling1D(),
        ]
    )
    small = compress(model, num_codebooks=1, codebook_size=2)
    small.save(tmp_path / "small.keras")
    loaded = keras.saving.load_model(tmp_path / "small.keras")
    assert small.layers[0].get_vocabulary() == words
    assert loaded.layers[0].get_vocabulary() == words


@pytest.fixture(scope="module")
def trained():
    model = with_a_model_in_it()
    model.compile(
        "adam", "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model


def test_search_trains_on_texts(trained):
    data = (TEXTS.tolist(), LABELS)
    search = kc.compression.BudgetSearch(
        methods=[kc.methods.Rounded(2)],
        train_data=data,
        validation_data=data,
        epochs=1,
        num_tuned=1,
    )
    compress(trained, max_bytes=20_000, search=search)
    assert search.frontier.chosen.score is not None


def test_tokenizer_counts_in_a_limit(trained, tmp_path):
    pytest.importorskip("tensorflow_text")
    pytest.importorskip("mediapipe")
    labels = [f"a long name of class {number}" for number in range(3)]
    search = kc.compression.BudgetSearch(
        methods=[kc.methods.Rounded(2), kc.methods.Rounded(8)],
        runtime="mediapipe",
        labels=labels,
    )
    small = compress(trained, max_bytes=28_000, search=search)
    export = kc.export.export_litert(
        small,
        tmp_path / "small.tflite",
        runtime="mediapipe",
        labels=labels,
        verbose=0,
    )
    assert export.text_bytes > 10_000
    assert export.file_bytes <= 28_000
    assert export.file_bytes == search.frontier.chosen.file_bytes


@pytest.mark.parametrize("texts", [TEXTS, TEXTS.astype(str)])
def test_figures_on_texts_of_a_data_file(trained, texts, tmp_path):
    path = str(tmp_path / "data.npz")
    np.savez(path, x_test=texts.astype(str), y_test=LABELS)
    for data in ((texts, LABELS), read_part(path, "test")):
        assert scores(trained, None, data)["accuracy"][0] >= 0


def test_counts_in_a_model_within(trained):
    layer = trained.layers[-1].get_layer("words")
    data = kc.compression.BudgetSearch(validation_data=(TEXTS, LABELS))
    counts = weights_by_counts(trained, layer, data.validation_data)
    (ids,) = arrays(trained.layers[0](tf.constant(TEXTS)))
    wanted = np.bincount(ids.ravel(), minlength=700)
    np.testing.assert_allclose(counts, np.sqrt(1 + wanted))
