"""Pairs of words and how similar people find them."""

import math

import numpy as np

from keras_compembed.reports.table_rows import TableRows
from keras_compembed.reports.table_rows import directions
from keras_compembed.reports.word_lines import check_words
from keras_compembed.reports.word_lines import entries
from keras_compembed.reports.word_lines import first_rows
from keras_compembed.reports.word_lines import fold
from keras_compembed.reports.word_lines import name_of_test
from keras_compembed.reports.word_lines import read_test_lines
from keras_compembed.reports.word_score import WordScore

# Of cosines: what differs by less is equal, and shares its rank, such as words
# with the same row and themselves.
_DECIMALS = 9


class WordPairs:
    """Pairs of words and how similar people find them.

    Such as WordSim-353, SimLex-999, MEN and Rare Words. The score of vectors
    is Spearman's rank correlation of what people say with the cosines of the
    vectors, over the pairs whose words are both known. A word is looked up
    whatever its case; where several differ only in case, the first counts.
    The same figures as gensim's `KeyedVectors.evaluate_word_pairs`, but for
    cosines that differ by less than 1e-9: these share a rank.

    Example:

    >>> pairs = WordPairs(
    ...     [("cat", "dog", 7.5), ("cat", "car", 1.0), ("dog", "car", 2.0)]
    ... )
    >>> table = [[1.0, 0.1], [1.0, 0.3], [0.0, 1.0]]
    >>> pairs.evaluate(table, ["cat", "dog", "car"]).score
    1.0

    Args:
        pairs: List of `(word, word, number)`; a higher number means more
            similar.
        name: String. Defaults to `"word pairs"`.

    Raises:
        ValueError: if there are no pairs, or one is not two words and a
            finite number.
    """

    def __init__(self, pairs, name="word pairs"):
        self.name = name
        self.pairs = entries("pairs", pairs)
        if not self.pairs:
            raise ValueError(
                f"`pairs` must hold a pair of words. Received: pairs={pairs!r}."
            )
        for place, pair in enumerate(self.pairs):
            if not _is_pair(pair):
                raise ValueError(
                    "`pairs` must be two words and a finite number each. "
                    f"Received: pairs[{place}]={pair!r}."
                )

    @classmethod
    def read(cls, path):
        """Reads a file with two words and a number on each line.

        They are parted by tabs, commas or blanks, and more of them may
        follow. A first line without a number is a head; lines that begin with
        `#` are left out.

        Args:
            path: String or path-like, a text file in UTF-8. The test is named
                after it.

        Returns:
            `WordPairs`.

        Raises:
            ValueError: if a line is something else; it is named.
        """
        pairs = []
        is_first = True
        for number, line in read_test_lines(path):
            pair = _parse(line)
            if pair is not None:
                pairs.append(pair)
            elif not is_first:
                raise ValueError(
                    "A line of word pairs must be two words and a finite "
                    f"number. Received: line {number} of {str(path)!r}, "
                    f"{line[:80]!r}."
                )
            is_first = False
        if not pairs:
            raise ValueError(
                "A file of word pairs must have two words and a number on "
                f"each line. Received: {str(path)!r}, which has none."
            )
        return cls(pairs, name_of_test(path))

    def evaluate(self, table, words):
        """How well cosines of vectors agree with people.

        Args:
            table: Array `(words, columns)`, or a built layer that maps ids to
                vectors, of which only the rows of the pairs are read.
            words: List of strings, the word of each row.

        Returns:
            A `WordScore`, whose score is None if fewer than two pairs are
            known, or all are equally similar.

        Raises:
            ValueError: if there is not a word for each row of a table.
        """
        rows = TableRows("table", table)
        words = check_words(words, rows)
        places = first_rows(words)
        known = [
            (places[fold(first)], places[fold(second)], value)
            for first, second, value in self.pairs
            if fold(first) in places and fold(second) in places
        ]
        score = None
        if known:
            *ids, values = zip(*known, strict=True)
            used, ids = np.unique(ids, return_inverse=True)
            found = directions(rows[used].astype("float64"))
            first, second = found[ids.reshape(2, -1)]
            cosines = np.sum(first * second, axis=1).round(_DECIMALS)
            score = rank_correlation(cosines, values)
        return WordScore(self.name, score, len(known), len(self.pairs))


def rank_correlation(first, second):
    """Spearman's correlation, or None if one of them does not vary."""
    first, second = (
        ranks - ranks.mean() for ranks in (_ranks(first), _ranks(second))
    )
    spread = math.sqrt(np.sum(first**2) * np.sum(second**2))
    return float(np.sum(first * second) / spread) if spread else None


def _ranks(values):
    """Ranks from 1; those of equal values are their mean."""
    _, places, counts = np.unique(
        values, return_inverse=True, return_counts=True
    )
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def _is_pair(pair):
    return (
        isinstance(pair, tuple)
        and len(pair) == 3
        and all(isinstance(word, str) and word for word in pair[:2])
        and isinstance(pair[2], int | float | np.number)
        and not isinstance(pair[2], bool)
        and math.isfinite(pair[2])
    )


def _parse(line):
    for mark in ("\t", ",", None):
        fields = [field.strip() for field in line.split(mark)]
        if len(fields) >= 3:
            break
    else:
        return None
    try:
        pair = (*fields[:2], float(fields[2]))
    except ValueError:
        return None
    return pair if _is_pair(pair) else None
