"""Models from texts and labels, and models with another tokenizer."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

import keras_compembed as kc

pytest.importorskip("tensorflow_text")
layers = keras.layers
pytestmark = [
    # Of variables made from arrays, in Keras.
    pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning"),
    # What trains pieces leaves memory behind.
    pytest.mark.apart,
]
TEXTS = ["a red apple", "green pears", "the red cherry", "green"] * 10
LABELS = ["red", "green", "red", "green"] * 10
PLACES = np.array([1, 0, 1, 0] * 10)


def train(texts=TEXTS, labels=LABELS, **options):
    return kc.text.train_classifier(
        texts, labels, **{"vocabulary_size": 30, "verbose": 0, **options}
    )


@pytest.fixture(scope="module")
def classifier():
    return train(seed=0, epochs=6, batch_size=8)


def test_classifier_learns(classifier):
    model, names = classifier
    assert names == ["green", "red"]
    # The same in each model, as files hold it.
    assert model.layers[0].name == "tokenizer"
    found = np.argmax(model(tf.constant(TEXTS)), axis=-1)
    np.testing.assert_array_equal(found, PLACES)
    # Padding counts for nothing.
    alone = model(tf.constant(["green"]))
    beside = model(tf.constant(["green", "a very long text of many words"]))
    np.testing.assert_allclose(alone[0], beside[0], atol=1e-6)


def test_classifier_is_the_same_with_a_seed():
    options = {"tokenizer": kc.text.WordTokenizer(["red"]), "epochs": 1}
    model, _ = train(**options, seed=0)
    arrays = np.array(TEXTS)[:, None], np.array(LABELS)
    again, _ = train(*arrays, **options, seed=0)
    for one, other in zip(
        model.get_weights(), again.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_classifier_of_numbers_and_rare_classes():
    words = kc.text.WordTokenizer.train(TEXTS)
    labels = [10 if "apple" in text else 9 for text in TEXTS]
    model, names = train(
        labels=labels,
        tokenizer=words,
        class_weight="balanced",
        validation_data=(TEXTS[:2], labels[:2]),
        epochs=2,
    )
    assert names == ["9", "10"]
    assert model.layers[0] is words


def of_letters(length=None, mask_zero=True, within=False):
    """What no phone runs: a vectorization of single characters."""
    letters = layers.TextVectorization(
        split="character", output_sequence_length=length
    )
    letters.adapt(TEXTS)
    size = letters.vocabulary_size()
    text = keras.Input((1,), dtype="string")
    ids = letters(text)
    vectors = layers.Embedding(size, 8, mask_zero=mask_zero, name="letters")(
        ids
    )
    if length is not None:
        # As many rows as there are letters, and read for other ids.
        places = layers.Embedding(size, 8, name="places")
        vectors += places(keras.ops.cumsum(keras.ops.ones_like(ids), 1) - 1)
    pooled = layers.GlobalAveragePooling1D()(vectors)
    model = keras.Model(text, layers.Dense(2, "softmax", name="out")(pooled))
    if within:
        outer = keras.Input((), dtype="string")
        model = keras.Model(outer, model(outer))
    return model


def layers_of(model):
    """Also those of models within, by name."""
    found = {}
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            found.update(layers_of(layer))
        found[layer.name] = layer
    return found


@pytest.mark.parametrize("within", [False, True])
def test_replaced_tokenizer(within):
    model = of_letters(length=12, mask_zero=False, within=within)
    words = kc.text.WordTokenizer.train(TEXTS)
    model.trainable = False
    copy = kc.compression.replace_tokenizer(model, words)
    assert copy(tf.constant(TEXTS[:3])).shape == (3, 2)
    found, before = (layers_of(each) for each in (copy, model))
    assert found["letters"].input_dim == words.vocabulary_size
    assert found["letters"].trainable and not found["out"].trainable
    assert found[words.name] is not words
    assert found[words.name].sequence_length == 12
    for name in ("places", "out"):
        for one, other in zip(
            found[name].get_weights(), before[name].get_weights(), strict=True
        ):
            np.testing.assert_array_equal(one, other)
    assert not copy.compiled


def test_retrained_model_is_one_for_phones(tmp_path):
    model = of_letters()
    model.compile(
        keras.optimizers.Adam(0.05),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    path = tmp_path / "new.tflite"
    with pytest.raises(ValueError, match="split='character'"):
        kc.export.export_litert(model, path, runtime="tf-text", verbose=0)
    new = kc.text.retrain(
        model,
        TEXTS,
        PLACES.tolist(),
        vocabulary_size=1000,
        validation_data=(TEXTS[:4], PLACES[:4]),
        seed=0,
        verbose=0,
    )
    found = new.evaluate(tf.constant(TEXTS), PLACES, verbose=0)
    assert found[1] == 1.0
    assert 10 < new.layers[1].vocabulary_size < 1000
    export = kc.export.export_litert(new, path, runtime="tf-text", verbose=0)
    assert export.max_error < 1e-6


def test_interrupt_keeps_the_best_epoch(capsys):
    class Interrupt(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                self.model.layers[-1].kernel.assign(
                    np.full((8, 2), np.nan, "float32")
                )
                raise KeyboardInterrupt

    model = of_letters()
    model.compile("sgd", "sparse_categorical_crossentropy")
    new = kc.text.retrain(
        model,
        TEXTS,
        PLACES,
        tokenizer=kc.text.WordTokenizer.train(TEXTS),
        validation_data=(TEXTS, PLACES),
        callbacks=[Interrupt()],
        verbose=0,
    )
    assert "Stopped by Ctrl-C" in capsys.readouterr().out
    assert np.isfinite(new.predict(tf.constant(TEXTS), verbose=0)).all()


@pytest.mark.parametrize(
    ("texts", "labels", "argument", "received"),
    [
        ("one text", LABELS, "texts", "str"),
        ([], [], "texts", "none"),
        (["a", None], [0, 1], "texts", "None at place 1, an empty cell"),
        (["a", np.nan], [0, 1], "texts", "nan at place 1, an empty cell"),
        (["a", 3], [0, 1], "texts", "3 at place 1"),
        (TEXTS, LABELS[:-1], "labels", "39 labels and 40"),
        (TEXTS, ["red"] * 40, "labels", "only 'red'"),
        (TEXTS, [np.nan] * 40, "labels", "empty"),
        (TEXTS, [0.5] * 40, "labels", 0.5),
        (TEXTS, ["a\nb", "c"] * 20, "labels", "at place 0"),
        (TEXTS, ["", "c"] * 20, "labels", "at place 0"),
        (TEXTS, {"red", "green"}, "labels", "set"),
    ],
)
def test_texts_and_labels_that_do_not_fit(texts, labels, argument, received):
    with refused(argument, received):
        train(texts, labels)


def test_what_cannot_be_replaced():
    words = kc.text.WordTokenizer.train(TEXTS)
    counts = layers.TextVectorization(output_mode="multi_hot")
    counts.adapt(TEXTS)
    text = keras.Input((), dtype="string")
    bag = keras.Model(text, layers.Dense(2)(counts(text)))
    of_words = layers.TextVectorization(output_sequence_length=3)
    of_words.adapt(TEXTS)
    sums = keras.Model(text, keras.ops.cast(of_words(text), "float32"))
    dense = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
    small = kc.compression.compress_model(
        of_letters(), 2, 4, min_bytes=0, verbose=0
    )
    padded = kc.text.SentencePieceTokenizer.train(
        TEXTS, vocabulary_size=18, pad_id=3
    )
    for model, tokenizer, says in (
        (bag, words, "output_mode='int'"),
        (sums, words, "an Embedding"),
        (small, words, "'letters'"),
        (dense, words, "takes texts"),
        (of_letters(), counts, "`tokenizer`"),
        (of_letters(), padded, "padding 0"),
    ):
        with pytest.raises(ValueError, match=says):
            kc.compression.replace_tokenizer(model, tokenizer)
    with refused("model", "not compiled"):
        kc.text.retrain(of_letters(), TEXTS, PLACES)
    with refused("labels", "40 texts"):
        kc.text.retrain(of_letters(), TEXTS, PLACES[:3])
    for strings in (LABELS, np.array(LABELS)):
        with refused("labels", "red"):
            kc.text.retrain(of_letters(), TEXTS, strings)
    with refused("validation_data", "'blue'"):
        train(validation_data=(["a"], ["blue"]))
    with refused("tokenizer", "pad_id=3"):
        train(tokenizer=padded)
