"""Records: their form, and files that are whole or not there."""

import json
import os

import pytest

from benchmarks.common import record as module
from benchmarks.common.record import Record
from benchmarks.common.record import dumps


@pytest.fixture
def path(tmp_path):
    return tmp_path / "record.json"


def add(record, name="a", seed=0, **figures):
    record.add(name, {"size": 1}, {"epochs": 2}, seed, figures)


def test_round_trip(path):
    record = Record("codes.toy", path, "a command")
    add(record, loss=1.5, by_epoch=({"loss": 1},))
    add(record, seed=3, loss=2.5)
    add(record, "b", loss=None)
    again = Record("codes.toy", path, "another command")
    assert again.rows == record.rows and again.made_by == record.made_by
    assert again.has("a", {"size": 1}, {"epochs": 2}, 3)
    assert not again.has("a", {"size": 1}, {"epochs": 2}, 1)
    assert not again.has("a", {"size": 2}, {"epochs": 2}, 0)
    assert not again.has("a", {"size": 1}, {"epochs": 3}, 0)
    add(again, "c", loss=0)
    assert [maker["command"] for maker in again.made_by] == [
        "a command",
        "another command",
    ]
    assert again.rows[-1]["runs"][0]["made_by"] == 1
    # Of whatever benchmark.
    assert Record(None, path).rows == again.rows


def test_interrupted_while_writing(path, monkeypatch):
    record = Record("codes.toy", path)
    add(record, loss=1)
    before = path.read_bytes()

    def interrupted(value):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "dumps", interrupted)
    with pytest.raises(KeyboardInterrupt):
        add(record, "b", loss=2)
    monkeypatch.undo()

    def full(*args):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        add(record, "c", loss=3)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "content, message",
    [
        ([], "`format` .* must be 1. Received: format=None"),
        ({"format": 2}, "`format` .* Received: format=2"),
        (
            {"format": 1, "benchmark": "codes.other"},
            "`benchmark` .* 'codes.toy'. Received: benchmark='codes.other'",
        ),
    ],
)
def test_other_files_are_refused(path, content, message):
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        Record("codes.toy", path)


def test_nothing_is_kept_without_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record = Record("codes.toy")
    add(record, loss=1)
    assert len(record.rows) == 1 and list(tmp_path.iterdir()) == []


def test_json():
    value = {"a": [{"b": 1, "c": [1.5, None]}], "d": ["[x", "y]", "{\n", "é"]}
    text = dumps(value)
    assert json.loads(text) == value
    # Innermost lists and objects take a line each.
    assert '"c": [ 1.5, null ]' in text and "é" in text
