import json

import keras
import numpy as np
import pytest

from examples import ant_text_classification


def check(rows):
    table, anchors = rows
    assert (table["name"], anchors["name"]) == ("table", "anchors")
    # Of width 8, and 8 anchors.
    assert table["parameters"] % 8 == 0 and table["nonzeros"] is None
    assert anchors["parameters"] == anchors["nonzeros"] + 8 * 8
    assert anchors["parameters"] < table["parameters"]
    for row in rows:
        assert row["keras_accuracy"] > 0.8
        # LiteRT repeats Keras.
        assert row["litert_accuracy"] == row["keras_accuracy"]


@pytest.mark.slow
def test_quick(tmp_path, capsys):
    rows = ant_text_classification.main(
        ["--quick", "--output", str(tmp_path / "ant")]
    )
    check(rows)
    assert json.loads((tmp_path / "ant/results.json").read_text()) == rows
    words = (tmp_path / "ant/vocabulary.txt").read_text().split("\n")
    assert 8 * len(words) == rows[0]["parameters"]
    model = keras.saving.load_model(tmp_path / "ant/anchors.keras")
    layer = model.get_layer("words")
    assert layer.nnz == rows[1]["nonzeros"]
    assert np.isfinite(layer.embeddings).all()
    assert "non-zeros" in capsys.readouterr().out


@pytest.mark.slow
def test_two_devices(tmp_path, monkeypatch, strategy):
    monkeypatch.setattr(
        ant_text_classification, "mirrored_strategy", {2: strategy}.get
    )
    check(
        ant_text_classification.main(
            ["--quick", "--devices", "2", "--output", str(tmp_path / "ant")]
        )
    )


def test_bad_flags(capsys):
    with pytest.raises(SystemExit):
        ant_text_classification.main(["--quick", "--devices", "3"])
    assert "--batch-size must be a multiple of --devices" in (
        capsys.readouterr().err
    )
