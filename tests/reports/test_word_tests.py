"""`WordPairs` and `WordAnalogies`, against people, loops and gensim."""

import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.reports import WordAnalogies
from keras_compembed.reports import WordPairs
from keras_compembed.reports import word_analogies

# Some differ only in case.
WORDS = ["Oslo", *(f"w{number}" for number in range(250)), "oslo", "W7", "w9é"]


def make_table(columns=8):
    return np.random.default_rng(5).normal(size=(len(WORDS), columns)) + 0.3


def make_pairs(number=120):
    rng = np.random.default_rng(1)
    # Few values: ties. Some words are unknown.
    names = [*WORDS, *(f"unknown{number}" for number in range(20)), "W9É"]
    return [
        (names[i], names[j].upper(), float(value))
        for (i, j), value in zip(
            rng.integers(len(names), size=(number, 2)),
            rng.integers(6, size=number),
            strict=True,
        )
    ]


def make_questions(number=150):
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


def test_equal_but_for_the_last_digit():
    # Cosines of 1 of words with themselves, and with others of their row.
    table = np.random.default_rng(0).normal(size=(20, 7))
    words = [f"w{row}" for row in range(20)]
    pairs = [(word, word, value) for value, word in enumerate(words)]
    assert WordPairs(pairs).evaluate(table, words).score is None
    same = [("w0", "w1", 1), ("w0", "w2", 2)]
    table = np.eye(3) + 0.1
    assert WordPairs(same).evaluate(table, words[:3]).score is None


@pytest.mark.parametrize("words", [["x", "y"], ["a", "y"], ["a", "b"]])
def test_too_little_for_a_score(words):
    score = WordPairs([("a", "b", 1)]).evaluate(np.eye(2), words)
    assert score.score is None and score.num_used == (words == ["a", "b"])
    questions = WordAnalogies([("a", "b", "c", "d")])
    score = questions.evaluate(np.eye(2), words)
    assert (score.score, score.num_used, score.num_all) == (None, 0, 1)


@pytest.mark.parametrize("restrict_vocab", [None, 60])
@pytest.mark.parametrize("parts", [(2048, 512), (17, 7)])
def test_same_as_gensim(tmp_path, monkeypatch, restrict_vocab, parts):
    models = pytest.importorskip("gensim.models")
    monkeypatch.setattr(word_analogies, "_ROWS", parts[0])
    monkeypatch.setattr(word_analogies, "_QUESTIONS", parts[1])
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
    path.write_text(": section\n" + "\n".join(lines), "utf-8")
    score = WordAnalogies.read(path, restrict_vocab).evaluate(table, WORDS)
    expected, sections = gensim.evaluate_word_analogies(
        str(path), restrict_vocab=restrict_vocab or len(WORDS)
    )
    asked = sections[-1]["correct"] + sections[-1]["incorrect"]
    assert score.num_used == len(asked) < score.num_all
    assert score.score == pytest.approx(expected)
    assert restrict_vocab or 0.3 < score.score < 0.8


def test_what_no_word_may_answer_is_wrong():
    words, table = ["a", "b", "c", "d"], np.eye(4)
    questions = WordAnalogies([("a", "b", "c", "a")], restrict_vocab=3)
    score = questions.evaluate(table, words)
    assert (score.score, score.num_used) == (0, 1)


def test_analogies_of_a_loop():
    table, questions = make_table(), make_questions()
    rows = {}
    for row, word in enumerate(WORDS):
        rows.setdefault(word.upper(), row)
    directions = table / np.linalg.norm(table, axis=1, keepdims=True)
    right = []
    for question in questions:
        a, b, c, answer = (word.upper() for word in question)
        if not {a, b, c, answer} <= set(rows):
            continue
        wanted = directions[rows[b]] - directions[rows[a]]
        order = np.argsort(-(directions @ (wanted + directions[rows[c]])))
        names = (WORDS[row].upper() for row in order)
        right.append(next(x for x in names if x not in (a, b, c)) == answer)
    score = WordAnalogies(questions).evaluate(table, WORDS)
    assert score.score == np.mean(right) and score.num_used == len(right)


def test_of_a_layer():
    table = make_table(columns=16)
    layer = kc.CodeEmbedding.from_table(table, 4, 8, verbose=0)
    rows = layer(np.arange(len(table))).numpy()
    for test in (WordPairs(make_pairs()), WordAnalogies(make_questions())):
        of_layer = test.evaluate(layer, WORDS)
        of_rows = test.evaluate(rows, WORDS)
        assert of_layer.score == pytest.approx(of_rows.score, abs=1e-6)
        assert of_layer.num_used == of_rows.num_used


@pytest.mark.parametrize(
    "text, pairs",
    [
        ("a\tb\t1.5\nc\td\t2\n", [("a", "b", 1.5), ("c", "d", 2)]),
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


@pytest.mark.parametrize(
    "text, message",
    [
        ("a b 1\nc d\n", "line 2 of.*'c d'"),
        ("w1\tw2\tpos\tmean\nold\tnew\tA\t1.58\n", r"line 2 of.*old\\tnew"),
        ("a b 1\n\nc d nan\n", "line 3 of"),
        ("# only\nwords here\n", "which has none"),
        ("", "which has none"),
    ],
)
def test_files_of_other_things(tmp_path, text, message):
    path = tmp_path / "pairs.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        WordPairs.read(path)


def test_files_of_questions(tmp_path):
    path = tmp_path / "questions.txt"
    path.write_text(": one\na b c d\n\n: two\ne f g h\n")
    assert WordAnalogies.read(path).questions == [
        ("a", "b", "c", "d"),
        ("e", "f", "g", "h"),
    ]
    for text, message in (
        (": one\na b c d\na b c\n", "four words.*line 3 of.*'a b c'"),
        (": one\n", "which has none"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            WordAnalogies.read(path)


@pytest.mark.parametrize("kind", [WordPairs, WordAnalogies])
def test_files_that_are_not_utf8(tmp_path, kind):
    path = tmp_path / "test.txt"
    path.write_bytes(b"a b 1\n" + "é e 2\n".encode("latin-1"))
    with pytest.raises(ValueError, match="UTF-8|line 1"):
        kind.read(path)
    path.write_bytes("é\n".encode("latin-1"))
    with pytest.raises(ValueError, match="UTF-8. Received: line 1 of"):
        kind.read(path)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: WordPairs([]), "`pairs` must hold a pair"),
        (lambda: WordPairs([("a", "b", 1), ("a", "b")]), r"pairs\[1\]="),
        (lambda: WordPairs([("a", "b", np.nan)]), "finite number"),
        (lambda: WordPairs([("a", 5, 1)]), "two words"),
        (lambda: WordPairs([("a", "b", True)]), "finite number"),
        (lambda: WordPairs([5]), r"pairs\[0\]=5"),
        (lambda: WordAnalogies(["abcd"]), r"questions\[0\]='abcd'"),
        (lambda: WordAnalogies([]), "`questions` must hold a question"),
        (lambda: WordAnalogies([("a", "b", "c")]), r"questions\[0\]="),
        (
            lambda: WordAnalogies([("a", "b", "c", "d")], restrict_vocab=0),
            "`restrict_vocab` must be a positive integer",
        ),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("words", ["ab", ["a"]])
def test_words_of_other_tables(words):
    for test in (
        WordPairs([("a", "b", 1)]),
        WordAnalogies([("a", "b", "c", "d")]),
    ):
        with pytest.raises(ValueError, match="a list of 3 words"):
            test.evaluate(np.eye(3), words)
        with pytest.raises(ValueError, match="order of the rows. .*type set"):
            test.evaluate(np.eye(3), {"a", "b", "c"})


@pytest.mark.parametrize("words", [None, 5, ["a", 5, "c"]])
def test_what_is_no_list_of_words(words):
    with pytest.raises(TypeError, match="a list of 3 words, .*5|None"):
        WordPairs([("a", "b", 1)]).evaluate(np.eye(3), words)
    with pytest.raises(TypeError, match="`pairs` must be a list"):
        WordPairs("a b 3")


def test_word_vectors_are_asked_for_their_table():
    table = make_table().astype("float32")
    small = kc.vectors.CompressedVectors.learn(
        kc.vectors.WordVectors(WORDS, table), kc.methods.Rounded(8), verbose=0
    )
    test = WordPairs(make_pairs())
    with pytest.raises(ValueError, match=r"Received: .*its `table\(\)`"):
        test.evaluate(small, WORDS)
    assert test.evaluate(small.table(), WORDS).score is not None
