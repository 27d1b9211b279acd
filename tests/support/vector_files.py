"""Small files of vectors, as others write them, and ways to damage them."""

import collections
import io
import json
import re
import struct
import warnings
import zipfile

import numpy as np

from keras_compembed.vectors import read_vectors

# What is a number, has a mark of a line end, or a space of Unicode.
WORDS = ["the", "a", "2000", "é\u0085x", "x\xa0y", "nan"]
VECTORS = np.random.default_rng(0).normal(size=(6, 5)).astype("float32")

# A file to damage, what is read, and how.
VectorFile = collections.namedtuple("VectorFile", ["path", "target", "options"])


def keyed_vectors():
    import gensim

    keyed = gensim.models.KeyedVectors(VECTORS.shape[1])
    keyed.add_vectors(WORDS, VECTORS)
    return keyed


def fasttext_model():
    import gensim

    sentences = [["the", "cat"], ["a", "dog", "élan"]] * 20
    return gensim.models.FastText(
        sentences, vector_size=5, min_count=1, bucket=50, epochs=1, workers=1
    )


def hash_plain(text):
    """FNV-1a of bytes with a sign, in 32 bits, as fastText has it."""
    value = 2166136261
    for byte in text:
        value ^= byte if byte < 128 else byte + 0xFFFFFF00
        value = value * 16777619 % 2**32
    return value


def buckets_plain(word, min_n, max_n, bucket):
    """As fastText's `computeSubwords`: of bytes, in UTF-8 or not."""
    if isinstance(word, str):
        word = word.encode("utf-8", "surrogatepass")
    word = b"<" + word + b">"
    starts = [x for x, byte in enumerate(word) if byte & 0xC0 != 0x80]
    starts.append(len(word))
    return [
        hash_plain(word[starts[first] : starts[first + size]]) % bucket
        for first in range(len(starts) - 1)
        for size in range(min_n, max_n + 1)
        if first + size < len(starts)
        # Neither end is an n-gram by itself.
        and not (size == 1 and first in (0, len(starts) - 2))
    ]


def write_fasttext(path, words, table, min_n=2, max_n=4, quantized=False):
    """A model of fastText of words in bytes; returns their vectors."""
    bucket, columns = len(table) - len(words), table.shape[1]
    options = columns, 5, 1, 1, 5, 1, 2, 2, bucket, min_n, max_n, 100, 1e-4
    data = struct.pack("<2i12id", 793712314, 12, *options)
    data += struct.pack("<3i2q", len(words), len(words), 0, 99, -1)
    for word in words:
        data += word + struct.pack("<bqb", 0, 9, 0)
    data += struct.pack("<?2q", quantized, *table.shape)
    path.write_bytes(data + table.astype("<f4").tobytes())
    rows = [
        [row]
        + [len(words) + x for x in buckets_plain(word, min_n, max_n, bucket)]
        for row, word in enumerate(words)
    ]
    return np.stack([table[each].mean(axis=0) for each in rows])


def tokenizer(words=WORDS):
    import tokenizers

    ids = {word: row for row, word in enumerate(words)}
    return tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, words[0]))


def zipped(data, *names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names or ("folder/vectors.txt",):
            archive.writestr(name, data)
    return file.getvalue()


def write_words(path):
    path.write_text("\n".join(WORDS) + "\n", encoding="utf-8", newline="")
    return path


def write_folder(path, tensors, shard=None, place=""):
    """A folder of a Hugging Face model; returns it."""
    from safetensors.numpy import save_file

    folder, path = path, path / place
    path.mkdir(parents=True)
    (path / "config.json").write_text('{"vocab_size": 6}')
    tokenizer().save(str(path / "tokenizer.json"))
    if shard is None:
        save_file(tensors, path / "model.safetensors")
    else:
        save_file(tensors, path / shard)
        places = dict.fromkeys(tensors, shard)
        (path / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {**places, "b.weight": "none"}})
        )
    return folder


def _word2vec(path, **options):
    keyed_vectors().save_word2vec_format(path, **options)
    return VectorFile(path, path, {})


def _npy(path):
    with open(path, "wb") as file:
        np.save(file, VECTORS)
    return VectorFile(path, path, {"words": WORDS})


def _npz(path):
    with open(path, "wb") as file:
        np.savez(file, words=np.array(WORDS), table=VECTORS)
    return VectorFile(path, path, {})


def _fasttext(path):
    from gensim.models.fasttext import save_facebook_model

    save_facebook_model(fasttext_model(), str(path))
    return VectorFile(path, path, {})


def _fasttext_letters(path):
    path, target, _ = _fasttext(path)
    return VectorFile(path, target, {"subwords": 7})


def _model2vec(path):
    folder = write_folder(
        path,
        {
            "embeddings": VECTORS[:3],
            "mapping": np.array([0, 1, 2, 1, 0, 2]),
            "weights": np.arange(1.0, 7.0, dtype="float32"),
        },
    )
    return VectorFile(folder / "model.safetensors", folder, {})


def _index(path):
    folder = write_folder(path, {"wte.weight": VECTORS}, "model-1.safetensors")
    return VectorFile(folder / "model.safetensors.index.json", folder, {})


def _word_list(path):
    table = _npy(path.with_suffix(".npy")).path
    return VectorFile(write_words(path), table, {"words": path})


# By name, functions of a path that make a file there.
MAKERS = {
    "glove": lambda path: _word2vec(path, write_header=False),
    "word2vec": _word2vec,
    "word2vec_binary": lambda path: _word2vec(path, binary=True),
    "fasttext": _fasttext,
    "fasttext_letters": _fasttext_letters,
    "npy": _npy,
    "npz": _npz,
    "model2vec": _model2vec,
    "index": _index,
    "word_list": _word_list,
}


def make_files(folder):
    """The files of all makers in a folder, by name."""
    return {name: make(folder / name) for name, make in MAKERS.items()}


def assert_read(read, words=WORDS, vectors=VECTORS):
    assert read.words == list(words)
    assert read.vectors.dtype == "float32"
    np.testing.assert_array_equal(read.vectors, vectors)


def _read(path, **options):
    """The number of rows of a file, and the message of the error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return len(read_vectors(path, **options)), ""
    except ValueError as error:
        return 0, str(error)


def check_limit(path, options):
    """Reads a file; returns whether it could.

    Raises:
        AssertionError: if its error names a limit that does not help.
    """
    rows, message = _read(path, **options)
    advice = re.search(r"`limit=(\d+)`", message)
    if advice:
        limit = int(advice[1])
        rows, again = _read(path, **{**options, "limit": limit})
        assert 0 < rows <= limit, f"limit={limit} reads {rows}: {again}"
    return not message


def damage(data, rng):
    """A copy of bytes with one to three random changes."""
    for _ in range(rng.integers(1, 4)):
        data = _CHANGES[rng.integers(len(_CHANGES))](data, rng)
    return data


def _cut(data, rng):
    return data[: rng.integers(len(data) + 1)]


def _cut_out(data, rng):
    start, end = np.sort(rng.integers(len(data) + 1, size=2))
    return data[:start] + data[end:]


def _flip(data, rng):
    if not data:
        return data
    data = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        data[rng.integers(len(data))] = rng.integers(256)
    return bytes(data)


def _put_in(data, rng):
    """Bytes that mean something somewhere."""
    piece = _PIECES[rng.integers(len(_PIECES))]
    start = rng.integers(len(data) + 1)
    end = start + rng.integers(2) * len(piece)
    return data[:start] + piece + data[end:]


def _double_line(data, rng):
    lines = data.split(b"\n")
    line = rng.integers(len(lines))
    return b"\n".join(lines[: line + 1] + lines[line:])


def _move_line(data, rng):
    lines = data.split(b"\n")
    line = lines.pop(rng.integers(len(lines)))
    lines.insert(rng.integers(len(lines) + 1), line)
    return b"\n".join(lines)


_CHANGES = (_cut, _cut_out, _flip, _put_in, _double_line, _move_line)
_PIECES = (
    b" ", b"\n", b"\0", b"\t", b"\r\n", b"\xff", b"nan", b"inf", b"1e99", b"-",
    b"99999999999", b"0", b"-1", b"\xff\xff\xff\x7f", b"\xff" * 8, b"{", b"]",
    b'"', b"1_0", b"\xc2\x85", b"\x7f\x80\0\0", b"   ", b"0x1", b"..", b"1 2",
)  # fmt: skip
