"""`WordPairs` and `WordAnalogies`, against people, loops and gensim."""

import numpy as np
import pytest
from errors import refused

from keras_compembed.reports import WordAnalogies
from keras_compembed.reports import WordPairs

# More than are read at a time. Some differ only in case.
WORDS = ["Oslo", *(f"w{number}" for number in range(2100))]
WORDS += ["oslo", "W7", "w9é"]


def make_table(columns=8):
    return np.random.default_rng(5).normal(size=(len(WORDS), columns)) + 0.3


def make_pairs(number=120):
    rng = np.random.default_rng(1)
    # Few values: ties. Some words are unknown.
    names = [*WORDS[:250], *(f"unknown{number}" for number in range(20)), "W9É"]
    return [
        (names[i], names[j].upper(), float(value))
        for (i, j), value in zip(
            rng.integers(len(names), size=(number, 2)),
            rng.integers(6, size=number),
            strict=True,
        )
    ]


def make_questions(number=600):
    """Half of them have answers that are right."""
    rng = np.random.default_rng(2)
    table = make_table()
    directions = table / np.linalg.norm(table, axis=1, keepdims=True)
    questions = []
    for place, (a, b, c) in enumerate(rng.integers(100, size=(number, 3))):
        sums = directions @ (directions[b] - directions[a] + directions[c])
        sums[[a, b, c]] = -np.inf
        answer = sums.argmax() if place % 2 else rng.integers(100)
        questions.append([WORDS[row] for row in (a, b, c, answer)])
    questions[3][0] = "nobody"
    questions[5] = [word.upper() for word in questions[5]]
    return questions


def test_pairs_by_hand():
    # Cosines 1, 0.6, 0.6 and 0: ranks 4, 2.5, 2.5, 1; people 3, 4, 1, 2.
    table = [[1.0, 0.0], [2.0, 0.0], [0.6, 0.8], [0.0, 3.0]]
    pairs = [("a", "b", 8), ("a", "c", 9), ("b", "c", 1), ("a", "d", 2)]
    score = WordPairs(pairs, "four").evaluate(table, list("abcd"))
    assert score.name == "four"
    assert score.score == pytest.approx(1.5 / np.sqrt(4.5 * 5))
    assert (score.num_used, score.num_all) == (4, 4)
    # Cosines equal but for the last digit.
    table = np.random.default_rng(0).normal(size=(20, 7))
    words = [f"w{row}" for row in range(20)]
    pairs = [(word, word, value) for value, word in enumerate(words)]
    assert WordPairs(pairs).evaluate(table, words).score is None


def test_too_little_for_a_score():
    test = WordPairs([("a", "b", 1)])
    for words in (["x", "y"], ["a", "y"], ["a", "b"]):
        score = test.evaluate(np.eye(2), words)
        assert score.score is None and score.num_used == (words == ["a", "b"])
    # All that are known are barred.
    questions = WordAnalogies([("a", "b", "c", "a")], restrict_vocab=3)
    score = questions.evaluate(np.eye(4), ["a", "b", "c", "d"])
    assert (score.score, score.num_used) == (0, 1)
    score = questions.evaluate(np.eye(2), ["a", "b"])
    assert (score.score, score.num_used, score.num_all) == (None, 0, 1)


def test_same_as_gensim(tmp_path):
    models = pytest.importorskip("gensim.models")
    table = make_table().astype("float32")
    gensim = models.KeyedVectors(table.shape[1])
    gensim.add_vectors(WORDS, table)
    path = tmp_path / "pairs.tsv"
    lines = ["\t".join(map(str, pair)) for pair in make_pairs()]
    path.write_text("# of people\n" + "\n".join(lines), "utf-8")
    score = WordPairs.read(path).evaluate(table, WORDS)
    _, expected, unknown = gensim.evaluate_word_pairs(str(path))
    assert score.score == pytest.approx(expected.statistic, abs=1e-6)
    share = 100 * (1 - score.num_used / score.num_all)
    assert share == pytest.approx(unknown)
    assert 0 < score.num_used < score.num_all

    path = tmp_path / "questions.txt"
    lines = [" ".join(question) for question in make_questions()]
    path.write_text(": one\n\n: two\n" + "\n".join(lines), "utf-8")
    for few in (None, 60):
        score = WordAnalogies.read(path, few).evaluate(table, WORDS)
        expected, sections = gensim.evaluate_word_analogies(
            str(path), restrict_vocab=few or len(WORDS)
        )
        asked = sections[-1]["correct"] + sections[-1]["incorrect"]
        assert score.num_used == len(asked) < score.num_all
        assert score.score == pytest.approx(expected)
        assert few or 0.3 < score.score < 0.8


@pytest.mark.parametrize(
    "text, pairs",
    [
        ("\ufeffa b 1\r\n\r\nc  d 2e-1\r\n", [("a", "b", 1), ("c", "d", 0.2)]),
        ("Word 1,Word 2,Human (mean)\na,b,7\n", [("a", "b", 7)]),
        ("# about\nword1\tword2\tmean\tone\na\tb\t7\t8\n", [("a", "b", 7)]),
        ("new york\tcity\t3", [("new york", "city", 3)]),
    ],
)
def test_files_of_pairs(tmp_path, text, pairs):
    path = tmp_path / "some.test.txt"
    path.write_bytes(text.encode())
    found = WordPairs.read(path)
    assert (found.pairs, found.name) == (pairs, "some.test")


def test_what_is_refused(tmp_path):
    path = tmp_path / "test.txt"
    for kind, text, received in (
        (WordPairs, "a b 1\nc d\n", "line 2 of"),
        (WordPairs, "# only\nwords here\n", "which has none"),
        (WordPairs, "é\n", "line 1 of"),
        (WordAnalogies, ": one\na b c d\na b c\n", "line 3 of"),
    ):
        path.write_bytes(text.encode("latin-1"))
        with refused(None, received):
            kind.read(path)
    for pairs in ([], [("a", "b")], [("a", "b", np.nan)], [("a", 5, 1)], [5]):
        with refused("pairs", str(pairs)[1:-1]):
            WordPairs(pairs)
    for questions in ([], ["abcd"], [("a", "b", "c")]):
        with refused("questions", str(questions)[1:-1]):
            WordAnalogies(questions)
    for words, error in (
        (["a"], ValueError),
        ({"a"}, ValueError),
        (5, TypeError),
    ):
        with refused("words", None, error):
            WordPairs([("a", "b", 1)]).evaluate(np.eye(3), words)
