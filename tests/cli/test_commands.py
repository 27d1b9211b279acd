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
from keras_compembed.cli import compress
from keras_compembed.cli import report
from keras_compembed.cli.inputs import KERAS_FILES
from keras_compembed.compression import Frontier
from keras_compembed.compression import FrontierPoint
from keras_compembed.compression import searched_table
from keras_compembed.compression.method_choices import choices_of
from keras_compembed.compression.tuned_copies import TunedCopies
from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.learners import additive_quantizer
from keras_compembed.learners.additive_quantizer import AdditiveQuantizer
from keras_compembed.learners.quantizer_run import QuantizerRun
from keras_compembed.version import __version__


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
        CodeEmbedding(600, 32, 4, 16, seed=0, name="tokens"),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(2),
    )


def fails(capsys, arguments, status=2):
    """The one line on stderr that a failing command writes."""
    capsys.readouterr()
    assert cli.main(arguments.split()) == status
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("keras-compembed: error: ")
    return lines[0]


COMPRESS = "compress model.keras -o out.keras -m 2 -k 4 --effort 0.1 --seed 0"


@pytest.mark.parametrize("composition", ["concat", "lstm"])
def test_compositions(folder, model, composition, monkeypatch):
    monkeypatch.setattr(compress, "_KD_ITERATIONS", 20)
    arguments = f"{COMPRESS} --min-bytes 1000 --composition {composition}"
    assert cli.main(arguments.split()) == 0
    layer = keras.saving.load_model("out.keras").layers[0]
    kind = type(layer.composition.unscaled()).__name__.lower()
    assert kind == f"{composition}composition"


def test_max_time_of_another_composition(folder, model, capsys):
    arguments = f"{COMPRESS} --composition concat --max-time 3"
    assert "--max-time must not" in fails(capsys, arguments)
    assert not (folder / "out.keras").exists()


def test_compress(folder, model, capsys):
    assert cli.main(f"{COMPRESS} --min-bytes 1000".split()) == 0
    assert re.search(r"tokens +600 x 32 +2 x 4", capsys.readouterr().out)
    result = keras.saving.load_model("out.keras")
    assert isinstance(result.layers[0], CodeEmbedding)
    assert result.layers[0].codes.shape == (600, 2)
    assert result.compiled
    for before, after in zip(
        model.layers[-1].weights, result.layers[-1].weights, strict=True
    ):
        np.testing.assert_array_equal(before, after)
    assert sorted(os.listdir()) == ["model.keras", "out.keras"]


def test_compress_goes_on_from_a_checkpoint(folder, model, monkeypatch):
    command = f"{COMPRESS} --min-bytes 1000 --checkpoint folder"
    assert cli.main(command.split()) == 0
    monkeypatch.delattr(QuantizerRun, "_search")
    assert cli.main(f"{command} --overwrite".split()) == 0


def test_checkpoints_need_a_folder(folder, model, capsys):
    line = fails(capsys, f"{COMPRESS} --checkpoint model.keras", 1)
    assert "`--checkpoint` must be a folder. Received: the file" in line
    line = fails(capsys, f"{COMPRESS} --checkpoint=")
    assert (
        "`--checkpoint` must name a folder. Received: --checkpoint=''" in line
    )
    assert not (folder / "out.keras").exists()


def test_compress_for_latency(folder, capsys):
    embedding = keras.layers.Embedding(20_000, 16, name="tokens")
    save("model.keras", embedding, keras.layers.LSTM(2))
    arguments = "compress model.keras -o out.keras -m 4 -k 4 --effort 0.01"
    assert cli.main(f"{arguments} --optimize-for latency".split()) == 0
    said = capsys.readouterr().out
    assert "codes in place of 4 x 4, for latency" in said
    layer = keras.saving.load_model("out.keras").layers[0]
    assert layer.num_codebooks < 4 and layer.codebook_size > 4


def test_compress_with_a_loss_that_the_file_does_not_hold(folder, capsys):
    embedding = keras.layers.Embedding(600, 32)
    save("model.keras", embedding, loss=unknown_loss)
    assert cli.main(f"{COMPRESS} --min-bytes 1000".split()) == 0
    assert "The result is not compiled" in capsys.readouterr().out
    result = keras.saving.load_model("out.keras")
    assert isinstance(result.layers[0], CodeEmbedding)
    assert not result.compiled


def test_compress_warns_on_one_line(folder, capsys):
    # It knows no id that could be made up.
    ids = keras.layers.IntegerLookup(vocabulary=[2000], num_oov_indices=0)
    save("model.keras", ids, keras.layers.Embedding(600, 32))
    assert cli.main(f"{COMPRESS} --min-bytes 1000".split()) == 0
    (line,) = capsys.readouterr().err.splitlines()
    warning = "keras-compembed: warning: The copy was not compared"
    assert line.startswith(warning)


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
    keras.Model(inputs, towers[0](inputs) + towers[1](inputs)).save(
        "model.keras"
    )
    assert cli.main(f"{COMPRESS} --layers words".split()) == 2
    assert "['left/words', 'right/words']" in capsys.readouterr().err
    assert cli.main(f"{COMPRESS} --layers right/words".split()) == 0
    result = keras.saving.load_model("out.keras")
    assert isinstance(
        result.get_layer("right").get_layer("words"), CodeEmbedding
    )
    said = capsys.readouterr().out.split("\n")
    assert any(line.startswith("left/words ") for line in said)


def test_compress_is_repeatable(folder, model):
    command = f"{COMPRESS} --layers tokens --overwrite"
    codes = []
    for _ in range(2):
        assert cli.main(command.split()) == 0
        codes.append(keras.saving.load_model("out.keras").layers[0].codes)
    np.testing.assert_array_equal(*codes)


def test_compress_passes_on_how_long_to_search(folder, model, monkeypatch):
    made = []

    class Learner(AdditiveQuantizer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            made.append((self.effort, self.max_time, self.seed))

    monkeypatch.setattr(additive_quantizer, "AdditiveQuantizer", Learner)
    command = f"{COMPRESS} --layers tokens --max-time 2.5"
    assert cli.main(command.split()) == 0
    assert made == [(0.1, 2.5, 0)]


def test_export(small, capsys):
    assert cli.main("export small.keras small.tflite --no-fold".split()) == 0
    with open("small.tflite", "rb") as file:
        assert file.read()[4:8] == b"TFL3"
    half = "export small.keras half.tflite --no-fold --quantize float16"
    assert cli.main(f"{half} --min-runtime 2.17".split()) == 0
    assert os.path.getsize("half.tflite") < os.path.getsize("small.tflite")
    assert "exists already" in fails(capsys, half)
    assert cli.main(f"{half} --overwrite".split()) == 0


def test_export_keeps_layers_apart(folder, model, capsys):
    assert cli.main(f"{COMPRESS} --min-bytes 1000".split()) == 0
    sizes = []
    for name, more in (("folded", ""), ("apart", " --no-fold")):
        command = f"export out.keras {name}.tflite{more}"
        capsys.readouterr()
        assert cli.main(command.split()) == 0
        assert ("folded into" in capsys.readouterr().out) is not bool(more)
        sizes.append(os.path.getsize(f"{name}.tflite"))
    assert sizes[0] < sizes[1]


def test_export_passes_on_what_to_favour(folder, capsys):
    codes = CodeEmbedding(600, 32, 32, 16, seed=0, name="tokens")
    save("small.keras", codes, keras.layers.LSTM(2))
    sizes = {}
    for name, more in (
        ("plain", ""),
        ("fast", "--optimize-for latency"),
        ("int8", "--quantize int8_codebooks"),
    ):
        command = f"export small.keras {name}.tflite {more}"
        assert cli.main(command.split()) == 0
        sizes[name] = os.path.getsize(f"{name}.tflite")
    # Codebooks of 65 kB, of which the fastest graph has sums of pairs.
    assert sizes["fast"] > 2 * sizes["plain"] > 3 * sizes["int8"]


def test_export_of_the_best_classes(folder, capsys):
    model = keras.Sequential([keras.Input((4,)), kc.CANESoftmax(50)])
    model.save("classes.keras")
    command = "export classes.keras classes.tflite --top-k"
    assert cli.main(f"{command} 3".split()) == 0
    answer = kc.export.LiteRTModel("classes.tflite")(
        np.zeros((2, 4), "float32")
    )
    assert answer["ids"].shape == answer["probabilities"].shape == (2, 3)
    assert "`k` must be" in fails(capsys, f"{command} 51 --overwrite")


@keras.saving.register_keras_serializable(package="tests")
class Subclassed(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(2)

    def call(self, inputs):
        return self.dense(inputs)


def test_export_of_a_subclassed_model(folder, capsys):
    model = Subclassed()
    model(np.zeros((1, 3), "float32"))
    model.save("own.keras")
    line = fails(capsys, "export own.keras own.tflite")
    assert "use the Python API, export.export_litert" in line


def test_words_that_keras_reads_as_two(folder, capsys):
    words = keras.layers.TextVectorization()
    words.adapt(["a\x85b c"])
    keras.Sequential(
        [keras.Input((), dtype="string"), words, keras.layers.Embedding(9, 2)]
    ).save("two.keras")
    assert "the word 'a\\x85b'" in fails(capsys, "export two.keras two.tflite")


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
    command = "export moods.keras moods.tflite --runtime mediapipe"
    assert "Received: neither" in fails(capsys, command)
    both = f"{command} --labels moods.txt --task embedder"
    assert "Received: both" in fails(capsys, both)
    assert "No such file" in fails(capsys, f"{command} --labels none.txt")
    assert "--task needs --runtime mediapipe" in fails(
        capsys, "export moods.keras moods.tflite --task embedder"
    )
    named = f"{command} --labels moods.txt --name Moods --model-version 2"
    assert cli.main(named.split()) == 0
    out = capsys.readouterr().out
    assert "  sad, gl\u00fccklich" in out
    file = kc.export.inspect_litert("moods.tflite").file_metadata
    assert (file.name, file.version) == ("Moods", "2")
    with open("moods.txt", "wb") as file:
        file.write(b"\xff\n")
    assert "Labels must be in UTF-8" in fails(capsys, f"{named} --overwrite")


def test_inspect(small, capsys):
    assert cli.main("export small.keras small.tflite".split()) == 0
    capsys.readouterr()
    assert cli.main("inspect small.tflite --json s.json".split()) == 0
    out = capsys.readouterr().out
    assert str(kc.export.inspect_litert("small.tflite")) in out
    with open("s.json") as file:
        found = json.load(file)
    assert found["file_bytes"] == os.path.getsize("small.tflite")
    assert "exists already" in fails(
        capsys, "inspect small.tflite --json s.json"
    )
    assert (
        cli.main("inspect small.tflite --json s.json --overwrite".split()) == 0
    )
    assert "a LiteRT file" in fails(capsys, "inspect small.keras")


def test_report(model, small, capsys):
    pytest.importorskip("matplotlib")
    command = "report small.keras model.keras"
    assert cli.main(f"{command} --json r.json --plot r.png".split()) == 0
    out = capsys.readouterr().out
    assert re.search(r"tokens +600 x 32 +4 x 16", out)
    assert "against the reference" in out
    with open("r.json") as file:
        (row,) = json.load(file)["embeddings"]
    assert row["code_bytes"] == 600 * 2
    assert row["fidelity"]["num_queries"] == 600
    with open("r.png", "rb") as file:
        assert file.read(4) == b"\x89PNG"


def test_report_does_not_replace(small, capsys):
    for option in ("--json old", "--plot old.png", "--html old.html"):
        path = option.split()[1]
        with open(path, "w") as file:
            file.write("old")
        assert "Pass --overwrite" in fails(
            capsys, f"report small.keras {option}"
        )
        with open(path) as file:
            assert file.read() == "old"
        command = f"report small.keras {option} --overwrite"
        assert cli.main(command.split()) == 0
        assert os.path.getsize(path) > 100


def test_page(folder, model, small, capsys):
    lines = [f"word{x}\u2028" for x in range(600)]
    (folder / "words.txt").write_text("\r\n".join(lines), encoding="utf-8")
    np.savez("data.npz", x_test=np.zeros((3, 5), "int32"), y_test=[0, 1, 1])
    Frontier([FrontierPoint({"tokens": "int2"}, 9000, 0.5)]).save("f.json")
    command = (
        "report small.keras model.keras --html a.html --data data.npz "
        "--frontier f.json --words "
    )
    assert cli.main(f"{command} words.txt".split()) == 0
    assert re.search(r"tokens +600 x 32 +4 x 16", capsys.readouterr().out)
    page = (folder / "a.html").read_text(encoding="utf-8")
    assert "word0\\u2028" in page and "int2" in page and "accuracy" in page
    (folder / "pairs.txt").write_text("a b 1\nc d 2\n")
    (folder / "asked.txt").write_text(": section\na b c d\n")
    named = f"{command} tokens=words.txt --overwrite --word-test "
    assert cli.main(f"{named} pairs.txt --word-test asked.txt".split()) == 0
    out = capsys.readouterr().out
    unknown = "undefined, undefined of the reference"
    assert f"pairs: {unknown} (0 of 2 known)" in out
    assert f"asked: {unknown} (0 of 1 known)" in out
    assert "line 2 of 'words.txt'" in fails(capsys, f"{named} words.txt")
    assert cli.main(named.partition("--word-test")[0].split()) == 0
    (folder / "few.txt").write_text("one\ntwo\n")
    (folder / "bad.txt").write_bytes(b"\xff\xfe")
    for wrong, message in {
        "few.txt": "word for each row",
        "bad.txt": "must be in UTF-8",
        "gone=words.txt": "which are ['tokens']. Received: 'gone'",
        "words.txt --words few.txt": "a layer of its own each",
    }.items():
        assert message in fails(capsys, f"{command} {wrong} --overwrite")
    assert (folder / "a.html").read_text(encoding="utf-8") == page


def test_report_of_nothing_to_draw(folder, capsys):
    save("plain.keras", keras.layers.Embedding(5, 4))
    assert cli.main(["report", "plain.keras"]) == 0
    keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]).save(
        "none.keras"
    )
    assert "an embedding layer to draw" in fails(
        capsys, "report none.keras --plot none.png"
    )


def test_help_and_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"keras-compembed {__version__}\n"
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(
        name in out for name in ("compress", "export", "report", "inspect")
    )
    assert cli.main(["compress", "--help"]) == 0
    assert "--max-time" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("", "compress | export | report | inspect"),
        ("shrink model.keras", "invalid choice: 'shrink'"),
        ("compress model.keras", "-o/--output"),
        ("compress a.keras -o b.keras -m -3", "-m/--num-codebooks"),
        ("compress a.keras -o b.keras -k many", "not a whole number: 'many'"),
        ("compress a.keras -o b.keras --effort 0", "not a positive number"),
        ("compress a.keras -o b.keras --max-time nan", "not a positive number"),
        ("compress a.keras -o b.keras --max-bytes 500kib", "such as 500000"),
        ("export a.keras b.tflite --quantize int3", "invalid choice: 'int3'"),
        (
            "export a.keras b.tflite --optimize-for speed",
            "invalid choice: 'speed'",
        ),
        (
            "compress a.keras -o b.keras --optimize-for size",
            "invalid choice: 'size'",
        ),
        ("compress gone.keras -o b.keras", "No such file: 'gone.keras'"),
        ("export gone.keras b.tflite", "No such file: 'gone.keras'"),
        ("report gone.keras", "No such file: 'gone.keras'"),
        ("report model.keras gone", "No such file: 'gone'"),
        ("compress model.keras -o b.h5", "must end in '.keras'"),
        ("export model.keras b.bin", "must end in '.tflite'"),
        ("compress model.keras -o gone/b.keras", "folder of the output"),
        ("compress model.keras -o b.keras -k 1", "`codebook_size` must be"),
        ("compress model.keras -o b.keras -m 0", "`num_codebooks` must be"),
        ("compress model.keras -o b.keras --layers x", "are ['tokens']"),
        ("compress model.keras -o b.keras --min-bytes 99999", "tokens: left"),
        ("export model.keras b.tflite --min-runtime old", "`--min-runtime`"),
        ("export model.keras b.tflite --top-k 0", "not a positive number"),
        ("compress model.keras -o model.keras --overwrite", "file of its own"),
        ("report model.keras --json a --plot ./a", "file of its own"),
        ("report .", "the folder '.'"),
        ("report model.keras --html a.htm", "must end in '.html'"),
        ("report model.keras --words model.keras", "given with --html"),
        ("report model.keras --html a.html --data no.npz", "'no.npz'"),
        ("report model.keras --html a.html --words a=no", "file: 'no'"),
        (
            "report model.keras --word-test model.keras --words model.keras",
            "given with ORIGINAL",
        ),
        (
            "report model.keras --html a.html --frontier compute",
            "given with ORIGINAL",
        ),
        (
            "report model.keras --html a.html --data model.keras",
            "must hold x_test and y_test",
        ),
        (
            "report model.keras --html a.html --frontier model.keras",
            "`Frontier.save`",
        ),
        ("report model.keras --json /dev/null --overwrite", "the device"),
        ("report model.keras --import no.such", "No module named 'no.such'"),
        ("report model.keras --import ../code.py", "name a module"),
        ("report model.keras model.keras", "has none"),
    ],
)
def test_bad_arguments(model, capsys, arguments, message):
    assert message in fails(capsys, arguments)
    assert os.listdir() == ["model.keras"]


def test_foreign_files(folder, model, capsys):
    whole = (folder / "model.keras").read_bytes()
    (folder / "cut.keras").write_bytes(whole[: len(whole) // 2])
    (folder / "text.keras").write_text("hello")
    (folder / "empty.keras").write_bytes(b"")
    (folder / "model.zip").write_bytes(whole)
    with zipfile.ZipFile("other.keras", "w") as file:
        file.writestr("config.json", "{}")
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 255
    (folder / "damaged.keras").write_bytes(damaged)
    with zipfile.ZipFile("wrong.keras", "w") as file:
        for name in KERAS_FILES:
            file.writestr(name, "{}")
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


def unknown_loss(y_true, y_pred):
    return y_pred - y_true


def test_unknown_classes_and_functions(folder, capsys):
    embedding = keras.layers.Embedding(600, 32)
    save("layer.keras", embedding, UnknownLayer())
    for command in ("compress layer.keras -o o.keras", "report layer.keras"):
        line = fails(capsys, command)
        assert "class 'UnknownLayer'" in line and "Python API" in line
    # Neither a report nor an export needs the loss.
    save("loss.keras", embedding, loss=unknown_loss)
    assert cli.main(["report", "loss.keras"]) == 0
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
    command = f"{COMPRESS} --min-bytes 1000 --import own_code"
    assert cli.main(command.split()) == 0
    assert "not compiled" not in capsys.readouterr().out
    assert cli.main(["report", "out.keras", "--import", "own_code"]) == 0
    assert re.search(r"tokens +600 x 32 +2 x 4", capsys.readouterr().out)
    (folder / "own_code.py").write_text("import no_such_module")
    del sys.modules["own_code"]
    assert "no_such_module" in fails(
        capsys, "report model.keras --import own_code"
    )


def test_existing_output_stays(folder, model, capsys):
    (folder / "out.keras").write_text("old")
    assert "Pass --overwrite" in fails(capsys, COMPRESS)
    assert (folder / "out.keras").read_text() == "old"


def test_outputs_are_checked_before_the_model_is_read(
    folder, model, capsys, monkeypatch
):
    def fail(*args, **kwargs):
        raise AssertionError("The model was read.")

    monkeypatch.setattr(keras.saving, "load_model", fail)
    (folder / "out.tflite").write_text("old")
    fails(capsys, "export model.keras out.tflite")
    fails(capsys, "report model.keras --json out.tflite")
    fails(capsys, "compress model.keras -o gone/out.keras")


@pytest.mark.skipif(
    not hasattr(signal, "SIGXFSZ"), reason="no limit on file sizes here"
)
@pytest.mark.parametrize(
    "limit, message",
    [
        (2_000, "Cannot write to the folder"),
        # What is tried first fits, the file does not.
        (100_000, "Cannot write 'out.keras'"),
    ],
)
def test_full_disk_leaves_the_old_file(folder, limit, message, capsys):
    resource = pytest.importorskip("resource")
    embedding = keras.layers.Embedding(600, 32)
    save("model.keras", embedding, keras.layers.Dense(1000))
    (folder / "out.keras").write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
    try:
        status = cli.main(f"{COMPRESS} --overwrite --min-bytes 1".split())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert status == 1
    assert message in capsys.readouterr().err
    assert (folder / "out.keras").read_text() == "old"
    assert sorted(os.listdir()) == ["model.keras", "out.keras"]


def test_room_for_what_is_not_compressed(folder, model, capsys, monkeypatch):
    usage = shutil.disk_usage(folder)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    # 32 x 2 numbers and 2 biases.
    message = "at least 264 bytes are needed, and 100 are free"
    assert message in fails(capsys, COMPRESS, status=1)


def test_temporary_folder_that_does_not_serve(model, capsys, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", "/no/such")
    line = fails(capsys, "report model.keras")
    assert "TMPDIR='/no/such'" in line
    # A file in its place.
    monkeypatch.setenv("TMPDIR", os.path.abspath("model.keras"))
    assert "model.keras" in fails(capsys, "report model.keras")


def test_interrupt(model, capsys, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(report, "load_model", interrupt)
    line = fails(capsys, "report model.keras", status=130)
    assert line == "keras-compembed: error: interrupted"


def test_bugs_keep_their_traceback(model, monkeypatch):
    def bug(*args, **kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr(report, "load_model", bug)
    with pytest.raises(ZeroDivisionError):
        cli.main(["report", "model.keras"])


LIMIT = "compress model.keras -o out.keras --min-bytes 1000 --seed 0"


def test_compress_within_bytes(folder, model, capsys, monkeypatch):
    # Each 664 bytes larger than the one before.
    few = choices_of([kc.methods.Rounded(4, rank=r) for r in range(14, 30, 2)])
    monkeypatch.setattr(searched_table, "choices_by_default", lambda *args: few)
    command = f"{LIMIT} --max-bytes 9k --quantize int8 --frontier f.json"
    assert cli.main(command.split()) == 0
    out = capsys.readouterr().out
    assert "The file may have 9,000 bytes." in out
    frontier = kc.compression.Frontier.load("f.json")
    assert cli.main("export out.keras o.tflite --quantize int8".split()) == 0
    size = os.path.getsize("o.tflite")
    assert 0.9 * 9000 < size == frontier.chosen.file_bytes <= 9000
    assert "must allow a file of" in fails(
        capsys, f"{LIMIT} --max-bytes 900 --overwrite"
    )


def test_compress_within_a_loss(folder, capsys, monkeypatch):
    few = choices_of([kc.methods.Rounded(2), kc.methods.Rounded(4)])
    monkeypatch.setattr(searched_table, "choices_by_default", lambda *args: few)
    save(
        "model.keras",
        keras.layers.Embedding(600, 32, name="tokens"),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(1),
        loss="mse",
    )
    ids = np.random.default_rng(0).integers(600, size=(64, 5))
    half = {"x_validation": ids, "y_validation": np.zeros((64, 1))}
    np.savez("half.npz", **half)
    np.savez("other.npz", x_train=ids, **half)
    command = f"{LIMIT} --max-loss 0.5 --num-tuned 1"
    assert "--data, on which" in fails(capsys, command)
    assert "y_train" in fails(capsys, f"{command} --data other.npz")
    with open("text.npz", "w") as file:
        file.write("words")
    assert "must be an .npz" in fails(capsys, f"{command} --data text.npz")
    modes, loss = [], TunedCopies.loss

    def watched(self, *scores):
        modes.append(self.is_higher_better)
        return loss(self, *scores)

    monkeypatch.setattr(TunedCopies, "loss", watched)
    assert cli.main(f"{command} --data half.npz".split()) == 0
    assert "loss" in capsys.readouterr().out
    assert os.path.exists("out.keras")
    command += " --overwrite --mode max --data half.npz"
    cli.main(command.split())
    assert not modes[0] and modes[-1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--max-bytes 9k --ratio 3", "One of --max-bytes, --ratio"),
        ("--quantize int8", "--quantize must be given with"),
        ("--frontier f.json", "--frontier must be given with"),
        ("-m 4 --epochs 7", "--epochs must be given with --max-bytes"),
        ("--ratio 3 --num-tuned 3", "--num-tuned must be given with --data"),
        ("--ratio 3 --batch-size 32", "--batch-size must be given with --data"),
        ("--ratio 3 --mode min", "--mode must be given with --data"),
        ("--ratio 3 -m 4", "--ratio must not be given with --num-codebooks"),
        ("--ratio 3 -k 16", "--ratio must not be given with --codebook-size"),
        ("--ratio 3 --composition sum", "be given with --composition"),
        ("--ratio 3 --effort 1", "must not be given with --effort"),
        ("--ratio 3 --frontier f.txt", "must end in '.json'"),
        ("--ratio 3 --data no.npz", "No such file"),
    ],
)
def test_limits_that_do_not_go_together(folder, model, capsys, more, message):
    assert message in fails(capsys, f"{LIMIT} {more}")
    assert sorted(os.listdir()) == ["model.keras"]


@pytest.mark.parametrize("text", ["1.5", "9T", "k", "0.0001k", "-3"])
def test_numbers_that_are_no_bytes(folder, model, capsys, text):
    line = fails(capsys, f"{LIMIT} --max-bytes={text}")
    assert "--max-bytes" in line
