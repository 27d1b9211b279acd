"""Texts to model the words of: Penn Treebank, books of Project Gutenberg."""

import collections
import lzma
import pathlib
import re
import tarfile

import numpy as np

_PARTS = ("train", "valid", "test")
END = "<eos>"


def read_penn_treebank(folder):
    """Dict of the words of each part; `"<eos>"` ends a line."""
    return {part: _read(folder, part) for part in _PARTS}


def _read(folder, part):
    for ending, opened in ((".txt", open), (".txt.xz", lzma.open)):
        path = folder / f"ptb.{part}{ending}"
        if path.exists():
            with opened(path, "rt", encoding="utf-8") as file:
                return file.read().replace("\n", f" {END} ").split()
    raise SystemExit(f"There is no ptb.{part}.txt in {folder}.")


class Text:
    """Word ids of Penn Treebank's parts, most frequent word first."""

    def __init__(self, folder):
        words = self.read(pathlib.Path(folder))
        counts = collections.Counter(words["train"]).most_common()
        self.vocabulary = [word for word, _ in counts]
        self.counts = np.array([count for _, count in counts])
        ids = {word: index for index, word in enumerate(self.vocabulary)}
        self.ids = {
            part: np.array([ids[word] for word in text], "int32")
            for part, text in words.items()
        }

    def read(self, folder):
        """Words of the parts; those of training are the vocabulary."""
        return read_penn_treebank(folder)

    def segments(self, part, batch_size, steps):
        """Inputs and targets `(segments * batch_size, steps)`, in order."""
        ids = self.ids[part]
        count = (len(ids) - 1) // (batch_size * steps)
        size = count * batch_size * steps

        def lay_out(stream):
            stream = stream.reshape(batch_size, count, steps)
            return stream.transpose(1, 0, 2).reshape(-1, steps)

        return lay_out(ids[:size]), lay_out(ids[1 : size + 1])


class Books(Text):
    """Word ids of books of Project Gutenberg, most frequent word first."""

    unknown = "<unk>"

    def __init__(self, folder, min_count=3):
        self.min_count = min_count
        super().__init__(folder)

    def read(self, folder):
        words = {part: [] for part in _PARTS}
        with tarfile.open(folder / "books.tar.xz") as file:
            for member in sorted(file, key=lambda member: member.name):
                text = file.extractfile(member).read().decode("utf-8-sig")
                tokens = tokenize(strip_gutenberg(text))
                first, second = (int(len(tokens) * s) for s in (0.9, 0.95))
                words["train"] += tokens[:first]
                words["valid"] += tokens[first:second]
                words["test"] += tokens[second:]
        counts = collections.Counter(words["train"])
        kept = {w: w for w, n in counts.items() if n >= self.min_count}
        return {
            part: [kept.get(word, self.unknown) for word in tokens]
            for part, tokens in words.items()
        }


class MadeUp(Text):
    """Word ids of sentences in which each word follows from the one before."""

    def __init__(self):
        super().__init__("")

    def read(self, folder):
        rng = np.random.default_rng(0)
        words = (rng.integers(30, size=(100, 1)) + np.arange(9)) % 30
        # Sentences end in one word, and parts are of 60, 20 and 20 of them.
        words[:, -1] = 30
        parts = np.split(words.astype(str), (60, 80))
        return {
            part: array.ravel().tolist()
            for part, array in zip(_PARTS, parts, strict=True)
        }


_TOKEN = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*|\d+|--|[.,;:!?()—]")
_START = re.compile(r"^\*\*\* ?START OF .*PROJECT GUTENBERG.*$", re.M)
# Some books say so twice.
_END = re.compile(
    r"^(?:\*\*\* ?END OF .*PROJECT|End of (?:the )?Project) Gutenberg",
    re.M | re.I,
)


def tokenize(text):
    """List of words, numbers and marks of punctuation."""
    return _TOKEN.findall(text)


def strip_gutenberg(text):
    """What stands between the marks of Project Gutenberg, where there are."""
    start, end = _START.search(text), _END.search(text)
    return text[start.end() if start else 0 : end.start() if end else len(text)]
