"""Flags of examples that make no sense are refused before any work."""

import importlib

import pytest

DEVICES = "--batch-size must be a multiple of --devices"
DATA = "--data or COMPEMBED_DATA"
OF_THREE = ["--quick", "--devices", "3"]
ON_DEVICES = "ant_text_classification", "custom_training_step", "job_titles"
WITH_DATA = "job_titles", "next_item", "recommend_titles", "word_language_model"


REFUSED = [
    *((name, OF_THREE, DEVICES) for name in ON_DEVICES),
    *((name, [], DATA) for name in WITH_DATA),
    ("compress_text_classifier", ["--seeds=0"], "--seeds must be positive"),
    ("large_table", ["a.npy", "--output=b.npz"], "--output must end in"),
    ("large_table", ["a", "--output=b.keras", "--workers=0"], "--workers must"),
    ("next_item", ["--quick", "--losses", "CANE,NCE"], "Received: 'NCE'"),
    ("next_item", ["--quick", "--user=150", "--output=."], "to 149. Received"),
    ("text_to_phone", ["--seeds", "0"], "--seeds must be positive"),
    ("text_to_phone", ["--csv=a.csv", "--save=b"], "a card of the docstrings"),
    ("train_distributed", OF_THREE, f"{DEVICES}, 3"),
]


@pytest.mark.parametrize(("name", "flags", "message"), REFUSED)
def test_bad_flags(name, flags, message, capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("COMPEMBED_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    if name == "large_table":
        pytest.importorskip("distributed")
    if name == "text_to_phone":
        pytest.importorskip("tensorflow_text")
    example = importlib.import_module(f"examples.{name}")
    with pytest.raises(SystemExit) as caught:
        example.main(flags)
    assert message in f"{caught.value} {capsys.readouterr().err}"
