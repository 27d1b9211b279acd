"""What README shows runs as it stands."""

import pathlib
import re
import shlex

import keras
import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.cli import main

README = pathlib.Path(__file__).parents[1] / "README.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.S)


@pytest.fixture
def trained_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = keras.Sequential(
        [
            keras.Input((8,), dtype="int32"),
            keras.layers.Embedding(3000, 64, name="words"),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    data = {"x": np.zeros((4, 8), "int32"), "y": np.zeros(4, "float32")}
    model.compile("adam", "mse")
    model.fit(**data)
    model.save("model.keras")
    return data


def test_python_blocks_run(trained_model, tmp_path):
    code = blocks("python")
    assert len(code) >= 2
    for block in code:
        exec(compile(block, "README.md", "exec"), dict(trained_model))
    assert (tmp_path / "small.tflite").stat().st_size < 3000 * 64


def test_command_line_runs(trained_model, tmp_path, capsys):
    lines = [
        line
        for block in blocks("sh")
        for line in block.splitlines()
        if line.startswith("keras-compembed")
    ]
    assert len(lines) == 3
    for line in lines:
        assert not main(shlex.split(line)[1:])
    small = keras.saving.load_model(tmp_path / "small.keras")
    assert isinstance(small.get_layer("words"), kc.CodeEmbedding)
    assert "words" in capsys.readouterr().out


def test_files_that_readme_names_exist():
    text = README.read_text()
    names = re.findall(r"\]\((?!http)([^)]+)\)", text)
    names += re.findall(r"`((?:examples|benchmarks)/\S+?\.\w+)`", text)
    assert names
    for name in names:
        assert (README.parent / name).exists(), name
