"""Examples of recommending run, each once in its quick mode."""

import json

import numpy as np
import pytest

import keras_compembed as kc
from examples import job_titles
from examples import next_item
from examples import recommend_places
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


def test_next_item(tmp_path, capsys):
    flags = ["--quick", "--user", "user3", "--output", str(tmp_path)]
    results = next_item.main(flags)
    # 10 of 200 items by chance would be 0.05.
    for name in ("table", "small"):
        assert results[name]["recall_at_10"] > 0.8
    path = tmp_path / "next_item.tflite"
    assert path.stat().st_size == results["file_bytes"]
    # What comes next on the user's shelf, and nothing that the user has.
    histories = next_item.read_histories(tmp_path / "ratings.txt")
    recommended = results["recommended"]
    assert not set(recommended) & set(histories["user3"])
    assert all(name.startswith("shelf3-") for name in recommended[:2])
    names = (tmp_path / "items.txt").read_text("utf-8").splitlines()
    assert names[0] == "" and set(recommended) < set(names)
    assert f"%  {recommended[0]}\n" in capsys.readouterr().out


def test_recommend_places(tmp_path, monkeypatch):
    methods = {"small": kc.methods.Codes(10, 16)}
    monkeypatch.setattr(recommend_places, "METHODS", methods)
    # Users of five kinds, who mostly keep to places of their kind.
    rng = np.random.default_rng(0)
    users, places = np.ogrid[:300, :200]
    visited = rng.random((300, 200)) < 0.02 + 0.5 * (users % 5 == places % 5)
    tested = rng.random(visited.shape) < 0.2
    parts = {"train": visited & ~tested, "test": visited & tested}
    for name, part in parts.items():
        rows = [[user, *np.flatnonzero(row)] for user, row in enumerate(part)]
        lines = [" ".join(map(str, row)) for row in rows]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
    flags = ["--data", str(tmp_path), "--output", str(tmp_path), "--width=32"]
    # Two batches an epoch.
    flags += ["--epochs=60", "--fine-tune-epochs=200"]
    results = recommend_places.main(flags)
    # 20 of 180 places by chance would be 0.11.
    for name in ("table", "small"):
        assert results[name]["recall_at_20"] > 0.6
    path = tmp_path / "small.tflite"
    assert path.stat().st_size == results["small"]["file_bytes"]
    with pytest.raises(SystemExit, match="--data must have one train.txt"):
        recommend_places.main(["--data", str(tmp_path / "no")])


@pytest.mark.parametrize(
    ("flag", "message"),
    [("--user=no", "--user must have 3"), ("--shuffle", "--length must be at")],
)
def test_next_item_says_what_a_file_lacks(flag, message, tmp_path):
    path = tmp_path / "own.txt"
    path.write_text("ann jam br\u00f6d\n\nann tea\nben tea jam milk\nno x\n")
    with pytest.raises(SystemExit, match=message):
        next_item.main([f"--data={path}", flag, f"--output={tmp_path}"])
