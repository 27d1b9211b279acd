import importlib
import sys

import keras
import numpy as np
import pytest
from errors import refused

import keras_compembed as kc
from benchmarks.common.plots import plot_accuracy_against_size
from benchmarks.common.plots import plot_code_balance
from keras_compembed import size_report
from keras_compembed.compression.frontier import Frontier
from keras_compembed.compression.frontier import FrontierPoint

FIGURES = [
    ("baseline float32", 30_000_000, 0.761, 0.761),
    ("baseline int8", 7_500_000, None, 0.7605),
    ("codes 32 x 16", 620_000, 0.7622, 0.7619),
    ("codes 32 x 16, int8", 600_000, 0.7611, None),
    ("codes 16 x 32", 615_000, 0.762, 0.762),
    ("codes 8 x 8", 120_000, 0.69, 0.691),
]
ROWS = [
    {
        "name": name,
        "embedding_bytes": size,
        "file_bytes": size + 1000,
        "keras_accuracy": keras_accuracy,
        "litert_accuracy": litert_accuracy,
        "latency_ratio": 1.0,
    }
    for name, size, keras_accuracy, litert_accuracy in FIGURES
]
CODES = np.random.default_rng(0).integers(8, size=(500, 4))


def tiny_report():
    inputs = keras.Input((None,), dtype="int32")
    outputs = kc.CodeEmbedding(5000, 8, 4, 16, name="tokens")(inputs)
    outputs += keras.layers.Embedding(50, 8)(inputs)
    return size_report(keras.Model(inputs, outputs))


def draw_balance(path, **kwargs):
    plot_code_balance(CODES, path, codebook_size=8, **kwargs)


def draw_accuracy(path, **kwargs):
    plot_accuracy_against_size(ROWS, path, **kwargs)


def draw_sizes(path, **kwargs):
    tiny_report().plot(path, **kwargs)


each_drawing = pytest.mark.parametrize(
    "draw", [draw_balance, draw_accuracy, draw_sizes]
)


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


@each_drawing
def test_files(tmp_path, draw):
    pytest.importorskip("matplotlib")
    path = tmp_path / "picture.png"
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


@each_drawing
def test_missing_matplotlib_names_the_extra(tmp_path, draw, monkeypatch):
    for module in [m for m in sys.modules if m.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, module)
    real_import = importlib.import_module

    def without_matplotlib(module, *args):
        if module.partition(".")[0] == "matplotlib":
            raise ImportError("No module named 'matplotlib'")
        return real_import(module, *args)

    monkeypatch.setattr(importlib, "import_module", without_matplotlib)
    with pytest.raises(ImportError, match=r"keras-compembed\[plots\]"):
        draw(tmp_path / "picture.png")
    assert not list(tmp_path.iterdir())


def test_balance_shows_percentages_with_codebooks_across(tmp_path, axes):
    codes = np.array([[0, 1], [0, 0], [0, 1], [0, 1]])
    plot_code_balance(codes, tmp_path / "a.png", 3, title="A title")
    shown = axes[0].images[0].get_array()
    np.testing.assert_array_equal(shown, [[100, 25], [0, 75], [0, 0]])
    assert axes[0].get_title() == "A title"
    plot_code_balance(CODES, tmp_path / "layer.png", 8)
    assert axes[1].get_title() == "Code balance, 4 x 8"


def test_labels_cover_neither_dots_nor_ranges_nor_each_other(tmp_path, axes):
    ranges = [
        {"name": name, "embedding_bytes": size, "keras_accuracy": accuracy}
        | {"accuracy_range": (accuracy - 0.01, accuracy + 0.01)}
        for name, size, accuracy in (
            ("codes 32 x 16 float32", 780_288, 0.613),
            ("codes 32 x 16 int8", 387_072, 0.614),
            ("codes 64 x 16 int8", 774_144, 0.62),
            ("baseline float32", 16_384_000, 0.621),
        )
    ]
    for place, rows in enumerate((ROWS, ranges)):
        plot_accuracy_against_size(rows, tmp_path / f"{place}.png")
        drawn = axes[place]
        labels = [text for text in drawn.texts if text.get_text()]
        names = {text.get_text().split("\n")[0] for text in labels}
        assert names == {row["name"] for row in rows}
        boxes = [text.get_window_extent() for text in labels]
        dots = [
            drawn.transData.transform(line.get_xydata()[0])
            for line in drawn.lines
            if len(line.get_xydata())
        ]
        assert len(dots) == (4 if rows is ranges else 10)
        for number, box in enumerate(boxes):
            assert not any(box.overlaps(x) for x in boxes[number + 1 :])
            assert not any(box.contains(*dot) for dot in dots)
            assert drawn.bbox.x0 <= box.x0 and box.x1 <= drawn.bbox.x1
            for line in drawn.collections:
                (ends,) = line.get_segments()
                (x, low), (_, high) = drawn.transData.transform(ends)
                beside = box.x1 < x or x < box.x0
                assert beside or box.y1 < low or high < box.y0
        assert len(drawn.collections) == (4 if rows is ranges else 0)


def test_dots_stand_at_size_and_accuracy(tmp_path, axes):
    rows = [{**ROWS[0], "accuracy_range": (0.6, 0.9)}, ROWS[1]]
    plot_accuracy_against_size(rows, tmp_path / "a.png")
    (axes,) = axes
    assert axes.get_xscale() == "log"
    keras_dot, litert_dot = (line.get_xydata()[0] for line in axes.lines[:2])
    size = 30_000_000 / 2**20
    np.testing.assert_allclose(keras_dot, [size, 76.1])
    np.testing.assert_allclose(litert_dot, keras_dot)
    # The range of runs is a line within the frame.
    (line,) = axes.collections
    np.testing.assert_allclose(line.get_segments(), [[[size, 60], [size, 90]]])
    assert axes.get_ylim()[0] < 60 and 90 < axes.get_ylim()[1]


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
        total = sum(bar.get_width() for bar in bars) * 2**20
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
    np.testing.assert_allclose(line, [[4 / 2**20, 0.4], [9 / 2**20, 0.1]])
    assert {x.get_text() for x in axes[0].texts} >= {"a", "b", "c"}


def test_what_cannot_be_drawn(tmp_path):
    path = tmp_path / "a.png"
    with refused("report", "SizeReport"):
        size_report(keras.layers.Dense(2)).plot(path)
    with refused("rows", "[]"):
        plot_accuracy_against_size([], path)
    row = {**ROWS[1], "keras_accuracy": None, "litert_accuracy": None}
    with refused("rows", row):
        plot_accuracy_against_size([ROWS[0], row], path)
    with refused("frontier", 0):
        Frontier([]).plot(path)
