"""Lines of files of word tests, and rows of their words."""

import os
from collections.abc import Iterable

from keras_compembed.utils.validation import check_order


def name_of_test(path):
    """What a test is called that is read from a file."""
    return os.path.splitext(os.path.basename(os.fspath(path)))[0]


def read_test_lines(path):
    """Yields `(number, line)` of a text file, without empty and `#` lines."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8-sig").strip()
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"A test of words must be in UTF-8. Received: line "
                    f"{number} of {os.fspath(path)!r} ({error})."
                ) from error
            if text and not text.startswith("#"):
                yield number, text


def entries(name, values):
    """A list of entries of a test: tuples, where each is a list or tuple."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(
            f"`{name}` must be a list. Received: {name}={values!r}."
        )
    return [
        tuple(value) if isinstance(value, list | tuple) else value
        for value in values
    ]


def fold(word):
    """What words that differ only in case have in common."""
    return word.upper()


def first_rows(words):
    """Dict from a folded word to the first row that has it."""
    places = {}
    for row, word in enumerate(words):
        places.setdefault(fold(word), row)
    return places


def check_words(words, rows):
    """Returns a list with a word for each row, or raises."""
    rule = (
        f"`words` must be a list of {rows.shape[0]} words, one for each row of "
        "`table`. Received: "
    )
    if isinstance(words, str):
        raise ValueError(f"{rule}{len(words)} characters.")
    if not isinstance(words, Iterable):
        raise TypeError(f"{rule}words={words!r}.")
    words = check_order("words", words)
    if len(words) != rows.shape[0]:
        raise ValueError(f"{rule}{len(words)} words.")
    for row, word in enumerate(words):
        if not isinstance(word, str):
            raise TypeError(f"{rule}words[{row}]={word!r}.")
    return words
