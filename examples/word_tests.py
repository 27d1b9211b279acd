"""Tests of word vectors: word pairs and analogies."""

import dataclasses
import pathlib

import numpy as np

# Column heads, and files of pairs with similarity ratings.
PAIRS = {
    "WordSim": "EN-WS-353-ALL",
    "SimLex": "EN-SIMLEX-999",
    "MEN": "EN-MEN-TR-3k",
    "RW": "EN-RW-STANFORD",
    "SimVerb": "EN-SimVerb-3500",
    "MTurk": "EN-MTurk-771",
}
ANALOGIES = "questions-words"
_QUESTIONS = 256


@dataclasses.dataclass(frozen=True)
class WordScore:
    """The result of a test; `score` is None if no words are known."""

    name: str
    score: float | None
    num_used: int
    num_all: int


class WordPairs:
    """Correlation of cosines with human ratings, as in gensim."""

    def __init__(self, pairs, name="word pairs"):
        self.pairs = [tuple(pair) for pair in pairs]
        self.name = name

    @classmethod
    def read(cls, path):
        """Reads lines of two words and a number."""
        lines = (line.split() for line in _read_lines(path))
        return cls(
            [(a, b, float(value)) for a, b, value, *_ in lines],
            pathlib.Path(path).stem,
        )

    def evaluate(self, table, words):
        places = _first_rows(words)
        known = [
            (places[a.upper()], places[b.upper()], value)
            for a, b, value in self.pairs
            if a.upper() in places and b.upper() in places
        ]
        score = None
        if known:
            first, second, values = zip(*known, strict=True)
            vectors = _directions(np.asarray(table, "float64"))
            cosines = np.sum(vectors[[*first]] * vectors[[*second]], axis=1)
            # Smaller differences count as ties.
            score = _rank_correlation(cosines.round(9), values)
        return WordScore(self.name, score, len(known), len(self.pairs))


class WordAnalogies:
    """Accuracy on analogies (3CosAdd), as in gensim."""

    def __init__(self, questions, restrict_vocab=None, name="analogies"):
        self.questions = [tuple(question) for question in questions]
        self.restrict_vocab = restrict_vocab
        self.name = name

    @classmethod
    def read(cls, path, restrict_vocab=None):
        """Reads lines of four words; lines with `:` first are headings."""
        lines = (line.split() for line in _read_lines(path) if line[0] != ":")
        return cls(lines, restrict_vocab, pathlib.Path(path).stem)

    def evaluate(self, table, words):
        words = words[: self.restrict_vocab]
        places = _first_rows(words)
        # Words that differ only in case are excluded, or right, together.
        group = np.array([places[word.upper()] for word in words])
        known = np.array(
            [
                [places[word.upper()] for word in question]
                for question in self.questions
                if all(word.upper() in places for word in question)
            ]
        )
        right = 0
        vectors = _directions(np.asarray(table[: len(words)], "float32"))
        for start in range(0, len(known), _QUESTIONS):
            first, second, third, fourth = known[start : start + _QUESTIONS].T
            wanted = vectors[second] - vectors[first] + vectors[third]
            cosines = wanted @ vectors.T
            for asked in (first, second, third):
                cosines[group == asked[:, None]] = -np.inf
            best = cosines.argmax(axis=1)
            # If all words are excluded, none is right.
            found = cosines[np.arange(len(best)), best] > -np.inf
            right += np.sum(found & (group[best] == fourth))
        score = float(right / len(known)) if len(known) else None
        return WordScore(self.name, score, len(known), len(self.questions))


def _read_lines(path):
    text = pathlib.Path(path).read_text("utf-8-sig")
    return [
        line
        for line in map(str.strip, text.split("\n"))
        if line and not line.startswith("#")
    ]


def _first_rows(words):
    """Dict from upper-case words to their first row."""
    places = {}
    for row, word in enumerate(words):
        places.setdefault(word.upper(), row)
    return places


def _directions(rows):
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1)


def _rank_correlation(first, second):
    """Spearman's correlation, or None if one of them does not vary."""
    ranks = []
    for values in (first, second):
        _, places, counts = np.unique(
            values, return_inverse=True, return_counts=True
        )
        mean_rank = (np.cumsum(counts) - (counts - 1) / 2)[places]
        ranks.append(mean_rank - mean_rank.mean())
    spread = np.sqrt(np.prod([np.sum(x**2) for x in ranks]))
    return float(np.sum(ranks[0] * ranks[1]) / spread) if spread else None
