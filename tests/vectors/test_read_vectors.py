"""`read_vectors` on files as others write them, and on damaged ones."""

import bz2
import gzip
import lzma
import os
import pathlib
import shutil
import struct

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


@pytest.mark.parametrize("limit", [None, 4, 99])
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


@pytest.mark.parametrize(
    "name", ["glove", "word2vec_binary", "fasttext", "npy"]
)
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


def test_fasttext_composes_as_others_do(files):
    import gensim

    path = files["fasttext"].path
    keyed = gensim.models.fasttext.load_facebook_vectors(str(path))
    read = read_vectors(path, limit=4)
    assert read.words == keyed.index_to_key[:4]
    np.testing.assert_allclose(read.vectors, keyed.vectors[:4], atol=1e-7)
    # Also the end of a sentence, to which gensim gives letters.
    folder = pathlib.Path(gensim.__file__).parent / "test/test_data"
    if not (folder / "crime-and-punishment.vec").exists():
        pytest.skip("gensim came without the files of its tests")
    model = read_vectors(folder / "crime-and-punishment.bin")
    text = read_vectors(folder / "crime-and-punishment.vec")
    assert model.words == text.words and "</s>" in text.words
    # Five digits are written.
    np.testing.assert_allclose(model.vectors, text.vectors, atol=1e-5)


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
    keyed.vectors = np.vstack([keyed.vectors, VECTORS[:1]])
    keyed.save(str(tmp_path / "more"))
    keyed.index_to_key = [*WORDS, None]
    keyed.save(str(tmp_path / "none"))
    KeyedVectors(2).save(str(tmp_path / "empty"))
    numbers = KeyedVectors(2)
    numbers.add_vectors([5, 6], np.eye(2))
    numbers.save(str(tmp_path / "numbers"))
    (tmp_path / "other").write_bytes(b"\x80\x04nothing")
    for name, says in (
        ("more", "6 words and 7 vectors"),
        ("none", "such as None"),
        ("empty", "neither of them empty"),
        ("numbers", "other things"),
        ("other", "gensim does not read"),
    ):
        with pytest.raises(ValueError, match=says):
            read_vectors(tmp_path / name, format="gensim")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8"])
def test_tables_become_float32(tmp_path, dtype):
    import ml_dtypes  # noqa: F401, it names bfloat16.

    table = (8 * VECTORS).astype(dtype)
    path = tmp_path / "model.safetensors"
    safetensors.save_file({"table": table}, path)
    write_words(tmp_path / "vocab.txt")
    assert_read(read_vectors(path), WORDS, table.astype("float32"))
    if dtype != "bfloat16":
        np.save(tmp_path / "table.npy", np.asfortranarray(table))
        read = read_vectors(tmp_path / "table.npy", words=WORDS, limit=4)
        assert_read(read, WORDS[:4], table[:4].astype("float32"))


def test_words_as_bytes_in_a_npz(tmp_path):
    path = tmp_path / "table.npz"
    np.savez(path, vectors=VECTORS, words=np.char.encode(WORDS, "utf-8"))
    assert_read(read_vectors(path))
    latin = np.array(["\xe9".encode("latin-1")])
    np.savez(path, vectors=VECTORS[:1], words=latin)
    assert read_vectors(path, encoding="latin-1").words == ["\xe9"]


def test_tensors_that_begin_as_a_pickle(tmp_path):
    """The length of their header is written first."""
    tensors = {"t": VECTORS}
    made = [
        safetensors.save(tensors, {"about": "a" * n}) for n in range(400, 800)
    ]
    data = next(data for data in made if data.startswith(b"\x80\x02"))
    (tmp_path / "model.safetensors").write_bytes(data)
    assert_read(read_vectors(tmp_path / "model.safetensors", words=WORDS))


def test_folders_of_models(tmp_path):
    # Token tables may be larger than vocabularies.
    table = np.concatenate([VECTORS, VECTORS[:2]])
    tensors = {"wte.weight": table, "lm_head.weight": table}
    folder = write_folder(tmp_path / "model", tensors)
    with pytest.warns(UserWarning, match="2 rows of"):
        assert_read(read_vectors(folder))
    (folder / "tokenizer.json").unlink()
    write_words(folder / "vocab.txt")
    with pytest.warns(UserWarning, match="2 rows of"):
        assert_read(read_vectors(folder))
    # As sentence-transformers writes those of model2vec.
    for place in ("", "0_StaticEmbedding"):
        folder = tmp_path / f"static{place}"
        write_folder(folder, {"embedding.weight": VECTORS}, place=place)
        (folder / "config.json").unlink(missing_ok=True)
        assert_read(read_vectors(folder))


def test_model2vec(tmp_path):
    model2vec = pytest.importorskip("model2vec")
    words = ["[UNK]", *WORDS[1:]]
    model = model2vec.StaticModel(VECTORS, tokenizer(words))
    model.save_pretrained(tmp_path / "plain")
    assert_read(read_vectors(tmp_path / "plain"), words)
    model = model2vec.StaticModel.from_pretrained(
        tmp_path / "plain", quantize_to="int8", vocabulary_quantization=3
    )
    model.save_pretrained(tmp_path / "small")
    read = read_vectors(tmp_path / "small", limit=4)
    expected = model.embedding[model.token_mapping] * model.weights[:, None]
    assert read.words == words[:4]
    np.testing.assert_allclose(read.vectors, expected[:4], rtol=1e-6)


def test_hub(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    folder = write_folder(
        tmp_path / "model", {"wte.weight": VECTORS}, "model-1.safetensors"
    )
    fetched = []

    def fetch(repository, name, revision):
        assert (repository, revision) == ("user/model", "v1")
        fetched.append(name)
        if not (folder / name).exists():
            raise hub.errors.EntryNotFoundError(name)
        return str(folder / name)

    monkeypatch.setattr(hub, "hf_hub_download", fetch)
    assert_read(read_vectors("hf://user/model@v1"))
    assert len(fetched) == len(set(fetched))

    def fail(*_, **__):
        raise hub.errors.LocalEntryNotFoundError("no network")

    monkeypatch.setattr(hub, "hf_hub_download", fail)
    with pytest.raises(OSError, match="Cannot get 'hf://user/model'"):
        read_vectors("hf://user/model")


@pytest.mark.parametrize(
    "text, words, options",
    [
        # No header: the word is a number.
        ("5 0.5 1\na 1 2\n", "5 a", {}),
        ("5 3\n6 1\n", "5 6", {}),
        ("5 1\na 2\n", "5 a", {"format": "glove"}),
        ("2 1\na 2\nb 3\n", "a b", {}),
        # Too few or too many rows, as asked for.
        ("3 2\na 1 2\nb 3 4\n", "a b", {"limit": 2}),
        ("99999999999 2\na 1 2\nb 3 4\n", "a b", {"limit": 2}),
        # As written on other systems, in other encodings, by hand.
        ("a 1 2\r\nb 3 4\r\n\r\n", "a b", {}),
        ("\ufeff2 2\na 1 2\nb 3 4", "a b", {}),
        ("a\t1\t2\nb\t3\t4\n", "a b", {}),
        ("a  1 2 \n  b 3  4\n", "a b", {}),
        ("a 1e0 +2\nb 3. .4E1\n", "a b", {}),
        # Words that other files begin with.
        ("<html> 1 2\ngguf 3 4\n", "<html> gguf", {}),
        # Words with spaces, without letters, with other line ends.
        ("a 1 2\n. . 3 4\n", "a|. .", {}),
        ("a 1 2\nnew\u2028york 3 4\n", "a new\u2028york", {}),
        ("a 1 2\n 3 4\nb 5 6\n", "a||b", {}),
        ("a 1 2\n\x0b 3 4\n. . 3 4\n", "a|\x0b|. .", {}),
    ],
)
def test_text_that_is_read(tmp_path, text, words, options):
    path = tmp_path / "vectors.txt"
    path.write_bytes(text.encode())
    read = read_vectors(path, **options)
    assert read.words == words.split("|" if "|" in words else " ")
    if "3 4" in text or "+2" in text or "\t" in text:
        assert read.vectors[:2].tolist() == [[1, 2], [3, 4]]


def test_bytes_with_line_ends_of_windows(tmp_path):
    rows = [word + b" " + b"\0\0\x80?" + b"\r\n" for word in (b"a", b"b")]
    path = tmp_path / "vectors.bin"
    path.write_bytes(b"2 1\r\n" + b"".join(rows))
    assert read_vectors(path).words == ["a", "b"]


def test_words_that_stand_twice(files, tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("a 1\nb 2\na 3\nb 4\nc 5\n")
    with pytest.warns(UserWarning, match="'a' in line 3 .first in line 1"):
        read = read_vectors(path)
    assert_read(read, "abc", np.array([[1], [2], [5]]))
    assert len(read_vectors(path, limit=2)) == 2
    with pytest.warns(UserWarning, match="'a' in row 2"):
        read_vectors(files["npy"].path, words=["a", "a", "b", "c", "d", "e"])


def test_encodings(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_bytes(b"a 1\n\xe9 2\n")
    assert read_vectors(path, encoding="latin-1").words == ["a", "é"]
    read = read_vectors(path, unicode_errors="replace")
    assert read.words == ["a", "\ufffd"]


def test_long_files(tmp_path, capsys):
    """Of several blocks of 4 MB; from 16 MB on, progress is shown."""
    path = tmp_path / "vectors.txt"
    path.write_bytes(b"".join(b"%0100d 1 2\n" % x for x in range(50_000)))
    read = read_vectors(path)
    assert len(read) == 50_000 and read.words[-1] == f"{49999:0100}"
    assert not capsys.readouterr().out
    path.write_bytes(b"a" * (1 << 24) + b" 1\n")
    with pytest.raises(ValueError, match="line 1 with more than"):
        read_vectors(path)
    row = np.arange(400, dtype="<f4").tobytes()
    lines = [b"%d " % x + row + b"\n" for x in range(11_000)]
    path.write_bytes(b"11000 400\n" + b"".join(lines))
    capsys.readouterr()
    read = read_vectors(path)
    assert "17/17" in capsys.readouterr().out
    assert (read.vectors == np.arange(400)).all() and len(read) == 11_000


@pytest.mark.parametrize(
    "data, message, options",
    [
        (b"", "no bytes", {}),
        (b"\n\n", "format that is known", {}),
        (b"\n\n", "line 1 with no number", {"format": "glove"}),
        (b"3 2\n", "a header only", {}),
        (b"3 2\na 1 2\n", "says: 3. Received: 1. .*`limit=1`", {}),
        (b"1 2\na 1 2\n\nb 1 2\n", "one more in line 4: 'b 1 2'", {}),
        (b"1 2\na 1 2\nb 1 2\n", "one more in line 3", {"limit": 2}),
        (b"2 3\na 1 2\nb 1 2\n", r"3 numbers \(by line 1\).*line 2 with 2", {}),
        (b"0 2\na 1 2\n", "two whole numbers", {}),
        (b"a 1 2\nb 1 2 3\n", "line 2 with 3 numbers.*`limit=1`", {}),
        (b"a 1 2\nb\t1\nc 1 2\n", "line 2 with 1 number behind", {}),
        (b"a 1 2\nb 1 x\nc 1 2\n", "line 2 with 'x'", {}),
        (b"a 1 2\nb 1 0_1\n", "line 2 with '0_1'", {}),
        (b"a 1 2\nb nan 1\n", "line 2 with 'nan', which is not finite", {}),
        (b"a 1 2\nb 1 1e39\n", "line 2 with '1e39', which is beyond", {}),
        (b"a 1 2\n\nc 1 2\n", "line 2 with 0 numbers", {}),
        (b"a 1 2\n\xff 1 1\n", "line 2 with a word", {}),
        (b"a 1 2\n5 1\n", "whole numbers", {"format": "word2vec_binary"}),
        (b"1 2\na 1 2\n", "`format='word2vec'`", {"format": "word2vec_binary"}),
        (b"2 2\na 1 2\nb 1 2\n", "`format='word2vec'`", {"format": "glove"}),
        (b"a 1 2\nb 1 2\n", "`format='glove'`", {"format": "word2vec"}),
        (b"1 2\na \0\0\0\0\0\0\0\0", "`format='word2vec_binary'`",
         {"format": "word2vec"}),
        # In seconds.
        (b"a " + b"1" * 200_000 + b"x", "format that is known", {}),
        (b"a 1\nb " + b"1" * 200_000 + b"x\n", "line 2 with .1*., which", {}),
        (b"<!DOCTYPE html><p>", "a web page", {}),
        (b"\n <html>", "a web page", {"format": "glove"}),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull", {}),
        ("a 1 2\n".encode("utf-16"), "UTF-16", {}),
        (b"\x89HDF\r\n", "HDF5", {}),
        (b"words and\nno numbers\n", "begins with b'words and", {}),
        (b"\x01\x02" * 99, "format that is known: 'numpy'", {}),
        (b"9 2\n" + b"a" * 50, "its first line says: 9 of 2", {}),
        (b"1 999999999999\na 1 2\n", "999999999999 numbers", {}),
        (b"1 99999999\n" + b"a" * 50, "99999999 numbers, ", {}),
        (b"a 1 2\rb 3 4\r", "line 1 with line ends of a carriage", {}),
        (b"name".ljust(257, b"\0") + b"ustar  \0a 1 2\nb 3 4\n",
         "a tar archive", {}),
        (zipped(b"a 1\n", "a", "b"), "zip file of 2: 'a', 'b'", {}),
        (zipped(b""), "no bytes in a zip file", {}),
        (b"PK\5\6" + bytes(18), "no bytes in a zip file", {}),
        (zipped(b"", "a/data.pkl", "a/x"), "PyTorch", {}),
        (zipped(b"a 1\n")[:-9], "a whole zip file", {}),
        (gzip.compress(b"a 1\n", mtime=0)[:-9], "breaks after 4 bytes", {}),
        (gzip.compress(b"", mtime=0), "no bytes in a gzip file", {}),
        (b"a 1\n", "of the format 'glove'", {"words": ["a"]}),
        (b"a 1\n", "must be one of 'numpy'.*format='x'", {"format": "x"}),
    ],
)  # fmt: skip
def test_files_that_are_refused(tmp_path, data, message, options):
    path = tmp_path / "vectors.txt"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        read_vectors(path, **options)


def test_word2vec_binary_that_is_refused(files, tmp_path):
    data = files["word2vec_binary"].path.read_bytes()
    path = tmp_path / "vectors.bin"
    second = data.index(b"\na ") + 1 if b"\na " in data else data.index(b"a ")
    nan = b"\xff\xff\xff\x7f"
    many = data.replace(b"6 5", b"9999999999 5", 1)
    for damaged, message in (
        (data[:-3], "row 6 of 6 is cut off.*`limit=5`"),
        (data + b"xx", f"at byte {len(data)}, more bytes.*`limit=6`"),
        (many, "9999999999 of 5 numbers"),
        (data[:second] + b"\xff" + data[second:], f"at byte {second}.*utf-8"),
        (
            data[: second + 2] + nan + data[second + 6 :],
            "in row 2.*`limit=1`",
        ),
        # In a stream, whose length is not known.
        (gzip.compress(many), "row 7 of 9999999999 is cut off"),
        (b"1 5\n" + b"a" * (1 << 17), "at byte 4, no space in the next"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=message):
            read_vectors(path)
    path.write_bytes(data.replace(b"6 5", b"5 5", 1))
    with pytest.raises(ValueError, match="more bytes stand behind the 5 rows"):
        read_vectors(path, limit=6)
    path.write_bytes(many)
    assert_read(read_vectors(path, limit=6))


def test_fasttext_that_is_refused(files, tmp_path):
    data = files["fasttext"].path.read_bytes()
    path = tmp_path / "model.bin"
    words = 92
    end = data.index(b"\0", words)
    table = data.index(struct.pack("<2q", 55, 5))

    def put(place, form, *numbers):
        new = struct.pack(form, *numbers)
        return data[:place] + new + data[place + len(new) :]

    for damaged, message in (
        (data[:6], "at byte 0, the file ends"),
        (data[: words + 1], f"at byte {words}, no zero byte ends word 1"),
        (data[: table + 99], "a table of|bytes of the table begin.*cut short"),
        (gzip.compress(data[: table + 99]), "cut short"),
        (put(4, "<i", 99), "version 99"),
        (put(8, "<i", 0), "options that cannot be"),
        (put(words - 28, "<3i", 5, 3, 2), "a classifier, with 2 labels"),
        (put(words - 8, "<q", 4), "a pruned model"),
        (put(words - 28, "<3i", 0, 0, 0), "0 words of 0 entries"),
        (put(words, "<B", 0xFF), "word 1 is not written in utf-8"),
        (put(end + 9, "<b", 1), "word 1 is of the kind 1"),
        (put(table - 1, "<?", True), "a quantized table"),
        (put(table, "<q", 1 << 60), "a table of 1152921504606846976 rows"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=message):
            read_vectors(path)
    path.write_bytes(put(words, "<B", 0xFF))
    read = read_vectors(path, unicode_errors="backslashreplace")
    assert read.words[0].startswith(r"\xff")
    with pytest.raises(ValueError, match="other bytes than its mark"):
        read_vectors(files["glove"].path, format="fasttext")


def test_words_that_are_refused(tmp_path):
    path = tmp_path / "table.npy"
    np.save(path, VECTORS)
    (tmp_path / "words.txt").write_text("\n".join([*WORDS, "more"]))
    tokenizer([*WORDS, "more"]).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "no.json").write_text("{}")
    (tmp_path / "latin").write_bytes(b"a\n\xe9")
    counts = "\n".join(f"{word} 5" for word in WORDS)
    (tmp_path / "counts").write_text(counts, "utf-8", newline="")
    # A token that is added has the number of tokens as its id.
    hole = tokenizers.models.WordLevel({"a": 0, "c": 2}, "a")
    hole = tokenizers.Tokenizer(hole)
    hole.add_tokens(["new"])
    hole.save(str(tmp_path / "twice.json"))
    for words, message in (
        (None, "`words`.* 6 rows"),
        (WORDS[1:], "5 words and 6 rows"),
        (tmp_path / "words.txt", "words.txt'.* 7 words and 6 rows"),
        (5, "`words`.* 5 among"),
        (dict.fromkeys(WORDS), "`words`.* type dict"),
        (tmp_path, "`words`.*the folder"),
        (tmp_path / "counts", "all of its 6 lines, such as 'the 5'"),
        (tmp_path / "twice.json", "'c' and 'new', both with the id 2"),
        (tmp_path / "tokenizer.json", "the id 6 for 'more', and 6 rows"),
        (tmp_path / "no.json", "one that it does not read"),
        (tmp_path / "latin", "line 2: b'.xe9'"),
    ):
        with pytest.raises(ValueError, match=message):
            read_vectors(path, words=words)
    with pytest.raises(FileNotFoundError, match="`words`"):
        read_vectors(path, words=tmp_path / "none")


def test_arrays_that_are_refused(tmp_path):
    path = tmp_path / "table.npy"
    np.save(path, VECTORS)
    whole = path.read_bytes()
    for data, message in (
        (VECTORS[0], "two axes"),
        (VECTORS[:0], "neither of them empty"),
        (np.array([["a"]]), "<U1"),
        (np.array([[None]]), "a pickle"),
        (np.full((2, 2), [[1.0], [np.nan]]), "in row 2. .*`limit=1`"),
        (np.full((2, 2), 1e99), "in row 1"),
        (whole[:-1], "an array that ends at byte"),
        (whole[:20] + b"(" + whole[21:], "a header that breaks its rules"),
        (whole[:6] + b"\x09" + whole[7:], "written by `numpy.save`"),
        (whole.replace(b"(6, 5)", b"(6, 99999999999)"), "6, 99999999999"),
    ):
        if isinstance(data, bytes):
            path.write_bytes(data)
        else:
            np.save(path, data)
        with pytest.raises(ValueError, match=message):
            read_vectors(path, words=WORDS[: min(len(data), 6)])
    table = {"a": VECTORS}
    for arrays, options, message in (
        ({**table, "b": VECTORS}, {}, "'a' .6, 5., 'b'"),
        ({"a": VECTORS[0]}, {}, "without or with several"),
        (table, {"tensor": "b"}, "'a' .6, 5.. Received: tensor='b'"),
        (table, {}, "`words` must be given"),
        ({**table, "w": np.array("b")}, {}, "a list of words with one"),
        ({**table, "w": np.array(["b"])}, {}, "1 words and 6 rows"),
        ({**table, "w": np.array(WORDS, object)}, {}, "'w' of objects"),
        ({**table, "w": WORDS, "v": WORDS}, {}, "'v', 'w'"),
        ({**table, "w": np.array([b"\xe9"] * 6)}, {}, "utf-8"),
    ):
        np.savez(tmp_path / "arrays.npz", **arrays)
        with pytest.raises(ValueError, match=message):
            read_vectors(tmp_path / "arrays.npz", **options)


def test_tensors_that_are_refused(tmp_path):
    path = tmp_path / "t.safetensors"
    tensors = {"a": VECTORS, "b": VECTORS, "c": VECTORS[0]}
    safetensors.save_file(tensors, path)
    data = path.read_bytes()
    for options, message in (
        ({}, "`tensor`.*'a' .6, 5., 'b' .6, 5.. Received.*None"),
        ({"tensor": "x"}, "Received: tensor='x'"),
        ({"tensor": "c", "words": WORDS}, "'c' of shape .5,."),
        ({"tensor": "a"}, "`words` must be given"),
        ({"tensor": 5}, "`tensor` must be a string"),
    ):
        with pytest.raises(ValueError, match=message):
            read_vectors(path, **options)
    path.write_bytes(data[:-1])
    with pytest.raises(ValueError, match="whole safetensors file"):
        read_vectors(path, tensor="a", words=WORDS)
    path.write_bytes(gzip.compress(data))
    with pytest.raises(ValueError, match="a gzip file"):
        read_vectors(path, format="safetensors", words=WORDS)
    safetensors.save_file({"a": VECTORS.astype("complex64")}, path)
    with pytest.raises(ValueError, match="'a' of C64"):
        read_vectors(path, words=WORDS)


def test_folders_that_are_refused(tmp_path):
    folder = write_folder(tmp_path / "sharded", {"wte.weight": VECTORS}, "a")
    index = folder / "model.safetensors.index.json"

    def fails(message, **options):
        with pytest.raises(ValueError, match=message):
            read_vectors(folder, **options)

    fails("'wte.weight', 'b.weight'.*'x'", tensor="x")
    fails("no 'none', where the tensor 'b.weight' is", tensor="b.weight")
    fails("a folder as model2vec writes it", format="model2vec")
    safetensors.save_file({"other": VECTORS}, folder / "a")
    fails("no tensor 'wte.weight'")
    listed = '{"weight_map": {"wte.weight": "../a"}}'
    for content in ("[]", listed, "[" * 9999):
        index.write_text(content)
        fails("a `weight_map`")
    (folder / "a").write_text("version https://git-lfs.github.com/spec/v1\n")
    index.write_text('{"weight_map": {"wte.weight": "a"}}')
    fails("sharded/a'.* `git lfs pull`")
    index.unlink()
    fails("a folder without the files of one")
    fails("Save the model anew", format="hugging_face")
    (folder / "pytorch_model.bin").touch()
    fails("pytorch_model.bin, a pickle", format="hugging_face")
    (folder / "tokenizer.json").unlink()
    fails("without tokenizer.json and vocab.txt", format="hugging_face")
    # Without its first ids, as PhoBERT writes it.
    (folder / "vocab.txt").write_text("an@@ 500\nem 400\n")
    safetensors.save_file({"wte.weight": VECTORS}, folder / "model.safetensors")
    fails("vocab.txt'.* such as 'an@@ 500'")
    fails("for the format 'glove'.*a folder", format="glove")
    with pytest.raises(ValueError, match="name a folder .*a file"):
        read_vectors(folder / "config.json", format="hugging_face")

    folder = tmp_path / "models"
    for tensors, message in (
        ({"x.wte.weight": VECTORS, "y.wte.weight": VECTORS}, "'x.*', 'y.*'"),
        ({"embeddings": VECTORS[0]}, "'embeddings' of shape .5,."),
        ({"embeddings": VECTORS[:5]}, "the id 5 for 'nan', and 5 rows"),
        ({"mapping": np.arange(1, 7)}, "from 0 to 5. Received: 1 to 6"),
        ({"mapping": np.eye(6)}, "one axis in 'mapping'.*6, 6"),
        ({"weights": np.ones(5)}, "5 in 'weights' and 6 tokens"),
        ({"weights": np.full(6, 1e39)}, "in row 1"),
    ):
        if "wte" not in str(tensors):
            tensors = {"embeddings": VECTORS, **tensors}
        write_folder(folder, tensors)
        fails(message)
        shutil.rmtree(folder)


def test_wrong_arguments():
    for options, received in (
        ({"path": 5}, 5),
        ({"path": os.devnull}, "the device"),
        ({"limit": 0}, 0),
        ({"encoding": "x"}, "'x'"),
        ({"encoding": "utf-16"}, "utf-16"),
        ({"unicode_errors": "x"}, "'x'"),
    ):
        with refused(next(iter(options)), received):
            read_vectors(**{"path": __file__, **options})
    with refused(None, "hf://user"):
        read_vectors("hf://user")
    with refused("path", "none.txt", FileNotFoundError):
        read_vectors("none.txt")


@pytest.mark.parametrize("name", MAKERS)
def test_damaged_files(files, name):
    """They are read or refused, and so is as much as the error says."""
    path, target, options = files[name]
    data = path.read_bytes()
    try:
        for seed in range(200):
            path.write_bytes(damage(data, np.random.default_rng(seed)))
            check_limit(target, options)
    finally:
        path.write_bytes(data)
