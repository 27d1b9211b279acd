"""Text: a word and its numbers on each line, with or without a header."""

import collections
import re

import numpy as np

from keras_compembed.vectors.formats.streams import open_stream
from keras_compembed.vectors.formats.words import find_words

_BLOCK_BYTES = 1 << 20
_LINE_BYTES = 1 << 24  # Limit of a line; longer ones are no text.
FIRST_LINES = 100
BOM = b"\xef\xbb\xbf"
_HEADER = re.compile(rb"\s*([0-9]{1,18})[ \t]+([0-9]{1,18})\s*")
_FIELD = re.compile(rb"[^ \t]+")
NUMBER = re.compile(
    rb"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(nan|inf|infinity)",
    re.IGNORECASE,
)


def find_header(line):
    """The numbers of rows and columns of a header line, or None."""
    match = _HEADER.fullmatch(line)
    return match and (int(match[1]), int(match[2]))


def _count_numbers(line):
    """Count of the numbers at the end of a line, after its first word."""
    parts, count = line.split(), 0
    while count < len(parts) - 1 and NUMBER.fullmatch(parts[-1 - count]):
        count += 1
    return count


def find_columns(lines):
    """Count of the numbers in most of the first lines."""
    lines = [line for line in lines[:FIRST_LINES] if line.strip()]
    counts = collections.Counter(map(_count_numbers, lines))
    return counts.most_common(1)[0][0] if counts else 0


def read_text(path, options, has_header=False):
    """Words and table of a text, with or without a header."""
    words, table, header, columns, number = [], None, None, None, 1
    with open_stream(path) as stream:
        for lines in _blocks(stream):
            if number == 1:
                lines[0] = lines[0].removeprefix(BOM)
                if has_header:
                    header = find_header(lines[0])
                    if not header:
                        raise ValueError("no header: pass `format='glove'`")
                    columns, lines[0] = header[1], b""
            if options.words is not None:
                lines = [line.strip() and b"- " + line for line in lines]
            kept = [place for place, line in enumerate(lines) if line.strip()]
            if options.limit is not None:
                kept = kept[: options.limit - len(words)]
            if kept:
                rows = [lines[place] for place in kept]
                if columns is None:
                    check_no_csv(rows)
                    columns = find_columns(rows)
                numbers = [number + place for place in kept]
                found, rows = _parse(rows, columns, options, numbers)
                if options.words is not None and {*found} != {"-"}:
                    raise ValueError("its lines have words: omit `words`")
                table = _append(table, rows, len(words))
                words += found
            number += len(lines)
            if len(words) == options.limit:
                break
    count = len(words)
    if not count or not columns:
        raise ValueError("it has no rows of numbers")
    if header and options.rows_of(header[0]) != count:
        raise ValueError(
            f"line 1 says {header[0]} rows, but it has {count}: pass "
            f"`limit={min(header[0], count)}` to read the first rows"
        )
    table.resize((count, columns), refcheck=False)
    if options.words is not None:
        words = find_words(options, count)
    return words, table


def _blocks(stream):
    """Yields lists of complete lines without line ends."""
    rest = b""
    while block := stream.read(_BLOCK_BYTES):
        *lines, end = block.split(b"\n")
        if lines:
            lines[0] = rest + lines[0]
            rest = end
            yield lines
        else:
            rest += end
        if len(rest) > _LINE_BYTES:
            raise ValueError(f"a line has more than {_LINE_BYTES:,} bytes")
    if rest:
        yield [rest]


def check_no_csv(lines):
    """Raises if the first lines have numbers between commas."""
    others = [re.sub(rb"[,;]", b" ", line) for line in lines[:FIRST_LINES]]
    if find_columns(others) > find_columns(lines):
        raise ValueError(
            "it is a CSV file: save its numbers with `numpy.save`, and pass "
            "`words=`"
        )


def _append(table, rows, count):
    """A table with more rows after its first `count`; it grows gradually."""
    table = np.empty((0, rows.shape[1]), "float32") if table is None else table
    end = count + len(rows)
    if len(table) < end:
        size = max(end, int(1.1 * count)), rows.shape[1]
        table.resize(size, refcheck=False)
    table[count:end] = rows
    return table


def _parse(lines, columns, options, numbers):
    """Words and float32 rows of lines; `numbers` are for errors."""
    parsed = _parse_plain(lines, columns, options)
    if parsed is not None:
        return parsed
    words = []
    rows = np.empty((len(lines), columns), "float32")
    for place, line in enumerate(lines):
        try:
            word, row = _parse_line(line, columns)
            words.append(options.decode(word))
            with np.errstate(over="ignore"):
                rows[place] = row
            if not np.isfinite(rows[place]).all():
                raise ValueError("a number that is not finite in float32")
        except ValueError as error:
            raise ValueError(
                f"line {numbers[place]}, {line[:60]!r}, has {error}"
            ) from error
    return words, rows


def _parse_plain(lines, columns, options):
    """Same as `_parse`, but much faster; None if lines are not plain."""
    words, numbers = [], []
    for line in lines:
        word, _, rest = line.replace(b"\t", b" ").partition(b" ")
        rest = rest.rstrip(b" \r")
        if not word or rest.count(b" ") != columns - 1:
            return None
        words.append(word)
        numbers.append(rest)
    if b"".join(numbers).translate(None, b"0123456789+-.eE "):
        return None
    try:
        with np.errstate(over="ignore"):
            rows = np.loadtxt(
                numbers, "float32", comments=None, delimiter=" ", ndmin=2
            )
        words = [options.decode(word) for word in words]
    except ValueError:
        return None
    is_whole = rows.shape == (len(lines), columns) and np.isfinite(rows).all()
    return (words, rows) if is_whole else None


def _parse_line(line, columns):
    """The word and the numbers of a line; a word may have spaces."""
    line = line.rstrip(b" \t\r")
    spans = [match.span() for match in _FIELD.finditer(line)]
    fields = [line[start:end] for start, end in spans]
    count = len(fields) - columns
    # gensim writes an empty word as nothing.
    if count < 0 or (count == 0 and spans[0][0] == 0):
        raise ValueError(f"less than a word and {columns} numbers")
    if count > 1 and NUMBER.fullmatch(fields[count - 1]):
        raise ValueError(f"more than {columns} numbers")
    word = line[spans[0][0] : spans[count - 1][1]] if count else b""
    if b"\r" in word:
        raise ValueError("carriage returns for line ends")
    for field in fields[count:]:
        if not NUMBER.fullmatch(field):
            raise ValueError(f"{field[:40]!r}, which is no number")
    return word, [float(field) for field in fields[count:]]
