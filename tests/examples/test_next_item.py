import argparse
import json
import lzma
import math

import keras
import numpy as np
import pytest

import keras_compembed as kc
from benchmarks.data import visits
from examples import next_item


@pytest.mark.slow
def test_quick(tmp_path, capsys):
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

    # The saved model has one table, and answers as the file does.
    model = keras.saving.load_model(tmp_path / "next_item.keras")
    tables = [
        weight for weight in model.trainable_weights if weight.shape[0] == 101
    ]
    assert [weight.shape for weight in tables] == [(101, 16), (101,)]
    x = next_item.histories(
        data.train, data.num_users, 30, np.random.default_rng(0)
    )
    answer = kc.top_k_model(model, k=50).predict(x, verbose=0)
    phone = kc.export.LiteRTModel(tmp_path / "next_item.tflite").predict(x)
    np.testing.assert_allclose(
        phone["probabilities"], answer["probabilities"], rtol=1e-4
    )


def test_histories():
    pairs = np.array([[2, 5], [0, 1], [2, 6], [0, 2], [2, 7]])
    rows = next_item.histories(pairs, 4, 2, np.random.default_rng(0))
    assert rows.dtype == np.int32
    assert set(rows[0]) == {2, 3}
    np.testing.assert_array_equal(rows[[1, 3]], 0)
    # The first ones are left out where there is no room.
    assert len(set(rows[2])) == 2 and set(rows[2]) < {6, 7, 8}
    rows = next_item.histories(pairs, 4, 5, np.random.default_rng(0))
    np.testing.assert_array_equal(rows[2, :2], 0)
    assert set(rows[2, 2:]) == {6, 7, 8}
    rng = np.random.default_rng(0)
    orders = {
        tuple(next_item.histories(pairs, 4, 5, rng)[2]) for _ in range(60)
    }
    assert len(orders) == 6


def make_args(*flags):
    return next_item.parse_arguments(["--quick", *flags])


def test_a_place_is_predicted_from_those_before():
    args = make_args()
    counts = np.arange(40)
    trained, recommender = next_item.build_models(counts, "CANE", args)
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 40, size=(3, args.history)).astype("int32")
    ids[0, :7] = 0
    found = trained.predict_on_batch(ids)
    changed = ids.copy()
    changed[:, 20:] = rng.integers(1, 40, size=(3, args.history - 20))
    np.testing.assert_array_equal(
        trained.predict_on_batch(changed)[:, :20], found[:, :20]
    )
    # The same whatever is in front, and in any order.
    last = recommender.predict_on_batch(ids)
    np.testing.assert_allclose(last, found[:, -1], rtol=1e-4, atol=1e-5)
    short = trained.predict_on_batch(ids[:1, :6:-1])
    np.testing.assert_allclose(short[:, -1], last[:1], rtol=1e-4, atol=1e-5)


def test_losses():
    args = make_args()
    made = {name: make(args) for name, make in next_item.LOSSES.items()}
    assert {loss.ignore_class for loss in made.values()} == {0}
    assert made["sampled softmax"].num_sampled == 20
    assert made["gBCE"].num_sampled == 20
    # Twice the root of the 100 examples of a step.
    assert made["SCE"].num_buckets == made["SCE"].bucket_size_examples == 20
    noises = [
        next_item.build_models(np.arange(40), name, args)[0].layers[-1].noise
        for name in ("gBCE", "sampled softmax")
    ]
    assert [type(noise).__name__ for noise in noises] == [
        "UniformNoise",
        "UnigramNoise",
    ]


def test_evaluate():
    data = visits.generated()
    args = make_args()
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
    vectors = recommender.predict(rows, verbose=0)
    table = head.class_embedding.embeddings.numpy()
    scores = vectors @ table.T + head.bias.numpy()
    recalls, gains = [], []
    for user in users:
        been = set(known[known[:, 0] == user, 1] + 1) | {0}
        right = set(data.test[data.test[:, 0] == user, 1] + 1)
        order = [k for k in np.argsort(-scores[user]) if k not in been]
        recalls.append(len(right & set(order[:20])) / len(right))
        gain = sum(
            1 / math.log2(place + 2)
            for place, item in enumerate(order[:10])
            if item in right
        )
        best = sum(
            1 / math.log2(place + 2) for place in range(min(10, len(right)))
        )
        gains.append(gain / best)
    assert found["recall_at_20"] == pytest.approx(np.mean(recalls), abs=1e-3)
    assert found["ndcg_at_10"] == pytest.approx(np.mean(gains), abs=1e-3)


def test_the_rate_is_chosen_by_validation(monkeypatch):
    data = visits.generated()
    args = make_args()
    args.rates = [0.1, 0.2, 0.3]
    at = []
    monkeypatch.setattr(next_item, "build_models", lambda *args: (None, None))
    monkeypatch.setattr(
        next_item, "train", lambda *args: at.append(args[3]) or len(at)
    )

    def evaluate(recommender, users, seen, right, data, args):
        if right is data.test:
            assert len(seen) == len(data.train) + len(data.valid)
            return "test"
        assert right is data.valid and seen is data.train
        return {"ndcg_at_10": {0.1: 0.4, 0.2: 0.6, 0.3: 0.5}[at[-1]]}

    monkeypatch.setattr(next_item, "evaluate", evaluate)
    figures, _ = next_item.best_of_rates("CANE", None, data, args)
    assert figures == {
        "rate": 0.2,
        "steps": 2,
        "valid": {"ndcg_at_10": 0.6},
        "test": "test",
    }


def test_files(tmp_path):
    folder = tmp_path / "gowalla"
    folder.mkdir()
    lines = {
        "train": "0 0 1 2 3 4 5\n1 6 7 8 9\n",
        "test": "0 6\n1 0 10\n",
    }
    for name, text in lines.items():
        with lzma.open(folder / f"{name}.txt.xz", "wt") as file:
            file.write(text)
    data = next_item.read_visits(
        argparse.Namespace(generated=False, data=tmp_path)
    )
    assert (data.num_users, data.num_items) == (2, 11)
    assert len(data.train) == 9 and len(data.valid) == 1
    np.testing.assert_array_equal(data.test, [[0, 6], [1, 0], [1, 10]])


def test_bad_flags(capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("COMPEMBED_DATA", raising=False)
    with pytest.raises(SystemExit):
        next_item.main([])
    assert "--data or COMPEMBED_DATA" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        next_item.main(["--quick", "--losses", "CANE,NCE"])
    assert "Received: 'NCE'" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="from 0 to 149. Received: 150"):
        next_item.main(["--quick", "--user", "150", "--output", str(tmp_path)])
