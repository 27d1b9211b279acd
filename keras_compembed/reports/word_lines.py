"""Lines of files of word tests, and rows of their words."""

import os


def name_of_test(path):
    """What a test is called that is read from a file."""
    return os.path.splitext(os.path.basename(os.fspath(path)))[0]


def read_test_lines(path):
    """Yields `(number, line)` of a text file, without empty and `#` lines.

    Raises:
        ValueError: if a line is not UTF-8.
    """
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
    """Raises if there is not a word for each row.

    Args:
        words: List of strings.
        rows: `TableRows`.
    """
    if isinstance(words, str) or len(words) != rows.shape[0]:
        raise ValueError(
            f"`words` must be a list of {rows.shape[0]} words, one for each "
            f"row of `table`. Received: {len(words)} "
            f"{'characters' if isinstance(words, str) else 'words'}."
        )
