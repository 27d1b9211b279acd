"""Benchmarks of text run, each once in its quick mode."""

import pytest
from benchmark_files import figures

from benchmarks.text import runtimes
from benchmarks.text import vocabulary

pytest.importorskip("tensorflow_text")
pytest.importorskip("mediapipe")


@pytest.mark.slow
def test_vocabulary(capsys):
    rows = vocabulary.main(["--quick"])
    assert len(rows) == 2 * len(vocabulary.STORAGES)
    for row in rows:
        found = figures(row)
        assert 0 < found["tokenizer_bytes"] < found["file_bytes"]
        assert found["vocabulary_size"] <= row["row"]["size"]
        if row["row"]["storage"] != vocabulary.INT8:
            assert found["accuracy"] == found["keras_accuracy"]
        if row["row"]["storage"] == vocabulary.FLOAT32:
            assert found["max_error"] < 1e-5
            first = found["accuracy"]
        else:
            assert found["difference"] == found["accuracy"] - first
    assert "| generated | words | 50 | codes |" in capsys.readouterr().out


@pytest.mark.slow
def test_runtimes():
    rows = runtimes.main(["--quick", "--rows", "pieces"])
    assert len(rows) == len(vocabulary.STORAGES) + 1
    for row in rows:
        found = figures(row)
        assert found["milliseconds"] > 0 and found["latency_ratio"] > 0
        if vocabulary.INT8 not in row["row"]["storage"]:
            assert found["max_error"] < 1e-5
