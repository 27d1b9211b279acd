"""What `read_vectors` says of files that break the rules of their formats."""

import gzip
import os
import shutil
import struct

import numpy as np
import pytest
from vector_files import VECTORS
from vector_files import WORDS
from vector_files import assert_read
from vector_files import keyed_vectors
from vector_files import make_files
from vector_files import tokenizer
from vector_files import write_folder
from vector_files import zipped

from keras_compembed.vectors import read_vectors

pytest.importorskip("gensim")
pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files that gensim, NumPy and safetensors wrote, by name."""
    return make_files(tmp_path_factory.mktemp("vectors"))


@pytest.mark.parametrize(
    "data, message, options",
    [
        (b"", "must hold vectors. Received: no bytes", {}),
        (b"\n\n", "format that is known", {}),
        (b"\n\n", "line 1 with no number", {"format": "glove"}),
        (b"3 2\n", "Received: a header only", {}),
        (b"3 2\na 1 2\n", "says: 3. Received: 1. .*`limit=1`", {}),
        (b"1 2\na 1 2\n\nb 1 2\n", "one more in line 4: 'b 1 2'", {}),
        (b"1 2\na 1 2\nb 1 2\n", "one more in line 3", {"limit": 2}),
        (b"2 3\na 1 2\nb 1 2\n", r"3 numbers \(by line 1\).*line 2 with 2", {}),
        (b"0 2\na 1 2\n", "two whole numbers", {}),
        (b"a 1 2\nb 1 2 3\n", "line 2 with 3 numbers.*`limit=1`", {}),
        (b"a 1 2\nb\t1\nc 1 2\n", "line 2 with 1 number behind", {}),
        (b"a 1 2\nb 1 x\nc 1 2\n", "line 2 with 'x', which is not a num", {}),
        (b"a 1 2\nb 1 0_1\n", "line 2 with '0_1', which is not a number", {}),
        (b"a 1 2\nb nan 1\n", "line 2 with 'nan', which is not finite", {}),
        (b"a 1 2\nb 1 1e39\n", "line 2 with '1e39', which is beyond", {}),
        (b"a 1 2\n\nc 1 2\n", "line 2 with 0 numbers", {}),
        (b"a 1 2\n\xff 1 1\n", "line 2 with a word that is not written in", {}),
        (b"a 1 2\n5 1\n", "two whole numbers", {"format": "word2vec_binary"}),
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
         "a tar archive. .*tarfile -e", {}),
        (zipped(b"a 1\n", "a", "b"), "zip file of 2: 'a', 'b'.*zipfile -e", {}),
        (zipped(b""), "hold vectors. Received: no bytes in a zip file", {}),
        (b"PK\5\6" + bytes(18), "no bytes in a zip file", {}),
        (zipped(b"", "a/data.pkl", "a/x"), "PyTorch.*safetensors.torch", {}),
        (zipped(b"a 1\n")[:-9], "must be a whole zip file", {}),
        (gzip.compress(b"a 1\n", mtime=0)[:-9], "breaks after 4 bytes", {}),
        (gzip.compress(b"", mtime=0), "no bytes in a gzip file", {}),
        (b"a 1\n", "not be given for files of the format 'glove'",
         {"words": ["a"]}),
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
    for damaged, message in (
        (data[:-3], "row 6 of 6 is cut off.*`limit=5`"),
        (data + b"xx", f"at byte {len(data)}, more bytes.*`limit=6`"),
        (data.replace(b"6 5", b"9999999999 5", 1), "9999999999 of 5 numbers"),
        (data[:second] + b"\xff" + data[second:], f"at byte {second}.*utf-8"),
        (
            data[: second + 2] + b"\xff\xff\xff\x7f" + data[second + 6 :],
            "NaN or infinity in row 2.*`limit=1`",
        ),
    ):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=message):
            read_vectors(path)
    path.write_bytes(data.replace(b"6 5", b"5 5", 1))
    with pytest.raises(ValueError, match="more bytes stand behind the 5 rows"):
        read_vectors(path, limit=6)
    path.write_bytes(data.replace(b"6 5", b"9999999999 5", 1))
    assert_read(read_vectors(path, limit=6))
    # In a stream, whose length is not known.
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(ValueError, match="row 7 of 9999999999 is cut off"):
        read_vectors(path)
    path.write_bytes(b"1 5\n" + b"a" * (1 << 17))
    with pytest.raises(ValueError, match="at byte 4, no space in the next"):
        read_vectors(path)


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
        (data[:6], "at byte 0, the file ends, where its mark"),
        (data[: words + 1], f"at byte {words}, no zero byte ends word 1"),
        (data[: table + 99], "a table of|bytes of the table begin.*cut short"),
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
    path.write_bytes(gzip.compress(data[: table + 99]))
    with pytest.raises(ValueError, match="It was cut short"):
        read_vectors(path)


def test_arrays_that_are_refused(files, tmp_path):
    path = tmp_path / "table.npy"
    cases = [
        (VECTORS[0], "two axes.*an array of shape"),
        (VECTORS[:0], "neither of them empty"),
        (np.array([["a"]]), "real numbers.*<U1"),
        (np.array([[None]]), "Those are a pickle, which is not opened"),
        (np.full((2, 2), [[1.0], [np.nan]]), "in row 2. .*`limit=1`"),
        (np.full((2, 2), 1e99), "in row 1"),
    ]
    for array, message in cases:
        np.save(path, array)
        with pytest.raises(ValueError, match=message):
            read_vectors(path, words=["a", "b"][: len(array)])
    np.save(path, VECTORS)
    whole = path.read_bytes()
    for words, message in (
        (None, "`words` must be given .* 6 rows"),
        (WORDS[1:], "`words` must hold a word .* 5 words and 6 rows"),
        (tmp_path / "words.txt", "words.txt' must hold .* 7 words and 6 rows"),
        (5, "`words` must be strings.* 5 among"),
        (dict.fromkeys(WORDS), "`words` must be a list, .* order .* type dict"),
        (tmp_path, "`words` must be a list, or the path of a file.*the folder"),
        (tmp_path / "counts", "on all of its 6 lines, such as 'the 5'"),
        (tmp_path / "twice.json", "'c' and 'new', both with the id 2"),
        (tmp_path / "tokenizer.json", "the id 6 for 'more', and 6 rows"),
        (tmp_path / "no.json", "one that it does not read"),
        (tmp_path / "latin", "line 2: b'.xe9'.*`unicode_errors='replace'`"),
    ):
        (tmp_path / "words.txt").write_text("\n".join([*WORDS, "more"]))
        tokenizer([*WORDS, "more"]).save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "no.json").write_text("{}")
        (tmp_path / "latin").write_bytes(b"a\n\xe9")
        counts = "\n".join(f"{word} 5" for word in WORDS)
        (tmp_path / "counts").write_text(counts, "utf-8", newline="")
        tokenizer_with_a_hole().save(str(tmp_path / "twice.json"))
        with pytest.raises(ValueError, match=message):
            read_vectors(path, words=words)
    with pytest.raises(FileNotFoundError, match="`words` must name a file"):
        read_vectors(path, words=tmp_path / "none")
    for data, message in (
        (whole[:-1], "an array that ends at byte"),
        (whole[:20] + b"(" + whole[21:], "a header that breaks its rules"),
        (whole[:6] + b"\x09" + whole[7:], "written by `numpy.save`"),
        (
            whole.replace(b"(6, 5)", b"(6, 99999999999)"),
            "the shape .6, 99999999999.",
        ),
    ):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=message):
            read_vectors(path, words=WORDS)
    for arrays, options, message in (
        ({"a": VECTORS, "b": VECTORS}, {}, "several .*'a' .6, 5., 'b'"),
        ({"a": VECTORS[0]}, {}, "without or with several"),
        ({"a": VECTORS}, {"tensor": "b"}, "'a' .6, 5.. Received: tensor='b'"),
        ({"a": VECTORS}, {}, "`words` must be given"),
        ({"a": VECTORS, "w": np.array("b")}, {}, "a list of words with one"),
        ({"a": VECTORS, "w": np.array(["b"])}, {}, "1 words and 6 rows"),
        ({"a": VECTORS, "w": np.array(WORDS, object)}, {}, "'w' of objects"),
        ({"a": VECTORS, "w": WORDS, "v": WORDS}, {}, "several .*'v', 'w'"),
        (
            {"a": VECTORS, "w": np.array([b"\xe9"] * 6)},
            {},
            r"utf-8. .*'w' with b'\\xe9' as its number 0",
        ),
    ):
        np.savez(tmp_path / "arrays.npz", **arrays)
        with pytest.raises(ValueError, match=message):
            read_vectors(tmp_path / "arrays.npz", **options)


def tokenizer_with_a_hole():
    """A token that is added has the number of tokens as its id."""
    import tokenizers

    found = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"a": 0, "c": 2}, "a")
    )
    found.add_tokens(["new"])
    return found


def test_gensim_files_that_are_refused(tmp_path):
    keyed = keyed_vectors()
    keyed.vectors = np.vstack([keyed.vectors, VECTORS[:1]])
    keyed.save(str(tmp_path / "more"))
    with pytest.raises(ValueError, match="6 words and 7 vectors"):
        read_vectors(tmp_path / "more", format="gensim")
    keyed.index_to_key = [*WORDS, None]
    keyed.save(str(tmp_path / "none"))
    with pytest.raises(ValueError, match="things, 1 of 7, such as None"):
        read_vectors(tmp_path / "none", format="gensim")


def test_tensors_that_are_refused(tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "t.safetensors"
    save_file({"a": VECTORS, "b": VECTORS, "c": VECTORS[0]}, path)
    data = path.read_bytes()
    for options, message in (
        ({}, "`tensor` must name .*'a' .6, 5., 'b' .6, 5.. Received.*None"),
        ({"tensor": "x"}, "Received: tensor='x'"),
        ({"tensor": "c", "words": WORDS}, "two axes.*'c' of shape .5,."),
        ({"tensor": "a"}, "`words` must be given"),
        ({"tensor": 5}, "`tensor` must be a string"),
    ):
        with pytest.raises(ValueError, match=message):
            read_vectors(path, **options)
    path.write_bytes(data[:-1])
    with pytest.raises(ValueError, match="whole safetensors file.* Fetch"):
        read_vectors(path, tensor="a", words=WORDS)
    path.write_bytes(gzip.compress(data))
    with pytest.raises(ValueError, match="a gzip file. Decompress it first"):
        read_vectors(path, format="safetensors", words=WORDS)
    save_file({"a": VECTORS.astype("complex64")}, path)
    with pytest.raises(ValueError, match="must hold numbers of .*'a' of C64"):
        read_vectors(path, words=WORDS)


def test_folders_that_are_refused(tmp_path):
    from safetensors.numpy import save_file

    folder = write_folder(tmp_path / "sharded", {"wte.weight": VECTORS}, "a")
    index = folder / "model.safetensors.index.json"

    def refused(message, **options):
        with pytest.raises(ValueError, match=message):
            read_vectors(folder, **options)

    refused("token table of .*'wte.weight', 'b.weight'.*'x'", tensor="x")
    refused("no 'none', where the tensor 'b.weight' is", tensor="b.weight")
    refused("must be a folder as model2vec writes it", format="model2vec")
    (folder / "a").unlink()
    save_file({"other": VECTORS}, folder / "a")
    refused("no tensor 'wte.weight'. Fetch both")
    listed = '{"weight_map": {"wte.weight": "../a"}}'
    for content in ("[]", listed, "[" * 9999):
        index.write_text(content)
        refused("a `weight_map` with the file of each tensor")
    (folder / "a").write_text("version https://git-lfs.github.com/spec/v1\n")
    index.write_text('{"weight_map": {"wte.weight": "a"}}')
    refused("sharded/a' must hold vectors. .* `git lfs pull`")
    index.unlink()
    refused("format that is known.*a folder without the files of one")
    refused("without. Save the model anew", format="hugging_face")
    (folder / "pytorch_model.bin").touch()
    refused("pytorch_model.bin, a pickle", format="hugging_face")
    (folder / "tokenizer.json").unlink()
    refused("without tokenizer.json and vocab.txt", format="hugging_face")
    # Without its first ids, as PhoBERT writes it.
    (folder / "vocab.txt").write_text("an@@ 500\nem 400\n")
    save_file({"wte.weight": VECTORS}, folder / "model.safetensors")
    refused("vocab.txt' must hold .* such as 'an@@ 500'")
    (folder / "vocab.txt").unlink()
    (folder / "model.safetensors").unlink()
    refused("must name a file for the format 'glove'.*a folder", format="glove")
    with pytest.raises(
        ValueError, match="must name a folder .*Received: a file"
    ):
        read_vectors(folder / "config.json", format="hugging_face")

    folder = tmp_path / "models"
    for tensors, message in (
        ({"x.wte.weight": VECTORS, "y.wte.weight": VECTORS}, "'x.*', 'y.*'"),
        ({"embeddings": VECTORS[0]}, "'embeddings' of shape .5,."),
        ({"embeddings": VECTORS[:5]}, "the id 5 for 'nan', and 5 rows"),
        ({"mapping": np.arange(1, 7)}, "from 0 to 5. Received: 1 to 6"),
        ({"mapping": np.eye(6)}, "one axis in 'mapping'.*6, 6"),
        ({"weights": np.ones(5)}, "5 in 'weights' and 6 tokens"),
        ({"weights": np.full(6, 1e39)}, "infinity .* in row 1"),
    ):
        if "wte" not in str(tensors):
            tensors = {"embeddings": VECTORS, **tensors}
        write_folder(folder, tensors)
        refused(message)
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"path": 5}, "`path` must be a string or a path"),
        ({"limit": 0}, "`limit` must be a positive integer"),
        ({"encoding": "x"}, "`encoding` must be one that Python knows"),
        ({"encoding": "utf-16"}, "`encoding` .* ASCII as ASCII"),
        ({"unicode_errors": "x"}, "`unicode_errors` must be one of 'strict'"),
        ({"path": "hf://user"}, "must be written as 'hf://user/repository'"),
        ({"path": os.devnull}, "Received: the device"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        read_vectors(**{"path": __file__, **options})


def test_no_file():
    with pytest.raises(FileNotFoundError, match="`path` .*'none.txt'"):
        read_vectors("none.txt")
