"""Benchmarks of vectors of words run, each once in its quick mode."""

import pytest
from benchmark_files import figures

from benchmarks.vectors import files
from benchmarks.vectors import quality


@pytest.mark.slow
def test_quality(capsys):
    rows = quality.main(["--quick"])
    assert len(rows) == 2 + 2 + len(quality.OBJECTIVES) - 1
    for row in rows:
        found = figures(row)
        assert len(found["tests"]) == 2
        if row["row"]["family"] == quality.TABLE:
            continue
        assert found["bytes"] <= 500 * 16 * 4 / 4
        assert found["bytes"] < found["file_bytes"]
        assert 0 < found["relative_error"] < 0.2
        assert 0.5 < found["neighbor_overlap"] < 1
    assert "| generated | 4 | narrow int2 |" in capsys.readouterr().out


@pytest.mark.parametrize("family", quality.FAMILIES)
def test_largest_that_fits(family):
    shape = 3000, 32
    method = quality.largest(family, shape, 24_000)
    assert 18_000 < method.litert_bytes(*shape, quality.QUANTIZE) <= 24_000
    assert quality.largest(family, shape, 10) is None


@pytest.mark.slow
def test_files(tmp_path, capsys):
    pytest.importorskip("gensim")
    rows = files.main(["--quick", "--folder", str(tmp_path)])
    command, opened, neighbors, *others = map(figures, rows)
    assert command["bytes"] <= 8000 < command["text_bytes"]
    assert command["method"] in command["report"]
    assert opened["seconds"] > 0 and neighbors["ratio"] > 0
    assert len(others) == len(files.STORED) + len(files.MANY)
    assert "| command | 500 |" in capsys.readouterr().out
