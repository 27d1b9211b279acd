"""Tests of words that reports are given."""

from keras_compembed.reports.word_analogies import WordAnalogies
from keras_compembed.reports.word_lines import read_test_lines
from keras_compembed.reports.word_pairs import WordPairs


def read_word_test(path):
    """`WordAnalogies` of a file that begins with a section, or `WordPairs`."""
    _, line = next(read_test_lines(path), (0, ""))
    kind = WordAnalogies if line.startswith(":") else WordPairs
    return kind.read(path)


def check_word_tests(word_tests, original, words, argument="reference"):
    """Raises if these are no tests, or lack what they ask for."""
    if not isinstance(word_tests, list | tuple) or not all(
        isinstance(test, WordPairs | WordAnalogies) for test in word_tests
    ):
        raise ValueError(
            "`word_tests` must be a list of `keras_compembed.reports.WordPairs`"
            f" and `WordAnalogies`. Received: word_tests={word_tests!r}."
        )
    if word_tests and (original is None or words is None):
        lacking = argument if original is None else "words"
        raise ValueError(
            f"`word_tests` must come with `{argument}` and `words`; without, "
            "`test.evaluate(layer, words)` asks one layer. Received: "
            f"{lacking}=None."
        )
