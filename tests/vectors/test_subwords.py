"""Vectors of n-grams, of words that have none of their own."""

import struct

import numpy as np
import pytest
from errors import refused
from vector_files import buckets_plain
from vector_files import fasttext_model
from vector_files import write_fasttext

from keras_compembed.methods import Anchors
from keras_compembed.methods import Codes
from keras_compembed.methods import Quantized
from keras_compembed.vectors import CompressedVectors
from keras_compembed.vectors import WordVectors
from keras_compembed.vectors import read_vectors
from keras_compembed.vectors.word_vectors import NgramBuckets
from keras_compembed.vectors.word_vectors import Subwords

ROWS, BUCKETS, WIDTH = 120, 90, 8
WORDS = [f"word{row}" for row in range(ROWS - 2)] + ["", "[UNK]"]
UNKNOWN = ["words", "wordy88", "naïve", "日本語", "🙂", "a\0b", "<>", "other"]


def mean_plain(word, subwords):
    kept = subwords.kept
    kept = range(subwords.bucket) if kept is None else kept.tolist()
    rows = [
        subwords.vectors[kept.index(bucket)]
        for bucket in buckets_plain(
            word, subwords.min_n, subwords.max_n, subwords.bucket
        )
        if bucket in kept
    ]
    return np.mean(rows, axis=0) if rows else np.zeros(WIDTH)


@pytest.mark.parametrize(
    "min_n, max_n, bucket, kept",
    [
        (3, 6, 2_000_000, None),
        (2, 3, 40, [0, 3, 5, 21, 39]),
        (1, 40, 2**31 - 1, None),
    ],
)
def test_buckets(min_n, max_n, bucket, kept):
    words = [*WORDS, *UNKNOWN, "\ud800", "x" * 99]
    ngrams = NgramBuckets(min_n, max_n, bucket, kept)
    rows, counts = ngrams.rows(words)
    for word, found in zip(
        words, np.split(rows, np.cumsum(counts)[:-1]), strict=True
    ):
        wanted = buckets_plain(word, min_n, max_n, bucket)
        if kept is not None:
            found = np.array(kept)[found]
            wanted = [bucket for bucket in wanted if bucket in kept]
        assert sorted(found) == sorted(wanted), word


def test_weights_of_ngrams():
    ngrams, weights = NgramBuckets(2, 3, 60), np.zeros(60)
    for word in WORDS:
        found = buckets_plain(word, 2, 3, 60)
        np.add.at(weights, found, 2 / len(found) ** 2)
    found = ngrams.weights(WORDS, np.full(ROWS, 2.0))
    np.testing.assert_allclose(found, weights)


@pytest.fixture(scope="module")
def vectors():
    """Words, the letters of which are most of what they mean."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(BUCKETS, WIDTH)).astype("float32")
    kept = np.sort(rng.choice(200, BUCKETS, replace=False))
    subwords = Subwords(2, 4, rows, 200, kept)
    own = 0.1 * rng.normal(size=(ROWS, WIDTH))
    return WordVectors(WORDS, own + subwords.vectors_of(WORDS), subwords)


@pytest.fixture(scope="module")
def learned(vectors):
    methods = Quantized(8), Codes(8, 16), Anchors(8, 4)
    return [
        CompressedVectors.learn(vectors, method, seed=0, verbose=0)
        for method in methods
    ]


def test_vectors_of_unknown_words(vectors, learned):
    wanted = np.array([mean_plain(x, vectors.subwords) for x in UNKNOWN])
    subwords = vectors.subwords
    # More than are hashed at once.
    found = subwords.vectors_of(UNKNOWN * 200)
    np.testing.assert_allclose(found, np.tile(wanted, (200, 1)), atol=1e-6)
    np.testing.assert_allclose(learned[0][UNKNOWN], wanted, atol=0.03)
    none = next(x for x in "abcdefgh" if not mean_plain(x, subwords).any())
    for small in learned:
        subwords = small.subwords()
        wanted = np.array([mean_plain(x, subwords) for x in UNKNOWN])
        np.testing.assert_allclose(small[UNKNOWN], wanted, atol=1e-5)
        np.testing.assert_allclose(small.get("words"), wanted[0], atol=1e-5)
        mixed = small[["word3", "words", "word9"]]
        np.testing.assert_allclose(mixed[1], wanted[0], atol=1e-5)
        np.testing.assert_allclose(mixed[[0, 2]], small.table()[[3, 9]])
        error = np.square(small.table() - vectors.vectors).sum()
        assert error < 0.4 * np.square(vectors.vectors).sum(), small.method
        assert small.table().shape == (ROWS, WIDTH) and len(small) == ROWS
        assert "words" in small and "words" not in small.key_to_index
        assert small.get(none) is None and none not in small
        assert 5 not in small
        assert f"{BUCKETS} n-grams" in repr(small)
        with pytest.raises(KeyError, match=f"or have n-grams that.*'{none}'"):
            small[["words", none]]
        with pytest.raises(KeyError, match=f"'{none}'"):
            small.most_similar(none)


def test_bytes_are_never_more(vectors):
    small = CompressedVectors.learn(vectors, max_bytes=3500, seed=0, verbose=0)
    assert small.nbytes <= 3500 and "words" in small


def test_layers_give_unknown_words_one_vector(learned):
    """Also where what stands for padding and unknown words has letters."""
    small = learned[0]
    with pytest.raises(ValueError, match="`mask_zero` must be False"):
        small.to_layers(mask_zero=True)
    lookup, embedding = small.to_layers()
    ids = lookup(["word3", "words", "other"]).numpy().tolist()
    assert ids == [4, 0, 0] and embedding.input_dim == ROWS + 1
    np.testing.assert_allclose(
        embedding(np.array([4]))[0], small["word3"], atol=1e-5
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of fastText, and its file."""
    fasttext = pytest.importorskip("gensim.models.fasttext")
    path = tmp_path_factory.mktemp("fasttext") / "model.bin"
    model = fasttext_model()
    fasttext.save_facebook_model(model, str(path))
    return fasttext.load_facebook_vectors(str(path)), path


def test_read_as_gensim_reads_them(model, tmp_path):
    keyed, path = model
    read = read_vectors(path, subwords=99, limit=4)
    assert read.words == keyed.index_to_key[:4]
    np.testing.assert_allclose(read.vectors, keyed.vectors[:4], atol=1e-7)
    subwords = read.subwords
    used = np.unique(np.concatenate(keyed.buckets_word))
    # Also those of words beyond the limit.
    np.testing.assert_array_equal(subwords.kept, used)
    np.testing.assert_array_equal(subwords.vectors, keyed.vectors_ngrams[used])
    whole = Subwords(keyed.min_n, keyed.max_n, keyed.vectors_ngrams)
    words = ["cats", "éclair", "日本語"]
    np.testing.assert_allclose(
        whole.vectors_of(words), [keyed.get_vector(x) for x in words], atol=1e-7
    )
    assert len(read_vectors(path, subwords=True, limit=4).subwords) == 4
    keyed.save(str(tmp_path / "model.kv"))
    read = read_vectors(tmp_path / "model.kv", format="gensim", subwords=99)
    np.testing.assert_array_equal(read.subwords.kept, used)


def test_bytes_of_words_that_are_not_utf_8(tmp_path):
    """Vectors are those that fastText makes of the bytes."""
    words = ["</s>", "the", "été", "naïve", "\xa0x", "£9"]
    raw = [word.encode("latin-1") for word in words]
    table = np.random.default_rng(0).normal(size=(46, WIDTH))
    path = tmp_path / "model.bin"
    wanted = write_fasttext(path, raw, table)
    wanted[0] = table[0]
    read = read_vectors(path, encoding="latin-1")
    assert read.words == words
    np.testing.assert_allclose(read.vectors, wanted, atol=1e-6)
    read = read_vectors(path, unicode_errors="replace", subwords=9)
    np.testing.assert_allclose(read.vectors, wanted, atol=1e-6)
    assert len(read.subwords) == 9
    with pytest.raises(ValueError, match="model.bin.*not in utf-8"):
        read_vectors(path)
    with refused("subwords"):
        read_vectors(path, encoding="latin-1", subwords=True)


def test_models_that_are_refused(model, tmp_path):
    _, path = model
    data = path.read_bytes()
    changed = tmp_path / "changed.bin"
    # The last of the options of fastText are bucket, minn and maxn.
    changed.write_bytes(data[:40] + struct.pack("<3i", 50, 0, 0) + data[52:])
    with pytest.raises(ValueError, match="no n-grams for `subwords`"):
        read_vectors(changed, subwords=True)
    write_fasttext(changed, [b"a"], np.eye(4), quantized=True)
    with pytest.raises(ValueError, match="quantized"):
        read_vectors(changed)
    changed.write_text("a 1 2\nb 3 4\n")
    with refused("subwords", "subwords=True"):
        read_vectors(changed, subwords=True)


def test_what_is_refused(vectors):
    for arguments, argument, received in (
        ((0, 3, np.eye(4)), "min_n", 0),
        ((3, 2, np.eye(4)), "max_n", 2),
        ((1, 2, np.eye(2), 9, [3, 3]), "kept", "[3, 3]"),
        ((1, 2, [[np.nan]]), "vectors", "row 0"),
    ):
        with refused(argument, received):
            Subwords(*arguments)
    with refused("subwords", "(90, 8)"):
        WordVectors(["a"], [[1, 2]], vectors.subwords)
