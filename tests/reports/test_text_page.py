"""The folder that `text_page` writes, without a browser."""

import io
import json
import os
import pathlib
import re
import shutil
import sys
import tarfile

import keras
import pytest
from tensorflow.lite.python import schema_py_generated as schema

import keras_compembed as kc
from keras_compembed.export import FileMetadata
from keras_compembed.export import flatbuffer
from keras_compembed.export.attached_files import attach
from keras_compembed.export.model_metadata import AXIS_LABELS
from keras_compembed.export.model_metadata import AttachedFile
from keras_compembed.export.model_metadata import add_metadata
from keras_compembed.reports import text_page
from keras_compembed.utils import tasks_text

FILES = {
    "page.css",
    "page.js",
    "index.html",
    "model.tflite",
    "tasks-text",
}
ABOUT = FileMetadata(
    name="Cats & dogs",
    description="<i>Which</i> it is.",
    author="A. Author",
    license="MIT",
)
STYLE = pathlib.Path(kc.reports.__file__).parent / "page_files" / "page.css"


def export(path, *heads, classes=3):
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(classes)(inputs)
    outputs = [keras.layers.Activation(head)(hidden) for head in heads]
    model = keras.Model(inputs, outputs[0] if len(heads) == 1 else outputs)
    kc.export.export_litert(model, path, verbose=0)


def change(path, new_path, function):
    model = flatbuffer.read_model(bytearray(path.read_bytes()))
    function(model)
    new_path.write_bytes(flatbuffer.write_model(model))


def take_text(model):
    """Made to say that it takes a text, which is all that is looked at."""
    (graph,) = model.subgraphs
    graph.tensors[graph.inputs[0]].type = schema.TensorType.STRING


def name_custom_op(name):
    def change_model(model):
        take_text(model)
        code = model.operatorCodes[0]
        code.builtinCode = code.deprecatedBuiltinCode = (
            schema.BuiltinOperator.CUSTOM
        )
        code.customCode = name

    return change_model


def label(path, new_path, labels, about=None):
    content = "\n".join(labels).encode()
    file = AttachedFile("labels.txt", content, AXIS_LABELS)

    def change_model(model):
        outputs = {"probabilities": [file]}
        add_metadata(model, about or FileMetadata(), {}, outputs)

    change(path, new_path, change_model)
    whole = attach(new_path.read_bytes(), {"labels.txt": content})
    new_path.write_bytes(whole)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder of files that could be tried on a page, and that could not."""
    folder = tmp_path_factory.mktemp("files")
    export(folder / "ids.tflite", "softmax")
    export(folder / "plain.tflite", "linear")
    export(folder / "two.tflite", "softmax", "sigmoid")
    for name, made in (
        ("text.tflite", "ids.tflite"),
        ("vectors.tflite", "plain.tflite"),
        ("heads.tflite", "two.tflite"),
    ):
        change(folder / made, folder / name, take_text)
    for name, op in (
        ("tf_text.tflite", b"TFText>FastSentencepieceTokenize"),
        ("mediapipe.tflite", b"TFSentencepieceTokenizeOp"),
    ):
        change(folder / "ids.tflite", folder / name, name_custom_op(op))
    label(folder / "vectors.tflite", folder / "labelled.tflite", "abc", ABOUT)
    label(folder / "text.tflite", folder / "short.tflite", "ab")
    label(folder / "text.tflite", folder / "other_labels.tflite", "acb")
    export(folder / "more.tflite", "softmax", classes=4)
    change(folder / "more.tflite", folder / "more.tflite", take_text)
    return folder


@pytest.fixture
def package(tmp_path):
    """What stands for MediaPipe's package."""
    return write_package(tmp_path / "package")


def write_package(folder, name="@mediapipe/tasks-text", version="1.0.1"):
    (folder / "wasm").mkdir(parents=True)
    for file in tasks_text._FILES:
        (folder / file).write_text(file)
    described = {"name": name, "version": version}
    (folder / "package.json").write_text(json.dumps(described))
    return folder


def read_settings(folder):
    page = (folder / "index.html").read_text()
    (settings,) = re.findall(r'id="settings">(.*?)</script>', page, re.S)
    return json.loads(settings)


def test_folder(files, package, tmp_path):
    folder = tmp_path / "page"
    text_page(files / "text.tflite", folder, tasks_text=package)
    assert set(os.listdir(folder)) == FILES
    model = (folder / "model.tflite").read_bytes()
    assert model == (files / "text.tflite").read_bytes()
    file = folder / "tasks-text" / "wasm" / "text_wasm_internal.js"
    assert file.read_text() == "wasm/text_wasm_internal.js"
    assert read_settings(folder) == {
        "files": [{"name": "text.tflite", "url": "model.tflite"}],
        "examples": [],
    }
    assert "<title>text</title>" in (folder / "index.html").read_text()
    assert sorted(os.listdir(tmp_path)) == ["package", "page"]


def test_beside_title_and_examples(files, package, tmp_path):
    examples = ["</script><!--", "caf\u00e9 \U0001f600", "\ud800 $title"]
    text_page(
        files / "mediapipe.tflite",
        str(tmp_path / "page"),
        beside=files / "labelled.tflite",
        title="<b> & $settings",
        examples=examples,
        tasks_text=package,
    )
    settings = read_settings(tmp_path / "page")
    assert settings["examples"] == examples
    assert settings["files"][1] == {
        "name": "labelled.tflite",
        "url": "beside.tflite",
    }
    page = (tmp_path / "page" / "index.html").read_text()
    assert page.count("&lt;b&gt; &amp; $settings") == 2
    assert page.count("</script>") == 2


def test_what_a_file_says_of_itself(files, package, tmp_path):
    path = files / "labelled.tflite"
    text_page(path, tmp_path / "page", tasks_text=package)
    page = (tmp_path / "page" / "index.html").read_text()
    assert "<title>Cats &amp; dogs</title>" in page
    assert "<p>&lt;i&gt;Which&lt;/i&gt; it is.</p>" in page
    assert "Author: A. Author \u00b7 License: MIT<" in page


def test_files_of_one_name(files, package, tmp_path):
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "text.tflite"
    shutil.copy(files / "mediapipe.tflite", other)
    path = files / "text.tflite"
    text_page(path, tmp_path / "page", beside=other, tasks_text=package)
    shown = [file["name"] for file in read_settings(tmp_path / "page")["files"]]
    assert shown == [str(path), str(other)]


def test_overwrite(files, package, tmp_path):
    folder = tmp_path / "page"
    arguments = {"folder": folder, "tasks_text": package}
    beside = files / "labelled.tflite"
    text_page(files / "text.tflite", beside=beside, **arguments)
    with pytest.raises(FileExistsError, match="exists already"):
        text_page(files / "text.tflite", **arguments)
    # The package and the file are those of the folder itself.
    text_page(
        folder / "model.tflite",
        folder,
        title="again",
        tasks_text=folder / "tasks-text",
        overwrite=True,
    )
    assert set(os.listdir(folder)) == FILES
    assert "again" in (folder / "index.html").read_text()
    assert sorted(os.listdir(tmp_path)) == ["package", "page"]


def test_folder_of_other_things_is_never_replaced(files, package, tmp_path):
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="holds other things.*thesis"):
        text_page(
            files / "text.tflite", folder, tasks_text=package, overwrite=True
        )
    assert os.listdir(folder) == ["thesis.txt"]
    with pytest.raises(FileExistsError, match="must be a folder"):
        text_page(files / "text.tflite", folder / "thesis.txt", overwrite=True)
    with pytest.raises(FileNotFoundError, match="folder of the output"):
        text_page(files / "text.tflite", tmp_path / "no" / "page")


def test_failure_leaves_the_old_folder(files, package, tmp_path, monkeypatch):
    folder = tmp_path / "page"
    text_page(files / "text.tflite", folder, tasks_text=package)
    before = (folder / "index.html").read_text()

    def fail(source, target):
        raise OSError("the disk is gone")

    monkeypatch.setattr(shutil, "copyfile", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        text_page(
            files / "text.tflite",
            folder,
            title="new",
            tasks_text=package,
            overwrite=True,
        )
    assert (folder / "index.html").read_text() == before
    assert sorted(os.listdir(tmp_path)) == ["package", "page"]


@pytest.mark.parametrize(
    "name, says",
    [
        ("ids.tflite", r"takes float32 \(None, 4\).*runtime='mediapipe'"),
        ("tf_text.tflite", r"lacks \(TFText>FastSentencepieceTokenize\)"),
        ("heads.tflite", "answers with float32, float32"),
        ("vectors.tflite", "TextEmbedder.*`labels`"),
        ("short.tflite", "label for each class.*2 labels of 3 classes"),
    ],
)
def test_files_that_are_refused(files, tmp_path, name, says, monkeypatch):
    # Before npm is looked for.
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValueError, match=f"`path` must .*{says}"):
        text_page(files / name, tmp_path / "page")
    with pytest.raises(ValueError, match=f"`beside` must .*{says}"):
        text_page(files / "text.tflite", tmp_path / "page", files / name)
    assert not os.listdir(tmp_path)


def test_arguments_that_are_refused(files, tmp_path):
    path, folder = files / "text.tflite", tmp_path / "page"
    with pytest.raises(FileNotFoundError, match="no LiteRT file"):
        text_page(files / "gone.tflite", folder)
    with pytest.raises(ValueError, match="`beside` must be another file"):
        text_page(path, folder, beside=os.path.relpath(path))
    with pytest.raises(ValueError, match="3 and 4 classes"):
        text_page(path, folder, beside=files / "more.tflite")
    with pytest.raises(ValueError, match="'b' and 'c' for class 1"):
        text_page(
            files / "labelled.tflite",
            folder,
            beside=files / "other_labels.tflite",
        )
    for title in ("", " ", 3):
        with pytest.raises(ValueError, match="`title` must be"):
            text_page(path, folder, title=title)
    for examples in ([""], ["a", None], [1]):
        with pytest.raises(ValueError, match="`examples` must be"):
            text_page(path, folder, examples=examples)
    assert not os.listdir(tmp_path)


def test_packages_that_are_refused(files, tmp_path):
    path, folder = files / "text.tflite", tmp_path / "page"
    package = write_package(tmp_path / "old", version="0.10.35")
    with pytest.raises(ValueError, match="1.0 or newer.*tasks-text 0.10.35"):
        text_page(path, folder, tasks_text=package)
    package = write_package(tmp_path / "vision", "@mediapipe/tasks-vision")
    with pytest.raises(ValueError, match="holds @mediapipe/tasks-vision"):
        text_page(path, folder, tasks_text=package)
    (package / "package.json").write_text("[]")
    with pytest.raises(ValueError, match="cannot be read"):
        text_page(path, folder, tasks_text=package)
    (package / "text_bundle.mjs").unlink()
    with pytest.raises(FileNotFoundError, match="has no 'text_bundle.mjs'"):
        text_page(path, folder, tasks_text=package)
    assert not folder.exists()


def install_npm(folder, monkeypatch, script):
    folder.mkdir()
    npm = folder / "npm"
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(0o700)
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    monkeypatch.setenv("PATH", path)


@pytest.mark.skipif(sys.platform == "win32", reason="no such shell")
def test_npm(files, tmp_path, monkeypatch):
    path, folder = files / "text.tflite", tmp_path / "page"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(write_package(tmp_path / "own"), "package")
    (tmp_path / "own.tgz").write_bytes(packed.getvalue())
    install_npm(
        tmp_path / "bin",
        monkeypatch,
        f'echo "$@" > "{tmp_path}/said"; cp "{tmp_path}/own.tgz" .',
    )
    with pytest.raises(RuntimeError, match="checksum differs"):
        text_page(path, folder)
    assert not folder.exists()
    said = (tmp_path / "said").read_text()
    assert said.startswith("pack @mediapipe/tasks-text@1.0.1 ")
    digest = tasks_text.checksum(packed.getvalue())
    monkeypatch.setattr(tasks_text, "_SHA512", digest)
    text_page(path, folder)
    assert set(os.listdir(folder)) == FILES


@pytest.mark.skipif(sys.platform == "win32", reason="no such shell")
def test_npm_without_a_network(files, tmp_path, monkeypatch):
    script = "echo 'npm error code ENOTFOUND' >&2; exit 1"
    install_npm(tmp_path / "bin", monkeypatch, script)
    says = "fetch @mediapipe/tasks-text 1.0.1: code ENOTFOUND.*--tasks-text"
    with pytest.raises(RuntimeError, match=says):
        text_page(files / "text.tflite", tmp_path / "page")
    assert os.listdir(tmp_path) == ["bin"]


def test_without_npm(files, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="npm must be installed"):
        text_page(files / "text.tflite", tmp_path / "page")


def luminance(colour):
    digits = colour * 2 if len(colour) == 3 else colour
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("place", [0, 1], ids=["light", "dark"])
def test_contrast(place):
    """That of WCAG 2: 4.5 for texts, 3 for what else must be seen."""
    block = re.findall(r":root \{(.*?)\}", STYLE.read_text(), re.S)[place]
    colours = dict(re.findall(r"--(\w+): #(\w+)", block))

    def contrast(one, other):
        dark, light = sorted(map(luminance, (colours[one], colours[other])))
        return (light + 0.05) / (dark + 0.05)

    for name in ("text", "soft"):
        assert contrast(name, "back") >= 4.5
    assert contrast("text", "card") >= 4.5
    for name in ("field", "bad", "first", "second"):
        assert contrast(name, "back") >= 3
    for name in ("first", "second"):
        assert contrast(name, "card") >= 3
