"""Files from text answer as Keras does, in each runtime."""

import keras
import pytest
import tensorflow as tf

import keras_compembed as kc

pytest.importorskip("tensorflow_text")
pytest.importorskip("mediapipe")


@pytest.mark.parametrize("runtime", ["litert", "tf-text", "mediapipe"])
def test_text_file(runtime, tmp_path):
    tokenizer = kc.text.WordTokenizer(["the", "cat", "sat"])
    model = keras.Sequential(
        [
            keras.Input((), dtype="string"),
            tokenizer,
            keras.layers.Embedding(tokenizer.vocabulary_size, 8),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(3, "softmax"),
        ]
    )
    assert model(tf.constant(["the cat", ""])).shape == (2, 3)
    export = kc.export.export_litert(
        model, tmp_path / "m.tflite", runtime=runtime, verbose=0
    )
    assert export.max_error < 1e-6
