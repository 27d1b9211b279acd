"""Notebooks run from top to bottom, and hold no outputs."""

import json
import pathlib

import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "notebooks"
BOOKS = sorted(FOLDER.glob("*.ipynb"))


def code_cells(path):
    book = json.loads(path.read_text("utf-8"))
    return [cell for cell in book["cells"] if cell["cell_type"] == "code"]


def test_notebooks_hold_no_outputs():
    assert [path.stem for path in BOOKS] == [
        "phone",
        "recommender",
        "word_vectors",
    ]
    for path in BOOKS:
        for cell in code_cells(path):
            assert cell["outputs"] == [] and cell["execution_count"] is None


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a notebook in an empty folder; returns its variables."""
    monkeypatch.chdir(tmp_path)

    def run(name):
        found = {}
        for cell in code_cells(FOLDER / f"{name}.ipynb"):
            exec(compile("".join(cell["source"]), name, "exec"), found)
        return found

    return run


@pytest.mark.slow
def test_phone(run):
    pytest.importorskip("mediapipe")
    found = run("phone")
    assert found["export"].file_bytes <= 500_000
    assert found["after"]["accuracy"] > found["before"]["accuracy"] - 0.02
    assert found["answer"] == found["names"][found["y"][-1]]


@pytest.mark.slow
def test_recommender(run):
    found = run("recommender")
    assert found["evaluate"](found["small"])["recall_at_10"] > 0.8
    assert not set(found["best"]) & set(found["histories"][3])
    assert all(name.startswith("shelf3-") for name in found["best"][:2])


@pytest.mark.slow
def test_word_vectors(run):
    found = run("word_vectors")
    assert found["small"].nbytes <= 40_000
    assert found["cosine"] > 0.8
    assert np.round(found["answer"][0, 0]) == found["y"][-1]
