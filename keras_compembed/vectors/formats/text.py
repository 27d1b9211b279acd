"""Text: a word and its numbers on each line, with or without a header."""

import collections
import re

from keras_compembed.vectors.formats.format import Format
from keras_compembed.vectors.formats.progress import Progress
from keras_compembed.vectors.formats.row_collector import RowCollector
from keras_compembed.vectors.formats.text_lines import LineFault
from keras_compembed.vectors.formats.text_lines import count_numbers
from keras_compembed.vectors.formats.text_lines import parse_lines

_BLOCK_BYTES = 1 << 22
# Of 700,000 columns, say. What is longer has no lines.
_LINE_BYTES = 1 << 24
_FIRST_LINES = 100
_BOM = b"\xef\xbb\xbf"
_HEADER = re.compile(rb"\s*([0-9]{1,18})[ \t]+([0-9]{1,18})\s*")


def find_header(line):
    """Returns the numbers of rows and columns of a header line, or None."""
    match = _HEADER.fullmatch(line)
    return match and (int(match[1]), int(match[2]))


def find_columns(lines):
    """Returns how many numbers most of the first lines end with."""
    counts = collections.Counter(
        count_numbers(line) for line in lines[:_FIRST_LINES] if line.strip()
    )
    # Of two that are as frequent, that of the earlier line.
    return counts.most_common(1)[0][0] if counts else 0


def first_lines(source):
    """The lines that a file begins with; of very long ones, a part."""
    lines = source.head.removeprefix(_BOM).split(b"\n")
    if len(source.head) == source.HEAD_BYTES:
        # The last goes on.
        end = lines.pop()
        if len(lines) < 2:
            lines.append(end.rpartition(b" ")[0] or end)
    return lines


def _looks_like_glove(source):
    return find_columns(first_lines(source)) > 0


def _looks_like_word2vec(source):
    first, *others = first_lines(source)
    header = find_header(first)
    if not header:
        return False
    columns = find_columns(others)
    if not columns:
        return not any(line.strip() for line in others)
    # Otherwise a word that is a number, and the one number of its vector.
    return columns > 1 or header[1] == 1


class _Reading:
    """What is known while a text file is read."""

    def __init__(self, source, request, has_header):
        self.source = source
        self.request = request
        self.has_header = has_header
        self.header = None
        self.columns = None
        self.line = 1  # The number of the next line.
        self.rows = 0
        self.first_blank = None
        self.collector = RowCollector(source, "line")

    @property
    def wanted(self):
        """How many rows to read, or None."""
        if self.header:
            return self.request.rows_of(self.header[0])
        return self.request.limit

    def run(self):
        source = self.source
        progress = Progress(source.size, self.request.verbose)
        with source.open() as stream:
            for lines in _line_blocks(source, stream):
                if self.columns is None:
                    lines = self._begin(lines)
                if not self._take(lines):
                    break
                progress.update(stream.raw_position)
        progress.finish()
        self._end()
        return self.collector.finish()

    def _begin(self, lines):
        """Finds the columns, and returns the lines of rows."""
        lines[0] = lines[0].removeprefix(_BOM)
        header = find_header(lines[0])
        if not self.has_header:
            self.columns = find_columns(lines)
            if not self.columns:
                raise self._fault(lines[0], "no number at its end")
            return lines
        if not header or 0 in header:
            raise ValueError(
                f"{self.source} must begin with a line of two whole numbers, "
                "of its rows and its columns. Received: "
                f"{_shown(lines[0])}. Pass `format='glove'` if there is no "
                "such line, or mend it."
            )
        self.header = header
        self.columns = header[1]
        self.line = 2
        return lines[1:]

    def _take(self, lines):
        """Reads a block of lines; returns whether more are to be read."""
        rows = len(lines)
        while rows and not lines[rows - 1].strip():
            rows -= 1
        if rows and self.first_blank is not None and not self._is_done:
            self.line = self.first_blank
            raise self._fault(b"", "nothing on it")
        if rows < len(lines) and (rows or self.first_blank is None):
            self.first_blank = self.line + rows
        if self.wanted is not None:
            end = min(rows, self.wanted - self.rows)
        else:
            end = rows
        if end:
            self._parse(lines[:end])
        if self._is_done and end < rows:
            if self._must_end:
                while not lines[end].strip():
                    self.line += 1
                    end += 1
                self._refuse_more(lines[end])
            return False
        self.line += len(lines) - end
        # Behind the rows of a header, there must be no more.
        return not self._is_done or self._must_end

    @property
    def _must_end(self):
        """Whether the file must end behind the rows that are read."""
        return self.header and self.request.wants_all(self.header[0])

    @property
    def _is_done(self):
        return self.wanted is not None and self.rows >= self.wanted

    def _parse(self, lines):
        try:
            words, vectors = parse_lines(lines, self.columns, self.request)
        except LineFault as fault:
            self.line += fault.index
            self.rows += fault.index
            raise self._fault(lines[fault.index], fault.what) from None
        self.collector.add(words, vectors, self.line)
        self.line += len(lines)
        self.rows += len(lines)

    def _fault(self, line, what):
        numbers = f"{self.columns or 'its'} numbers"
        by = " (by line 1)" if self.header else ""
        if self.rows:
            todo = (
                "Mend the line, or read the rows before it: "
                f"`limit={self.rows}`."
            )
        elif not self.has_header and find_header(line):
            todo = "Pass `format='word2vec'` if it is a header."
        elif b"\0" in line:
            todo = "Pass `format='word2vec_binary'` if it is no text."
        elif self.header:
            todo = "Mend line 1 or this line; `format=` names other formats."
        else:
            todo = "Mend the line; `format=` names other formats."
        return ValueError(
            f"{self.source} must have a word and {numbers}{by} on each line. "
            f"Received: line {self.line} with {what}: {_shown(line)}. {todo}"
        )

    def _refuse_more(self, line):
        raise ValueError(
            f"{self.source} must have as many rows as line 1 says: "
            f"{self.header[0]}. Received: one more in line {self.line}: "
            f"{_shown(line)}. Mend line 1, or read that many: "
            f"`limit={self.header[0]}`. If line 1 is a word and its number, "
            "pass `format='glove'`."
        )

    def _end(self):
        if not self.rows:
            what = "a header only" if self.header else "blank lines"
            raise ValueError(
                f"{self.source} must hold vectors. Received: {what}. Fetch "
                "the file again."
            )
        if self.header and not self._is_done:
            raise ValueError(
                f"{self.source} must have as many rows as line 1 says: "
                f"{self.header[0]}. Received: {self.rows}. It was cut short, "
                "or line 1 is wrong. Fetch the file again, or read the rows "
                f"that are there: `limit={self.rows}`."
            )


def _shown(line):
    """The beginning of a line."""
    return repr(line[:60])[1:] + (" ..." if len(line) > 60 else "")


def _line_blocks(source, stream):
    """Yields lists of whole lines without their ends."""
    rest = b""
    number = 1
    while block := stream.read(_BLOCK_BYTES):
        whole, end, after = block.rpartition(b"\n")
        if end:
            lines = (rest + whole).split(b"\n")
            number += len(lines)
            rest = after
            yield lines
        else:
            rest += block
        if len(rest) > _LINE_BYTES:
            raise ValueError(
                f"{source} must be text with a row on each line. Received: "
                f"line {number} with more than {_LINE_BYTES} bytes. If it is "
                "no text, name its format with `format=`."
            )
    if rest:
        yield [rest]


GLOVE = Format(
    "glove",
    _looks_like_glove,
    lambda source, request: _Reading(source, request, False).run(),
)
WORD2VEC = Format(
    "word2vec",
    _looks_like_word2vec,
    lambda source, request: _Reading(source, request, True).run(),
)
