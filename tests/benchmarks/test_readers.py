"""Readers of small data sets, on files of the same form."""

import json
import lzma

import numpy as np
import pytest
from benchmark_files import write_sentences

from benchmarks.data import links
from benchmarks.data import text_ids
from benchmarks.data import vectors
from benchmarks.data import visits
from benchmarks.data.words import Text


def test_text_ids(tmp_path):
    """Files as those of the data folder; ids by how often words occur."""
    (tmp_path / "imdb").mkdir()
    for part, rows in (("train", 20), ("test", 4)):
        path = tmp_path / "imdb" / f"{part}.tsv.xz"
        with lzma.open(path, "wt", encoding="utf-8") as file:
            for row in range(rows):
                label = ("neg", "pos")[row % 2]
                file.write(f'{label}\t5\t{row}\tA film,<br />a "FILM" {row}\n')
    texts = text_ids.read("imdb", tmp_path, 4)
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
    texts = text_ids.read("20newsgroups", tmp_path, 6)
    assert texts.words == ["", "[UNK]", "x", "y", "it's"]
    assert np.unique(texts.train[0], axis=0).tolist() == [[2, 3, 4, 2, 0, 0]]


def test_vectors_of_a_folder(tmp_path):
    table = np.arange(6, dtype="float16").reshape(3, 2)
    np.savez(tmp_path / "vectors.npz", table)
    (tmp_path / "words.txt").write_text("a\nb\nc\n")
    words, read = vectors.load_vectors(tmp_path, 2)
    assert words == ["a", "b"] and read.dtype == "float32"
    np.testing.assert_array_equal(read, table[:2])
    np.testing.assert_array_equal(vectors.load_table(tmp_path), table)


def test_load_tokens(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    table = np.arange(6, dtype="float32").reshape(3, 2)
    path = tmp_path / "model.safetensors"
    numpy.save_file({"embeddings.word_embeddings.weight": table}, path)
    np.testing.assert_array_equal(vectors.load_tokens(path), table)


def test_text_is_read_in_order(tmp_path):
    write_sentences(tmp_path)
    text = Text(tmp_path / "ptb")
    assert (np.diff(text.counts) <= 0).all()
    inputs, targets = text.segments("train", batch_size=4, steps=5)
    stream = inputs.reshape(-1, 4, 5)[:, 0].ravel()
    np.testing.assert_array_equal(stream, text.ids["train"][: len(stream)])
    np.testing.assert_array_equal(
        targets.reshape(-1, 4, 5)[:, 0].ravel(),
        text.ids["train"][1 : len(stream) + 1],
    )


def test_visits_are_read_by_user(tmp_path):
    folder = tmp_path / "gowalla"
    folder.mkdir()
    for name, text in (
        ("train", "0 4 1 3 2\n1 0\n2 0 1 2 3 5\n"),
        ("test", "0 0 6\n1\n"),
    ):
        with lzma.open(folder / f"{name}.txt.xz", "wt") as file:
            file.write(text)
    pairs = visits.gowalla(folder)
    assert (pairs.num_users, pairs.num_items) == (3, 7)
    assert pairs.test.tolist() == [[0, 0], [0, 6]]
    together = np.concatenate([pairs.train, pairs.valid]).tolist()
    assert len(pairs.valid) == 1 and len(together) == 10
    assert [2, 5] in together and [0, 4] in together


def test_links_of_words(tmp_path):
    """Both ways; the one link of a word is left out, and so is the word."""
    lines = [
        ("hypernym", "dog", "animal"),
        ("hypernym", "cat", "animal"),
        ("antonym", "dog", "cat"),
        ("antonym", "cat", "dog"),
        ("synonym", "cat", "cat"),
        ("hypernym", "animal", "thing"),
    ]
    with lzma.open(tmp_path / "relations.tsv.xz", "wt") as file:
        for relation, *words in lines:
            file.write("\t".join([relation, "n", *words]) + "\n")
    found = links.wordnet(tmp_path, least=2)
    assert (found.num_entities, found.num_relations) == (3, 4)
    parts = [found.train, found.valid, found.test]
    assert [len(part) for part in parts] == [2, 2, 2]
    animal, cat, dog = range(3)
    antonym, hypernym, _, hyponym = range(4)
    assert {tuple(row) for part in parts for row in part.tolist()} == {
        (dog, hypernym, animal),
        (animal, hyponym, dog),
        (cat, hypernym, animal),
        (animal, hyponym, cat),
        (cat, antonym, dog),
        (dog, antonym, cat),
    }
    # A link is in one part, both ways.
    for part in parts:
        assert set(part[0, ::2]) == set(part[1, ::2])
