"""The ANT benchmark runs in its quick mode, on generated texts."""

import json
import lzma

import numpy as np
import pytest
from benchmark_files import load


@pytest.fixture
def benchmark():
    return load("ant_classification")


def test_rows(benchmark, tmp_path, capsys):
    output = tmp_path / "results.json"
    arguments = ["--quick", "--output", str(output)]
    benchmark.main([*arguments, "--picture", str(tmp_path)])
    lines = json.loads(output.read_text())["rows"]
    rows = {(line["task"], line["name"]): line for line in lines}
    assert len(rows) == len(lines) == len(benchmark.quick_rows())
    full = rows["words", "full table"]
    words = full["parameters"] // 8
    # 180 words, most of which occur twice, padding and unknown.
    assert 150 < words <= 182
    assert full["times_fewer"] == 1 and full["bytes"] == 4 * 8 * words
    assert full["test"] > 0.6
    for line in lines:
        layer = line["settings"]["row"]["layer"]
        epochs = line["settings"]["task"]["epochs"]
        assert len(line["by_epoch"]) == epochs
        if layer is not None:
            assert line["parameters"] == line["nonzeros"] + 4 * 8
    sparse = rows["words", "l1 1e-3"]
    assert sparse["nonzeros"] == sparse["by_epoch"][-1]["nonzeros"]
    assert sparse["by_epoch"][-1]["l1"] == pytest.approx(1e-3)
    # Every number that training has touched.
    assert rows["words", "subgradient"]["nonzeros"] > 4 * (words - 3)
    assert rows["words", "frequency"]["nonzeros"] == 150
    assert rows["words", "50 words"]["parameters"] == 50 * 8
    assert rows["words", "sparse code"]["nonzeros"] <= 2 * words
    assert (tmp_path / "ant_words.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "ant_words_cnn.png").exists()
    table = capsys.readouterr().out
    assert "| words | anchors | non-zeros | parameters |" in table
    assert f"| l1 1e-3 | 4 | {sparse['nonzeros']:,} |" in table


def test_goes_on_where_it_stopped(benchmark, tmp_path, monkeypatch):
    output = tmp_path / "results.json"
    arguments = ["--quick", "--output", str(output)]
    arguments += ["--rows", "^(full table|50 words)$"]
    first = benchmark.main(arguments)
    assert [line["name"] for line in first] == [
        "full table",
        "50 words",
        "full table",
    ]

    def forbidden(*args, **kwargs):
        raise AssertionError("what stands in the file must not run again")

    measure = benchmark.Run.measure
    monkeypatch.setattr(benchmark.Run, "measure", forbidden)
    assert benchmark.main(arguments) == first
    # A row whose settings are new takes the place of the old one.
    rows = benchmark.quick_rows()
    rows = [
        benchmark.dataclasses.replace(row, kept_words=40)
        if row.name == "50 words"
        else row
        for row in rows
    ]
    monkeypatch.setattr(benchmark, "quick_rows", lambda: rows)
    monkeypatch.setattr(benchmark.Run, "measure", measure)
    second = benchmark.main(arguments)
    assert len(second) == 3
    assert second[-1]["parameters"] == 40 * 8


def test_needs_the_data(benchmark, tmp_path, monkeypatch):
    monkeypatch.delenv("COMPEMBED_DATA", raising=False)
    module = benchmark
    with pytest.raises(SystemExit, match="Name the data folder"):
        module.main(["--output", str(tmp_path / "results.json")])


def test_reads_data_folders(benchmark, tmp_path):
    """Files as those of the data folder; ids by how often words occur."""
    (tmp_path / "imdb").mkdir()
    for part, rows in (("train", 20), ("test", 4)):
        path = tmp_path / "imdb" / f"{part}.tsv.xz"
        with lzma.open(path, "wt", encoding="utf-8") as file:
            for row in range(rows):
                label = ("neg", "pos")[row % 2]
                file.write(f'{label}\t5\t{row}\tA film,<br />a "FILM" {row}\n')
    texts = benchmark.labelled_texts.read("imdb", tmp_path, 4)
    assert texts.words == ["", "[UNK]", "a", "film"]
    assert texts.counts.tolist() == [0, 0, 40, 40]
    assert [len(part[1]) for part in (texts.train, texts.valid)] == [18, 2]
    assert (texts.test[0] == [2, 3, 2, 3]).all()
    assert texts.test[1].tolist() == [0, 1, 0, 1]

    (tmp_path / "20newsgroups").mkdir()
    for part, rows in (("train", 20), ("test", 4)):
        path = tmp_path / "20newsgroups" / f"{part}.jsonl.xz"
        with lzma.open(path, "wt", encoding="utf-8") as file:
            for row in range(rows):
                line = {"label": f"sci.{row % 2}", "text": "x y it's x"}
                file.write(json.dumps(line) + "\n")
    texts = benchmark.labelled_texts.read("20newsgroups", tmp_path, 6)
    assert texts.words == ["", "[UNK]", "x", "y", "it's"]
    assert np.unique(texts.train[0], axis=0).tolist() == [[2, 3, 4, 2, 0, 0]]


def test_domain_knowledge(benchmark, data_dir):
    words = ["", "[UNK]", "dogs", "puppy", "paper"]
    relations = benchmark.read_wordnet(words, data_dir)
    assert relations.pairs.tolist() == [[2, 3]]


test_domain_knowledge = pytest.mark.data(test_domain_knowledge)
