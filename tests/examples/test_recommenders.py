"""Examples of recommending run, each once in its quick mode."""

import json
import math

import keras
import numpy as np
import pytest

import keras_compembed as kc
from benchmarks.data import visits
from examples import job_titles
from examples import next_item
from examples import recommend_titles


@pytest.mark.slow
def test_job_titles(tmp_path, capsys):
    results = job_titles.main(["--quick", "--output", str(tmp_path)])
    assert results["accuracy"] > 0.6
    assert results["coverage"] > 0.9
    assert results["recall"] >= 0.99 and results["beam_width"] < 32
    # The file searches, and evaluation does not.
    for name in ("accuracy", "top_5_accuracy"):
        assert abs(results[f"litert_{name}"] - results[name]) < 0.03
    assert json.loads((tmp_path / "results.json").read_text()) == results
    printed = capsys.readouterr().out
    first = printed.split("junior red baker\n")[1].splitlines()[0]
    assert first.endswith("%  red baker")


@pytest.mark.slow
def test_recommend_titles(tmp_path):
    output, saved = tmp_path / "output", tmp_path / "titles"
    flags = ["--quick", "--output", str(output), "--save", str(saved)]
    figures = recommend_titles.main(flags)
    assert json.loads((output / "results.json").read_text()) == figures
    # Codes cost little of what is right.
    for name in ("litert", "keras", "table"):
        shares = figures[name]
        assert 0.5 < shares["top_1"] <= shares["top_5"] <= shares["top_10"]
        assert abs(shares["top_5"] - figures["table"]["top_5"]) < 0.1
    assert figures["table_bytes"] > 4 * (2048 + figures["items"]) * 32
    assert figures["file_bytes"] < figures["table_bytes"] / 2

    titles = (saved / "labels.txt").read_text().splitlines()
    assert len(titles) == figures["items"]
    args = recommend_titles.parse_arguments(flags)
    ids = job_titles.vectorize(["tall cook two"], args)
    model = kc.from_preset(saved)
    phone = kc.export.LiteRTModel(saved / "model.tflite")
    for answer in (kc.top_k_model(model, k=3)(ids), phone(ids)):
        assert "tall cook" in titles[answer["ids"][0, 0]]
    card = (saved / "README.md").read_text()
    assert f"{figures['litert']['top_1']:.1%}" in card


@pytest.mark.slow
def test_next_item(tmp_path, capsys):
    flags = ["--quick", "--losses", "CANE,SCE", "--user", "3"]
    results = next_item.main([*flags, "--output", str(tmp_path)])
    assert json.loads((tmp_path / "results.json").read_text()) == results
    assert list(results["losses"]) == ["CANE", "SCE"]
    for figures in results["losses"].values():
        # 20 of some 85 places by chance would be 0.24.
        assert figures["test"]["recall_at_20"] > 0.5
        assert figures["rate"] == 0.03 and figures["steps"] > 1
    valid = {
        name: figures["valid"]["ndcg_at_10"]
        for name, figures in results["losses"].items()
    }
    assert valid[results["best"]] == max(valid.values())

    # What the user has been to is left out, and most are of the user's kind.
    data = visits.generated()
    known = np.concatenate([data.train, data.valid])
    recommended = np.array(results["recommended"])
    assert len(recommended) == next_item.SHOWN
    assert not set(recommended) & set(known[known[:, 0] == 3, 1])
    assert np.mean(recommended % 5 == 3) >= 0.6
    assert results["same_as_keras"] > 0.9
    assert "| SCE |" in capsys.readouterr().out


def test_a_place_is_predicted_from_those_before():
    args = next_item.parse_arguments(["--quick"])
    trained, recommender = next_item.build_models(np.arange(40), "CANE", args)
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 40, size=(3, args.history)).astype("int32")
    ids[0, :7] = 0
    found = trained(ids).numpy()
    changed = ids.copy()
    changed[:, 20:] = rng.integers(1, 40, size=(3, args.history - 20))
    np.testing.assert_array_equal(trained(changed)[:, :20], found[:, :20])
    # The same whatever is in front, and in any order.
    last = recommender(ids)
    np.testing.assert_allclose(last, found[:, -1], rtol=1e-4, atol=1e-5)
    short = trained(ids[:1, :6:-1])
    np.testing.assert_allclose(short[:, -1], last[:1], rtol=1e-4, atol=1e-5)


def test_evaluation_is_that_of_plain_loops():
    data = visits.generated()
    args = next_item.parse_arguments(["--quick"])
    keras.utils.set_random_seed(0)
    counts = np.ones(data.num_items + 1)
    _, recommender = next_item.build_models(counts, "CANE", args)
    head = recommender.get_layer("next_item")
    head.bias.assign(np.linspace(-2, 2, data.num_items + 1))
    known = np.concatenate([data.train, data.valid])
    users = np.unique(data.test[:, 0])[::-1]
    found = next_item.evaluate(recommender, users, known, data.test, data, args)

    rows = next_item.histories(
        known, data.num_users, args.history, np.random.default_rng(args.seed)
    )
    table = head.class_embedding.embeddings.numpy()
    scores = recommender(rows).numpy() @ table.T + head.bias.numpy()
    discounts = [1 / math.log2(place + 2) for place in range(10)]
    recalls, gains = [], []
    for user in users:
        been = set(known[known[:, 0] == user, 1] + 1) | {0}
        right = set(data.test[data.test[:, 0] == user, 1] + 1)
        order = [k for k in np.argsort(-scores[user]) if k not in been]
        recalls.append(len(right & set(order[:20])) / len(right))
        hits = [k in right for k in order[:10]]
        gains.append(np.dot(hits, discounts) / sum(discounts[: len(right)]))
    assert found["recall_at_20"] == pytest.approx(np.mean(recalls), abs=1e-3)
    assert found["ndcg_at_10"] == pytest.approx(np.mean(gains), abs=1e-3)
