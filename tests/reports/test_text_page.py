"""The folder that `text_page` writes, without a browser."""

import json
import os
import re
import shutil
import sys
import zipfile

import keras
import pytest
import tensorflow as tf
from errors import refused
from text_pages import make_model
from text_pages import write_package

import keras_compembed as kc
from keras_compembed.export import flatbuffer
from keras_compembed.reports import text_page

pytest.importorskip("tensorflow_text")
pytest.importorskip("mediapipe")
FILES = {"page.css", "page.js", "index.html", "model.tflite", "tasks-text"}
ABOUT = kc.export.FileMetadata(
    name="Cats & dogs",
    description="<i>Which</i> it is.",
    author="A. Author",
    license="MIT",
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder of files that could be tried on a page, and that could not."""
    folder = tmp_path_factory.mktemp("files")
    model = make_model()
    words = {"runtime": "mediapipe"}
    vectors = keras.Sequential(model.layers[:-1])
    vectors(tf.constant(["cat"]))
    for name, made, options in (
        ("text", model, {"labels": list("abc"), **words}),
        ("about", model, {"labels": list("abc"), "metadata": ABOUT, **words}),
        ("other", model, {"labels": list("acb"), **words}),
        ("more", make_model(4), {"labels": list("abcd"), **words}),
        ("vectors", vectors, {"task": "embedder", **words}),
        ("tf_text", model, {"runtime": "tf-text"}),
    ):
        path = folder / f"{name}.tflite"
        kc.export.export_litert(made, path, verbose=0, **options)
    ids = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    kc.export.export_litert(ids, folder / "ids.tflite", verbose=0)
    # As other programs might write them.
    shutil.copy(folder / "text.tflite", folder / "short.tflite")
    with zipfile.ZipFile(folder / "short.tflite", "a") as archive:
        (name,) = archive.namelist()
        archive.NameToInfo.clear()
        archive.writestr(name, "a\nb")
    content = (folder / "text.tflite").read_bytes()
    whole = flatbuffer.read_model(bytearray(content))
    whole.subgraphs[0].outputs = [*whole.subgraphs[0].outputs] * 2
    whole.signatureDefs = []
    (folder / "heads.tflite").write_bytes(flatbuffer.write_model(whole))
    return folder


@pytest.fixture
def package(tmp_path):
    """What stands for MediaPipe's package."""
    return write_package(tmp_path / "package")


def read_page(folder):
    """The page, and the settings in it."""
    page = (folder / "index.html").read_text()
    (settings,) = re.findall(r'id="settings">(.*?)</script>', page, re.S)
    return page, json.loads(settings)


def test_folder(files, package, tmp_path):
    folder = tmp_path / "page"
    text_page(files / "text.tflite", folder, tasks_text=package)
    assert set(os.listdir(folder)) == FILES
    model = (folder / "model.tflite").read_bytes()
    assert model == (files / "text.tflite").read_bytes()
    file = folder / "tasks-text" / "wasm" / "text_wasm_internal.js"
    assert file.read_text() == "wasm/text_wasm_internal.js"
    page, settings = read_page(folder)
    shown = [{"name": "text.tflite", "url": "model.tflite"}]
    assert settings == {"files": shown, "examples": []}
    assert "<title>text</title>" in page
    assert sorted(os.listdir(tmp_path)) == ["package", "page"]


def test_what_pages_say(files, package, tmp_path):
    examples = ["</script><!--", "caf\u00e9 \U0001f600", "\ud800 $title"]
    text_page(
        files / "text.tflite",
        str(tmp_path / "page"),
        beside=files / "about.tflite",
        title="<b> & $settings",
        examples=examples,
        tasks_text=package,
    )
    page, settings = read_page(tmp_path / "page")
    assert settings["examples"] == examples
    beside = {"name": "about.tflite", "url": "beside.tflite"}
    assert settings["files"][1] == beside
    assert page.count("&lt;b&gt; &amp; $settings") == 2
    assert page.count("</script>") == 2
    # What a file says of itself; files of one name have their folders.
    other = tmp_path / "about.tflite"
    shutil.copy(files / "text.tflite", other)
    path = files / "about.tflite"
    text_page(path, tmp_path / "own", beside=other, tasks_text=package)
    page, settings = read_page(tmp_path / "own")
    shown = [file["name"] for file in settings["files"]]
    assert shown == [str(path), str(other)]
    assert "<title>Cats &amp; dogs</title>" in page
    assert "<p>&lt;i&gt;Which&lt;/i&gt; it is.</p>" in page
    assert "Author: A. Author \u00b7 License: MIT<" in page


def test_overwrite(files, package, tmp_path, monkeypatch):
    # A folder of other things is never replaced.
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    options = {"tasks_text": package, "overwrite": True}
    for place in (folder, folder / "thesis.txt"):
        with pytest.raises(FileExistsError):
            text_page(files / "text.tflite", place, **options)
    assert os.listdir(folder) == ["thesis.txt"]
    shutil.rmtree(folder)
    folder = tmp_path / "page"
    arguments = {"folder": folder, "tasks_text": package}
    beside = files / "about.tflite"
    text_page(files / "text.tflite", beside=beside, **arguments)
    with pytest.raises(FileExistsError, match="exists already"):
        text_page(files / "text.tflite", **arguments)
    # The package and the file are those of the folder itself.
    arguments = {"tasks_text": folder / "tasks-text", "overwrite": True}
    arguments["folder"] = folder
    text_page(folder / "model.tflite", title="again", **arguments)
    assert set(os.listdir(folder)) == FILES
    before = (folder / "index.html").read_text()
    assert "again" in before

    def fail(source, target):
        raise OSError("the disk is gone")

    monkeypatch.setattr(shutil, "copyfile", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        text_page(files / "text.tflite", title="new", **arguments)
    assert (folder / "index.html").read_text() == before
    assert sorted(os.listdir(tmp_path)) == ["package", "page"]


@pytest.mark.parametrize(
    "name, says",
    [
        ("ids.tflite", "float32 (None, 2)"),
        ("tf_text.tflite", "(TFText>"),
        ("heads.tflite", "float32, float32"),
        ("vectors.tflite", "TextEmbedder"),
        ("short.tflite", "2 labels of 3 classes"),
    ],
)
def test_files_that_are_refused(files, tmp_path, name, says, monkeypatch):
    # Before npm is looked for.
    monkeypatch.setenv("PATH", "")
    with refused("path", says):
        text_page(files / name, tmp_path / "page")
    with refused("beside", says):
        text_page(files / "text.tflite", tmp_path / "page", files / name)
    assert not os.listdir(tmp_path)


def test_what_is_refused(files, tmp_path):
    path, folder = files / "text.tflite", tmp_path / "page"
    with pytest.raises(FileNotFoundError, match="no LiteRT file"):
        text_page(files / "gone.tflite", folder)
    for beside, received in (
        (os.path.relpath(path), "text.tflite"),
        (files / "more.tflite", "3 and 4 classes"),
        (files / "other.tflite", "'b' and 'c' for class 1"),
    ):
        with refused("beside", received):
            text_page(path, folder, beside=beside)
    for title in ("", " ", 3):
        with refused("title", title):
            text_page(path, folder, title=title)
    for examples in ([""], ["a", None], [1]):
        with refused("examples", examples[-1]):
            text_page(path, folder, examples=examples)
    package = write_package(tmp_path / "old", version="0.10.35")
    with refused("tasks_text", "0.10.35"):
        text_page(path, folder, tasks_text=package)
    package = write_package(tmp_path / "vision", "@mediapipe/tasks-vision")
    with refused("tasks_text", "@mediapipe/tasks-vision"):
        text_page(path, folder, tasks_text=package)
    (package / "package.json").write_text("[]")
    with refused("tasks_text", "package.json"):
        text_page(path, folder, tasks_text=package)
    (package / "text_bundle.mjs").unlink()
    with refused("tasks_text", "text_bundle.mjs", FileNotFoundError):
        text_page(path, folder, tasks_text=package)
    assert not folder.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no such shell")
def test_npm(files, tmp_path, monkeypatch):
    npm = tmp_path / "npm"
    paths = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    for script, path, says in (
        ("echo 'npm error code E' >&2; exit 1", paths, "code E"),
        ('echo "$@" > said; mv said a.tgz', paths, "checksum differs"),
        ("", "", "npm must be installed"),
    ):
        npm.write_text(f"#!/bin/sh\n{script}\n")
        npm.chmod(0o700)
        monkeypatch.setenv("PATH", path)
        with pytest.raises((RuntimeError, FileNotFoundError), match=says):
            text_page(files / "text.tflite", tmp_path / "page")
    assert os.listdir(tmp_path) == ["npm"]
