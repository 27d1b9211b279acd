"""Glosses of WordNet as examples, and hypernyms as their classes."""

import io
import tarfile

import numpy as np
import pytest

from benchmarks.data import glosses

LICENCE = "  1 This software and database is being provided\n"
ANIMAL = "0001 03 n 01 animal 0 001 ~ 0002 n 0000 | a living thing  \n"
# Two words, a pointer that is no hypernym, and two that are.
DOG = (
    "0002 05 n 02 dog 0 domestic_dog 0 003 %p 0009 n 0000 "
    "@ 0001 n 0000 @ 0003 n 0000 | an animal | that barks  \n"
)
# One of a kind, which is no class of its kind.
LASSIE = "0004 18 n 01 Lassie 0 001 @i 0002 n 0000 | a collie\n"


def pups(first, number, hypernym):
    return "".join(
        f"{first + k} 05 n 01 pup{k} 0 001 @ {hypernym} n 0000 | pup {k}\n"
        for k in range(number)
    )


@pytest.fixture
def folder(tmp_path):
    text = LICENCE + ANIMAL + DOG + LASSIE
    text += pups(100, 30, "0002") + pups(200, 3, "0005")
    content = text.encode("latin-1")
    (tmp_path / "wordnet30").mkdir()
    path = tmp_path / "wordnet30" / "dict.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        entry = tarfile.TarInfo("dict/data.noun")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return tmp_path


def test_classes_are_first_hypernyms(folder):
    texts, hypernyms = glosses.read_glosses(
        folder / "wordnet30" / "dict.tar.xz"
    )
    assert texts[:2] == ["an animal | that barks", "pup 0"]
    assert hypernyms == ["0001"] + ["0002"] * 30 + ["0005"] * 3


def test_parts_and_rare_classes(folder, monkeypatch):
    monkeypatch.setattr(
        glosses, "encode", lambda texts: np.arange(len(texts))[:, None]
    )
    task = glosses.gloss_vectors(folder, folder / "cache", least=3)
    assert task.names == ["0002", "0005"]
    # The dog, row 0, is alone in its class.
    x, y = (
        np.concatenate(parts)
        for parts in zip(task.valid, task.test, task.train, strict=True)
    )
    assert sorted(x[:, 0]) == list(range(1, 34))
    np.testing.assert_array_equal(y, x[:, 0] > 30)
    assert len(task.valid[1]) == len(task.test[1]) == 3
    # Vectors are kept, so they are not computed again.
    monkeypatch.delattr(glosses, "encode")
    again = glosses.gloss_vectors(folder, folder / "cache")
    assert again.names == ["0001", "0002", "0005"]
