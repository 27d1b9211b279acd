"""`read_vectors` on files as others write them."""

import bz2
import gzip
import lzma
import pathlib

import numpy as np
import pytest
from vector_files import MAKERS
from vector_files import VECTORS
from vector_files import WORDS
from vector_files import assert_read
from vector_files import fasttext_model
from vector_files import make_files
from vector_files import tokenizer
from vector_files import write_folder
from vector_files import write_words
from vector_files import zipped

from keras_compembed.vectors import read_vectors
from keras_compembed.vectors.formats import progress
from keras_compembed.vectors.formats import text

pytest.importorskip("gensim")
pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")


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
    for compress in (gzip.compress, lzma.compress, bz2.compress, zipped):
        path = tmp_path / "file"  # By its contents, not by its name.
        path.write_bytes(compress(plain.read_bytes()))
        read = read_vectors(path, **options)
        assert_read(read, expected.words, expected.vectors)


def test_zip_files_of_macos(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(
        zipped(b"a 1 2\n", "vectors.txt", "__MACOSX/._vectors.txt")
    )
    assert read_vectors(path).words == ["a"]


def test_fasttext_composes_as_gensim_does(files):
    from gensim.models.fasttext import load_facebook_vectors

    path = files["fasttext"].path
    keyed = load_facebook_vectors(str(path))
    read = read_vectors(path, limit=4)
    assert read.words == keyed.index_to_key[:4]
    np.testing.assert_allclose(read.vectors, keyed.vectors[:4], atol=1e-7)


def test_fasttext_composes_as_fasttext_does():
    """Also the end of a sentence, to which gensim gives letters."""
    import gensim

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
    for saved, wv in ((model, model.wv), (model.wv, model.wv), (keyed, keyed)):
        path = tmp_path / "file.kv"
        saved.save(str(path))
        with pytest.raises(ValueError, match="any program.*format='gensim'"):
            read_vectors(path)
        read = read_vectors(path, format="gensim")
        assert read.words == wv.index_to_key
        np.testing.assert_allclose(read.vectors, wv.vectors, atol=1e-7)
    path.write_bytes(b"\x80\x04nothing")
    with pytest.raises(ValueError, match="a file that gensim does not read"):
        read_vectors(path, format="gensim")
    KeyedVectors(2).save(str(path))
    with pytest.raises(ValueError, match="neither of them empty"):
        read_vectors(path, format="gensim")
    numbers = KeyedVectors(2)
    numbers.add_vectors([5, 6], np.eye(2))
    numbers.save(str(path))
    with pytest.raises(ValueError, match="vectors of other things"):
        read_vectors(path, format="gensim")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8"])
def test_tables_become_float32(tmp_path, dtype):
    import ml_dtypes  # noqa: F401, it names bfloat16.
    from safetensors.numpy import save_file

    table = (8 * VECTORS).astype(dtype)
    save_file({"table": table}, tmp_path / "model.safetensors")
    write_words(tmp_path / "vocab.txt")
    read = read_vectors(tmp_path / "model.safetensors")
    assert_read(read, WORDS, table.astype("float32"))
    if dtype != "bfloat16":
        np.save(tmp_path / "table.npy", np.asfortranarray(table))
        read = read_vectors(tmp_path / "table.npy", words=WORDS, limit=4)
        assert_read(read, WORDS[:4], table[:4].astype("float32"))


def test_words_as_bytes_in_a_npz(tmp_path):
    path = tmp_path / "table.npz"
    np.savez(path, vectors=VECTORS, words=np.char.encode(WORDS, "utf-8"))
    assert_read(read_vectors(path))
    np.savez(
        path, vectors=VECTORS[:1], words=np.array(["\xe9".encode("latin-1")])
    )
    assert read_vectors(path, encoding="latin-1").words == ["\xe9"]


def test_tensors_that_begin_as_a_pickle(tmp_path):
    """The length of their header is written first."""
    from safetensors.numpy import save

    made = [save({"t": VECTORS}, {"about": "a" * n}) for n in range(400, 800)]
    data = next(data for data in made if data.startswith(b"\x80\x02"))
    (tmp_path / "model.safetensors").write_bytes(data)
    assert_read(read_vectors(tmp_path / "model.safetensors", words=WORDS))


def test_rows_without_a_token(tmp_path):
    """Token tables may be larger than vocabularies."""
    table = np.concatenate([VECTORS, VECTORS[:2]])
    folder = write_folder(
        tmp_path / "model", {"wte.weight": table, "lm_head.weight": table}
    )
    with pytest.warns(UserWarning, match="2 rows of .* belong to no word"):
        assert_read(read_vectors(folder))
    (folder / "tokenizer.json").unlink()
    write_words(folder / "vocab.txt")
    with pytest.warns(UserWarning, match="2 rows of .* belong to no word"):
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


@pytest.mark.parametrize("place", ["", "0_StaticEmbedding"])
def test_model2vec_of_sentence_transformers(tmp_path, place):
    write_folder(tmp_path / "model", {"embedding.weight": VECTORS}, place=place)
    (tmp_path / "model/config.json").unlink(missing_ok=True)
    assert_read(read_vectors(tmp_path / "model"))


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
    with pytest.raises(OSError, match="Cannot get 'hf://user/model'.*network"):
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
    with pytest.warns(
        UserWarning, match="2 more .*'a' in line 3 .first in line 1"
    ) as warned:
        read = read_vectors(path)
    assert warned[0].filename == __file__
    assert_read(read, "abc", np.array([[1], [2], [5]]))
    assert len(read_vectors(path, limit=2)) == 2
    with pytest.warns(UserWarning, match="1 more .*'a' in row 2"):
        read_vectors(files["npy"].path, words=["a", "a", "b", "c", "d", "e"])


def test_encodings(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_bytes(b"a 1\n\xe9 2\n")
    assert read_vectors(path, encoding="latin-1").words == ["a", "é"]
    read = read_vectors(path, unicode_errors="replace")
    assert read.words == ["a", "\ufffd"]


def test_long_files_show_progress(tmp_path, monkeypatch, capsys):
    path = tmp_path / "vectors.txt"
    path.write_bytes(b"".join(b"%d 1 2\n" % row for row in range(2000)))
    read_vectors(path)
    assert not capsys.readouterr().out
    monkeypatch.setattr(progress, "_LEAST_BYTES", 1)
    monkeypatch.setattr(text, "_BLOCK_BYTES", 100)
    assert len(read_vectors(path)) == 2000
    assert "1/1" in capsys.readouterr().out
    # A line that is in no block is read all the same.
    monkeypatch.setattr(text, "_LINE_BYTES", 150)
    path.write_bytes(b"a" * 300 + b" 1\n")
    with pytest.raises(ValueError, match="line 1 with more than 150 bytes"):
        read_vectors(path)
