"""Relations from WordNet's files."""

import zipfile

import pytest
from errors import refused

from keras_compembed.anchors import Relations

LICENCE = "  1 This software and database is being provided to you\n"
NOUNS = """\
00000100 03 n 01 animal 0 001 ~ 00000200 n 0000 | a living thing
00000200 03 n 02 dog 0 domestic_dog 0 002 @ 00000100 n 0000 ~ 00000300 n 0000 \
| it barks
00000300 03 n 01 puppy 0 001 @ 00000200 n 0000 | young
00000400 03 n 01 Fido 0 001 @i 00000200 n 0000 | an instance
00000500 03 n 02 light 0 lamp 0 001 ! 00000600 n 0101 | shines
00000600 03 n 02 dark 0 night 0 001 ! 00000500 n 0101 | does not
"""
VERBS = """\
00000100 29 v 02 run 0 scat 1 001 + 00000100 n 0101 01 + 02 00 | move fast
"""
ADJECTIVES = """\
00000100 00 a 01 dark(p) 0 002 ! 00000200 a 0101 & 00000300 s 0000 | no light
00000200 00 a 01 light 0 001 ! 00000100 a 0101 | bright
00000300 00 s 02 dim 0 faint(a) 0 001 & 00000100 a 0000 | not bright
"""
ADVERBS = """\
00000100 02 r 01 fast 0 000 | quickly
"""


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "dict"
    folder.mkdir()
    for name, text in (
        ("noun", NOUNS),
        ("verb", VERBS),
        ("adj", ADJECTIVES),
        ("adv", ADVERBS),
    ):
        (folder / f"data.{name}").write_text(LICENCE + text)
    (folder / "verb.exc").write_text("ran run\n")
    return folder


def related_words(vocabulary, folder):
    relations = Relations.from_wordnet(vocabulary, folder)
    assert relations.input_dim == len(vocabulary)
    return {
        tuple(sorted((vocabulary[u], vocabulary[v])))
        for u, v in relations.pairs
    }


def test_synonyms_hypernyms_and_antonyms(folder):
    words = "animal dog puppy fido light lamp dark night dim faint fast"
    assert related_words(words.split(), folder) == {
        ("animal", "dog"),
        ("dog", "puppy"),
        ("lamp", "light"),
        ("dark", "night"),
        # Lexical: not of "lamp" and "night".
        ("dark", "light"),
        ("dim", "faint"),
    }


def test_inflected_words(folder):
    words = ["dogs", "dog", "animals", "animal", "ran", "run", "scat", "s"]
    assert related_words(words, folder) == {
        ("dog", "dogs"),
        ("animal", "animals"),
        ("animal", "dog"),
        # But not with the inflected form of a word related to theirs.
        ("animal", "dogs"),
        ("animals", "dog"),
        ("ran", "run"),
        ("ran", "scat"),
        ("run", "scat"),
    }


def test_case_spaces_and_words_that_are_there_twice(folder):
    assert related_words(["", "[UNK]", "Domestic dog", "PUPPY"], folder) == {
        ("Domestic dog", "PUPPY")
    }
    relations = Relations.from_wordnet(["Dog", "puppy", "dog"], folder)
    assert relations.pairs.tolist() == [[0, 1], [0, 2], [1, 2]]


def test_zip_file(folder, tmp_path):
    path = tmp_path / "wordnet.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, "wordnet/" + file.name)
    assert related_words(["animal", "dogs"], path) == {("animal", "dogs")}


def test_files_that_are_not_there(folder, tmp_path):
    (folder / "data.adv").unlink()
    for name, missing in (
        (folder, "data.adv"),
        (tmp_path / "nowhere", "data.noun', 'data.verb"),
    ):
        with refused("folder", missing):
            Relations.from_wordnet(["dog"], name)
    with refused("vocabulary"):
        Relations.from_wordnet(["dog", 3], folder)
