"""Labelled texts as ids: IMDB, 20 Newsgroups, made-up ones."""

import collections
import dataclasses
import re

import numpy as np

from examples import labelled_texts

_WORD = re.compile(r"[a-z0-9']+")
# Ids of padding and of words that are not in the vocabulary.
PAD, UNKNOWN = 0, 1


@dataclasses.dataclass(frozen=True)
class LabelledTexts:
    """Texts as ids, in three parts."""

    words: list
    counts: np.ndarray
    train: tuple
    valid: tuple
    test: tuple

    @property
    def num_classes(self):
        return int(self.train[1].max()) + 1


def read(name, folder, length):
    """Reads a data set of the data folder, or makes one up."""
    train, test = _READERS[name](folder)
    order = np.random.default_rng(0).permutation(len(train))
    train = [train[place] for place in order]
    tokens = [[_split(text) for _, text in part] for part in (train, test)]
    counts = collections.Counter()
    for words in tokens[0]:
        counts.update(words)
    kept = [(word, n) for word, n in counts.most_common() if n > 1]
    vocabulary = ["", "[UNK]", *(word for word, _ in kept)]
    ids = {word: place for place, word in enumerate(vocabulary)}
    classes = sorted({label for label, _ in train})
    parts = []
    for part, texts in zip((train, test), tokens, strict=True):
        table = np.full((len(texts), length), PAD, "int32")
        for row, words in zip(table, texts, strict=True):
            known = [ids.get(word, UNKNOWN) for word in words[:length]]
            row[: len(known)] = known
        labels = [classes.index(label) for label, _ in part]
        parts.append((table, np.array(labels, "int32")))
    held = len(train) // 10
    return LabelledTexts(
        vocabulary,
        np.array([0, 0, *(n for _, n in kept)]),
        tuple(values[held:] for values in parts[0]),
        tuple(values[:held] for values in parts[0]),
        parts[1],
    )


def _split(text):
    return _WORD.findall(text.lower().replace("<br />", " "))


def _generated(folder):
    """Texts whose words tell the class, one of three."""
    rng = np.random.default_rng(0)
    parts = []
    for size in (400, 100):
        labels = rng.integers(3, size=size)
        words = labels[:, None] + 3 * rng.integers(60, size=(size, 12))
        texts = [" ".join(f"w{word}" for word in row) for row in words]
        parts.append(list(zip(labels.tolist(), texts, strict=True)))
    return parts


_READERS = {
    "imdb": lambda folder: labelled_texts.imdb(folder / "imdb"),
    "20newsgroups": lambda folder: labelled_texts.newsgroups(
        folder / "20newsgroups"
    ),
    "generated": _generated,
}
