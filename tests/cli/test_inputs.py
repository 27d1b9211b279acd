"""Inputs of models, as options of commands."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed_command import main

IDS = np.array([[1, 2, 3, 4], [5, 6, 7, 0]], "int32")


@keras.saving.register_keras_serializable(package="tests")
class Pooled(keras.Model):
    """A model that does not know its inputs."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table = keras.layers.Embedding(700, 32, name="tokens")

    def call(self, inputs):
        return keras.ops.mean(self.table(inputs), axis=1)


@keras.saving.register_keras_serializable(package="tests")
class Determinant(keras.layers.Layer):
    """LiteRT has no op for it."""

    def call(self, inputs):
        matrices = inputs[..., None] * inputs[..., None, :]
        return tf.linalg.det(matrices)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def closed(folder):
    model = Pooled()
    model(IDS)
    model.save("model.keras")
    return model


@pytest.fixture
def named(folder):
    """A model of two inputs by name."""
    ids = keras.Input((4,), dtype="int32", name="ids")
    more = keras.Input((2,), name="more")
    vectors = keras.layers.Embedding(700, 32, name="tokens")(ids)
    pooled = keras.layers.GlobalAveragePooling1D()(vectors)
    joined = keras.layers.Concatenate()([pooled, more])
    model = keras.Model(
        {"ids": ids, "more": more}, keras.layers.Dense(2)(joined)
    )
    model.save("model.keras")
    return model


def run(command):
    assert main(command.split()) == 0


def fails(capsys, command):
    capsys.readouterr()
    assert main(command.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_model_that_does_not_know_its_inputs(closed, capsys):
    limit = "--max-bytes 40k --layers tokens --seed 0"
    run(f"compress model.keras -o out.keras --input ids:?x4:int32 {limit}")
    small = keras.saving.load_model("out.keras")
    export = "export out.keras out.tflite --input ids:2x4:int32"
    run(export)
    found = kc.export.LiteRTModel("out.tflite")(IDS)
    np.testing.assert_allclose(found, small(IDS), atol=1e-2)
    for wrong in ("ids", "ids:2x4", "ids:2xa:int32", "ids:2x4:int3"):
        line = fails(capsys, f"export out.keras b.tflite --input {wrong}")
        assert "NAME:SHAPE:DTYPE" in line and repr(wrong) in line


def test_inputs_by_name(named, capsys):
    run("export model.keras whole.tflite")
    inputs = {"ids": IDS, "more": np.ones((2, 2), "float32")}
    np.savez("samples.npz", **inputs)
    run(
        "compress model.keras -o out.keras --layers tokens -m 4 --effort 0.1 "
        "--sample-inputs samples.npz"
    )
    run("export out.keras out.tflite --sample-inputs samples.npz")
    small = keras.saving.load_model("out.keras")
    found = kc.export.LiteRTModel("out.tflite")(inputs)
    np.testing.assert_allclose(found, small(inputs), atol=1e-2)
    line = fails(capsys, "export out.keras b.tflite --sample-inputs out.keras2")
    assert "No such file" in line
    (open("text.npz", "w")).close()
    line = fails(capsys, "export out.keras b.tflite --sample-inputs text.npz")
    assert "must be a .txt file, or an .npz file" in line


def test_texts_without_labels(folder, capsys):
    words = [f"word{number}" for number in range(698)]
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((), dtype="string"),
            keras.layers.TextVectorization(vocabulary=words),
            keras.layers.Embedding(
                700,
                32,
                keras.initializers.RandomNormal(stddev=1.0),
                name="tokens",
            ),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(2),
        ]
    )
    model.save("model.keras")
    texts = [f"word{x} word{x % 5}" for x in range(0, 698, 3)] * 4
    (folder / "texts.txt").write_text("\n".join(texts))
    command = "compress model.keras --layers tokens --seed 0"
    command += " --sample-inputs texts.txt"
    apart = {}
    for name, more in {
        "plain": "-m 4 -k 16",
        "codes": "-m 4 -k 16 --distill",
        "limit": "--max-bytes 20k --max-time 1 --distill",
    }.items():
        run(f"{command} -o {name}.keras {more}")
        small = keras.saving.load_model(f"{name}.keras")
        texts = tf.constant(texts)
        apart[name] = np.square(small(texts) - model(texts)).mean()
    assert apart["codes"] < 0.9 * apart["plain"]
    assert apart["limit"] < apart["plain"]
    fails(capsys, "compress model.keras -o out.keras --distill")


def test_a_model_without_a_file_is_told_before_codes_are_learned(
    folder, capsys
):
    model = keras.Sequential(
        [
            keras.Input((4,), dtype="int32"),
            keras.layers.Embedding(700, 32, name="tokens"),
            Determinant(),
        ]
    )
    model.save("model.keras")
    said = fails(capsys, "export model.keras m.tflite")
    assert "(Determinant)" in said
    run("compress model.keras -o out.keras --layers tokens -m 4 --effort 0.1")
    assert "cannot be exported to LiteRT" in capsys.readouterr().err
