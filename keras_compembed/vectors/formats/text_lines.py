"""Lines of a word and numbers."""

import re

import numpy as np

_DIGITS = b"0123456789+-.eE"
_NUMBER = re.compile(
    rb"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
    rb"|[+-]?(nan|inf|infinity)",
    re.IGNORECASE,
)
_SEPARATORS = b" \t\r"
_PART = re.compile(rb"[^ \t]+")


class LineFault(Exception):
    """What is wrong with one of several lines."""

    def __init__(self, index, what):
        super().__init__(index, what)
        self.index = index
        self.what = what


def count_numbers(line):
    """How many numbers stand at the end of a line, behind its first word."""
    parts = line.split()
    count = 0
    while count < len(parts) - 1 and _NUMBER.fullmatch(parts[-1 - count]):
        count += 1
    return count


def parse_lines(lines, columns, request):
    """Words and numbers of lines."""
    parsed = _parse_together(lines, columns, request)
    if parsed is None:
        parsed = _parse_one_by_one(lines, columns, request)
    return parsed


def _parse_together(lines, columns, request):
    """Same as `parse_lines`, for plain lines; None if one is not plain."""
    words, numbers = [], []
    for line in lines:
        word, _, rest = line.replace(b"\t", b" ").partition(b" ")
        rest = rest.rstrip(_SEPARATORS)
        if not word or not rest or rest.count(b" ") != columns - 1:
            return None
        words.append(word)
        numbers.append(rest)
    if b"".join(numbers).translate(None, _DIGITS + b" "):
        return None
    try:
        with np.errstate(over="ignore"):
            vectors = np.loadtxt(
                numbers, "float32", comments=None, delimiter=" ", ndmin=2
            )
        words = [request.decode(word) for word in words]
    except ValueError:
        return None
    if vectors.shape != (len(lines), columns) or not np.isfinite(vectors).all():
        return None
    return words, vectors


def _parse_one_by_one(lines, columns, request):
    words, vectors = [], []
    for index, line in enumerate(lines):
        try:
            word, numbers = _parse(line, columns)
            words.append(request.decode(word))
            vectors.append(numbers)
        except UnicodeDecodeError:
            raise LineFault(
                index,
                f"a word that is not written in {request.encoding} (if another "
                "`encoding=` such as 'latin-1' does not serve, "
                "`unicode_errors='replace'` reads it)",
            ) from None
        except ValueError as error:
            raise LineFault(index, str(error)) from None
    return words, np.stack(vectors)


def _parse(line, columns):
    """The word of a line, bytes, and its numbers, float32."""
    spans = [match.span() for match in _PART.finditer(line.rstrip(_SEPARATORS))]
    numbers = [line[start:end] for start, end in spans[-columns:]]
    if len(spans) > columns:
        # It may have spaces.
        word = line[spans[0][0] : spans[-columns - 1][1]]
    elif len(spans) == columns and spans[0][0]:
        word = b""  # gensim writes a word without characters so.
    else:
        raise ValueError(f"{_count(max(0, len(spans) - 1))} behind its word")
    # More likely a number of a longer vector.
    if len(spans) > columns + 1:
        start, end = spans[-columns - 1]
        if _NUMBER.fullmatch(line[start:end]):
            raise ValueError(f"{_count(count_numbers(line))} at its end")
    before, end_of_line, _ = word.rpartition(b"\r")
    if end_of_line and count_numbers(before) == columns:
        raise ValueError(
            "line ends of a carriage return alone; write them anew as "
            "line feeds"
        )
    values = [_number(text) for text in numbers]
    with np.errstate(over="ignore"):
        values = np.array(values, "float32")
    if not np.isfinite(values).all():
        text = numbers[int(np.argmin(np.isfinite(values)))]
        raise ValueError(
            f"{text.decode()!r}, which is beyond the numbers of float32"
        )
    return word, values


def _count(count):
    return f"{count} number" + "s" * (count != 1)


def _number(text):
    if not text.translate(None, _DIGITS):
        try:
            return float(text)
        except ValueError:
            pass
    if _NUMBER.fullmatch(text):
        raise ValueError(f"{text.decode()!r}, which is not finite")
    raise ValueError(f"{text[:40]!r}"[1:] + ", which is not a number")
