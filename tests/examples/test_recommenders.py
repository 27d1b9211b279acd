"""Examples of recommending run, each once in its quick mode."""

import json

import numpy as np
import pytest

import keras_compembed as kc
from benchmarks.data import visits
from examples import job_titles
from examples import next_item
from examples import recommend_titles

pytestmark = pytest.mark.slow


def test_job_titles(tmp_path, capsys):
    results = job_titles.main(["--quick", "--output", str(tmp_path)])
    assert results["accuracy"] > 0.6
    assert results["recall"] >= 0.99 and results["beam_width"] < 32
    # The file searches, and evaluation does not.
    for name in ("accuracy", "top_5_accuracy"):
        assert abs(results[f"litert_{name}"] - results[name]) < 0.03
    assert json.loads((tmp_path / "results.json").read_text()) == results
    printed = capsys.readouterr().out
    first = printed.split("junior red baker\n")[1].splitlines()[0]
    assert first.endswith("%  red baker")


def test_recommend_titles(tmp_path):
    output, saved = tmp_path / "output", tmp_path / "titles"
    flags = ["--quick", "--output", str(output), "--save", str(saved)]
    figures = recommend_titles.main(flags)
    # Codes cost little of what is right.
    for name in ("litert", "keras", "table"):
        shares = figures[name]
        assert 0.5 < shares["top_1"] <= shares["top_5"] <= shares["top_10"]
        assert abs(shares["top_5"] - figures["table"]["top_5"]) < 0.1
    assert figures["file_bytes"] < figures["table_bytes"] / 2
    titles = (saved / "labels.txt").read_text().splitlines()
    args = recommend_titles.parse_arguments(flags)
    ids = job_titles.vectorize(["tall cook two"], args)
    model = kc.from_preset(saved)
    phone = kc.export.LiteRTModel(saved / "model.tflite")
    for answer in (kc.top_k_model(model, k=3)(ids), phone(ids)):
        assert "tall cook" in titles[answer["ids"][0, 0]]


def test_next_item(tmp_path):
    flags = ["--quick", "--losses", "CANE,SCE", "--user", "3"]
    results = next_item.main([*flags, "--output", str(tmp_path)])
    assert json.loads((tmp_path / "results.json").read_text()) == results
    for figures in results["losses"].values():
        # 20 of some 85 places by chance would be 0.24.
        assert figures["test"]["recall_at_20"] > 0.5
    # What the user has been to is left out, and most are of the user's kind.
    data = visits.generated()
    known = np.concatenate([data.train, data.valid])
    recommended = np.array(results["recommended"])
    assert not set(recommended) & set(known[known[:, 0] == 3, 1])
    assert np.mean(recommended % 5 == 3) >= 0.6
    assert results["same_as_keras"] > 0.9
