"""Commands on models, in this process."""

import importlib
import json
import os
import re
import sys
import zipfile

import keras
import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.compression.frontier import Frontier
from keras_compembed.compression.frontier import FrontierPoint
from keras_compembed_command import main

COMPRESS = "compress model.keras -o out.keras -m 2 -k 4 --effort 0.1 --seed 0"
CODED = f"{COMPRESS} --layers tokens"


def run(command):
    assert main(command.split()) == 0


def fails(capsys, command, status=2):
    """The one line on stderr that a failing command writes."""
    capsys.readouterr()
    assert main(command.split()) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("keras-compembed: error: ")
    return line


def load(path="out.keras"):
    return keras.saving.load_model(path)


def save(path, *layers, **compile_arguments):
    inputs = keras.Input((None,), dtype="int32")
    model = keras.Sequential([inputs, *layers])
    if compile_arguments:
        model.compile(**compile_arguments)
    model.save(path)
    return model


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model(folder):
    """A trained model at `model.keras`."""
    return save(
        "model.keras",
        keras.layers.Embedding(600, 32, name="tokens"),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(2),
        loss="mse",
    )


@pytest.fixture
def small(folder):
    """A model with codes at `small.keras`."""
    return save(
        "small.keras",
        kc.CodeEmbedding(600, 32, 4, 16, name="tokens"),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(2),
    )


def test_compress(model, capsys):
    run(CODED)
    assert re.search(r"tokens +600 x 32 +2 x 4", capsys.readouterr().out)
    result = load()
    assert result.compiled
    learner = kc.learners.AdditiveQuantizer(2, 4, effort=0.1, seed=0, verbose=0)
    learner.train(model.layers[0].embeddings.numpy())
    np.testing.assert_array_equal(result.layers[0].codes, learner.codes)
    for before, after in zip(
        model.layers[-1].weights, result.layers[-1].weights, strict=True
    ):
        np.testing.assert_array_equal(before, after)
    assert sorted(os.listdir()) == ["model.keras", "out.keras"]
    assert "Pass --overwrite" in fails(capsys, COMPRESS)
    run(f"{CODED.replace('0.1', '0.5')} --overwrite")
    assert (load().layers[0].codes != learner.codes).any()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5")
def test_files_of_keras_2(folder):
    tf_keras = pytest.importorskip("tf_keras")
    table = np.random.default_rng(0).choice([0.5, 1, 3], (3000, 8))
    tokens = tf_keras.layers.Embedding(3000, 8, name="tokens", weights=[table])
    inputs = tf_keras.layers.Input((4,), dtype="int32")
    model = tf_keras.Sequential([inputs, tokens, tf_keras.layers.LSTM(2)])
    model.save("old.h5")
    run("compress old.h5 -o out.keras --seed 0")
    layer = load().get_layer("tokens")
    np.testing.assert_array_equal(layer.embeddings, table)
    run("export old.h5 old.tflite")


def test_compress_within_limits(folder, capsys):
    save(
        "model.keras",
        keras.layers.Embedding(150, 8, name="tokens"),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(1),
    )
    command = "compress model.keras -o out.keras --seed 0 --layers tokens"
    # Settings by default come near to the limit.
    run(f"{command} --max-bytes 4200 --quantize int8 --frontier f.json")
    run("export out.keras o.tflite --quantize int8")
    size = os.path.getsize("o.tflite")
    command = "export out.keras o.tflite --optimize-for latency --overwrite"
    run(f"{command} --max-bytes none --quantize none")
    small = load()
    small.get_layer("tokens").max_file_bytes = 1000
    small.save("tight.keras")
    said = fails(capsys, "export tight.keras tight.tflite")
    assert "1,000" in said and "by --max-bytes none" in said
    run("export out.keras o.tflite --overwrite")
    # Training would bring back a bias of zeros, which counts.
    assert 3700 < size <= Frontier.load("f.json").chosen.file_bytes <= 4200


def test_export(small, capsys):
    run("export small.keras small.tflite --min-runtime 2.17")
    assert "folded into" in capsys.readouterr().out
    half = "export small.keras half.tflite --quantize float16"
    run(half)
    assert "float16" in capsys.readouterr().out
    assert "already exists" in fails(capsys, half)
    # A link stays one.
    os.mkdir("store")
    os.symlink("store/new", "link.tflite")
    run("export small.keras link.tflite --optimize-for size --overwrite")
    assert os.readlink("link.tflite") == "store/new"
    again = "inspect link.tflite --json s.json"
    run(again)
    out = capsys.readouterr().out
    assert str(kc.export.inspect_litert("link.tflite")) in out
    with open("s.json") as file:
        found = json.load(file)
    assert found["file_bytes"] == os.path.getsize("store/new")
    assert "already exists" in fails(capsys, again)
    assert "a LiteRT file" in fails(capsys, "inspect small.keras")


def test_export_for_mediapipe(folder, capsys):
    pytest.importorskip("tensorflow_text")
    pytest.importorskip("mediapipe")
    tokenizer = kc.text.WordTokenizer(["good", "bad"])
    keras.Sequential(
        [
            keras.Input((), dtype="string"),
            tokenizer,
            keras.layers.Embedding(tokenizer.vocabulary_size, 4),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(2, "softmax"),
        ]
    ).save("moods.keras")
    # As an editor of Windows writes it.
    with open("moods.txt", "w", encoding="utf-8-sig") as file:
        file.write("sad\ngl\u00fccklich\n")
    command = "export moods.keras moods.tflite"
    assert "with --runtime m" in fails(capsys, f"{command} --task embedder")
    run(f"{command} --runtime mediapipe --labels moods.txt --name Moods")
    assert "  sad, gl\u00fccklich" in capsys.readouterr().out
    file = kc.export.inspect_litert("moods.tflite").file_metadata
    assert file.name == "Moods"


def test_report(folder, model, small, capsys):
    pytest.importorskip("matplotlib")
    lines = [f"word{x}\u2028" for x in range(600)]
    (folder / "words.txt").write_text("\r\n".join(lines), encoding="utf-8")
    # The validation part, if there is no other.
    ids, labels = np.zeros((3, 5), "int32"), [0, 1, 1]
    np.savez("data.npz", x_validation=ids, y_validation=labels)
    Frontier([FrontierPoint({"tokens": "int2"}, 9000, 0.5)]).save("f.json")
    command = "report small.keras model.keras --json r.json --plot r.png"
    command += " --data data.npz --words words.txt --html a.html --frontier"
    run(f"{command} f.json")
    out = capsys.readouterr().out
    assert re.search(r"tokens +600 x 32 +4 x 16", out)
    assert "compared with the original" in out
    with open("r.json") as file:
        (row,) = json.load(file)["embeddings"]
    assert row["parts"]["codes"] == 600 * 2
    assert row["fidelity"]["num_queries"] == 600
    assert os.path.getsize("r.png")
    page = (folder / "a.html").read_text(encoding="utf-8")
    for says in ("word0", "int2", "accuracy"):
        assert says in page
    assert "Pass --overwrite" in fails(capsys, f"{command} f.json")
    twice = "report small.keras --html b.html --words words.txt --words f.json"
    assert "--words must be given once" in fails(capsys, twice)
    command = "compress model.keras -o out.keras --max-bytes 9k --data"
    assert "`epochs`" in fails(capsys, f"{command} data.npz --epochs 0")


BAD_ARGUMENTS = {
    "": {"": "compress | export | report | inspect", "shrink a": "'shrink'"},
    "compress": {
        "model.keras": "-o/--output",
        "gone.keras -o b.keras": "No such file: 'gone.keras'",
        "model.keras -o gone/b.keras": "folder of the output",
        "model.keras -o model.keras --overwrite": "must be different files",
    },
    "compress model.keras -o b.keras": {
        "--quantize int8": "--quantize must be given with",
        "--max-bytes 500kib": "`max_bytes`",
        "--layers x": "['tokens']",
        "--max-loss 3 -m 4": "--num-codebooks must not",
        "-m 4 --epochs 7": "--epochs must be given with --max-bytes",
        "--max-bytes 9 --effort 4": "--effort must not",
        "--max-loss 0.5": "`data`",
        "--max-loss 0.5 --data model.keras": "x_validation and y_validation",
    },
    "export model.keras": {
        "b.bin": "'.tflite'",
        "b.tflite --quantize int3": "'int3'",
        "b.tflite --min-runtime old": "`min_runtime`",
    },
    "report": {
        ".": "the folder '.'",
        "model.keras --json a --plot ./a": "must be different files",
        "model.keras --import no.such": "No module named 'no'",
        "model.keras --html a.html --frontier model.keras": "`Frontier.save`",
    },
    "inspect": {"gone.tflite": "No such file", "model.npz": "No such file"},
}


@pytest.mark.parametrize("command", BAD_ARGUMENTS)
def test_bad_arguments(model, capsys, command):
    for arguments, message in BAD_ARGUMENTS[command].items():
        assert message in fails(capsys, f"{command} {arguments}"), arguments
    assert os.listdir() == ["model.keras"]


def test_foreign_files(folder, model, capsys):
    whole = (folder / "model.keras").read_bytes()
    (folder / "cut.keras").write_bytes(whole[: len(whole) // 2])
    # Keras reads one word as two.
    with zipfile.ZipFile("model.keras", "a") as file:
        file.writestr("assets/vocabulary.txt", "a\x85b\nc")
    for name, message in {
        "cut.keras": "cannot be loaded",
        "model.keras": "'a\\x85b'",
    }.items():
        assert message in fails(capsys, f"compress {name} -o out.keras")
    assert not os.path.exists("out.keras")


OWN_CODE = """
import keras

class OwnLayer(keras.layers.Layer):
    def call(self, inputs):
        return 2 * inputs

def own_loss(y_true, y_pred):
    return y_pred - y_true
"""


def unknown_loss(y_true, y_pred):
    return y_pred - y_true


def test_modules_of_the_model(folder, capsys, monkeypatch):
    # As in another process, which has not imported it.
    (folder / "own_code.py").write_text(OWN_CODE)
    monkeypatch.syspath_prepend(folder)
    own = importlib.import_module("own_code")
    save(
        "model.keras",
        keras.layers.Embedding(600, 32, name="tokens"),
        own.OwnLayer(),
        keras.layers.Dense(2, "relu"),
        loss=own.own_loss,
    )
    del sys.modules["own_code"]
    line = fails(capsys, "report model.keras")
    assert "pass their module with --import" in line and "'OwnLayer'" in line
    run(f"{CODED} --import own_code")
    assert "not compiled" not in capsys.readouterr().out
    # A loss is not needed.
    save(
        "model.keras",
        keras.layers.Embedding(600, 32, name="tokens"),
        loss=unknown_loss,
    )
    run(f"{CODED} --overwrite")
    assert "The written model is not compiled" in capsys.readouterr().out
    assert not load().compiled


def test_interrupts_and_bugs(model, capsys, monkeypatch):
    def raising(error):
        def fail(*args, **kwargs):
            raise error

        return fail

    # What is no fault of arguments or files keeps its traceback.
    monkeypatch.setattr(json, "dump", raising(ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):
        main("report model.keras --json a.json".split())
    monkeypatch.setattr(keras.saving, "load_model", raising(KeyboardInterrupt))
    line = fails(capsys, "report model.keras", status=130)
    assert line == "keras-compembed: error: interrupted"
    assert os.listdir() == ["model.keras"]


def test_data_of_two_inputs(folder, capsys):
    inputs = [keras.Input((2,), name=name) for name in ("left", "right")]
    outputs = keras.layers.Dense(2)(keras.layers.Concatenate()(inputs))
    keras.Model(inputs, outputs).save("two.keras")
    command = "report two.keras --html a.html --overwrite --data"
    arrays = {f"x_validation_{x}": np.eye(2) for x in ("left", "right")}
    np.savez("data.npz", **arrays, y_validation=[0, 1])
    run(f"{command} data.npz")
    assert "accuracy" in (folder / "a.html").read_text(encoding="utf-8")
    np.savez("other.npz", x_test=np.array([None]), y_test=[2])
    np.savez("half.npz", x_test=[1])
    for path, says in (
        ("half.npz", "x_test and y_test"),
        ("other.npz", "allow_pickle"),
        ("none.npz", "No such"),
        ("a.html", "an .npz file"),
    ):
        assert says in fails(capsys, f"{command} {path}")


@pytest.mark.slow
def test_compress_within_a_loss(folder):
    tokens = keras.layers.Embedding(60, 8, name="tokens")
    pooling = keras.layers.GlobalAveragePooling1D()
    model = save(
        "model.keras", tokens, pooling, keras.layers.Dense(1), loss="mse"
    )
    ids = np.random.default_rng(0).integers(60, size=(16, 5))
    labels = model.predict(ids, verbose=0)
    np.savez("half.npz", x_validation=ids, y_validation=labels)
    command = "compress model.keras -o out.keras --seed 0 --layers tokens"
    run(f"{command} --max-loss 1 --data half.npz --frontier g.json")
    frontier = Frontier.load("g.json")
    assert frontier.metric == "loss" and frontier.chosen.score <= 1
