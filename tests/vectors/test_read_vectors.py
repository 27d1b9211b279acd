"""`read_vectors` on files as others write them, and on damaged ones."""

import bz2
import gzip
import json
import lzma
import re
import tracemalloc

import numpy as np
import pytest
from errors import refused
from vector_files import MAKERS
from vector_files import VECTORS
from vector_files import WORDS
from vector_files import assert_read
from vector_files import check_limit
from vector_files import damage
from vector_files import fasttext_model
from vector_files import make_files
from vector_files import tokenizer
from vector_files import write_folder
from vector_files import write_words
from vector_files import zipped

from keras_compembed.vectors import read_vectors

pytest.importorskip("gensim")
safetensors = pytest.importorskip("safetensors.numpy")
tokenizers = pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files that gensim, NumPy and safetensors wrote, by name."""
    return make_files(tmp_path_factory.mktemp("vectors"))


@pytest.mark.parametrize("limit", [None, 4])
@pytest.mark.parametrize(
    "name", sorted(set(MAKERS) - {"fasttext", "fasttext_letters"})
)
def test_files_of_others(files, name, limit):
    _, path, options = files[name]
    read = read_vectors(path, limit=limit, **options)
    vectors = VECTORS
    if name == "model2vec":  # Rows of tokens, and their weights.
        vectors = VECTORS[[0, 1, 2, 1, 0, 2]]
        vectors = vectors * np.arange(1, 7, dtype="float32")[:, None]
    assert_read(read, WORDS[:limit], vectors[:limit])


@pytest.mark.parametrize("name", ["glove", "fasttext"])
def test_compressed(files, name, tmp_path):
    plain, _, options = files[name]
    expected = read_vectors(plain, **options)
    path = tmp_path / "file"  # By its contents, not by its name.
    for compress in (gzip.compress, lzma.compress, bz2.compress, zipped):
        path.write_bytes(compress(plain.read_bytes()))
        read = read_vectors(path, **options)
        assert_read(read, expected.words, expected.vectors)
    # As macOS writes it.
    names = "vectors.txt", "__MACOSX/._vectors.txt"
    path.write_bytes(zipped(b"a 1 2\n", *names))
    assert read_vectors(path).words == ["a"]


def test_gensim(files, tmp_path):
    from gensim.models import KeyedVectors

    model = fasttext_model()
    keyed = KeyedVectors.load_word2vec_format(files["word2vec"].path)
    path = tmp_path / "file.kv"
    for saved, wv in ((model, model.wv), (model.wv, model.wv), (keyed, keyed)):
        saved.save(str(path))
        with pytest.raises(ValueError, match="format='gensim'"):
            read_vectors(path)
        read = read_vectors(path, format="gensim")
        assert read.words == wv.index_to_key
        np.testing.assert_allclose(read.vectors, wv.vectors, atol=1e-7)
    KeyedVectors(2).save(str(tmp_path / "empty"))
    path.write_bytes(b"\x80\x04nothing")
    with pytest.raises(ValueError, match="file.kv. cannot be read"):
        read_vectors(path, format="gensim")


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_tables_become_float32(tmp_path, dtype):
    import ml_dtypes  # noqa: F401, it names bfloat16.

    table = (8 * VECTORS).astype(dtype)
    path = tmp_path / "model.safetensors"
    safetensors.save_file({"table": table}, path)
    write_words(tmp_path / "vocab.txt")
    assert_read(read_vectors(path), WORDS, table.astype("float32"))


def test_folders_of_models(tmp_path):
    # Token tables may be larger than vocabularies.
    table = np.concatenate([VECTORS, VECTORS[:2]])
    tensors = {"wte.weight": table, "lm_head.weight": table}
    folder = write_folder(tmp_path / "model", tensors)
    with pytest.warns(UserWarning, match="2 rows of"):
        assert_read(read_vectors(folder))
    # As sentence-transformers writes those of model2vec.
    for place in ("", "0_StaticEmbedding"):
        folder = tmp_path / f"static{place}"
        write_folder(folder, {"embedding.weight": VECTORS}, place=place)
        (folder / "config.json").unlink(missing_ok=True)
        assert_read(read_vectors(folder))


def test_models_on_the_hub(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    folder = write_folder(tmp_path / "model", {"wte.weight": VECTORS})

    def fetch(repository, name, revision):
        assert (repository, revision) == ("user/model", "v1")
        if not (folder / name).exists():
            raise hub.errors.EntryNotFoundError(name)
        return str(folder / name)

    monkeypatch.setattr(hub, "hf_hub_download", fetch)
    assert_read(read_vectors("hf://user/model@v1"))


@pytest.mark.parametrize(
    "text, words, options",
    [
        # No header: the word is a number.
        ("5 0.5 1\na 1 2\n", "5 a", {}),
        ("3 2\na 1 2\nb 3 4\n", "a b", {"limit": 2}),
        # As written on other systems, in other encodings, by hand.
        ("a 1 2\r\nb 3 4\r\n\r\n", "a b", {}),
        ("\ufeff2 2\na 1 2\nb 3 4", "a b", {}),
        ("a  1 2 \n  b 3  4\n", "a b", {}),
        # Words with spaces, without letters, with other line ends.
        ("a 1 2\n 3 4\nb 5 6\n", "a||b", {}),
        ("a 1 2\n\x0b 3 4\n. . 3 4\n", "a|\x0b|. .", {}),
    ],
)
def test_text_that_is_read(tmp_path, text, words, options):
    path = tmp_path / "vectors.txt"
    path.write_bytes(text.encode())
    read = read_vectors(path, **options)
    assert read.words == words.split("|" if "|" in words else " ")
    if "3 4" in text:
        assert read.vectors[:2].tolist() == [[1, 2], [3, 4]]


def test_encodings_and_words_that_stand_twice(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_bytes(b"a 1\n\xe9 2\n")
    assert read_vectors(path, encoding="latin-1").words == ["a", "é"]
    read = read_vectors(path, unicode_errors="replace")
    assert read.words == ["a", "\ufffd"]
    path.write_text("a 1\nb 2\na 3\nb 4\nc 5\n")
    with pytest.warns(UserWarning, match="2 rows of .*vectors.txt' are left"):
        read = read_vectors(path)
    assert_read(read, "abc", np.array([[1], [2], [5]]))


def test_long_files(tmp_path):
    """Of several blocks."""
    path = tmp_path / "vectors.txt"
    path.write_bytes(b"".join(b"%0100d 1 2\n" % x for x in range(50_000)))
    read = read_vectors(path, format="glove")
    assert len(read) == 50_000 and read.words[-1] == f"{49999:0100}"
    assert (read.vectors == [1, 2]).all()
    path.write_bytes(b"a" * (5 << 22) + b" 1\n")
    with pytest.raises(ValueError, match="a line has more than"):
        read_vectors(path, format="glove")


def test_tables_without_words(tmp_path):
    path = tmp_path / "vectors.tsv"
    table = VECTORS.astype("float64").round(3)
    words = write_words(tmp_path / "metadata.tsv")
    np.savetxt(path, table, delimiter="\t", fmt="%8.3f")
    with pytest.raises(ValueError, match="numbers alone: pass `words=`"):
        read_vectors(path)
    for given in (WORDS, words):
        read = read_vectors(path, words=given)
        assert_read(read, WORDS, table.astype("float32"))
    path.write_text("2 3\n1 2 3\n4 5 6\n")
    with pytest.raises(ValueError, match="line 2"):
        read_vectors(path)
    read = read_vectors(path, words=["a", "b"])
    assert_read(read, "ab", np.arange(1, 7).reshape(2, 3))
    path.write_text("cat 1 2\ndog 3 4\n")
    with pytest.raises(ValueError, match="have words: omit `words`"):
        read_vectors(path, words=["a", "b"])


def test_words_by_their_rows(tmp_path):
    np.save(tmp_path / "table.npy", np.asfortranarray(VECTORS))
    ids = {word: 5 - row for row, word in enumerate(WORDS)}
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    for words in (ids, tmp_path / "vocab.json"):
        read = read_vectors(tmp_path / "table.npy", words=words)
        assert_read(read, WORDS[::-1])
    # The words are not in the first column.
    lines = [f"{row},{word}" for row, word in enumerate(WORDS)]
    (tmp_path / "words").write_text("\n".join(lines), "utf-8", newline="")
    with refused("words"):
        read_vectors(tmp_path / "table.npy", words=tmp_path / "words")


def test_quantized_checkpoints_are_refused(tmp_path):
    tensors = {
        "model.embed_tokens.weight": (9 * VECTORS).astype("int8"),
        "model.embed_tokens.weight_scale": np.ones(6, "float32"),
    }
    for shard in (None, "model-1.safetensors"):
        folder = write_folder(tmp_path / f"model {shard}", tensors, shard)
        with pytest.raises(ValueError, match="is quantized, .*weight_scale"):
            read_vectors(folder)


@pytest.mark.parametrize(
    "data, message, options",
    [
        (b"", "cannot be read as vectors: it is none of", {}),
        (b"3 2\na 1 2\n", "says 3 rows, but it has 1.*`limit=1`", {}),
        (b"2 3\na 1 2\nb 1 2\n", "line 2, b'a 1 2', .* 3 numbers", {}),
        (b"a 1 2\nb 1 2 3\n", "line 2, .*more than 2 numbers", {}),
        (b"a 1 2\n\nb 1 1e39\n", "line 3, .*not finite", {}),
        (b"a 1 2\n\xff 1 1\n", "line 2, .*not in utf-8", {}),
        (b"a 1 2\nb 1 2\n", "`format='glove'`", {"format": "word2vec"}),
        (b"\x80\x04abc", "pickle.*`format='gensim'`", {}),
        (b"9 2\n" + b"a" * 50, "'word2vec_binary': it is too short", {}),
        (b"a 1 2\rb 3 4\r", "line 1, .*carriage returns", {}),
        (b"a, 0.1, 0.2\nb, 1, 2\n", "a CSV file", {}),
        (zipped(b"a 1\n", "a", "b"), "zip file of 2 files", {}),
        (gzip.compress(b"a 1\n" * 99, mtime=0)[:-9], "txt' cannot be read", {}),
        (b"a 1\n", "must be one of 'glove'.*format='x'", {"format": "x"}),
    ],
)  # fmt: skip
def test_files_that_are_refused(tmp_path, data, message, options):
    path = tmp_path / "vectors.txt"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        read_vectors(path, **options)


def test_words_that_are_refused(tmp_path):
    path = tmp_path / "table.npy"
    np.save(path, VECTORS)
    tokenizer([*WORDS, "more"]).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "latin").write_bytes(b"a\n\xe9")
    for words, message in (
        (WORDS[1:], "6 rows, but 5 `words`"),
        (dict.fromkeys(WORDS, 3), "'a' and 'the' share row 3"),
        (tmp_path / "tokenizer.json", "'more' has row 6 of 6 rows"),
        (tmp_path / "latin", "not in utf-8"),
    ):
        with pytest.raises(ValueError, match=message):
            read_vectors(path, words=words)


def test_arrays_that_are_refused(tmp_path):
    path = tmp_path / "table.npy"
    np.save(path, VECTORS)
    whole = path.read_bytes()
    for data, message in (
        (VECTORS[0], "rows and columns"),
        (np.array([[None]]), "a pickle"),
        (np.full((2, 2), [[1.0], [np.nan]]), "in row 1"),
        (whole[:-1], "its array is cut off"),
    ):
        if isinstance(data, bytes):
            path.write_bytes(data)
        else:
            np.save(path, data)
        with pytest.raises(ValueError, match=message):
            read_vectors(path, words=WORDS[: min(len(data), 6)])
    path = tmp_path / "t.safetensors"
    safetensors.save_file({"a": VECTORS, "b": VECTORS, "c": VECTORS[0]}, path)
    for tensor, message in (
        (None, "`tensor`.*'a', 'b'.*None"),
        ("c", "the shape .5,."),
    ):
        with pytest.raises(ValueError, match=message):
            read_vectors(path, tensor=tensor, words=WORDS)


def test_wrong_arguments():
    with refused("limit", 0):
        read_vectors(__file__, limit=0)
    for encoding in ("x", "utf-16"):
        with refused("encoding", encoding):
            read_vectors(__file__, encoding=encoding)
    with refused("path", "none.txt", FileNotFoundError):
        read_vectors("none.txt")
    with refused("words") as caught:
        read_vectors(__file__, "word2vec_binary", words=["word"] * 10**5)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("name", MAKERS)
def test_damaged_files(files, name):
    """They are read or refused, and so is as much as the error says."""
    path, target, options = files[name]
    data = path.read_bytes()
    try:
        for seed in range(60):
            path.write_bytes(damage(data, np.random.default_rng(seed)))
            check_limit(target, options)
    finally:
        path.write_bytes(data)


def test_words_as_bytes_and_lengths_as_a_pickle(tmp_path):
    path = tmp_path / "table.npz"
    np.savez(path, vectors=VECTORS, words=np.char.encode(WORDS, "utf-8"))
    assert_read(read_vectors(path))
    # Tensors begin with the length of their header.
    for size in range(400, 800):
        data = safetensors.save({"t": VECTORS}, {"about": "a" * size})
        if data.startswith(b"\x80\x02"):
            (tmp_path / "model.safetensors").write_bytes(data)
    assert_read(read_vectors(tmp_path / "model.safetensors", words=WORDS))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["npy", "npz", "text"])
def test_memory_is_that_of_the_table(tmp_path, kind):
    rows = 1000 if kind == "text" else 4000
    size = (1 if kind == "text" else 15) * 1_000_000
    table = np.ones((rows, size // rows), "float16")
    path, words = tmp_path / f"table.{kind}", list(map(str, range(rows)))
    if kind == "text":
        line = b" 1.5" * table.shape[1]
        path.write_bytes(b"".join(b"%d%s\n" % (x, line) for x in range(rows)))
    else:
        (np.save if kind == "npy" else np.savez)(path, table)
    options = {"format": "glove"} if kind == "text" else {"words": words}
    tracemalloc.start()
    try:
        read = read_vectors(path, **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Lines of text take more than their numbers.
    blocks = 10_000_000 if kind == "text" else 0
    assert peak < 1.2 * read.vectors.nbytes + blocks
    assert read.words == words and read.vectors.shape == table.shape


def test_words_with_other_columns_are_refused(tmp_path):
    np.save(tmp_path / "table.npy", VECTORS)
    for form in ("{1} {0}", "{0}\t{1}", "{1},{0}", "{0},{1}", "x\t{1}"):
        lines = [form.format(*x) for x in enumerate(WORDS)]
        for header in (lines[:1], [re.sub("{.}", "name", form)]):
            text = "\n".join(header + lines[1:])
            (tmp_path / "words").write_text(text, "utf-8", newline="")
            with refused("words"):
                read_vectors(tmp_path / "table.npy", words=tmp_path / "words")
