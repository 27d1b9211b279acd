"""The benchmark of graphs of rows runs in its quick mode."""

import pytest
from benchmark_files import figures

from benchmarks.litert import row_graphs


@pytest.mark.slow
def test_row_graphs(capsys):
    pytest.importorskip("ai_edge_litert")
    rows = [figures(row) for row in row_graphs.main(["--quick"])]
    assert len(rows) == 2
    for row in rows:
        times = {
            name: graph["microseconds"] for name, graph in row["graphs"].items()
        }
        assert row["fastest"]["microseconds"] == min(times.values()) > 0
        assert times[row["chosen"]["graph"]] == row["chosen"]["microseconds"]
        assert row["chosen"]["to_fastest"] >= 1
    assert "| 3 x 64 of 8, 5 ids, int8 | " in capsys.readouterr().out
