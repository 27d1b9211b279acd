import json
import pathlib
import shutil
import sys
import types
import zipfile

import keras
import numpy as np
import pytest
from errors import refused

import keras_compembed as kc

CARD = {
    "summary": "Sorts {texts:,} texts.",
    "license": "apache-2.0",
    "command": "python train.py --text '{}'",
    "limits": "None are known.",
    "results": "{accuracy:.1%} are right, in {runs[1]} runs.",
    "inputs": "ids of words.",
    "files": {"words.txt": "words\nand more"},
    "task": "text-classification",
    "language": "no",
    "tags": ["small"],
}
SHORT = {"summary": "s", "license": "mit", "command": "make", "limits": "l"}
FIGURES = {"texts": np.int64(1200), "accuracy": 0.625, "runs": (3, 5)}
FILES = {"words.txt": ["", "été"], "labels.txt": ["a", "b"]}
IDS = np.array([[1, 2], [3, 4]])


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((2,), dtype="int32", name="ids"),
            kc.CodeEmbedding(300, 8, 4, 16, name="words"),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(2, name="scores"),
        ]
    )
    model.compile("adam", "mse")
    model.fit(IDS, np.zeros((2, 2)), verbose=0)
    return model


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    """A preset that tests only read."""
    folder = tmp_path_factory.mktemp("presets")
    tflite = folder / "exported.tflite"
    kc.export_litert(model, tflite, verbose=0, quantize=None)
    files = {**FILES, "model.tflite": tflite}
    return kc.save_preset(model, folder / "sorter", CARD, FIGURES, files)


@pytest.fixture
def preset(saved, tmp_path):
    """A preset that a test may change."""
    return pathlib.Path(shutil.copytree(saved, tmp_path / "sorter"))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_vectors_of_words(tmp_path):
    table = np.random.default_rng(0).normal(size=(60, 8))
    words = kc.vectors.WordVectors([f"w{row}" for row in range(60)], table)
    small = kc.vectors.CompressedVectors.learn(
        words, kc.methods.Quantized(4), verbose=0
    )
    card = SHORT | {"summary": "{size:,} bytes."}
    figures = {"size": small.nbytes}
    folder = kc.save_preset(small, tmp_path / "w", card, figures)
    assert set(contents(folder)) == {
        *("README.md", "figures.json", "preset.json", "vectors.npz")
    }
    again = kc.from_preset(folder)
    np.testing.assert_array_equal(again.table(), small.table())
    text = (folder / "README.md").read_text("utf-8")
    assert f"| `vectors.npz` | {small.nbytes:,} |" in text
    # A model takes the place of vectors. NaN is what it is.
    nan = keras.initializers.Constant(np.nan)
    model = keras.Sequential([keras.Input((2,))])
    model.add(keras.layers.Dense(2, bias_initializer=nan))
    kc.save_preset(model, folder, SHORT, overwrite=True)
    assert set(contents(folder)) == {"README.md", "model.keras", "preset.json"}
    assert kc.from_preset(folder).output_shape == (None, 2)


def test_round_trip(model, saved):
    again = kc.from_preset(saved)
    np.testing.assert_array_equal(again(IDS), model(IDS))
    assert isinstance(again.get_layer("words"), kc.CodeEmbedding)
    # The optimizer's state would stand in it too.
    assert not again.compiled
    with zipfile.ZipFile(saved / "model.keras") as archive:
        assert not json.loads(archive.read("config.json"))["compile_config"]
    assert set(contents(saved)) == {
        *FILES,
        "README.md",
        "figures.json",
        "model.keras",
        "model.tflite",
        "preset.json",
    }
    assert (saved / "words.txt").read_bytes() == "\nété\n".encode()
    assert json.loads((saved / "figures.json").read_text()) == {
        "texts": 1200,
        "accuracy": 0.625,
        "runs": [3, 5],
    }


def test_card(saved):
    card = (saved / "README.md").read_text("utf-8")
    for text in (
        "\n# sorter\n\nSorts 1,200 texts.\n",
        "62.5% are right, in 5 runs.",
        "```sh\npython train.py --text '{}'\n```",
        "## Input\n\nids of words.\n",
        "| `words.txt` | 7 | words and more |",
    ):
        assert text in card


def test_front_matter_is_what_the_hub_reads(saved):
    hub = pytest.importorskip("huggingface_hub")
    data = hub.ModelCard.load(saved / "README.md").data.to_dict()
    assert data == {
        "library_name": "keras",
        "license": "apache-2.0",
        "language": "no",
        "pipeline_tag": "text-classification",
        "tags": ["keras_compembed", "litert", "small"],
    }


def test_overwrite(model, preset):
    before = contents(preset)
    other = preset / "notes.txt"
    other.write_text("mine")
    before["notes.txt"] = b"mine"
    with pytest.raises(FileExistsError, match="overwrite=True"):
        kc.save_preset(model, preset, CARD, FIGURES, FILES)
    # A file of the folder itself, under another name.
    files = {"words.txt": preset / "labels.txt"}
    kc.save_preset(model, preset, CARD, FIGURES, files, overwrite=True)
    after = contents(preset)
    assert set(before) - set(after) == {"labels.txt", "model.tflite"}
    assert after["words.txt"] == before["labels.txt"]
    assert after["notes.txt"] == b"mine"
    assert [path.name for path in preset.parent.iterdir()] == ["sorter"]


def test_words_that_keras_reads_as_two(tmp_path):
    words = keras.layers.TextVectorization()
    words.adapt(["a\x85b c"])
    model = keras.Sequential(
        [keras.Input((), dtype="string"), words, keras.layers.Embedding(9, 2)]
    )
    with pytest.raises(ValueError, match=r"'a\\x85b'"):
        kc.save_preset(model, tmp_path / "new", SHORT)
    assert not (tmp_path / "new").exists()


def test_what_fails_leaves_the_old_files(preset, tmp_path):
    class Halved(keras.layers.Dense):
        def load_own_variables(self, store):
            super().load_own_variables(store)
            self.bias.assign(self.bias / 2)

    before = contents(preset)
    inputs = keras.Input((2,))
    model = keras.Model(inputs, Halved(2, bias_initializer="ones")(inputs))
    # Nobody could read it.
    with pytest.raises(TypeError, match="Halved"):
        kc.save_preset(model, preset, CARD, FIGURES, FILES, overwrite=True)
    with keras.saving.custom_object_scope({"Halved": Halved}):
        with pytest.raises(ValueError, match="`model` must be the same after"):
            kc.save_preset(model, preset, CARD, FIGURES, FILES, overwrite=True)
    assert contents(preset) == before
    assert [path.name for path in tmp_path.iterdir()] == ["sorter"]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"model": "model.keras"}, ValueError),
        ({"figures": {"a": {1}}}, AttributeError),
        ({"folder": "no/preset"}, FileNotFoundError),
        ({"files": {"a/b": []}}, ValueError),
        ({"files": {"a.txt": "none"}}, FileNotFoundError),
        ({"files": {"a.txt": ["a\nb"]}}, ValueError),
        ({"card": {"summary": "a"}}, ValueError),
        ({"card": CARD | {"licence": "mit"}}, ValueError),
        ({"card": CARD | {"limits": "{unknown}"}}, KeyError),
    ],
)
def test_bad_arguments_of_save(model, tmp_path, monkeypatch, changes, error):
    monkeypatch.chdir(tmp_path)
    arguments = {"model": model, "folder": "sorter", "card": CARD}
    arguments |= {"figures": FIGURES, "files": FILES, **changes}
    with pytest.raises(error):
        kc.save_preset(**arguments)
    assert not list(tmp_path.iterdir())


def test_names_stand_in_the_repository(monkeypatch, tmp_path):
    root = pathlib.Path(kc.__file__).parents[1]
    folder = root / "saved_models"
    for path in folder.iterdir():
        assert kc.from_preset(path.name, "README.md").parent == path
    # A folder with the name of a preset is asked for by path.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docstring_classifier").mkdir()
    (tmp_path / "docstring_classifier/a").touch()
    with refused("file", "a"):
        kc.from_preset("docstring_classifier", "a")
    assert kc.from_preset("./docstring_classifier", "a").is_file()
    with pytest.raises(ValueError, match="one of 'docstring_classifier', .*"):
        kc.from_preset("docstrings")


def test_from_the_hub(model, saved, tmp_path, monkeypatch):
    hub, asked = types.SimpleNamespace(), []
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)

    def download(repository, revision=None):
        asked.append((repository, revision))
        return str(saved)

    hub.snapshot_download = download
    again = kc.from_preset("hf://user/sorter")
    np.testing.assert_array_equal(again(IDS), model(IDS))
    assert kc.from_preset("hf://user/sorter@v1.0", "README.md").parent == saved
    assert asked == [("user/sorter", None), ("user/sorter", "v1.0")]
    # What Keras itself writes there.
    keras.saving.save_model(model, tmp_path / "keras", zipped=False)
    hub.snapshot_download = lambda *args, **kwargs: tmp_path / "keras"
    again = kc.from_preset("hf://user/sorter")
    np.testing.assert_array_equal(again(IDS), model(IDS))
