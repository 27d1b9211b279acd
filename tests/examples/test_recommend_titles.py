import json

import keras
import numpy as np
import pytest

import keras_compembed as kc
from examples import job_titles
from examples import recommend_titles
from keras_compembed.presets.card_text import format_card


@pytest.mark.slow
def test_quick(tmp_path, capsys):
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
    assert figures["items"] + figures["test_titles"] < 132 * 9

    titles = (saved / "labels.txt").read_text().splitlines()
    assert len(titles) == figures["items"]
    args = recommend_titles.parse_arguments(flags)
    ids = job_titles.vectorize(["tall cook two"], args)
    model = kc.from_preset(saved)
    answer = kc.top_k_model(model, k=3)(ids)
    assert "tall cook" in titles[answer["ids"][0, 0]]
    phone = kc.export.LiteRTModel(saved / "model.tflite")(ids)
    assert "tall cook" in titles[phone["ids"][0, 0]]
    # The score of a title to itself is that of a vector to its codes.
    own = model(job_titles.vectorize(titles[:50], args))
    assert np.mean(np.diag(own)) > 0.9
    assert keras.ops.max(own) < 1.1

    card = (saved / "README.md").read_text()
    assert card == format_card(saved, model)
    assert f"{figures['litert']['top_1']:.1%}" in card
    assert "% 2047`; the first 32 are taken" in card
    printed = capsys.readouterr().out
    first = printed.split("junior red baker\n")[1].splitlines()[0]
    assert "red baker" in first


def test_hits():
    answers = [[{1}, {2, 3}] + [{9}] * 8, [{4}] * 10, [{8}] * 9 + [{5}]]
    right = [{2}, {4, 5}, {5}]
    assert recommend_titles.hits(answers, right) == pytest.approx(
        {"top_1": 1 / 3, "top_5": 2 / 3, "top_10": 1.0}
    )


def test_bad_flags(capsys, monkeypatch):
    monkeypatch.delenv("COMPEMBED_DATA", raising=False)
    with pytest.raises(SystemExit):
        recommend_titles.main([])
    assert "--data or COMPEMBED_DATA" in capsys.readouterr().err
