"""The `.npz` file of words and compressed rows."""

import contextlib
import errno
import io
import json
import lzma
import zipfile

import numpy as np

from keras_compembed.stores import KINDS
from keras_compembed.stores.row_arrays import SmallFloats
from keras_compembed.vectors.word_vectors import NgramBuckets

FORMAT = "keras_compembed vectors"
# Versions: without and with rows of n-grams.
_PLAIN, _WITH_SUBWORDS = 1, 2
# Prefixes of arrays: of rows, and of shared weights.
_ROWS, _SHARED, _SCALES = "rows_", "shared_", "scales_"
_SEPARATORS = ("\n", *map(chr, range(32)))
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
# The most bytes of words, and memory to unpack them.
_MOST_TEXT, _MOST_MEMORY = 1 << 28, 1 << 29
# A fixed date: equal vectors make equal files.
_DATE = (1980, 1, 1, 0, 0, 0)


def pack(words, ngrams=None):
    """Header entries and arrays of words and n-grams."""
    text, separator = _join(words)
    header = {"rows": len(words), "separator": separator}
    arrays = {"words": _compress(text)}
    if ngrams is not None:
        names = ("min_n", "max_n", "bucket")
        header["subwords"] = {name: getattr(ngrams, name) for name in names}
        if ngrams.kept is not None:
            # Steps are small: their upper bytes are mostly 0.
            steps = np.diff(ngrams.kept, prepend=-1).astype("<u4")
            planes = steps.view("uint8").reshape(-1, 4).T
            arrays["buckets"] = _compress(planes.tobytes())
    return header, arrays


def _join(words):
    text = "".join(words)
    separator = next((x for x in _SEPARATORS if x not in text), None)
    if separator is None:
        raise ValueError("Words must lack one of the characters below U+0020.")
    # word2vec files may have truncated characters.
    text = separator.join(words).encode("utf-8", "surrogatepass")
    if len(text) > _MOST_TEXT:
        raise ValueError(f"`words` must be at most {_MOST_TEXT:,} bytes.")
    return text, separator


def _compress(data):
    return np.frombuffer(lzma.compress(data, filters=_FILTERS), "uint8")


def _decompress(packed, what):
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MOST_MEMORY)
    data = unpacker.decompress(packed.tobytes(), _MOST_TEXT)
    _require(unpacker.eof and not unpacker.unused_data, f"{what} are cut off")
    return data


def _unpack_words(packed, separator, count):
    words = _decompress(packed, "words")
    words = words.decode("utf-8", "surrogatepass").split(separator)
    _require(len(words) == count, f"{len(words)} words, {count} rows")
    _require(len(set(words)) == count, "words are repeated")
    return words


def _unpack_ngrams(settings, packed):
    """`NgramBuckets`, or None if there are none."""
    if settings is None:
        return None
    kept = None
    if packed is not None:
        planes = np.frombuffer(_decompress(packed, "buckets"), "uint8")
        _require(len(planes) % 4 == 0, "buckets are cut off")
        steps = np.ascontiguousarray(planes.reshape(4, -1).T).view("<u4")
        kept = np.cumsum(steps.ravel(), dtype="int64") - 1
    return NgramBuckets(**settings, kept=kept)


def to_bytes(header, arrays, stored):
    """The bytes of a file."""
    header = {
        "format": FORMAT,
        "version": _WITH_SUBWORDS if "subwords" in header else _PLAIN,
        "kind": stored.kind,
        **header,
        **stored.settings,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    arrays = {"header": np.frombuffer(text, "uint8"), **arrays}
    for name, values in stored.rows.items():
        arrays[_ROWS + name] = values
    for name, small in stored.shared.items():
        arrays[_SHARED + name] = small.integers
        arrays[_SCALES + name] = small.scales
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, values in arrays.items():
            part = io.BytesIO()
            little = values.astype(values.dtype.newbyteorder("<"))
            np.lib.format.write_array(part, little, allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", _DATE)
            archive.writestr(entry, part.getvalue())
    return file.getvalue()


def read(path):
    """Words, `RowArrays`, and `NgramBuckets` or None, of a file."""
    with open(path, "rb") as file:
        data = file.read()
    with naming(path, "`keras_compembed.vectors.CompressedVectors`"):
        return _read(data)


def _read(data):
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        entries = file.zip.infolist()
        # Then its arrays are no larger than the file.
        is_stored = all(x.compress_type == zipfile.ZIP_STORED for x in entries)
        _require(is_stored, "its arrays are packed")
        _require("header" in file, "it is some other .zip file")
        header = json.loads(file["header"].tobytes())
        _require(header["format"] == FORMAT, "it is some other .npz file")
        version = header["version"]
        _require(
            version in (_PLAIN, _WITH_SUBWORDS),
            f"it has version {version}, but this keras_compembed reads up to "
            f"version {_WITH_SUBWORDS}; install a newer one",
        )
        arrays = {x: y for x, y in file.items() if x != "header"}
    words = _unpack_words(
        arrays.pop("words"), header["separator"], header["rows"]
    )
    ngrams = _unpack_ngrams(
        header.pop("subwords", None), arrays.pop("buckets", None)
    )
    kind = KINDS[header["kind"]]
    names = ("format", "version", "kind", "rows", "separator")
    settings = {x: y for x, y in header.items() if x not in names}
    rows, shared, scales = (
        {x.removeprefix(y): z for x, z in arrays.items() if x.startswith(y)}
        for y in (_ROWS, _SHARED, _SCALES)
    )
    shared = {x: SmallFloats(y, scales[x]) for x, y in shared.items()}
    count = len(words) + (0 if ngrams is None else len(ngrams))
    kind.check(settings, rows, shared, count)
    return words, kind.of_file(settings, rows, shared), ngrams


def _require(is_so, problem):
    if not is_so:
        raise ValueError(problem)


@contextlib.contextmanager
def naming(path, kind):
    """Turns errors of a reader into a ValueError with the file name."""
    try:
        yield
    except ImportError:
        raise
    except Exception as error:  # Libraries raise any for damaged files.
        # EINVAL: a place outside the file.
        is_broken = getattr(error, "errno", None) in (None, errno.EINVAL)
        if isinstance(error, OSError) and not is_broken:
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"{str(path)!r} cannot be read as {kind}: {reason.rstrip('.')}."
        ) from error
