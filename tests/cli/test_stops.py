"""Ctrl-C and other signals, really sent."""

import contextlib
import os
import re
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_compembed as kc
import keras_compembed_command

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "SIGHUP"), reason="no such signals here"
)
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
COMPRESS = "compress model.keras -o out.keras -m 2 -k 4 --seed 0 --min-bytes 1"
PARTIAL = f"{COMPRESS} --keep-partial --effort 0.2"
UPDATE = keras.utils.Progbar.update


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model of three tables, and one for temporary files."""
    monkeypatch.chdir(tmp_path)
    inputs = keras.Input((None,), dtype="int32")
    towers = [
        keras.layers.Embedding(300, 16, name=name)(inputs)
        for name in ("first", "second", "third")
    ]
    keras.Model(inputs, towers).save("model.keras")
    os.mkdir("temporary")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    return tmp_path


def check_nothing_is_left(folder):
    assert sorted(os.listdir(folder)) == ["model.keras", "temporary"]
    assert os.listdir(folder / "temporary") == []


@pytest.fixture
def run(monkeypatch):
    """Runs the command in this process, where signals are as in its own."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}

    def run_command(command):
        # Not as at the end of the command before.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        monkeypatch.setattr(sys, "argv", ["keras-compembed", *command.split()])
        return keras_compembed_command.main()

    yield run_command
    for number, handler in handlers.items():
        signal.signal(number, handler)


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


def send_in(monkeypatch, owner, name, *calls, number=signal.SIGINT, when=None):
    """Sends a signal where these calls begin, or those of a first argument.

    Calls are counted from 1.
    """
    function, count = getattr(owner, name), iter(range(1, 10**9))

    def call(*args, **kwargs):
        if next(count) in calls or (when and when in args[0]):
            signal.raise_signal(number)
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)


def count_steps(run, monkeypatch):
    """Steps of the search that the first table takes."""
    steps = []
    with monkeypatch.context() as patch:
        patch.setattr(
            keras.utils.Progbar,
            "update",
            lambda *args, **kwargs: steps.append(UPDATE(*args, **kwargs)),
        )
        assert run(f"{COMPRESS} --layers first --effort 0.2") == 0
    os.remove("out.keras")
    return len(steps)


def kinds(path):
    model = keras.saving.load_model(path)
    return {layer.name: type(layer) for layer in model.layers[1:]}


def test_keeps_what_was_learned(folder, run, capsys, monkeypatch):
    steps = count_steps(run, monkeypatch)
    with monkeypatch.context() as patch:
        # In the midst of the second table.
        middle = steps + steps // 2
        send_in(patch, keras.utils.Progbar, "update", middle)
        assert run(PARTIAL) == 0
    said = capsys.readouterr().out
    assert "Stopped by Ctrl-C." in said
    assert "Best codes found so far: second\n" in said
    assert "Still tables: third\n" in said
    coded = {"first": kc.CodeEmbedding, "second": kc.CodeEmbedding}
    assert kinds("out.keras") == {**coded, "third": keras.layers.Embedding}
    # The same command goes on from there.
    command = "compress out.keras -o all.keras -m 2 -k 4 --min-bytes 1"
    assert run(f"{command} --effort 0.2") == 0
    assert kinds("all.keras") == {**coded, "third": kc.CodeEmbedding}
    parts = [keras.saving.load_model(f"{x}.keras") for x in ("out", "all")]
    for name in coded:
        before, after = (model.get_layer(name) for model in parts)
        np.testing.assert_array_equal(before.embeddings, after.embeddings)


def test_keeps_all_when_the_last_is_stopped(folder, run, capsys, monkeypatch):
    send_in(monkeypatch, keras.utils.Progbar, "update", 3)
    assert run(f"{PARTIAL} --layers second") == 0
    said = capsys.readouterr().out
    assert "Best codes found so far: second\n" in said
    assert "Still tables" not in said
    assert kinds("out.keras")["second"] is kc.CodeEmbedding


def test_nothing_to_keep(folder, run, capsys, monkeypatch):
    # As it says that it begins with the first table.
    send_in(monkeypatch, sys.stdout, "write", when="learning codes")
    assert run(PARTIAL) == 130
    assert capsys.readouterr().err == "keras-compembed: error: interrupted\n"
    check_nothing_is_left(folder)


def test_gradient_learners_too(folder, run, capsys, monkeypatch):
    send_in(monkeypatch, keras.utils.Progbar, "update", 2)
    command = PARTIAL.replace("--effort 0.2", "--effort 0.0004")
    assert run(f"{command} --composition concat") == 0
    assert "Still tables: second, third\n" in capsys.readouterr().out
    assert kinds("out.keras")["first"] is kc.CodeEmbedding


def test_vectors_learned_until_ctrl_c(folder, run, capsys, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(300, 8))
    np.savez("vectors.npz", words=[f"w{x}" for x in range(300)], rows=rows)
    send_in(monkeypatch, keras.utils.Progbar, "update", 3)
    assert run("learn vectors.npz -o a.npz -m 2 -k 4 --keep-partial") == 0
    assert "Stopped by Ctrl-C: the best codes" in capsys.readouterr().out
    assert len(kc.vectors.CompressedVectors.load("a.npz")) == 300


@pytest.mark.parametrize(
    "command, places, status",
    [
        (COMPRESS, ["update"], 130),
        (PARTIAL, ["save"], 130),
        (PARTIAL, ["update", "save"], 130),
        (COMPRESS, ["save"], 143),
    ],
)
def test_ends_at_once(command, places, status, run, ended, monkeypatch, capfd):
    """Without --keep-partial, while it saves, and by a second Ctrl-C."""
    number = status - 128
    if "update" in places:
        send_in(monkeypatch, keras.utils.Progbar, "update", 3, number=number)
    if "save" in places:
        send_in(monkeypatch, keras.Model, "save", 1, number=number)
    # What would follow in a process that goes on is not the same.
    with contextlib.suppress(KeyError):
        run(command)
    assert ended == [status]
    said = {130: "interrupted", 143: "terminated"}[status]
    assert f"keras-compembed: error: {said}\n" in capfd.readouterr().err


def test_ignored_signals_stay_ignored(run):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert run("--version") == 0
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


# Python ignores Ctrl-C where a shell runs the tests in the background.
START = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)

class Sender:
    def find_spec(self, name, *args):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)
            # Only in a moment, where what is called cannot be interrupted.
            for _ in range(1000): pass
            raise AssertionError("The process went on.")

sys.meta_path.insert(0, Sender())
from keras_compembed_command import main
sys.exit(main())
"""


@pytest.mark.slow
def test_process_that_is_interrupted(folder):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    options = {"text": True, "env": environment, "stdout": subprocess.PIPE}
    options["stderr"] = subprocess.PIPE
    command = [sys.executable, "-u", "-c", START, *COMPRESS.split()]
    # While it imports.
    command[3] = START.format(module="keras.src.layers")
    result = subprocess.run(command, **options)
    # TensorFlow writes about the machine before.
    assert "Traceback" not in result.stderr
    (line,) = re.findall("^keras-compembed.*", result.stderr, re.M)
    assert line == "keras-compembed: error: interrupted"
    assert result.returncode == 130
    # While it learns.
    command[3] = START.format(module="none")
    command += ["--effort", "1000"]
    with subprocess.Popen(command, **options) as process:
        for line in process.stdout:
            if "learning codes 2x4" in line:
                break
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert "Traceback" not in process.stderr.read()
    check_nothing_is_left(folder)
