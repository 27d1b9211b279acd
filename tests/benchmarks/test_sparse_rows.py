import json

from benchmark_files import load


def test_sparse_rows(tmp_path, capsys):
    output = tmp_path / "results.json"
    rows = load("sparse_rows").main(["--quick", "--output", str(output)])
    saved = json.loads(output.read_text())
    assert saved["rows"] == rows
    assert saved["settings"]["input_dims"] == [100, 1000]
    assert [row["optimizer"] for row in rows] == 2 * [
        "SparseRowOptimizer(Adam)",
        "Adam",
    ]
    for row in rows:
        assert 0 < row["fastest"] <= row["milliseconds"]
        assert row["cpu_milliseconds"] > 0
    table = capsys.readouterr().out
    assert "| 1,000 | SparseRowOptimizer(Adam) | " in table
