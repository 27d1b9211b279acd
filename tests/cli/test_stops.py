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
from keras.src.saving import saving_lib

from keras_compembed import cli
from keras_compembed.cli import compress
from keras_compembed.cli.stops import Stops
from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.learners import coordinate_search as search
from keras_compembed.learners.kd_code_learner import KDCodeLearner
from keras_compembed.vectors import CompressedVectors

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "SIGHUP"), reason="no such signals here"
)
COMPRESS = "compress model.keras -o out.keras -m 2 -k 4 --seed 0 --min-bytes 1"
LONG = ["--effort", "1000"]
# Python ignores Ctrl-C where a shell runs the tests in the background.
START = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)

def send(*args, **kwargs):
    os.kill(os.getpid(), signal.{signal})
    # Only in a moment, where what is called cannot be interrupted.
    for _ in range(1000): pass
    raise AssertionError("The process went on.")

{code}
from keras_compembed_command import main
sys.exit(main())
"""
AT_IMPORT = """
class Sender:
    def find_spec(self, name, *args):
        if name == "keras.src.layers":
            send()

sys.meta_path.insert(0, Sender())
"""
AT_USE = """
class Patcher:
    def find_spec(self, name, *args):
        if name == "keras_compembed.compression":
            from {module} import {owner}
            {owner}.{name} = send

sys.meta_path.insert(0, Patcher())
"""
PLACES = {
    "import": AT_IMPORT,
    "learn": AT_USE.format(
        module="keras_compembed.learners",
        owner="coordinate_search",
        name="least_squares_step",
    ),
    "save": AT_USE.format(
        module="keras.src.saving", owner="saving_lib", name="_save_state"
    ),
}


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


@pytest.mark.parametrize(
    "place, name, status",
    [
        ("import", "SIGINT", 130),
        ("learn", "SIGINT", 130),
        ("save", "SIGINT", 130),
        ("save", "SIGTERM", 143),
    ],
)
def test_ends_at_once(place, name, status, folder):
    code = START.format(signal=name, code=PLACES[place])
    result = subprocess.run(
        [sys.executable, "-c", code, *COMPRESS.split()],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    said = {"SIGINT": "interrupted", "SIGTERM": "terminated"}[name]
    # TensorFlow writes about the machine before.
    assert "Traceback" not in result.stderr
    (line,) = re.findall("^keras-compembed.*", result.stderr, re.M)
    assert line == f"keras-compembed: error: {said}"
    assert result.returncode == status
    check_nothing_is_left(folder)


def test_real_ctrl_c(folder):
    code = START.format(signal="SIGINT", code="")
    with subprocess.Popen(
        [sys.executable, "-u", "-c", code, *COMPRESS.split(), *LONG],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        for line in process.stdout:
            if "learning codes 2x4" in line:
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert "Traceback" not in process.stderr.read()
    check_nothing_is_left(folder)


@pytest.fixture
def stops():
    """Real signals in this process, and what comes of them."""
    handlers = {n: signal.getsignal(n) for n in (1, signal.SIGINT, 15)}
    # Python ignores Ctrl-C where tests run in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stops = Stops()
    stops.listen()
    yield stops
    for number, handler in handlers.items():
        signal.signal(number, handler)


def interrupt_in(monkeypatch, owner, name, *calls):
    """Sends Ctrl-C at the beginning of these calls, counted from 1."""
    function, count = getattr(owner, name), iter(range(1, 10**9))

    def call(*args, **kwargs):
        if next(count) in calls:
            signal.raise_signal(signal.SIGINT)
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)


def kinds(path):
    return {
        layer.name: type(layer)
        for layer in keras.saving.load_model(path).layers[1:]
    }


PARTIAL = [*COMPRESS.split(), "--keep-partial"]


def test_keeps_what_was_learned(folder, stops, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        # A first codes, then sweeps: in the midst of the second table.
        sweeps = count_sweeps(folder, patch)
        interrupt_in(patch, search.Sweep, "run", sweeps + sweeps // 2)
        assert cli.main([*PARTIAL, "--effort", "0.2"], stops) == 0
    said = capsys.readouterr().out
    assert "Stopped by Ctrl-C." in said
    assert "Best codes found so far: second\n" in said
    assert "Still tables: third\n" in said
    coded = {"first": CodeEmbedding, "second": CodeEmbedding}
    assert kinds("out.keras") == {**coded, "third": keras.layers.Embedding}
    # The same command goes on from there.
    command = "compress out.keras -o all.keras -m 2 -k 4 --min-bytes 1"
    assert cli.main(command.split()) == 0
    assert kinds("all.keras") == {**coded, "third": CodeEmbedding}
    parts = (
        keras.saving.load_model("out.keras"),
        keras.saving.load_model("all.keras"),
    )
    for name in coded:
        before, after = (model.get_layer(name) for model in parts)
        np.testing.assert_array_equal(before.embeddings, after.embeddings)


def count_sweeps(folder, monkeypatch):
    """Sweeps that the first table takes."""
    count = []
    run = search.Sweep.run
    with monkeypatch.context() as patch:
        patch.setattr(
            search.Sweep, "run", lambda *args: count.append(run(*args))
        )
        command = [*COMPRESS.split(), "--layers", "first", "--effort", "0.2"]
        assert cli.main(command) == 0
    os.remove("out.keras")
    return len(count)


def test_keeps_all_when_the_last_is_stopped(folder, stops, capsys, monkeypatch):
    interrupt_in(monkeypatch, search.Sweep, "run", 3)
    command = [*PARTIAL, "--layers", "second"]
    assert cli.main(command, stops) == 0
    said = capsys.readouterr().out
    assert "Best codes found so far: second\n" in said
    assert "Still tables" not in said
    assert kinds("out.keras")["second"] is CodeEmbedding


def test_nothing_to_keep(folder, stops, capsys, monkeypatch):
    interrupt_in(monkeypatch, search, "mean_row", 1)
    assert cli.main(PARTIAL, stops) == 130
    assert capsys.readouterr().err == "keras-compembed: error: interrupted\n"
    check_nothing_is_left(folder)


@pytest.mark.parametrize("place", ["learn", "save"])
def test_second_ctrl_c_and_one_while_saving_end_at_once(
    place, folder, stops, monkeypatch
):
    ended = []

    def end(status):
        check_nothing_is_left(folder)
        ended.append(status)
        raise KeyError

    monkeypatch.setattr(os, "_exit", end)
    if place == "learn":
        interrupt_in(monkeypatch, search.Sweep, "run", 3, 4)
    else:
        interrupt_in(monkeypatch, saving_lib, "_save_state", 1)
    # What would follow in a process that goes on is not the same.
    with contextlib.suppress(KeyError):
        cli.main([*PARTIAL, "--effort", "0.1"], stops)
    assert ended == [130]


def test_gradient_learners_too(folder, stops, capsys, monkeypatch):
    monkeypatch.setattr(compress, "_KD_ITERATIONS", 4)
    interrupt_in(monkeypatch, KDCodeLearner, "begin", 2)
    command = [*PARTIAL, "--composition", "concat"]
    assert cli.main(command, stops) == 0
    said = capsys.readouterr().out
    assert "Still tables: second, third\n" in said
    assert "Best codes" not in said


def test_ignored_signals_stay_ignored():
    handler = signal.getsignal(signal.SIGHUP)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        others = {n: signal.getsignal(n) for n in (signal.SIGINT, 15)}
        Stops().listen()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        for number, other in {**others, signal.SIGHUP: handler}.items():
            signal.signal(number, other)


def test_vectors_learned_until_ctrl_c(folder, stops, capsys, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(300, 8))
    np.savez("vectors.npz", words=[f"w{x}" for x in range(300)], rows=rows)
    interrupt_in(monkeypatch, search.Sweep, "run", 3)
    command = "learn vectors.npz -o small.npz -m 2 -k 4 --keep-partial"
    assert cli.main(command.split(), stops) == 0
    assert "Stopped by Ctrl-C: the best codes" in capsys.readouterr().out
    assert len(CompressedVectors.load("small.npz")) == 300
