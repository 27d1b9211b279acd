import re
from xml.etree import ElementTree

import numpy as np
import pytest

from keras_compembed.reports.charts import ChartPoint
from keras_compembed.reports.charts import balance_chart
from keras_compembed.reports.charts import size_chart
from keras_compembed.reports.charts import stacked_bar


def read(svg, tag):
    return [dict(x.attrib) for x in ElementTree.fromstring(svg).iter(tag)]


def test_bar_has_parts_side_by_side():
    svg = stacked_bar(
        {"codes": 250, "rest": 500, "none": 0, "little": 0.01},
        1000,
        {"codes": "p0", "rest": "p1", "none": "p2", "little": "p3"},
    )
    rects = read(svg, "rect")
    assert [float(x["width"]) for x in rects] == [25, 50, 0, 0.15]
    assert [float(x["x"]) for x in rects] == [0, 25, 75, 75]
    assert [x["class"] for x in rects] == ["p0", "p1", "p2", "p3"]


def test_balance_is_a_map_of_shares():
    svg = balance_chart(np.array([[0.75, 0.25], [0.0, 1.0]]))
    cells = {
        (x["x"], x["y"]): float(x["fill-opacity"]) for x in read(svg, "rect")
    }
    assert cells == {("0", "0"): 0.75, ("0", "1"): 0.25, ("1", "1"): 1}


def test_large_codebooks_are_put_together():
    svg = balance_chart(np.full((200, 300), 1 / 300))
    assert 'viewBox="0 0 64 60"' in svg
    assert len(read(svg, "rect")) == 64 * 60


def points(sizes, heights, kinds=None):
    kinds = kinds or ["best"] * len(sizes)
    return [
        ChartPoint(*row, f"{row[0]} bytes")
        for row in zip(sizes, heights, kinds, strict=True)
    ]


@pytest.mark.parametrize(
    ("sizes", "heights"),
    [
        ([1000, 2000, 900_000], [0.9, 0.5, 0.0]),
        # All alike, and very far apart.
        ([5000], [0.0]),
        ([7, 3 * 2**40], [0.123, 12_345.0]),
        ([2**20, 2**20], [0.9, 0.9]),
    ],
)
def test_dots_and_labels_are_inside(sizes, heights):
    for width, height in ((920, 340), (360, 300)):
        svg = size_chart(points(sizes, heights), "error", width, height)
        dots = read(svg, "circle")
        assert len(dots) == len(sizes)
        for dot in dots:
            assert 30 < float(dot["cx"]) < width
            assert 0 < float(dot["cy"]) < height - 30
        ticks = [x for x in read(svg, "text") if "text-anchor" in x]
        across = [float(x["x"]) for x in ticks if x["text-anchor"] == "middle"]
        assert across and np.all(np.diff(across) > 40)
        assert len(ticks) > 2


def test_chart_shows_limit_and_model():
    model = points([3000], [0.4], ["model"])
    svg = size_chart(
        points([1000, 9000], [0.9, 0.1]) + model,
        "error",
        920,
        340,
        limit=5000,
        from_zero=True,
    )
    assert ">limit<" in svg and ">this model<" in svg
    lowest, *_ = re.findall(r">([\d.]+)</text>", svg)
    assert lowest == "0"
    # Left of the limit.
    (line,) = [x for x in read(svg, "line") if x["class"] == "limit upright"]
    (x,) = re.findall(r'd="M([\d.]+)', svg)
    assert float(x) < float(line["x1"])
    alone = size_chart(points([1000], [1]), "score", 360, 300, model_bytes=99)
    assert "model upright" in alone
