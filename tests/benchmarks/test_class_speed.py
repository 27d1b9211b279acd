import json

import pytest
from benchmark_files import load


def test_class_speed(tmp_path, capsys, monkeypatch):
    pytest.importorskip("ai_edge_litert")
    output = tmp_path / "results.json"
    script = load("class_speed")
    # Compilation by XLA takes half a minute, and is tested with the layer.
    plain = [variant for variant in script.VARIANTS if not variant[-1]]
    monkeypatch.setattr(script, "VARIANTS", plain)
    parts = script.main(["--quick", "--output", str(output)])
    saved = json.loads(output.read_text())
    training, prediction, litert = parts
    for part, name in zip(
        parts, ("training", "prediction", "litert"), strict=True
    ):
        assert saved[name] == part
        assert all(0 < row["fastest"] <= row["milliseconds"] for row in part)
    of_all = len(plain)
    # No softmax over all classes where there are many.
    assert [row["num_classes"] for row in training] == [
        *[300] * of_all,
        *[1200] * (of_all - 2),
    ]
    assert {row["batch_size"] for row in prediction} == {1, 16}
    sizes = [row["file_bytes"] for row in litert]
    assert len(sizes) == 6
    # 8 bits a weight take less.
    for with_floats, with_bits in zip(sizes[:3], sizes[3:], strict=True):
        assert with_bits < with_floats
    assert "| 1,200 | subsets 40+1 | SGD | False |" in capsys.readouterr().out
