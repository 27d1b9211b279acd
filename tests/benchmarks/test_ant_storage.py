import json

import pytest
from benchmark_files import load

# Keras's own Adam, which is there for comparison, warns of tables it fills.
pytestmark = pytest.mark.filterwarnings("ignore:Converting sparse")


def test_ant_storage(tmp_path, capsys):
    output = tmp_path / "results.json"
    script = load("ant_storage")
    rows, memory = script.main(["--quick", "--output", str(output)])
    saved = json.loads(output.read_text())
    assert saved["rows"] == rows
    assert saved["memory"] == memory
    variants = [(row["storage"], row["optimizer"]) for row in rows]
    assert variants == 2 * list(script.VARIANTS)
    for row in rows:
        assert 0 < row["fastest"] <= row["milliseconds"]
    assert memory[0]["num_anchors"] == 20
    assert memory[0]["peak_bytes"] > 1e8
    assert "sparse, SparseRowOptimizer(Adam), 2,000 x 20: " in (
        capsys.readouterr().out
    )
