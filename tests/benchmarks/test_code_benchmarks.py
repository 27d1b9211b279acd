"""Benchmarks run: each in its quick mode, on data made on the spot."""

import json
from unittest import mock

import keras
import numpy as np
import pytest
from benchmark_files import load


@pytest.fixture(scope="module")
def code_learning():
    return load("code_learning")


def test_code_learning(code_learning, tmp_path, capsys):
    output = tmp_path / "results.json"
    arguments = ["--quick", "--output", str(output)]
    arguments += ["--methods", "additive,gumbel"]
    code_learning.main(arguments)
    saved = json.loads(output.read_text())
    additive, gumbel, refined = saved["rows"]
    assert additive["method"] == "AdditiveQuantizer, effort 0.2"
    assert refined["method"].endswith("refined")
    for row in saved["rows"]:
        assert row["table"] == "generated"
        assert row["loss"] > 0 and row["cpu_seconds"] > 0
        assert row["relative_error"] < row["relative_error_centred"]
    assert additive["relative_error_centred"] < 0.5
    assert refined["loss"] < gumbel["loss"]
    assert refined["cpu_seconds"] >= gumbel["cpu_seconds"]
    assert "| generated | 4 x 8 |" in capsys.readouterr().out


def test_code_learning_with_kd(code_learning, tmp_path):
    output = tmp_path / "results.json"
    rows = code_learning.main(
        ["--quick", "--output", str(output), "--methods", "kd"]
    )
    assert [row["method"] for row in rows] == [
        f"KDCodeLearner {composition}, 50 steps{end}"
        for composition in ("sum", "linear", "concat")
        for end in ("", ", refined")
    ]
    for plain, refined in zip(rows[::2], rows[1::2], strict=True):
        assert refined["loss"] < plain["loss"]


def test_code_learning_goes_on_where_it_stopped(
    code_learning, tmp_path, monkeypatch
):
    output = tmp_path / "results.json"
    arguments = ["--quick", "--output", str(output), "--methods", "additive"]
    first = code_learning.main(arguments)

    def forbidden(*args, **kwargs):
        raise AssertionError("what stands in the file must not run again")

    monkeypatch.setattr(code_learning, "additive", forbidden)
    assert code_learning.main(arguments) == first


@pytest.mark.parametrize("method", ["rq", "lsq", "pq", "opq"])
def test_code_learning_with_faiss(code_learning, method, tmp_path):
    pytest.importorskip("faiss")
    output = tmp_path / "results.json"
    (row,) = code_learning.main(
        ["--quick", "--output", str(output), "--methods", method]
    )
    assert row["method"].startswith("faiss")
    assert row["relative_error_centred"] < 0.5


def test_load_safetensors(code_learning, tmp_path):
    table = np.arange(6, dtype="<f4").reshape(3, 2)
    header = {
        "__metadata__": {"format": "pt"},
        "other": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]},
        "table": {"dtype": "F32", "shape": [3, 2], "data_offsets": [8, 32]},
    }
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(
        len(text).to_bytes(8, "little") + text + bytes(8) + table.tobytes()
    )
    read = code_learning.load_safetensors(path, "table")
    np.testing.assert_array_equal(read, table)
    with pytest.raises(SystemExit, match="I64"):
        code_learning.load_safetensors(path, "other")


def test_unknown_names_are_refused(code_learning, tmp_path):
    output = ["--output", str(tmp_path / "results.json")]
    with pytest.raises(SystemExit, match="magic"):
        code_learning.main(["--quick", *output, "--methods", "magic"])
    with pytest.raises(SystemExit, match="nowhere"):
        code_learning.main(["--tables", "nowhere", *output])


def test_task_codes(tmp_path, capsys):
    output = tmp_path / "results.json"
    arguments = ["--quick", "--output", str(output)]
    rows = load("task_codes").main(arguments)
    assert [row["method"] for row in rows] == [
        "table",
        "fixed",
        "following",
        "end to end",
    ]
    assert json.loads(output.read_text()) == rows
    assert all(row["times_smaller"] > 10 for row in rows[1:])
    assert "| 2x8 |" in capsys.readouterr().out
    # What stands there is not run again.
    with mock.patch.object(keras.Model, "fit", side_effect=AssertionError):
        assert load("task_codes").main(arguments) == rows
