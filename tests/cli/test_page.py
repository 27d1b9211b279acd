"""`keras-compembed page`."""

import socket

import pytest
from text_pages import make_model
from text_pages import write_package

import keras_compembed as kc
from keras_compembed import cli

pytest.importorskip("tensorflow_text")
pytest.importorskip("mediapipe")
PAGE = "page a.tflite -o out --tasks-text package"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "a.tflite"
    options = {"runtime": "mediapipe", "labels": list("abc"), "verbose": 0}
    kc.export.export_litert(make_model(), path, **options)
    return path.read_bytes()


@pytest.fixture
def folder(exported, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.tflite").write_bytes(exported)
    write_package(tmp_path / "package")
    return tmp_path


def test_page(folder, capsys):
    (folder / "texts.txt").write_text("one\n\n two\u2028half\r\nthree")
    more = "--beside b.tflite --title Title --examples texts.txt"
    assert cli.main([*PAGE.split(), *more.split()]) == 0
    assert "python -m http.server -d out" in capsys.readouterr().out
    page = (folder / "out" / "index.html").read_text()
    for said in ('"one"', '" two\\u2028half"', '"three"', "b.tflite", "Title"):
        assert said in page


def test_what_is_refused(folder, monkeypatch, capsys):
    (folder / "old").mkdir()
    (folder / "bad.txt").write_bytes(b"\xff")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for command, says in (
            ("page gone.tflite -o out", "'gone.tflite'"),
            (f"{PAGE} --beside gone", "'gone'"),
            (f"{PAGE} --examples gone", "'gone'"),
            ("page a.tflite -o old --tasks-text package", "Pass --overwrite"),
            (f"{PAGE} --examples bad.txt", "UTF-8"),
            (f"{PAGE} --serve {port}", f"--serve {port}"),
            (f"{PAGE} --serve 65536", "--serve 65536"),
        ):
            assert cli.main(command.split()) == 2
            (line,) = capsys.readouterr().err.splitlines()
            assert says in line
    monkeypatch.setenv("PATH", "")
    assert cli.main("page a.tflite -o out".split()) == 2
    assert "npm must be installed" in capsys.readouterr().err
    assert not (folder / "out").exists()
