"""The command as a process: how it starts, and how signals end it."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys

import keras
import pytest

import keras_compembed as kc
import keras_compembed_command
from keras_compembed_command import main

SIGNALS = (signal.SIGINT, signal.SIGTERM)
COMMAND = [sys.executable, keras_compembed_command.__file__]
COMPRESS = (
    "compress model.keras -o out.keras -m 2 -k 4 --seed 0 "
    "--layers first gl\u00fccklich"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model of two tables, and one for temporary files."""
    monkeypatch.chdir(tmp_path)
    inputs = keras.Input((None,), dtype="int32")
    tables = [
        keras.layers.Embedding(300, 16, name=name)(inputs)
        for name in ("first", "glücklich")
    ]
    keras.Model(inputs, tables).save("model.keras")
    os.mkdir("temporary")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    return tmp_path


def check_nothing_is_left(folder):
    assert sorted(os.listdir(folder)) == ["model.keras", "temporary"]
    assert os.listdir(folder / "temporary") == []


@pytest.fixture
def ended(folder, monkeypatch):
    """Statuses that the process would have ended with, at once."""
    statuses = []

    def end(status):
        check_nothing_is_left(folder)
        statuses.append(status)
        raise KeyError

    monkeypatch.setattr(os, "_exit", end)
    return statuses


def send_in(monkeypatch, owner, name, call, number=signal.SIGINT):
    """Sends a signal where this call begins; calls are counted from 1."""
    function, count = getattr(owner, name), iter(range(1, 10**9))

    def counted(*args, **kwargs):
        if next(count) == call:
            signal.raise_signal(number)
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)


def test_keeps_what_was_learned(folder, capsys, monkeypatch):
    send_in(monkeypatch, keras.utils.Progbar, "update", 3)
    assert main(f"{COMPRESS} --keep-partial".split()) == 0
    assert "finishing with the best" in capsys.readouterr().out
    layers = keras.saving.load_model("out.keras").layers[1:]
    assert {type(layer) for layer in layers} == {kc.CodeEmbedding}


@pytest.mark.parametrize(
    ("number", "place"), [(signal.SIGINT, "update"), (signal.SIGTERM, "save")]
)
def test_ends_at_once(number, place, folder, ended, monkeypatch, capfd):
    """While it learns or saves."""
    before = [signal.getsignal(each) for each in SIGNALS]
    owner = keras.Model if place == "save" else keras.utils.Progbar
    send_in(monkeypatch, owner, place, 1, number)
    # What would follow in a process that goes on is not the same.
    with contextlib.suppress(KeyError):
        main(COMPRESS.split())
    assert ended == [128 + number]
    assert f"error: ended by {number.name}\n" in capfd.readouterr().err
    assert [signal.getsignal(each) for each in SIGNALS] == before


def run(*command, **environment):
    return subprocess.run(
        command,
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.slow
def test_help_and_bad_arguments_come_without_tensorflow():
    code = (
        "import sys; from keras_compembed_command import main\n"
        "for line in ('--help', 'compress --help', '--version', 'learn'):\n"
        "    print('status', main(line.split()))\n"
        "print({'keras', 'tensorflow', 'numpy'} & set(sys.modules))"
    )
    said = run(sys.executable, "-c", code).stdout
    assert re.findall(r"status (\d)", said) == ["0", "0", "0", "2"]
    assert "compress | export | report | inspect | learn" in said
    assert f"keras-compembed {kc.__version__}" in said
    assert said.endswith("set()\n")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no such shell")
def test_streams(folder):
    command = f"{shlex.join(COMMAND)} report model.keras"
    module = f"{sys.executable} -m keras_compembed report model.keras"
    for shell in (f"{command} | true", f"{module} <&- 2>&- | true"):
        result = run("bash", "-c", f"set -o pipefail; {shell}")
        assert result.returncode == 0, shell
        assert "Error" not in result.stderr
    # A console that knows no umlauts.
    result = run(*command.split(), PYTHONIOENCODING="ascii")
    assert result.returncode == 0
    assert r"gl\xfccklich" in result.stdout
    shell = f"set -o pipefail; {shlex.join(COMMAND)} {COMPRESS} | true"
    result = run("bash", "-c", shell)
    assert result.returncode == 1
    assert "stdout was closed before the end" in result.stderr
    check_nothing_is_left(folder)


def test_ignored_signals_stay_ignored(folder, monkeypatch):
    handler = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        send_in(monkeypatch, keras.Model, "save", 1, signal.SIGTERM)
        assert main(COMPRESS.split()) == 0
    finally:
        signal.signal(signal.SIGTERM, handler)


@pytest.mark.slow
def test_process_that_is_interrupted(folder):
    options = {"text": True, "stdout": subprocess.PIPE}
    command = [*COMMAND, *COMPRESS.split(), "--effort", "1000"]
    # Python ignores Ctrl-C where a shell runs the tests in the background.
    begin = "import signal; signal.signal(2, signal.default_int_handler)\n"
    begin += "import sys, keras_compembed_command as c; sys.exit(c.main())"
    command[1:2] = ["-u", "-c", begin]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, **options
    ) as process:
        for line in process.stdout:
            if "learning codes 2x4" in line:
                break
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert "Traceback" not in process.stderr.read()
    check_nothing_is_left(folder)
