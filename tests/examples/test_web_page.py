"""The folder that `examples/web_page.py` writes, without a browser."""

import json
import os
import re
import threading
import urllib.request

import export_models
import keras
import pytest
from text_pages import make_model
from text_pages import write_package

from examples import web_page

pytest.importorskip("tensorflow_text")
pytest.importorskip("mediapipe")
FILES = {"page.css", "page.js", "index.html", "model.tflite", "tasks-text"}
ABOUT = dict(
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
    for name, made, options in (
        ("text", model, {"labels": list("abc")}),
        ("about", model, {"labels": list("abc"), "metadata": ABOUT}),
        ("other", model, {"labels": list("acb")}),
        ("more", make_model(4), {"labels": list("abcd")}),
    ):
        path = folder / f"{name}.tflite"
        options["runtime"] = "mediapipe"
        export_models.write(made, path, **options)
    ids = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    export_models.write(ids, folder / "ids.tflite")
    write_package(folder / "package")
    return folder


@pytest.fixture
def write(files, tmp_path):
    """Writes a page; returns its folder, it, and the settings in it."""

    def write_page(name, *flags):
        folder = tmp_path / "page"
        flags = [f"--tasks-text={files / 'package'}", *flags]
        web_page.main([str(files / name), f"--output={folder}", *flags])
        page = (folder / "index.html").read_text("utf-8")
        (settings,) = re.findall(r'id="settings">(.*?)</script>', page, re.S)
        return folder, page, json.loads(settings)

    return write_page


def test_folder(write, files, capsys):
    folder, page, settings = write("text.tflite")
    assert set(os.listdir(folder)) == FILES
    model = (folder / "model.tflite").read_bytes()
    assert model == (files / "text.tflite").read_bytes()
    shown = [{"name": "text.tflite", "url": "model.tflite"}]
    assert settings == {"files": shown, "examples": []}
    assert "<title>text</title>" in page
    assert f"http.server -d {folder}" in capsys.readouterr().out
    with web_page.page_server(folder, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://localhost:{server.server_address[1]}/page.js"
        with urllib.request.urlopen(address) as answer:
            assert answer.headers["Content-type"] == "text/javascript"
        server.shutdown()
    with pytest.raises(SystemExit):
        write("text.tflite")


def test_what_pages_say(write, files, tmp_path):
    examples = ["</script><!--", "caf\u00e9 \U0001f600", "two\u2028half $title"]
    (tmp_path / "texts.txt").write_text("\r\n\n".join(examples), "utf-8")
    _, page, settings = write(
        "about.tflite",
        f"--beside={files / 'text.tflite'}",
        f"--examples={tmp_path / 'texts.txt'}",
    )
    assert settings["examples"] == examples
    assert settings["files"][1] == {
        "name": "text.tflite",
        "url": "beside.tflite",
    }
    assert page.count("</script>") == 2
    assert "<title>Cats &amp; dogs</title>" in page
    assert "<p>&lt;i&gt;Which&lt;/i&gt; it is.</p>" in page
    assert "Author: A. Author \u00b7 License: MIT<" in page


@pytest.mark.parametrize(
    ("name", "beside", "says"),
    [
        ("ids.tflite", None, "must take one text"),
        ("text.tflite", "ids.tflite", "must take one text"),
        ("text.tflite", "more.tflite", "must have the classes"),
        ("text.tflite", "other.tflite", "must have the classes"),
    ],
)
def test_files_that_are_refused(write, files, tmp_path, name, beside, says):
    flags = [f"--beside={files / beside}"] if beside else []
    with pytest.raises(SystemExit, match=says):
        write(name, *flags)
    assert not os.listdir(tmp_path)


def test_npm(files, tmp_path, monkeypatch):
    npm = tmp_path / "npm"
    npm.write_text('#!/bin/sh\necho "$@" > said; mv said a.tgz\n')
    npm.chmod(0o700)
    arguments = [str(files / "text.tflite"), f"--output={tmp_path / 'page'}"]
    for path, says in (
        (f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "another file"),
        ("", "npm must be installed"),
    ):
        monkeypatch.setenv("PATH", path)
        with pytest.raises(SystemExit, match=says):
            web_page.main(arguments)
    assert os.listdir(tmp_path) == ["npm"]
