"""`keras-compembed page`."""

import contextlib
import importlib
import json
import os
import threading
import urllib.request

import pytest

from keras_compembed import cli
from keras_compembed.cli import page
from keras_compembed.cli.page_server import page_server


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder; no page is written, but what it would be of is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tflite").write_text("")
    (tmp_path / "b.tflite").write_text("")
    monkeypatch.setattr(page, "check_tasks_text", lambda folder: None)

    def write(*values, **settings):
        (tmp_path / "said").write_text(json.dumps([values, settings]))

    # The function of that name hides it in its package.
    module = importlib.import_module("keras_compembed.reports.text_page")
    monkeypatch.setattr(module, "text_page", write)
    return tmp_path


def fails(capsys, arguments):
    assert cli.main(arguments.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_arguments(folder, capsys):
    (folder / "texts.txt").write_text("one\n\n two\u2028half\r\nthree")
    arguments = (
        "page a.tflite -o out --beside b.tflite --title T --overwrite "
        "--examples texts.txt --tasks-text package"
    )
    assert cli.main(arguments.split()) == 0
    values, settings = json.loads((folder / "said").read_text())
    assert values == ["a.tflite", "out"]
    assert settings == {
        "beside": "b.tflite",
        "title": "T",
        "examples": ["one", " two\u2028half", "three"],
        "tasks_text": "package",
        "overwrite": True,
    }
    assert "python -m http.server -d out" in capsys.readouterr().out


def test_files_that_are_missing(folder, capsys):
    assert "'gone.tflite'" in fails(capsys, "page gone.tflite -o out")
    command = "page a.tflite -o out"
    for option in ("beside", "examples"):
        assert "'gone'" in fails(capsys, f"{command} --{option} gone")
    (folder / "old").mkdir()
    assert "Pass --overwrite" in fails(capsys, "page a.tflite -o old")
    (folder / "bad.txt").write_bytes(b"\xff")
    said = fails(capsys, f"{command} --examples bad.txt")
    assert "Examples must be in UTF-8" in said
    assert not (folder / "said").exists()


def test_npm_is_looked_for_first(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.tflite").write_text("")
    monkeypatch.setenv("PATH", "")
    said = fails(capsys, f"page {tmp_path}/a.tflite -o {tmp_path}/out")
    assert "npm must be installed" in said


@contextlib.contextmanager
def serving(folder):
    with page_server(folder, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_address[1]}/"
        server.shutdown()


def test_server(tmp_path):
    kinds = {
        "index.html": "text/html",
        "page.js": "text/javascript",
        "bundle.mjs": "text/javascript",
        "runtime.wasm": "application/wasm",
        "page.css": "text/css",
    }
    for name in kinds:
        (tmp_path / name).write_text(name)
    with serving(tmp_path) as address:
        for name, kind in kinds.items():
            with urllib.request.urlopen(address + name) as answer:
                assert answer.headers.get_content_type() == kind
                assert answer.read().decode() == name


def test_ports_that_are_refused(folder, capsys):
    with page_server(folder, 0) as server:
        for port in (server.server_address[1], 65536):
            said = fails(capsys, f"page a.tflite -o out --serve {port}")
            assert f"must be a port that is free. Received: --serve {port}" in (
                said
            )
    assert not (folder / "said").exists()


def test_serve_ends_by_ctrl_c(folder, monkeypatch, capsys):
    class Server(contextlib.nullcontext):
        def serve_forever(self):
            raise KeyboardInterrupt

    opened = []

    def server(folder, port):
        opened.append((folder, port))
        return Server(Server())

    monkeypatch.setattr(page, "page_server", server)
    monkeypatch.setattr(page, "check_port", lambda port: None)
    assert cli.main("page a.tflite -o out --serve 8123".split()) == 0
    assert opened == [("out", 8123)]
    assert "http://localhost:8123" in capsys.readouterr().out
    assert "said" in os.listdir(folder)
