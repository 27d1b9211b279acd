import json

import pytest
from errors import refused

from keras_compembed.compression.frontier import Frontier
from keras_compembed.compression.frontier import FrontierPoint

POINTS = (
    FrontierPoint({"words": "int4"}, 150_000, error=0.01, score=0.9),
    FrontierPoint(
        {"words": "codes 16x16"},
        50_000,
        error=0.3,
        score=0.88,
        is_exported=True,
        is_chosen=True,
    ),
    FrontierPoint({"words": "codes 8x16"}, 40_000, error=0.6),
    FrontierPoint({"words": "int2 rank 8"}, 45_000, error=0.7),
)
FRONTIER = Frontier(
    POINTS,
    limit_bytes=60_000,
    quantize="int8",
    original_bytes=1_000_000,
    original_score=0.91,
    metric="accuracy",
)


def test_smallest_comes_first_and_best_are_never_equalled():
    sizes = [point.file_bytes for point in FRONTIER]
    assert sizes == [40_000, 45_000, 50_000, 150_000] and len(FRONTIER) == 4
    names = [point.name for point in FRONTIER.best]
    assert names == ["codes 8x16", "codes 16x16", "int4"]
    assert FRONTIER.chosen is POINTS[1]
    assert Frontier(POINTS[:1]).chosen is None and not Frontier([]).best


def test_file_holds_all(tmp_path):
    path = tmp_path / "frontier.json"
    FRONTIER.save(path)
    assert Frontier.load(path) == FRONTIER
    assert json.loads(path.read_text())["points"][0]["file_bytes"] == 40_000
    with pytest.raises(FileExistsError, match="overwrite"):
        FRONTIER.save(path)
    FRONTIER.save(path, overwrite=True)
    for content in ("no json", '{"points": [{"size": 1}]}'):
        path.write_text(content)
        with refused("path", path):
            Frontier.load(path)


def test_table_shows_each_point():
    lines = str(FRONTIER).split("\n")
    assert lines[4].split() == (
        "= 50,000 20.0x 0.3000 0.8800 -> codes 16x16".split()
    )
    assert lines[6].split() == "1,000,000 1.0x 0 0.9100 original".split()
    # Columns without figures are left out.
    bare = str(Frontier([FrontierPoint({"a": "int4", "b": "int2"}, 7)]))
    assert bare.split("\n")[0].split() == ["file", "bytes", "stored", "as"]
    assert bare.split("\n")[2].split() == "~ 7 a: int4, b: int2".split()
