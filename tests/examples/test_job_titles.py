import json
import lzma

import keras
import numpy as np
import pytest

import keras_compembed as kc
from examples import job_titles


def check(results):
    assert results["accuracy"] > 0.6
    assert results["coverage"] > 0.9
    assert results["recall"] >= 0.99 and results["beam_width"] < 32
    # The file searches, and evaluation does not.
    for name in ("accuracy", "top_5_accuracy"):
        assert abs(results[f"litert_{name}"] - results[name]) < 0.03
    assert results["embedding_bytes"] == 4 * 2048 * 32
    assert results["file_bytes"] > results["embedding_bytes"]


@pytest.mark.slow
def test_quick(tmp_path, capsys):
    folder = tmp_path / "titles"
    results = job_titles.main(["--quick", "--output", str(folder)])
    check(results)
    assert json.loads((folder / "results.json").read_text()) == results
    names = (folder / "occupations.txt").read_text().split("\n")
    assert len(names) == 132
    printed = capsys.readouterr().out
    first = printed.split("junior red baker\n")[1].splitlines()[0]
    assert first.endswith("%  red baker")

    # The saved model predicts, and can be trained on.
    model = keras.saving.load_model(folder / "job_titles.keras")
    args = job_titles.parse_arguments(["--quick"])
    x = job_titles.vectorize(["junior red baker", "tall cook two"], args)
    answer = kc.top_k_model(model, k=5).predict(x, verbose=0)
    phone = kc.export.LiteRTModel(folder / "job_titles.tflite")(x)
    np.testing.assert_array_equal(answer["ids"], phone["ids"])
    model.compile("sgd", kc.CANELoss())
    model.fit(x, answer["ids"][:, 0], verbose=0)


@pytest.mark.slow
def test_two_devices(tmp_path, monkeypatch, strategy):
    monkeypatch.setattr(job_titles, "mirrored_strategy", {2: strategy}.get)
    folder = str(tmp_path / "titles")
    check(job_titles.main(["--quick", "--devices", "2", "--output", folder]))


def write_tables(folder, opened, blank, ending):
    folder.mkdir(exist_ok=True)
    tables = {
        "Occupation Data": "1\tCooks\tThey cook.\n2\tNurses\tThey nurse.\n",
        "Alternate Titles": (
            '1\tChef "de partie"\n2\tNurse\n1\tCOOKS\n2\tChef\n'
        ),
    }
    for name, text in tables.items():
        path = folder / f"{name.replace(' ', blank)}.txt{ending}"
        with opened(path, "wt", encoding="utf-8") as file:
            file.write("Code\tTitle\tMore\n" + text)


def test_tables(tmp_path):
    expected = (
        ["Cooks", "Nurses"],
        [
            ("chef", 1),
            ('chef "de partie"', 0),
            ("cooks", 0),
            ("nurse", 1),
            ("nurses", 1),
        ],
    )
    write_tables(tmp_path, open, " ", "")
    assert job_titles.read_occupations(tmp_path) == expected
    other = tmp_path / "other"
    other.mkdir()
    write_tables(other / "onet_titles", lzma.open, "_", ".xz")
    assert job_titles.read_occupations(other) == expected
    with pytest.raises(SystemExit, match="no 'Occupation Data.txt'"):
        job_titles.read_occupations(tmp_path / "none")


def test_parts():
    pairs = [(f"title {k // 2}", k) for k in range(400)]
    parts = job_titles.split(pairs, seed=0)
    assert sorted(sum(parts, [])) == sorted(pairs)
    titles = [{title for title, _ in part} for part in parts]
    assert len(set.union(*titles)) == sum(map(len, titles)) == 200
    assert len(titles[0]) > 120 and min(map(len, titles)) > 5


def test_features():
    args = job_titles.parse_arguments(["--quick"])
    first, second, none = job_titles.vectorize(
        ["Big cat", "cat big!", ""], args
    )
    assert (none == 0).all() and first.dtype == np.int32
    # Words, a pair, and 3 + 2 + 1 grams of each word; all but the pair alike.
    assert (first > 0).sum() == 2 + 1 + 2 * 6
    assert len(set(first[first > 0]) ^ set(second[second > 0])) == 2


def test_bad_flags(capsys, monkeypatch):
    with pytest.raises(SystemExit):
        job_titles.main(["--quick", "--devices", "3"])
    assert "--batch-size must be a multiple" in capsys.readouterr().err
    monkeypatch.delenv("COMPEMBED_DATA", raising=False)
    with pytest.raises(SystemExit):
        job_titles.main([])
    assert "--data or COMPEMBED_DATA" in capsys.readouterr().err
