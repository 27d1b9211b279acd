import sys

import keras
import numpy as np
import pytest
from errors import refused

import keras_compembed as kc
from keras_compembed import size_report
from keras_compembed.compression.frontier import Frontier
from keras_compembed.compression.frontier import FrontierPoint


def tiny_report():
    inputs = keras.Input((None,), dtype="int32")
    outputs = kc.CodeEmbedding(5000, 8, 4, 16, name="tokens")(inputs)
    outputs += keras.layers.Embedding(50, 8)(inputs)
    return size_report(keras.Model(inputs, outputs))


@pytest.fixture
def axes(monkeypatch):
    """Axes of figures as they are written."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    kept = []
    save = figure.savefig

    def keep(figure, *args, **kwargs):
        kept.append(figure.axes[0])
        save(figure, *args, **kwargs)

    monkeypatch.setattr(figure, "savefig", keep)
    return kept


def test_files(tmp_path):
    pytest.importorskip("matplotlib")
    draw, path = tiny_report().plot, tmp_path / "picture.png"
    with pytest.raises(ValueError, match="not supported"):
        draw(tmp_path / "picture.docx")
    assert not list(tmp_path.iterdir())
    path.write_text("old")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        draw(path)
    assert path.read_text() == "old"
    draw(path, overwrite=True)
    assert path.read_bytes().startswith(b"\x89PNG")
    draw(tmp_path / "picture.svg")
    assert "<svg" in (tmp_path / "picture.svg").read_text()
    draw(tmp_path / "picture")
    assert (tmp_path / "picture").read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.iterdir())) == 3


def test_missing_matplotlib_names_the_extra(tmp_path, monkeypatch):
    for module in [m for m in sys.modules if m.startswith("matplotlib")]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"keras-compembed\[plots\]"):
        tiny_report().plot(tmp_path / "picture.png")
    assert not list(tmp_path.iterdir())


def test_bars_add_up(tmp_path, axes):
    anchors = kc.ANTEmbedding(5000, 8, num_anchors=5, transform="dense")
    anchors.build()
    for report, parts in (
        (tiny_report(), {"codes", "codebooks"}),
        (size_report(anchors), {"sparse rows", "anchors"}),
    ):
        report.plot(tmp_path / "a.png", overwrite=True)
        names = [label.get_text() for label in axes[-1].get_yticklabels()]
        assert names[0] == "float32 tables"
        place = names.index("as stored")
        bars = axes[-1].patches
        bars = [x for x in bars if round(x.get_y() + 0.4) == place]
        total = sum(bar.get_width() for bar in bars) * 10**6
        assert total == pytest.approx(report.total_bytes)
        (legend,) = axes[-1].figure.legends
        shown = {text.get_text() for text in legend.get_texts()}
        assert shown == parts | {"plain table"}


def test_frontiers(tmp_path, axes):
    """The line goes through what no smaller one equals."""
    points = [
        FrontierPoint({"a": name}, size, error, is_chosen=name == "b")
        for name, size, error in (("a", 9, 0.1), ("b", 4, 0.4), ("c", 6, 0.5))
    ]
    Frontier(points, limit_bytes=5).plot(tmp_path / "a.png")
    line = axes[0].lines[0].get_xydata()
    np.testing.assert_allclose(line, [[4 / 10**6, 0.4], [9 / 10**6, 0.1]])
    assert {x.get_text() for x in axes[0].texts} >= {"a", "b", "c"}


def test_what_cannot_be_drawn(tmp_path):
    path = tmp_path / "a.png"
    with refused("report", "SizeReport"):
        size_report(keras.layers.Dense(2)).plot(path)
    with refused("frontier", 0):
        Frontier([]).plot(path)
