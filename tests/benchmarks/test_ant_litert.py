import json

import pytest
from benchmark_files import load


def test_ant_litert(tmp_path, capsys):
    pytest.importorskip("ai_edge_litert")
    output = tmp_path / "results.json"
    rows = load("ant_litert").main(["--quick", "--output", str(output)])
    saved = json.loads(output.read_text())
    assert saved["rows"] == rows
    assert [row["name"] for row in rows] == [
        "table, float32",
        "rows, float32",
        "rows, float32, static",
        "rows, float16",
        "rows, int8",
    ]
    assert rows[0]["file_bytes"] > 4 * 2000 * 64
    sizes = [row["file_bytes"] for row in rows[1:]]
    # Every form is smaller than the one before.
    assert sizes == sorted(sizes, reverse=True)
    assert all(row["microseconds"] > 0 for row in rows)
    assert "| table, float32 | 5" in capsys.readouterr().out
