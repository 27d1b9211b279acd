"""Commands that read models, in this process."""

import contextlib
import importlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import zipfile

import keras
import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed import cli
from keras_compembed.compression import Frontier
from keras_compembed.compression import FrontierPoint

COMPRESS = "compress model.keras -o out.keras -m 2 -k 4 --effort 0.1 --seed 0"
CODED = f"{COMPRESS} --min-bytes 1000"


def run(command):
    assert cli.main(command.split()) == 0


def fails(capsys, command, status=2):
    """The one line on stderr that a failing command writes."""
    capsys.readouterr()
    assert cli.main(command.split()) == status
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
        kc.CodeEmbedding(600, 32, 4, 16, seed=0, name="tokens"),
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
    run(f"{CODED} --max-time 1e-6 --overwrite")
    assert (load().layers[0].codes != learner.codes).any()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5")
def test_files_of_keras_2(folder, capsys):
    tf_keras = pytest.importorskip("tf_keras")
    table = np.random.default_rng(0).choice([0.5, 1, 3], (3000, 8))
    model = tf_keras.Sequential(
        [
            tf_keras.layers.Input((4,), dtype="int32"),
            tf_keras.layers.Embedding(3000, 8, name="tokens"),
            tf_keras.layers.LSTM(2),
        ]
    )
    model.layers[0].set_weights([table])
    model.save("old.h5")
    run("compress old.h5 -o out.keras --seed 0")
    layer = load().get_layer("tokens")
    np.testing.assert_array_equal(layer.embeddings, table)
    run("compress old.h5 -o codes.keras -m 2 -k 4 --effort 0.1")
    assert load("codes.keras").get_layer("tokens").num_codebooks == 2
    run("compress old.h5 -o limit.keras --max-bytes 40k --max-time 1")
    layer = load("limit.keras").get_layer("tokens")
    np.testing.assert_array_equal(layer.embeddings, table)
    run("report old.h5")
    assert "tokens" in capsys.readouterr().out
    run("export old.h5 old.tflite")
    os.rename("old.h5", "old.keras")
    assert "has no" not in fails(capsys, "export old.keras x.tflite")
    model.add(tf_keras.layers.Lambda(lambda x: x))
    model.save("code.h5")
    assert "Lambda" in fails(capsys, "export code.h5 x.tflite")
    open("empty.h5", "w").close()
    line = fails(capsys, "export empty.h5 x.tflite")
    assert "nor a `.h5`" in line and "weights alone" in line


@pytest.mark.parametrize("composition", ["concat", "lstm"])
def test_compositions(model, composition):
    command = CODED.replace("--effort 0.1", "--effort 0.002")
    run(f"{command} --composition {composition}")
    layer = load().layers[0]
    kind = type(layer.composition.unscaled()).__name__.lower()
    assert kind == f"{composition}composition"


def test_compress_for_latency(folder, capsys):
    embedding = keras.layers.Embedding(20_000, 16, name="tokens")
    save("model.keras", embedding, keras.layers.LSTM(2))
    run(
        "compress model.keras -o out.keras -m 4 -k 4 --effort 0.01 "
        "--optimize-for latency"
    )
    said = capsys.readouterr().out
    assert "codes in place of 4 x 4, for latency" in said
    layer = load().layers[0]
    assert layer.num_codebooks < 4 and layer.codebook_size > 4


def unknown_loss(y_true, y_pred):
    return y_pred - y_true


def test_compress_of_models_that_cannot_be_trained_or_run(folder, capsys):
    save("model.keras", keras.layers.Embedding(600, 32), loss=unknown_loss)
    run(CODED)
    assert "The result is not compiled" in capsys.readouterr().out
    assert isinstance(load().layers[0], kc.CodeEmbedding)
    assert not load().compiled
    # Of a model that knows no id that could be made up, it warns.
    ids = keras.layers.IntegerLookup(vocabulary=[2000], num_oov_indices=0)
    save("model.keras", ids, keras.layers.Embedding(600, 32))
    run(f"{CODED} --overwrite")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("keras-compembed: warning: ")


def test_compress_layers_by_path(folder, capsys):
    towers = [
        keras.Sequential(
            [
                keras.Input((None,), dtype="int32"),
                keras.layers.Embedding(600, 32, name="words"),
            ],
            name=name,
        )
        for name in ("left", "right")
    ]
    inputs = keras.Input((None,), dtype="int32")
    outputs = towers[0](inputs) + towers[1](inputs)
    keras.Model(inputs, outputs).save("model.keras")
    line = fails(capsys, f"{COMPRESS} --layers words")
    assert "['left/words', 'right/words']" in line
    run(f"{COMPRESS} --layers right/words")
    layer = load().get_layer("right").get_layer("words")
    assert isinstance(layer, kc.CodeEmbedding)
    said = capsys.readouterr().out.split("\n")
    assert any(line.startswith("left/words ") for line in said)


LIMIT = "compress model.keras -o out.keras --seed 0"


def test_compress_within_limits(folder):
    model = save(
        "model.keras",
        keras.layers.Embedding(150, 8, name="tokens"),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(1),
        loss="mse",
    )
    command = f"{LIMIT} --min-bytes 0 --max-bytes 5k --quantize int8"
    run(f"{command} --frontier f.json")
    run("export out.keras o.tflite --quantize int8")
    size = os.path.getsize("o.tflite")
    assert 4500 < size == Frontier.load("f.json").chosen.file_bytes <= 5000
    # No copy has a lower loss than 0, but a higher one is better by --mode.
    ids = np.random.default_rng(0).integers(150, size=(64, 5))
    labels = model.predict(ids, verbose=0)
    np.savez("half.npz", x_validation=ids, y_validation=labels)
    command = f"{LIMIT} --min-bytes 0 --max-loss 0 --num-tuned 1 --mode max"
    run(f"{command} --data half.npz --frontier g.json --overwrite")
    frontier = Frontier.load("g.json")
    assert frontier.metric == "loss"
    assert frontier.chosen.score > frontier.original_score


def test_export(small, capsys):
    run("export small.keras small.tflite --no-fold")
    with open("small.tflite", "rb") as file:
        assert file.read()[4:8] == b"TFL3"
    half = "export small.keras half.tflite --no-fold --quantize float16"
    run(f"{half} --min-runtime 2.17")
    assert os.path.getsize("half.tflite") < os.path.getsize("small.tflite")
    assert "exists already" in fails(capsys, half)
    run(f"{half} --overwrite")
    # Codebooks and the layer behind them become one.
    capsys.readouterr()
    run("export small.keras folded.tflite")
    assert "folded into" in capsys.readouterr().out
    assert os.path.getsize("folded.tflite") < os.path.getsize("small.tflite")


def test_export_passes_on_what_to_favour(folder):
    codes = kc.CodeEmbedding(600, 32, 32, 16, seed=0, name="tokens")
    save("small.keras", codes)
    sizes = {}
    for name, more in (
        ("plain", ""),
        ("fast", "--optimize-for latency"),
        ("int8", "--quantize int8_codebooks"),
    ):
        run(f"export small.keras {name}.tflite {more}")
        sizes[name] = os.path.getsize(f"{name}.tflite")
    # Codebooks of 65 kB, of which the fastest graph has sums of pairs.
    assert sizes["fast"] > 2 * sizes["plain"] > 3 * sizes["int8"]


def test_export_of_the_best_classes(folder, capsys):
    model = keras.Sequential([keras.Input((4,)), kc.CANESoftmax(50)])
    model.save("classes.keras")
    command = "export classes.keras classes.tflite --top-k"
    run(f"{command} 3")
    answer = kc.export.LiteRTModel("classes.tflite")(
        np.zeros((2, 4), "float32")
    )
    assert answer["ids"].shape == answer["probabilities"].shape == (2, 3)
    assert "`top_k`" in fails(capsys, f"{command} 51 --overwrite")
    run(f"{command} 0 --overwrite")
    inputs = np.ones((2, 4), "float32")
    answer = kc.export.LiteRTModel("classes.tflite")(inputs)
    np.testing.assert_array_equal(answer, inputs)
    run("export classes.keras classes.tflite --overwrite")
    assert "probabilities of all 50 classes" in capsys.readouterr().out
    answer = kc.export.LiteRTModel("classes.tflite")(inputs)
    assert answer.shape == (2, 50)


@keras.saving.register_keras_serializable(package="tests")
class Subclassed(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(2)

    def call(self, inputs):
        return self.dense(inputs)


def test_models_that_export_refuses(folder, capsys):
    model = Subclassed()
    model(np.zeros((1, 3), "float32"))
    model.save("own.keras")
    line = fails(capsys, "export own.keras own.tflite")
    assert "use the Python API, export.export_litert" in line
    # Words that Keras reads as two.
    words = keras.layers.TextVectorization()
    words.adapt(["a\x85b c"])
    keras.Sequential(
        [keras.Input((), dtype="string"), words, keras.layers.Embedding(9, 2)]
    ).save("two.keras")
    assert "'a\\x85b'" in fails(capsys, "export two.keras two.tflite")


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
    (folder / "bad.txt").write_bytes(b"\xff\n")
    command = "export moods.keras moods.tflite"
    named = "--runtime mediapipe --labels moods.txt --name Moods"
    for more, says in (
        ("--runtime mediapipe", "neither"),
        (f"{named} --task embedder", "both"),
        ("--runtime mediapipe --labels none.txt", "No such file"),
        ("--task embedder", "--task needs --runtime mediapipe"),
        ("--runtime mediapipe --labels bad.txt", "UTF-8"),
    ):
        assert says in fails(capsys, f"{command} {more}")
    run(f"{command} {named} --model-version 2")
    assert "  sad, gl\u00fccklich" in capsys.readouterr().out
    file = kc.export.inspect_litert("moods.tflite").file_metadata
    assert (file.name, file.version) == ("Moods", "2")


def test_inspect(small, capsys):
    run("export small.keras small.tflite")
    capsys.readouterr()
    run("inspect small.tflite --json s.json")
    out = capsys.readouterr().out
    assert str(kc.export.inspect_litert("small.tflite")) in out
    with open("s.json") as file:
        found = json.load(file)
    assert found["file_bytes"] == os.path.getsize("small.tflite")
    again = "inspect small.tflite --json s.json"
    assert "exists already" in fails(capsys, again)
    run(f"{again} --overwrite")
    assert "a LiteRT file" in fails(capsys, "inspect small.keras")


def test_report(model, small, capsys):
    pytest.importorskip("matplotlib")
    run("report small.keras model.keras --json r.json --plot r.png")
    out = capsys.readouterr().out
    assert re.search(r"tokens +600 x 32 +4 x 16", out)
    assert "against the reference" in out
    with open("r.json") as file:
        (row,) = json.load(file)["embeddings"]
    assert row["code_bytes"] == 600 * 2
    assert row["fidelity"]["num_queries"] == 600
    with open("r.png", "rb") as file:
        assert file.read(4) == b"\x89PNG"
    for option in ("--json r.json", "--plot r.png"):
        path = option.split()[1]
        with open(path, "w") as file:
            file.write("old")
        command = f"report small.keras {option}"
        assert "Pass --overwrite" in fails(capsys, command)
        with open(path) as file:
            assert file.read() == "old"
        run(f"{command} --overwrite")
        assert os.path.getsize(path) > 100
    inputs = keras.Input((4,))
    keras.Model(inputs, keras.layers.Dense(2)(inputs)).save("none.keras")
    line = fails(capsys, "report none.keras --plot none.png")
    assert "an embedding layer to draw" in line


def test_what_takes_long_is_said_on_a_terminal(model, capsys, monkeypatch):
    run("report model.keras")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    run("report model.keras")
    assert ": loading model.keras ...\n" in capsys.readouterr().err


def test_report_as_a_page(folder, model, small, capsys):
    lines = [f"word{x}\u2028" for x in range(600)]
    (folder / "words.txt").write_text("\r\n".join(lines), encoding="utf-8")
    np.savez("data.npz", x_test=np.zeros((3, 5), "int32"), y_test=[0, 1, 1])
    Frontier([FrontierPoint({"tokens": "int2"}, 9000, 0.5)]).save("f.json")
    command = (
        "report small.keras model.keras --html a.html --data data.npz "
        "--frontier f.json --words "
    )
    run(f"{command} words.txt")
    assert re.search(r"tokens +600 x 32 +4 x 16", capsys.readouterr().out)
    page = (folder / "a.html").read_text(encoding="utf-8")
    assert "word0\\u2028" in page and "int2" in page and "accuracy" in page
    (folder / "pairs.txt").write_text("a b 1\nc d 2\n")
    (folder / "asked.txt").write_text(": section\na b c d\n")
    tests = "--word-test pairs.txt --word-test asked.txt"
    run(
        "report small.keras model.keras --frontier f.json --html b.html "
        f"--words tokens=words.txt {tests}"
    )
    out = capsys.readouterr().out
    unknown = "undefined, undefined of the reference"
    assert f"pairs: {unknown} (0 of 2 known)" in out
    assert f"asked: {unknown} (0 of 1 known)" in out
    (folder / "few.txt").write_text("one\ntwo\n")
    (folder / "bad.txt").write_bytes(b"\xff\xfe")
    for wrong, message in {
        "few.txt": "word for each row",
        "bad.txt": "must be in UTF-8",
        "gone=words.txt": "['tokens']. Received: 'gone'",
        "words.txt --words few.txt": "a layer of its own each",
        "words.txt --word-test words.txt": "line 2 of 'words.txt'",
        "words.txt --overwrite": "Pass --overwrite",
    }.items():
        more = "" if "overwrite" in wrong else "--overwrite"
        wrong = wrong.replace("--overwrite", "")
        assert message in fails(capsys, f"{command} {wrong} {more}")
    assert (folder / "a.html").read_text(encoding="utf-8") == page


def test_data_of_several_inputs(folder, capsys):
    ids = [keras.Input((2,), name=name) for name in ("left", "right")]
    table = keras.layers.Embedding(9, 2, name="tokens")
    pooled = [keras.ops.mean(table(each), axis=1) for each in ids]
    outputs = keras.ops.softmax(pooled[0] + pooled[1])
    keras.Model(ids, outputs).save("two.keras")
    arrays = {f"x_test_{name}": np.eye(2) for name in ("left", "right")}
    np.savez("data.npz", **arrays, y_test=[0, 1], notes=[0])
    command = "report two.keras --overwrite --html a.html --data"
    run(f"{command} data.npz")
    assert "accuracy" in (folder / "a.html").read_text()
    # The validation part, if there is no other.
    arrays = {f"x_validation_{x}": np.eye(2) for x in ("left", "right")}
    np.savez("data.npz", **arrays, y_validation=[0, 1])
    run(f"{command} data.npz")
    assert "accuracy" in (folder / "a.html").read_text()
    objects = np.array([None])
    for arrays, says in (
        ({"x_test": [1]}, "x_test and y_test"),
        ({"x_train": [1], "y_train": [2]}, "with x_train, y_train"),
        ({"x_test": objects, "y_test": [2]}, "numbers or texts"),
    ):
        np.savez("data.npz", **arrays)
        assert says in fails(capsys, f"{command} data.npz")
    for path, says in (("none.npz", "No such"), ("two.keras", "must hold")):
        assert says in fails(capsys, f"{command} {path}")
    (folder / "data.npz").write_text("words")
    assert "an .npz file" in fails(capsys, f"{command} data.npz")


def test_help_and_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"keras-compembed {kc.__version__}\n"
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "compress | export | report | inspect | page | learn" in out
    assert cli.main(["compress", "--help"]) == 0
    assert "--max-time" in capsys.readouterr().out


BAD_ARGUMENTS = {
    "": {
        "": "compress | export | report | inspect",
        "shrink model.keras": "'shrink'",
    },
    "compress": {
        "model.keras": "-o/--output",
        "gone.keras -o b.keras": "No such file: 'gone.keras'",
        "model.keras -o b.h5": "'.keras'",
        "model.keras -o gone/b.keras": "folder of the output",
        "model.keras -o model.keras --overwrite": "file of its own",
    },
    "compress model.keras -o b.keras": {
        "-m -3": "-m/--num-codebooks",
        "-m 0": "`num_codebooks`",
        "-k many": "not a whole number: 'many'",
        "-k 1": "`codebook_size`",
        "--effort 0": "not a positive number",
        "--max-time nan": "not a positive number",
        "--max-bytes 500kib": "such as 500000",
        "--max-bytes=0.0001k": "--max-bytes",
        "--layers x": "['tokens']",
        "--min-bytes 99999": "tokens: left",
        "--composition concat --max-time 3": "--max-time must not",
        "--max-bytes 9k --ratio 3": "One of --max-bytes, --ratio",
        "--quantize int8": "--quantize must be given with",
        "-m 4 --epochs 7": "--epochs must be given with --max-bytes",
        "--ratio 3 --num-tuned 3": "--num-tuned must be given with --data",
        "--ratio 3 --mode min": "--mode must be given with --data",
        "--ratio 3 -m 4": "--ratio must not be given with --num-codebooks",
        "--ratio 3 --composition sum": "be given with --composition",
        "--ratio 3 --frontier f.txt": "'.json'",
        "--ratio 3 --data no.npz": "No such file",
        "--max-loss 0.5": "--data, on which",
        "--max-loss 0.5 --data model.keras": "x_validation and y_validation",
    },
    "export": {
        "gone.keras b.tflite": "No such file: 'gone.keras'",
        "model.keras b.bin": "'.tflite'",
        "model.keras b.tflite --quantize int3": "'int3'",
        "model.keras b.tflite --optimize-for speed": "'speed'",
        "model.keras b.tflite --min-runtime old": "`--min-runtime`",
        "model.keras b.tflite --top-k -1": "not a whole number",
    },
    "report": {
        "gone.keras": "No such file: 'gone.keras'",
        ".": "the folder '.'",
        "model.keras gone": "No such file: 'gone'",
        "model.keras model.keras": "has none",
        "model.keras --json a --plot ./a": "file of its own",
        "model.keras --json /dev/null --overwrite": "the device",
        "model.keras --import no.such": "No module named 'no.such'",
        "model.keras --import ../code.py": "name a module",
        "model.keras --html a.htm": "'.html'",
        "model.keras --words model.keras": "given with --html",
        "model.keras --html a.html --data no.npz": "'no.npz'",
        "model.keras --html a.html --words a=no": "file: 'no'",
        "model.keras --word-test model.keras --words model.keras": "ORIGINAL",
        "model.keras --html a.html --frontier compute": "ORIGINAL",
        "model.keras --html a.html --data model.keras": "x_test and y_test",
        "model.keras --html a.html --frontier model.keras": "`Frontier.save`",
    },
}


@pytest.mark.parametrize("command", BAD_ARGUMENTS)
def test_bad_arguments(model, capsys, command):
    for arguments, message in BAD_ARGUMENTS[command].items():
        assert message in fails(capsys, f"{command} {arguments}"), arguments
    assert os.listdir() == ["model.keras"]


def test_foreign_files(folder, model, capsys):
    whole = (folder / "model.keras").read_bytes()
    (folder / "cut.keras").write_bytes(whole[: len(whole) // 2])
    (folder / "text.keras").write_text("hello")
    (folder / "empty.keras").write_bytes(b"")
    (folder / "model.zip").write_bytes(whole)
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 255
    (folder / "damaged.keras").write_bytes(damaged)
    parts = ["config.json", "metadata.json", "model.weights.h5"]
    for name, inside in (("other", parts[:1]), ("wrong", parts)):
        with zipfile.ZipFile(f"{name}.keras", "w") as file:
            for part in inside:
                file.writestr(part, "{}")
    # Outputs are looked at first.
    (folder / "out.tflite").write_text("old")
    for command in (
        "export wrong.keras out.tflite",
        "report wrong.keras --json out.tflite",
    ):
        assert "exists already" in fails(capsys, command)
    (folder / "out.tflite").unlink()
    for name, message in {
        "cut.keras": "truncated",
        "text.keras": "truncated, or something else",
        "empty.keras": "truncated, or something else",
        "model.zip": "its name does not end so",
        "other.keras": "it has no metadata.json, model.weights.h5",
        "damaged.keras": "model.weights.h5 in it is damaged",
        "wrong.keras": "cannot be loaded",
    }.items():
        for command in (
            f"compress {name} -o out.keras",
            f"export {name} out.tflite",
            f"report {name}",
        ):
            assert message in fails(capsys, command)
    assert not os.path.exists("out.keras")


class UnknownLayer(keras.layers.Layer):
    def call(self, inputs):
        return inputs


def test_unknown_classes_and_functions(folder, capsys):
    embedding = keras.layers.Embedding(600, 32)
    save("layer.keras", embedding, UnknownLayer())
    for command in ("compress layer.keras -o o.keras", "report layer.keras"):
        line = fails(capsys, command)
        assert "class 'UnknownLayer'" in line and "Python API" in line
    # Neither a report nor an export needs the loss.
    save("loss.keras", embedding, loss=unknown_loss)
    run("report loss.keras")
    save("lambda.keras", embedding, keras.layers.Lambda(lambda x: x + 1))
    assert "Lambda layer" in fails(capsys, "report lambda.keras")


OWN_CODE = """
import keras

class OwnLayer(keras.layers.Layer):
    def call(self, inputs):
        return 2 * inputs

@keras.saving.register_keras_serializable(package="own")
class RegisteredLayer(OwnLayer):
    pass

def own_loss(y_true, y_pred):
    return y_pred - y_true

def relu(inputs):
    raise AssertionError("Not the one of Keras.")
"""


def test_modules_of_the_model(folder, capsys, monkeypatch):
    # As in another process, which has not imported it.
    (folder / "own_code.py").write_text(OWN_CODE)
    monkeypatch.syspath_prepend(folder)
    own = importlib.import_module("own_code")
    save(
        "model.keras",
        keras.layers.Embedding(600, 32, name="tokens"),
        own.OwnLayer(),
        own.RegisteredLayer(),
        keras.layers.Dense(2, "relu"),
        loss=own.own_loss,
    )
    keras.saving.get_custom_objects().pop("own>RegisteredLayer")
    del sys.modules["own_code"]
    line = fails(capsys, "report model.keras")
    assert "Name the module that defines them by --import" in line
    run(f"{CODED} --import own_code")
    assert "not compiled" not in capsys.readouterr().out
    run("report out.keras --import own_code")
    assert re.search(r"tokens +600 x 32 +2 x 4", capsys.readouterr().out)
    (folder / "own_code.py").write_text("import no_such_module")
    del sys.modules["own_code"]
    line = fails(capsys, "report model.keras --import own_code")
    assert "no_such_module" in line


@contextlib.contextmanager
def largest_file(size):
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.skipif(
    not hasattr(signal, "SIGXFSZ"), reason="no limit on file sizes here"
)
def test_full_disk_leaves_the_old_file(folder, capsys, monkeypatch):
    embedding = keras.layers.Embedding(600, 32)
    save("model.keras", embedding, keras.layers.Dense(1000))
    (folder / "out.keras").write_text("old")
    for limit, message in (
        (2_000, "Cannot write to the folder"),
        # What is tried first fits, the file does not.
        (100_000, "Cannot write 'out.keras'"),
    ):
        with largest_file(limit):
            status = cli.main(f"{CODED} --overwrite".split())
        assert status == 1
        assert message in capsys.readouterr().err
        assert (folder / "out.keras").read_text() == "old"
        assert sorted(os.listdir()) == ["model.keras", "out.keras"]
    usage = shutil.disk_usage(folder)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    # 32 x 1000 numbers and 1000 biases are not compressed.
    line = fails(capsys, f"{CODED} --overwrite", status=1)
    assert "at least 132,000 bytes are needed, and 100 are free" in line


def test_temporary_folder_that_does_not_serve(model, capsys, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", "/no/such")
    assert "TMPDIR='/no/such'" in fails(capsys, "report model.keras")
    # A file in its place.
    monkeypatch.setenv("TMPDIR", os.path.abspath("model.keras"))
    assert "model.keras" in fails(capsys, "report model.keras")


def raising(error):
    def fail(*args, **kwargs):
        raise error

    return fail


def test_interrupts_and_bugs(model, capsys, monkeypatch):
    # What is no fault of arguments or files keeps its traceback.
    monkeypatch.setattr(json, "dump", raising(ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):
        cli.main("report model.keras --json a.json".split())
    load_model = raising(KeyboardInterrupt)
    monkeypatch.setattr(keras.saving, "load_model", load_model)
    line = fails(capsys, "report model.keras", status=130)
    assert line == "keras-compembed: error: interrupted"
    assert os.listdir() == ["model.keras"]
