"""The command as a process of its own: how it starts, what it imports."""

import os
import shlex
import subprocess
import sys

import keras
import pytest

import keras_compembed_command
from keras_compembed.cli import lines

COMMAND = [sys.executable, keras_compembed_command.__file__]


def run(*command):
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False
    )


def own_lines(stderr):
    """Without those that TensorFlow writes about the machine."""
    assert "Traceback" not in stderr
    lines = stderr.splitlines()
    return [line for line in lines if line.startswith("keras-compembed")]


@pytest.mark.parametrize(
    "arguments, status, says",
    [
        ("--help", 0, "compress | export | report | inspect | page | learn"),
        ("--version", 0, "keras-compembed"),
        ("compress --help", 0, "--keep-partial"),
        ("compress a.keras -o b.keras -k 1", 2, "`codebook_size`"),
        ("export gone.keras b.tflite", 2, "No such file"),
        ("inspect gone.tflite", 2, "No such file"),
        ("page gone.tflite -o folder", 2, "No such file"),
        ("learn gone.txt -o small.npz", 2, "No such file"),
    ],
)
def test_answers_in_less_than_a_second_of_processor_time(
    arguments, status, says
):
    resource = pytest.importorskip("resource")
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = run(*COMMAND, *arguments.split())
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert result.returncode == status
        assert says in result.stdout + result.stderr
        seconds.append(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        )
        if seconds[-1] < 1:
            break
    assert min(seconds) < 1


def test_checks_need_neither_keras_nor_tensorflow():
    code = (
        "import sys; from keras_compembed_command import main;"
        "sys.argv[1:] = ['compress', 'gone.keras', '-o', 'b.keras'];"
        "main(); print({'keras', 'tensorflow'} & set(sys.modules))"
    )
    assert run(sys.executable, "-c", code).stdout == "set()\n"


def test_as_a_module(tmp_path):
    path = tmp_path / "model.keras"
    inputs = keras.Input((None,), dtype="int32")
    keras.Sequential([inputs, keras.layers.Embedding(600, 32)]).save(path)
    result = run(sys.executable, "-m", "keras_compembed", "report", str(path))
    assert "600 x 32" in result.stdout
    assert own_lines(result.stderr) == []
    assert result.returncode == 0


def test_whole_package_is_there_after_the_checks(tmp_path):
    path = tmp_path / "model.keras"
    inputs = keras.Input((None,), dtype="int32")
    keras.Sequential([inputs, keras.layers.Embedding(600, 32)]).save(path)
    code = (
        "import sys; from keras_compembed_command import main;"
        f"sys.argv[1:] = ['report', {str(path)!r}]; print('status', main());"
        "import keras_compembed as kc; print(kc.CodeEmbedding(9, 4).name)"
    )
    result = run(sys.executable, "-c", code)
    assert "600 x 32" in result.stdout
    assert result.stdout.splitlines()[-2:] == ["status 0", "code_embedding"]
    assert own_lines(result.stderr) == []


def test_whole_package_is_there_after_bad_arguments():
    code = (
        "import sys; from keras_compembed_command import main;"
        "sys.argv[1:] = ['report', 'gone.keras']; print(main());"
        "import keras_compembed as kc; print(kc.CodeEmbedding(9, 4).name);"
        "print(main())"
    )
    result = run(sys.executable, "-c", code)
    assert result.stdout.splitlines() == ["2", "code_embedding", "2"]


def test_another_backend_is_one_line(tmp_path):
    code = (
        "import keras; keras.backend.backend = lambda: 'jax'\n"
        "import sys; from keras_compembed_command import main\n"
        "sys.argv[1:] = ['inspect', sys.executable]; sys.exit(main())"
    )
    result = run(sys.executable, "-c", code)
    assert result.returncode == 2
    (line,) = own_lines(result.stderr)
    assert "KERAS_BACKEND=tensorflow" in line


@pytest.mark.skipif(sys.platform == "win32", reason="no such shell")
def test_streams_that_are_closed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs = keras.Input((None,), dtype="int32")
    layers = [
        keras.layers.Embedding(600, 32, name=name)(inputs) for name in "ab"
    ]
    keras.Model(inputs, layers).save("model.keras")
    command = shlex.join(COMMAND)
    for shell, status, says in (
        (f"{command} report model.keras <&- 2>&- | true", 0, ""),
        (
            f"{command} compress model.keras -o out.keras -m 2 -k 4 | true",
            1,
            "keras-compembed: error: stdout was closed before the work was "
            "done",
        ),
    ):
        result = run("bash", "-c", f"set -o pipefail; {shell}")
        assert result.returncode == status, shell
        assert own_lines(result.stderr) == says.splitlines()
        assert "BrokenPipe" not in result.stderr
    assert os.listdir() == ["model.keras"]


def test_what_takes_long_is_said_on_a_terminal(capsys, monkeypatch):
    lines.show("loading")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    lines.show("loading")
    assert capsys.readouterr().err == "keras-compembed: loading ...\n"
