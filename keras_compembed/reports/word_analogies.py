"""Analogies of words, such as "Athens is to Greece what Oslo is to Norway"."""

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
from keras_compembed.utils.validation import check_positive_int

# Rows that are read, and questions that are asked, at a time.
_ROWS, _QUESTIONS = 2048, 512


class WordAnalogies:
    """Analogies, such as "Athens is to Greece what Oslo is to Norway".

    Of a question's four words, the last is looked for: of all words but the
    other three, the one whose vector has the highest cosine with `second -
    first + third`, vectors of length 1 (3CosAdd). The score is the share of
    questions that are answered right, of those all of whose words are known.
    A word is looked up whatever its case; where several differ only in case,
    the first counts. The same figures as gensim's
    `KeyedVectors.evaluate_word_analogies`, and word2vec's.

    Example:

    >>> analogies = WordAnalogies([("man", "king", "woman", "queen")])
    >>> table = [[1.0, 0, 1], [1, 1, 1], [-1, 0, 1], [-1, 1, 1], [0, 0, 1]]
    >>> words = ["man", "king", "woman", "queen", "child"]
    >>> analogies.evaluate(table, words).score
    1.0

    Args:
        questions: List of tuples of four words.
        restrict_vocab: Optional integer. Only so many of the first words are
            known, which saves time where frequent words come first. Defaults
            to `None`: all.
        name: String. Defaults to `"analogies"`.

    Raises:
        ValueError: if there are no questions, or one is not four words.

    References:
        - [Mikolov et al., 2013](https://aclanthology.org/N13-1090/)
    """

    def __init__(self, questions, restrict_vocab=None, name="analogies"):
        if restrict_vocab is not None:
            check_positive_int("restrict_vocab", restrict_vocab)
        self.restrict_vocab = restrict_vocab
        self.name = name
        self.questions = entries("questions", questions)
        if not self.questions:
            raise ValueError(
                "`questions` must hold a question. "
                f"Received: questions={questions!r}."
            )
        for place, question in enumerate(self.questions):
            if (
                not isinstance(question, tuple)
                or len(question) != 4
                or not all(isinstance(word, str) and word for word in question)
            ):
                raise ValueError(
                    "`questions` must be four words each. "
                    f"Received: questions[{place}]={question!r}."
                )

    @classmethod
    def read(cls, path, restrict_vocab=None):
        """Reads a file with four words on each line, as word2vec has it.

        Lines that begin with `:` name a section and are left out, as are
        those that begin with `#`.

        Args:
            path: String or path-like, a text file in UTF-8, such as
                `questions-words.txt`. The test is named after it.
            restrict_vocab: Same as above.

        Returns:
            `WordAnalogies`.

        Raises:
            ValueError: if a line is something else; it is named.
        """
        questions = []
        for number, line in read_test_lines(path):
            if line.startswith(":"):
                continue
            questions.append(line.split())
            if len(questions[-1]) != 4:
                raise ValueError(
                    "A line of analogies must be four words. Received: line "
                    f"{number} of {str(path)!r}, {line[:80]!r}."
                )
        if not questions:
            raise ValueError(
                "A file of analogies must have four words on each line. "
                f"Received: {str(path)!r}, which has none."
            )
        return cls(questions, restrict_vocab, name_of_test(path))

    def evaluate(self, table, words):
        """How many questions vectors answer.

        Args:
            table: Array `(words, columns)`, or a built layer that maps ids to
                vectors, which are read a part at a time.
            words: List of strings, the word of each row.

        Returns:
            A `WordScore`, whose score is None if no question's words are all
            known.

        Raises:
            ValueError: if there is not a word for each row of a table.
        """
        rows = TableRows("table", table)
        words = check_words(words, rows)
        words = words[: self.restrict_vocab]
        places = first_rows(words)
        known = [
            [places[fold(word)] for word in question]
            for question in self.questions
            if all(fold(word) in places for word in question)
        ]
        score = None
        if known:
            firsts = np.array([places[fold(word)] for word in words])
            found = _answers(rows, np.array(known)[:, :3], firsts)
            right = (found >= 0) & (firsts[found] == np.array(known)[:, 3])
            score = float(np.mean(right))
        return WordScore(self.name, score, len(known), len(self.questions))


def _answers(rows, asked, firsts):
    """Rows that answer questions best, -1 where all are barred."""
    used, asked_places = np.unique(asked, return_inverse=True)
    first, second, third = asked_places.reshape(asked.shape).T
    wanted = directions(rows[used])
    questions, barred = _barred(asked, firsts)
    best = np.full(len(asked), -np.inf, "float32")
    answers = np.full(len(asked), -1)
    for start in range(0, len(firsts), _ROWS):
        part = slice(start, min(start + _ROWS, len(firsts)))
        # Cosines of sums are sums of cosines, but for the sum's length, which
        # is the same for all answers.
        cosines = wanted @ directions(rows[part]).T
        for begin in range(0, len(asked), _QUESTIONS):
            group = slice(begin, begin + _QUESTIONS)
            sums = cosines[second[group]]
            sums -= cosines[first[group]]
            sums += cosines[third[group]]
            own = slice(*np.searchsorted(questions, (begin, group.stop)))
            inside = barred[own] - start
            is_inside = (inside >= 0) & (inside < sums.shape[1])
            sums[questions[own][is_inside] - begin, inside[is_inside]] = -np.inf
            highest = sums.argmax(axis=1)
            values = np.take_along_axis(sums, highest[:, None], axis=1)[:, 0]
            is_better = values > best[group]
            best[group][is_better] = values[is_better]
            answers[group][is_better] = start + highest[is_better]
    return answers


def _barred(asked, firsts):
    """Questions in order, and rows that must not answer them: their words."""
    order = np.argsort(firsts, kind="stable")
    starts = np.searchsorted(firsts[order], asked.ravel(), "left")
    stops = np.searchsorted(firsts[order], asked.ravel(), "right")
    counts = stops - starts
    questions = np.repeat(np.repeat(np.arange(len(asked)), 3), counts)
    steps = np.arange(counts.sum()) - np.repeat(
        counts.cumsum() - counts, counts
    )
    return questions, order[np.repeat(starts, counts) + steps]
