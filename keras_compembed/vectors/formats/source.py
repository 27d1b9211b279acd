"""A file as a stream of bytes, whatever it is compressed by."""

import bz2
import errno
import functools
import gzip
import lzma
import os
import struct
import zipfile
import zlib

# By the first bytes: names of files that were fetched are often wrong.
_MARKS = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
}

_READ_BYTES = 1 << 22
_BROKEN = (
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


class Source:
    """A file or a folder that vectors are read from."""

    HEAD_BYTES = 1 << 16

    def __init__(self, path, argument="path"):
        self.path = os.fspath(path)
        self.is_folder = os.path.isdir(self.path)
        if not os.path.exists(self.path):
            raise FileNotFoundError(
                f"`{argument}` must name a file or a folder. Received: "
                f"{self.path!r}, and nothing is there."
            )
        if self.is_folder:
            return
        if not os.path.isfile(self.path):
            raise ValueError(
                f"`{argument}` must name a file or a folder. Received: the "
                f"device {self.path!r}. Write what it gives to a file first."
            )
        if not self.size:
            raise self.empty()

    def __str__(self):
        return repr(self.path)

    def find(self, name):
        """Returns the path of a file in this folder, or None."""
        path = os.path.join(self.path, *name.split("/"))
        return path if os.path.isfile(path) else None

    @property
    def size(self):
        return os.path.getsize(self.path)

    @functools.cached_property
    def compression(self):
        """`"gzip"`, `"xz"`, `"bzip2"`, `"zip"` or None."""
        if self.is_folder:
            return None
        with open(self.path, "rb") as file:
            start = file.read(8)
        for mark, name in _MARKS.items():
            if start.startswith(mark):
                return name
        return None

    @functools.cached_property
    def members(self):
        """Names of the files within a zip file; empty for any other."""
        if self.compression != "zip":
            return []
        try:
            with zipfile.ZipFile(self.path) as archive:
                return [
                    entry.filename
                    for entry in archive.infolist()
                    # What macOS adds of each file.
                    if not entry.is_dir()
                    and not entry.filename.startswith("__MACOSX/")
                ]
        except _BROKEN as error:
            raise self.broken(error, 0) from error

    @functools.cached_property
    def head(self):
        """The first bytes of the contents; none of a folder."""
        if self.is_folder:
            return b""
        with self.open() as stream:
            head = stream.read(self.HEAD_BYTES)
        if not head:
            raise self.empty()
        return head

    def open(self, member=None):
        """Returns a `Stream` of the contents."""
        return Stream(self, member)

    def empty(self):
        """The error to raise for one without contents."""
        kind = f" in a {self.compression} file" if self.compression else ""
        return ValueError(
            f"{self} must hold vectors. Received: no bytes{kind}."
        )

    def broken(self, error, position):
        """The error to raise for one that a decompressor raised."""
        # Others are of the disk. This is a place before the first byte.
        known = (None, errno.EINVAL)
        if isinstance(error, OSError) and error.errno not in known:
            return error
        return ValueError(
            f"{self} must be a whole {self.compression} file. Received: one "
            f"that breaks after {position} bytes of its contents: "
            f"{' '.join(str(error).split()) or type(error).__name__}. Fetch "
            "the file again."
        )


class Stream:
    """The contents of a file, read once from first to last."""

    def __init__(self, source, member=None):
        self._source = source
        self._raw = open(source.path, "rb")
        self.position = 0
        self._error = None
        try:
            self._file = self._decompressed(member)
        except BaseException:
            self._raw.close()
            raise

    def _decompressed(self, member):
        source = self._source
        if source.compression == "zip":
            if not source.members:
                raise source.empty()
            if member is None and len(source.members) != 1:
                names = ", ".join(map(repr, source.members[:8]))
                raise ValueError(
                    f"{source} must hold one file. Received: a zip file of "
                    f"{len(source.members)}: {names}. Take out the one that "
                    "you want: python -m zipfile -e FILE FOLDER"
                )
            try:
                archive = zipfile.ZipFile(self._raw)
                return archive.open(member or source.members[0])
            except _BROKEN as error:
                raise source.broken(error, 0) from error
        openers = {"gzip": gzip.open, "xz": lzma.open, "bzip2": bz2.open}
        if source.compression is None:
            return self._raw
        return openers[source.compression](self._raw)

    @property
    def raw_position(self):
        """The bytes of the file that were read."""
        return min(self._raw.tell(), self._source.size)

    def read(self, size):
        """Returns the next `size` bytes."""
        parts = []
        missing = size
        while missing and not self._error:
            try:
                # Memory grows with what is there, not with what is asked for.
                part = self._file.read1(min(missing, _READ_BYTES))
            except _BROKEN as error:
                if self._source.compression is None:
                    raise
                self._error = self._source.broken(error, self.position)
                break
            if not part:
                break
            self.position += len(part)
            missing -= len(part)
            parts.append(part)
        if self._error and not parts:
            raise self._error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self):
        self._file.close()
        self._raw.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
