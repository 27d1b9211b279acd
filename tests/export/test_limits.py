"""The file that ships: its bytes, runtime and loops."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_compembed as kc
from keras_compembed.export import Target
from tests.support.errors import refused

LABELS = [f"class {number}" for number in range(5)]
WORDS = [f"w{number}" for number in range(600)]


def text_model(*behind, length=6, masked=False, batch_size=None, words=WORDS):
    """A classifier of texts, whose table has rows that no word has."""
    vectorize = layers.TextVectorization(
        2000, vocabulary=words, output_sequence_length=length
    )
    model = keras.Sequential(
        [
            keras.Input((), dtype="string", batch_size=batch_size),
            vectorize,
            layers.Embedding(2000, 32, mask_zero=masked, name="words"),
            *behind,
            layers.Dense(5, activation="softmax"),
        ]
    )
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model


@pytest.fixture(scope="module")
def small():
    """A model compressed to a file with texts and labels."""
    target = Target("mediapipe")
    budget = kc.Budget(
        "30k",
        target=target,
        labels=LABELS,
        methods=[kc.methods.Codes(16, 32, effort=0.1)],
    )
    keras.utils.set_random_seed(3)
    model = text_model(layers.GlobalAveragePooling1D())
    model.get_layer("words").build()
    return kc.compress_model(model, budget, seed=0, verbose=0)


def test_a_file_with_texts_and_labels_keeps_its_limit(small, tmp_path):
    small.save(tmp_path / "small.keras")
    again = keras.saving.load_model(tmp_path / "small.keras")
    options = {"labels": LABELS, "verbose": 0, "overwrite": True}
    path = tmp_path / "small.tflite"
    # Of a fresh head, biases are zero; those that training gives count.
    assert not again.layers[-1].bias.numpy().any()
    again.fit(tf.constant(WORDS[:32]), np.arange(32) % 5, verbose=0)
    options["target"] = Target("mediapipe")
    made = kc.export_litert(again, path, **options)
    assert 25_000 < made.file_bytes <= 30_000
    with refused("max_bytes") as caught:
        kc.export_litert(again, path, quantize=None, **options)
    assert "=30,000 bytes" in str(caught.value)
    options["target"] = Target("mediapipe", max_bytes=None)
    made = kc.export_litert(again, path, quantize=None, **options)
    assert made.file_bytes > 30_000


def test_rows_of_no_token_are_dropped_first(small, capsys):
    model = text_model(layers.GlobalAveragePooling1D())
    half = kc.compress_model(model, kc.methods.Quantized(8))
    assert "1,398 of 2,000 rows" in capsys.readouterr().out
    for each in (small, half):
        assert each.get_layer("words").input_dim == 602
    texts = tf.constant(["w0 w599 nothing", "w3"])
    np.testing.assert_allclose(half(texts), model(texts), atol=1e-3)
    (plain,) = kc.size_report(model).embeddings
    assert plain.stored_bytes == plain.table_bytes == 4 * 602 * 32
    assert plain.unread_rows == 1398 and plain.ratio == 1
    (row,) = kc.size_report(half, model).embeddings
    assert row.table_bytes == 4 * 602 * 32
    assert row.fidelity.mean_cosine > 0.99
    weight = np.ones(2000)
    kept = kc.compress_model(
        model, kc.methods.Quantized(8).for_table(weight), verbose=0
    )
    assert kept.get_layer("words").input_dim == 2000


def test_limits_are_given_alike():
    assert Target(max_bytes="30k").max_bytes == 30_000
    with refused("max_bytes", "none"):
        Target(max_bytes="none")
    kc.Budget("30k", target=Target(max_bytes=30_000))
    with refused("target", 20_000):
        kc.Budget("30k", target=Target(max_bytes=20_000))


# It does not run, and cannot be compared.
@pytest.mark.filterwarnings("ignore")
def test_an_empty_vocabulary_is_named(capsys):
    model = text_model(layers.GlobalAveragePooling1D(), words=None)
    with pytest.raises(ValueError, match="no vocabulary.*`adapt`"):
        kc.compress_model(model, kc.methods.Quantized(8))
    assert "rows" not in capsys.readouterr().out


def test_small_tables_are_what_dropped_rows_leave(tmp_path, capsys):
    model = text_model(layers.GlobalAveragePooling1D(), words=WORDS[:100])
    small = kc.compress_model(model, kc.methods.Codes(8, 256))
    assert "not make it smaller" in capsys.readouterr().out
    assert small.get_layer("words").input_dim == 102
    budget = kc.Budget("30k", methods=[kc.methods.Quantized(8)])
    small = kc.compress_model(model, budget, verbose=0)
    assert small.get_layer("words").input_dim == 102


@keras.saving.register_keras_serializable(package="tests")
class Tied(layers.Layer):
    def __init__(self, table, **options):
        super().__init__(**options)
        self.table = table

    def call(self, inputs):
        return inputs @ keras.ops.transpose(self.table.embeddings)

    def get_config(self):
        table = keras.saving.serialize_keras_object(self.table)
        return {**super().get_config(), "table": table}

    @classmethod
    def from_config(cls, config):
        table = keras.saving.deserialize_keras_object(config.pop("table"))
        return cls(table, **config)


@pytest.mark.parametrize("way", ["other ids", "in a model", "tied"])
def test_rows_that_something_else_reads_stay(way):
    text = keras.Input((), dtype="string")
    ids = text_model().layers[0](text)
    table, pool = layers.Embedding(2000, 16), layers.GlobalAveragePooling1D()
    if way == "other ids":
        outputs = pool(table(ids)) + pool(table(ids + 1000))
    elif way == "in a model":
        inner = keras.Sequential([keras.Input((6,), dtype="int64"), table])
        outputs = pool(inner(ids)) + pool(inner(ids + 1000))
    else:
        outputs = Tied(table)(pool(table(ids)))
    model = keras.Model(text, outputs)
    small = kc.compress_model(model, kc.methods.Quantized(8), verbose=0)
    texts = tf.constant(["w0 w599 nothing", "w3"])
    np.testing.assert_allclose(small(texts), model(texts), atol=1e-2)
    assert all(x.unread_rows == 0 for x in kc.size_report(model).embeddings)


def test_a_function_that_reads_a_table_is_refused():
    text = keras.Input((), dtype="string")
    table = layers.Embedding(2000, 16)
    vectors = table(text_model().layers[0](text))
    read = layers.Lambda(lambda x: x @ keras.ops.transpose(table.embeddings))
    model = keras.Model(text, read(vectors))
    with pytest.raises(ValueError, match="a function or graph"):
        kc.compress_model(model, kc.methods.Quantized(8), verbose=0)


def test_recurrent_layers_are_unrolled_for_mediapipe(tmp_path):
    model = text_model(layers.LSTM(4))
    path = tmp_path / "lstm.tflite"
    options = {"labels": LABELS, "verbose": 0}
    with pytest.raises(ValueError, match="unroll=True"):
        kc.export_litert(model, path, target=Target("mediapipe"), **options)
    target = Target("mediapipe", unroll=True)
    made = kc.export_litert(model, path, target=target, **options)
    assert "WHILE" not in made.ops
    open_ended = text_model(layers.LSTM(4), length=None)
    with pytest.raises(ValueError, match="a known length"):
        kc.export_litert(
            open_ended, path, target=target, overwrite=True, **options
        )
    # Outputs are zero behind a text, which Keras forgets without a loop.
    both = layers.Bidirectional(layers.GRU(4, return_sequences=True))
    model = text_model(both, layers.LSTM(4), masked=True)
    made = kc.export_litert(
        model, path, target=target, overwrite=True, **options
    )
    assert "WHILE" not in made.ops
    stateful = layers.LSTM(4, stateful=True)
    model = text_model(stateful, batch_size=1)
    with pytest.raises(ValueError, match="stateful=False"):
        kc.export_litert(model, path, target=target, overwrite=True, **options)


def test_a_runtime_that_is_too_old_names_the_op(tmp_path):
    model = keras.Sequential([keras.Input((64,)), layers.Dense(64)])
    options = {"verbose": 0, "overwrite": True}
    path, target = tmp_path / "m.tflite", Target(min_runtime="2.16")
    with pytest.raises(ValueError, match="FULLY_CONNECTED.*2.17.*float16"):
        kc.export_litert(model, path, target=target, **options)
    made = kc.export_litert(
        model, path, quantize="float16", target=target, **options
    )
    assert made.min_runtime < "2.16"


def test_the_message_tells_what_an_older_runtime_costs(tmp_path, capsys):
    codes = kc.CodeEmbedding(5000, 16, num_codebooks=16)
    model = keras.Sequential([keras.Input((4,), dtype="int32"), codes])
    path = tmp_path / "m.tflite"
    kc.export_litert(model, path)
    said = capsys.readouterr().out
    assert "TFLite 2.18.0 (LiteRT 1.0.1) or newer" in said
    target = Target(min_runtime="2.17")
    older = kc.export_litert(
        model, path, target=target, overwrite=True, verbose=0
    )
    assert older.min_runtime < "2.18"
    newer = kc.export_litert(model, path, overwrite=True, verbose=0)
    more = older.file_bytes - newer.file_bytes
    assert f"Target(min_runtime='2.17'): {more:+,} bytes" in said


@pytest.mark.parametrize("bits", (2, 4))
def test_older_runtimes_read_rows_of_bits(bits, tmp_path):
    """Their table of what bytes hold is no weight to be made int8."""
    table = np.random.default_rng(0).normal(size=(60, 30))
    rows = kc.QuantizedEmbedding.from_table(table, bits=bits, verbose=0)
    model = keras.Sequential([keras.Input((4,), dtype="int32"), rows])
    target = Target(min_runtime="2.17")
    made = kc.export_litert(
        model, tmp_path / "m.tflite", target=target, verbose=0
    )
    assert made.max_row_error < 1e-6
