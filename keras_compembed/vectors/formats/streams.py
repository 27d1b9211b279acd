"""Opens files as decompressed streams of bytes."""

import bz2
import contextlib
import gzip
import lzma
import shutil
import tempfile
import zipfile


def _open_zip(path):
    with zipfile.ZipFile(path) as archive:
        # macOS adds such a file for each file.
        names = [x for x in archive.namelist() if not x.startswith("__MACOSX/")]
        if len(names) != 1:
            raise ValueError(f"it is a zip file of {len(names)} files, not one")
        return archive.open(names[0])


# By their first bytes: names of downloaded files are often wrong.
_OPENERS = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"BZh": bz2.open,
    b"PK": _open_zip,
}


def _opener(path):
    with open(path, "rb") as file:
        start = file.read(8)
    marks = (mark for mark in _OPENERS if start.startswith(mark))
    return _OPENERS.get(next(marks, None))


def open_stream(path):
    """A decompressed stream of a file."""
    opener = _opener(path)
    return open(path, "rb") if opener is None else opener(path)


@contextlib.contextmanager
def plain_file(path):
    """Yields the path of a decompressed file, for other readers."""
    if _opener(path) is None:
        yield path
        return
    with tempfile.NamedTemporaryFile() as file:
        with open_stream(path) as stream:
            shutil.copyfileobj(stream, file, 1 << 22)
        file.flush()
        yield file.name
