"""word2vec's binary files: a header line, then words and float32 bytes."""

import numpy as np

from keras_compembed.vectors.formats import text
from keras_compembed.vectors.formats.format import Format
from keras_compembed.vectors.formats.progress import Progress
from keras_compembed.vectors.formats.row_collector import RowCollector

_BLOCK_BYTES = 1 << 22
_HEADER_BYTES = 64
_WORD_BYTES = 1 << 16


def _looks_like(source):
    first, *others = text.first_lines(source)
    if text.find_header(first) is None:
        return False
    has_body = any(line.strip() for line in others)
    return has_body and not text.find_columns(others)


def _read(source, request):
    with source.open() as stream:
        data = stream.read(_BLOCK_BYTES)
        header, end, data = data.partition(b"\n")
        counts = text.find_header(header[:_HEADER_BYTES])
        if not end or not counts or 0 in counts:
            raise ValueError(
                f"{source} must begin with a line of two whole numbers, of "
                f"its rows and its columns. Received: {header[:40]!r}. "
                "`format=` names other formats."
            )
        count, columns = counts
        if text.find_columns(text.first_lines(source)[1:]) == columns:
            raise ValueError(
                f"{source} must hold vectors as bytes. Received: text. Pass "
                "`format='word2vec'`."
            )
        least = len(header) + 1 + request.rows_of(count) * (4 * columns + 1)
        if source.compression is None and source.size < least:
            raise _too_short(source, count, columns, least)
        return _read_rows(source, request, stream, data, counts)


def _too_short(source, count, columns, least):
    return ValueError(
        f"{source} must have as many rows as its first line says: {count} of "
        f"{columns} numbers, {least} bytes at least. Received: {source.size} "
        "bytes. It was cut short, or its first line is wrong. Fetch the file "
        "again, or pass `limit=`, the number of the first rows to read."
    )


def _read_rows(source, request, stream, data, counts):
    count, columns = counts
    wanted = request.rows_of(count)
    collector = RowCollector(source, "row")
    progress = Progress(source.size, request.verbose)
    rows = 0
    while True:
        words, vectors, used, fault = _parse(
            data, columns, wanted - rows, request
        )
        if words:
            _check_finite(source, vectors, rows)
            collector.add(words, vectors, rows + 1)
            rows += len(words)
        if fault:
            raise _fault(
                source, stream.position - len(data) + used, fault, rows
            )
        data = data[used:]
        progress.update(stream.raw_position)
        if rows == wanted:
            break
        more = stream.read(max(_BLOCK_BYTES, 4 * columns + _WORD_BYTES))
        if not more:
            raise _fault(
                source,
                stream.position - len(data),
                f"row {rows + 1} of {count} is cut off there",
                rows,
            )
        data += more
    progress.finish()
    if request.wants_all(count):
        rest = (data + stream.read(_HEADER_BYTES)).lstrip(b"\r\n")
        if rest:
            raise _fault(
                source,
                stream.position - len(rest),
                f"more bytes stand behind the {count} rows of the first line",
                rows,
            )
    return collector.finish()


def _parse(data, columns, most, request):
    """The first whole rows in some bytes."""
    words, parts, at, fault = [], [], 0, None
    while len(words) < most:
        space = data.find(b" ", at, at + _WORD_BYTES)
        if space < 0 and len(data) - at >= _WORD_BYTES:
            fault = f"no space in the next {_WORD_BYTES} bytes ends the word"
            break
        end = space + 1 + 4 * columns
        if space < 0 or end > len(data):
            break
        # Some writers end rows with a line end.
        word = data[at:space].lstrip(b"\r\n")
        try:
            words.append(request.decode(word))
        except UnicodeDecodeError:
            fault = (
                f"the word is not written in {request.encoding}: {word[:40]!r} "
                "(if another `encoding=` such as 'latin-1' does not serve, "
                "`unicode_errors='replace'` reads it)"
            )
            break
        parts.append(data[space + 1 : end])
        at = end
    vectors = np.frombuffer(b"".join(parts), "<f4").reshape(-1, columns)
    return words, vectors, at, fault


def _check_finite(source, vectors, rows):
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        row = rows + int(np.argmin(finite))
        raise ValueError(
            f"{source} must hold finite numbers. Received: NaN or infinity in "
            f"row {row + 1}. " + _rows_before(row)
        )


def _fault(source, position, what, rows):
    return ValueError(
        f"{source} must hold a word, a space and the bytes of its vector for "
        f"each row. Received: at byte {position}, {what}. " + _rows_before(rows)
    )


def _rows_before(rows):
    if not rows:
        return "Fetch the file again; `format=` names other formats."
    return f"Fetch the file again, or read the rows before it: `limit={rows}`."


WORD2VEC_BINARY = Format("word2vec_binary", _looks_like, _read)
