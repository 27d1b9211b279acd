"""Models that take texts are compressed, searched and exported."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from compressing import check_same
from compressing import compress
from compressing import run
from export_models import write

import keras_compembed as kc

layers = keras.layers
# Of variables made from arrays, in Keras.
pytestmark = pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")
WORDS = [f"word{i}" for i in range(600)]
TEXTS = np.array([" ".join(WORDS[i::40]) for i in range(40)], object)


def vectorization():
    layer = layers.TextVectorization(max_tokens=700, output_sequence_length=12)
    layer.adapt(TEXTS)
    return layer


def embedding():
    return layers.Embedding(700, 16, name="words")


def behind():
    """Of a vectorization."""
    dense = layers.Dense(3, "softmax", name="classes")
    return [embedding(), layers.GlobalAveragePooling1D(), dense]


def with_a_model_in_it():
    ids = keras.Input((None,), dtype="int64")
    text = keras.Input((1,), dtype="string")
    inner = keras.Sequential([ids, *behind()])
    return keras.Sequential([text, vectorization(), inner])


def within_a_model():
    text = keras.Input((), dtype="string")
    features = layers.Conv1D(8, 3)(embedding()(vectorization()(text)))
    inner = keras.Model(text, layers.GlobalMaxPooling1D()(features))
    outer = keras.Input((), dtype="string")
    features = inner(outer)
    heads = [
        layers.Dense(n, "softmax", name=f"of_{n}")(features) for n in (3, 4)
    ]
    return keras.Model(outer, heads)


@keras.saving.register_keras_serializable(package="tests")
class OfItsOwnClass(keras.Model):
    def __init__(self, vocabulary, **options):
        super().__init__(**options)
        self.vocabulary = vocabulary
        self.text = layers.TextVectorization(
            vocabulary=vocabulary, output_sequence_length=12
        )
        self.words = embedding()

    def call(self, inputs):
        return keras.ops.mean(self.words(self.text(inputs)), axis=1)

    def get_config(self):
        return {**super().get_config(), "vocabulary": self.vocabulary}


# A warning would say that the copy was not compared.
@pytest.mark.parametrize(
    "make",
    [
        with_a_model_in_it,
        within_a_model,
        lambda: OfItsOwnClass(WORDS),
    ],
)
def test_copy_is_compared_and_saved(make, tmp_path):
    model, texts = make(), tf.constant(TEXTS[:3])
    model(texts)
    small = compress(model)
    small.save(tmp_path / "small.keras")
    loaded = keras.saving.load_model(tmp_path / "small.keras")
    check_same(run(loaded, texts), run(small, texts))


def test_file_of_a_model_that_wraps_one(tmp_path):
    export = write(compress(within_a_model()), tmp_path / "small.tflite")
    assert export.max_error < 1e-6 and export.held_layers == ("words",)


@pytest.fixture(scope="module")
def trained():
    model = with_a_model_in_it()
    loss = "sparse_categorical_crossentropy"
    model.compile("sgd", loss, metrics=["accuracy"], run_eagerly=True)
    # Of zeros, they would count, and not be in a file.
    model.layers[-1].layers[-1].bias.assign([0.1] * 3)
    return model


def export_within(budget, model, labels, folder):
    """The `LiteRTExport` of what a budget gives, with labels."""
    small = compress(model, budget, smallest=0)
    path = folder / "small.tflite"
    return write(small, path, runtime="mediapipe", labels=labels)


def test_tokenizer_counts_in_a_limit(trained, tmp_path):
    pytest.importorskip("tensorflow_text")
    pytest.importorskip("mediapipe")
    labels = [f"a long name of class {number}" for number in range(3)]
    methods = [kc.methods.Quantized(2), kc.methods.Quantized(8)]
    target = kc.export.Target("mediapipe", min_runtime=None)
    budget = kc.Budget(
        28_000, target=target, methods=methods, labels=labels, quantize=None
    )
    export = export_within(budget, trained, labels, tmp_path)
    assert export.text_bytes > 10_000
    assert export.file_bytes <= 28_000
    assert export.file_bytes == budget.frontier.chosen.file_bytes


def test_a_layer_of_classes_counts_before_labels_are_known(tmp_path):
    pytest.importorskip("tensorflow_text")
    pytest.importorskip("mediapipe")
    pooling, head = layers.GlobalAveragePooling1D(), kc.CANESoftmax(300)
    text = keras.Input((1,), dtype="string")
    model = keras.Sequential(
        [text, vectorization(), embedding(), pooling, head]
    )
    target = kc.export.Target("mediapipe", min_runtime=None)
    methods = [kc.methods.Quantized(2)]
    budget = kc.Budget(60_000, target=target, methods=methods, quantize=None)
    labels = [str(number) for number in range(300)]
    export = export_within(budget, model, labels, tmp_path)
    # Labels and metadata; vectors of the classes have 19,200 bytes.
    more = export.file_bytes - budget.frontier.chosen.file_bytes
    assert 0 <= more < 4_000


def test_words_that_keras_reads_back_as_lines():
    texts = ["one\x85two three", "\x85 four", "five\u2028 six"]
    text = layers.TextVectorization(output_sequence_length=4)
    text.adapt(texts)
    table = layers.Embedding(len(text.get_vocabulary()), 64)
    model = keras.Sequential([keras.Input((), dtype="string"), text, table])
    with pytest.raises(ValueError, match=f"{text.name}.*vocabulary"):
        compress(model, kc.methods.Codes(1, 2), smallest=0)
