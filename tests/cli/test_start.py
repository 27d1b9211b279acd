"""The command as a process of its own: how it starts, what it imports."""

import os
import shlex
import subprocess
import sys

import keras
import pytest

import keras_compembed_command

pytestmark = pytest.mark.slow
COMMAND = [sys.executable, keras_compembed_command.__file__]


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run_python(code):
    begin = "import sys; from keras_compembed_command import main\n"
    return run(sys.executable, "-c", begin + code)


def own_lines(stderr):
    """Without those that TensorFlow writes about the machine."""
    assert "Traceback" not in stderr
    lines = stderr.splitlines()
    return [line for line in lines if line.startswith("keras-compembed")]


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.keras"
    inputs = keras.Input((None,), dtype="int32")
    layers = [
        keras.layers.Embedding(600, 32, name=name)(inputs) for name in "ab"
    ]
    keras.Model(inputs, layers).save(path)
    return path


def test_help_and_errors_come_without_keras_and_tensorflow():
    arguments = {
        "--help": (0, "compress | export | report | inspect | page | learn"),
        "--version": (0, "keras-compembed"),
        "compress --help": (0, "--keep-partial"),
        "compress a.keras -o b.keras -k 1": (2, "`codebook_size`"),
        "compress gone.keras -o b.keras": (2, "No such file"),
        "export gone.keras b.tflite": (2, "No such file"),
        "inspect gone.tflite": (2, "No such file"),
        "page gone.tflite -o folder": (2, "No such file"),
        "learn gone.txt -o small.npz": (2, "No such file"),
    }
    result = run_python(
        f"for arguments in {list(arguments)}:\n"
        "    sys.argv[1:] = arguments.split()\n"
        "    print('status', main())\n"
        "print({'keras', 'tensorflow'} & set(sys.modules))"
    )
    said = result.stdout.splitlines()
    assert said[-1] == "set()"
    found = [int(line[7:]) for line in said if line.startswith("status ")]
    assert found == [status for status, _ in arguments.values()]
    for _, says in arguments.values():
        assert says in result.stdout + result.stderr


def test_whole_package_is_there_afterwards(path):
    result = run_python(
        f"sys.argv[1:] = ['report', {str(path)!r}]; print('status', main())\n"
        "import keras_compembed as kc; print(kc.CodeEmbedding(9, 4).name)"
    )
    assert "600 x 32" in result.stdout
    assert result.stdout.splitlines()[-2:] == ["status 0", "code_embedding"]
    assert own_lines(result.stderr) == []
    # Also after bad arguments.
    result = run_python(
        "sys.argv[1:] = ['report', 'gone.keras']; print(main())\n"
        "import keras_compembed as kc; print(kc.CodeEmbedding(9, 4).name)\n"
        "print(main())"
    )
    assert result.stdout.splitlines() == ["2", "code_embedding", "2"]


def test_another_backend_is_one_line():
    result = run_python(
        "import keras; keras.backend.backend = lambda: 'jax'\n"
        "sys.argv[1:] = ['inspect', sys.executable]; sys.exit(main())"
    )
    assert result.returncode == 2
    (line,) = own_lines(result.stderr)
    assert "KERAS_BACKEND=tensorflow" in line


@pytest.mark.skipif(sys.platform == "win32", reason="no such shell")
def test_streams_that_are_closed(path):
    command = shlex.join(COMMAND)
    module = f"{sys.executable} -m keras_compembed"
    for shell, status, says in (
        (f"{module} report model.keras <&- 2>&- | true", 0, ""),
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
