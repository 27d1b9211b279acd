"""`CompressedVectors`."""

import contextlib
import functools
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

import keras_compembed as kc
from keras_compembed import CodeEmbedding
from keras_compembed.compositions.composition import LinearComposition
from keras_compembed.learners import AdditiveQuantizer
from keras_compembed.methods import Anchors
from keras_compembed.methods import Codes
from keras_compembed.methods import Quantized
from keras_compembed.vectors import CompressedVectors
from keras_compembed.vectors import WordVectors

ROWS, WIDTH = 300, 24
WORDS = [f"word{row}" for row in range(ROWS)]
METHODS = [
    Codes(6, 16),
    Codes(4, 300, effort=0.2),
    Quantized(8),
    Quantized(4, block_size=9),
    Quantized(2, rank=9, scale_dtype="int16"),
    Anchors(20, 5),
]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(30, WIDTH))
    rows = centres[rng.integers(30, size=ROWS)]
    return (rows + 0.3 * rng.normal(size=rows.shape) + 0.5).astype("float32")


@pytest.fixture(scope="module")
def vectors(table):
    return WordVectors(WORDS, table)


@pytest.fixture(scope="module")
def learned(vectors):
    return {
        method.name: CompressedVectors.learn(vectors, method, seed=0, verbose=0)
        for method in METHODS
    }


@pytest.fixture(scope="module")
def given():
    """Of layers that were not learned, with the other compositions."""
    found = {}
    for composition in ("concat", "lstm"):
        layer = CodeEmbedding(ROWS, WIDTH, 5, 12, composition=composition)
        layer.build()
        found[composition] = CompressedVectors(WORDS, layer), layer
    return found


@pytest.fixture(params=[method.name for method in METHODS] + ["concat", "lstm"])
def small(request, learned, given):
    if request.param in given:
        return given[request.param][0]
    return learned[request.param]


def test_vectors_are_near_those_learned(learned, table):
    energy = np.square(table - table.mean(axis=0)).sum()
    for name, small in learned.items():
        error = np.square(small.table() - table).sum()
        assert error < 0.5 * energy, name


def test_vectors_are_those_of_the_layer(given):
    for small, layer in given.values():
        table = np.array(layer.embeddings)
        # Half a step of eight bits, of each codeword.
        np.testing.assert_allclose(small.table(), table, atol=0.01)


def test_look_ups(small):
    whole = small.table()
    assert whole.shape == (ROWS, WIDTH) and whole.dtype == "float32"
    np.testing.assert_allclose(small["word7"], whole[7], atol=1e-6)
    words = ["word9", "word2", "word9"]
    np.testing.assert_allclose(small[words], whole[[9, 2, 9]], atol=1e-6)
    assert small[[]].shape == (0, WIDTH)
    assert "word3" in small and "other" not in small and 3 not in small
    assert len(small) == ROWS and small.vector_size == WIDTH
    assert small.get("other", 5) == 5
    assert list(small) == small.words == small.index_to_key == WORDS
    assert small.key_to_index["word20"] == 20
    parts = small.bytes_by_part
    assert sum(parts.values()) == small.nbytes
    assert parts["words"] < 900 and 500 < parts["besides"] < 4000


def check_neighbors(found, wanted):
    """Words of nearly equal cosines may change places."""
    assert len(found) == len(wanted)
    np.testing.assert_allclose(
        [x for _, x in found], [x for _, x in wanted], atol=2e-6
    )
    cosines = dict(found)
    for word, cosine in wanted[:-1]:
        assert cosines.get(word, cosine) == pytest.approx(cosine, abs=2e-6)


def test_same_as_gensim(small):
    models = pytest.importorskip("gensim.models")
    keyed = models.KeyedVectors(WIDTH)
    keyed.add_vectors(WORDS, small.table())
    for options in (
        {"positive": "word5"},
        {"positive": ["word5", "word9"], "negative": "word30", "topn": 20},
        {"positive": np.arange(WIDTH, dtype="float32"), "topn": 3},
        {"positive": ["word1", small["word8"]], "restrict_vocab": 40},
        {"positive": [("word1", 2.0), "word7"], "negative": [("word8", -3)]},
        {"negative": ["word2"], "topn": ROWS},
    ):
        wanted = keyed.most_similar(**options)
        found = small.most_similar(**options)
        check_neighbors(found, wanted)
    assert small.similarity("word1", "word2") == pytest.approx(
        float(keyed.similarity("word1", "word2")), abs=1e-6
    )
    ours = small.as_keyed_vectors()
    np.testing.assert_allclose(ours["word5"], small["word5"], atol=1e-6)


def test_many_of_more_than_are_looked_at_at_once():
    """Parts of 32,768 rows, and of 128 queries."""
    rows, width = 40_000, 32
    table = np.random.default_rng(1).normal(size=(rows, width))
    layer = kc.QuantizedEmbedding.from_table(table, 8, verbose=0)
    words = [f"w{row}" for row in range(rows)]
    small = CompressedVectors(words, layer)
    table = small.table()
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    asked = np.arange(0, rows, rows // 130)
    for limit in (None, 32_770, 99):
        cosines = table[asked] @ table[:limit].T
        for query, row in enumerate(asked):
            cosines[query, row : row + 1] = -1
        found = small.most_similar_many(
            [words[row] for row in asked], topn=2, restrict_vocab=limit
        )
        assert len(found) == len(asked)
        for pairs, own in zip(found, cosines, strict=True):
            best = np.argsort(-own)[:2]
            check_neighbors(pairs, [(words[x], own[x]) for x in best])
    assert small.most_similar_many([]) == []


def test_saved_and_loaded(small, tmp_path):
    path = tmp_path / "small.npz"
    small.save(path)
    assert path.stat().st_size == small.nbytes
    loaded = CompressedVectors.load(path)
    assert loaded.words == WORDS
    np.testing.assert_array_equal(loaded.table(), small.table())
    check_neighbors(loaded.most_similar("word4"), small.most_similar("word4"))
    again = tmp_path / "again.npz"
    loaded.save(again)
    assert again.read_bytes() == path.read_bytes()
    with np.load(path, allow_pickle=False) as arrays:
        assert "header" in arrays and "words" in arrays
    with pytest.raises(FileExistsError, match="small.npz"):
        small.save(path)
    loaded.save(path, overwrite=True)


@pytest.mark.parametrize("mask_zero", [False, True])
def test_layers(small, mask_zero):
    lookup, embedding = small.to_layers(mask_zero=mask_zero)
    words = np.array([["word0", "word299", "?"], ["word7", "word7", "word1"]])
    ids = lookup(words)
    found = embedding(ids)
    known = small[["word0", "word299", "word7", "word1"]]
    flat = np.reshape(found, (-1, WIDTH))[[0, 1, 3, 5]]
    np.testing.assert_allclose(flat, known, atol=1e-5)
    assert int(ids[0, 2]) == mask_zero
    if mask_zero:
        assert lookup(["", "word0"]).numpy().tolist() == [0, 2]
        mask = embedding.compute_mask(lookup([["word0", ""]]))
        assert np.array(mask).tolist() == [[True, False]]
    mean = small.table().mean(axis=0)
    # The mean takes steps of the largest row's.
    unknown = np.square(np.array(found)[0, 2] - mean).sum()
    assert unknown <= np.square(small.table() - mean).sum(axis=1).min() + 1e-6


def test_bytes_are_never_more(vectors):
    sizes = []
    for max_bytes, limit in (("4.5 kB", 4500), ("20k", 20_000)):
        small = CompressedVectors.learn(
            vectors, max_bytes=max_bytes, seed=0, verbose=0
        )
        assert small.nbytes <= limit
        sizes.append(small.nbytes)
    assert 8000 < sizes[1] > sizes[0]
    with refused("max_bytes", 100) as caught:
        CompressedVectors.learn(vectors, max_bytes=100, verbose=0)
    least = str(caught.value).split("at least ")[1].split(" ")[0]
    least = int(least.replace(",", ""))
    small = CompressedVectors.learn(vectors, max_bytes=least, verbose=0)
    assert 1000 < small.nbytes <= least < 5000
    codes = Codes(6, 16)
    with refused("max_bytes", 2000):
        CompressedVectors.learn(vectors, codes, max_bytes=2000, verbose=0)


def test_layers_in_a_model(learned):
    small = learned["int2 rank 9"]
    lookup, embedding = small.to_layers(mask_zero=True)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="string"),
            lookup,
            embedding,
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(2),
        ]
    )
    texts = tf.constant([["word3", "word5", ""], ["word9", "never", "word1"]])
    model.compile("adam", "mse")
    before = np.array(embedding.embeddings)
    model.fit(texts, np.zeros((2, 2)), epochs=2, verbose=0)
    assert not np.allclose(embedding.embeddings, before)
    trained = CompressedVectors(["", "<unk>", *WORDS], model.layers[1])
    # Of eight bits again.
    np.testing.assert_allclose(trained.table(), embedding.embeddings, atol=0.05)


def test_layers_of_odd_words():
    layer = kc.QuantizedEmbedding.from_table(np.eye(4), verbose=0)
    small = CompressedVectors(["", "[UNK]", "[UNK]_", "a\x85b"], layer)
    with refused("mask_zero", True):
        small.to_layers(mask_zero=True)
    lookup, embedding = small.to_layers(unknown="[UNK]")
    ids = lookup(["a\x85b", "[UNK]", "other", ""])
    assert ids.numpy().tolist() == [4, 2, 0, 1]
    found = np.array(embedding(ids))
    np.testing.assert_allclose(found, np.eye(4)[[3, 1, 1, 0]], atol=1e-6)
    # Half a character.
    layer = kc.QuantizedEmbedding.from_table(np.eye(2), verbose=0)
    with refused(None, r"word 1='\ud800'"):
        CompressedVectors(["b", "\ud800"], layer).to_layers()


def test_what_is_refused(vectors):
    learn, codes = CompressedVectors.learn, np.zeros((2, 32), int)
    with refused("vectors", error=TypeError):
        learn(vectors.vectors)
    for method in "codes", kc.methods.Pruned(0.5):
        with refused("method", error=TypeError):
            learn(vectors, method)
    with refused("max_bytes", "2 T"):
        learn(vectors, max_bytes="2 T")
    with pytest.raises(ValueError):
        learn(WordVectors(["a", "b"], [[1e30], [1.0]]), max_bytes=3000)
    for words, layer, error in (
        (["a"], CodeEmbedding(1, 2), ValueError),
        (["a"], CodeEmbedding(2, 2, codes=codes), ValueError),
        ("ab", None, TypeError),
        ([], None, TypeError),
    ):
        with refused(error=error):
            CompressedVectors(words, layer)
    for words, rows, error, received in (
        (["a"], 2, ValueError, "words=1, rows=2"),
        (["a", "b", "a"], 3, ValueError, "row 2='a'"),
        (["a", 5], 2, TypeError, "5"),
        ({"a", "b"}, 2, ValueError, "set"),
    ):
        with refused("words", received, error):
            WordVectors(words, np.ones((rows, 3)))
    with refused("vectors", "row 1"):
        WordVectors(["a", "b"], np.array([[1.0], [np.nan]]))


def test_queries_that_are_refused(learned):
    small = learned["int8"]
    words = ["word1", "word2"]
    assert small.most_similar(np.array(words)) == small.most_similar(words)
    for query, argument, received in (
        ({}, "positive", "words=0"),
        ({"positive": np.full(WIDTH, np.nan)}, None, "nan"),
        ({"positive": "word1", "topn": 0}, "topn", 0),
    ):
        with refused(argument, received):
            small.most_similar(**query)
    for queries, error, received in (
        ("word1", TypeError, "'word1'"),
        (["word1", 5], TypeError, "1 words among 2"),
        (np.ones((2, 3)), ValueError, "shape=(3,)"),
    ):
        with refused(None, received, error):
            small.most_similar_many(queries)
    with refused("path", "'small.txt'"):
        small.save("small.txt")
    with refused(None, "5", TypeError):
        small[5]
    with refused(None, "'Word7'", KeyError):
        small["Word7"]
    assert small.most_similar("word0", restrict_vocab=1) == []


def test_zeros_have_no_direction():
    layer = kc.QuantizedEmbedding.from_table(
        np.array([[0.0, 0], [1, 0], [0, 1]]), verbose=0
    )
    small = CompressedVectors(["zero", "a", "b"], layer)
    assert small.similarity("zero", "a") == 0
    assert dict(small.most_similar("a")) == {"b": 0.0, "zero": 0.0}
    assert dict(small.most_similar("zero")) == {"a": 0.0, "b": 0.0}
    assert small.most_similar("a", "a", topn=5)[0][1] == 0


def test_vectors_whose_squares_are_infinite(learned):
    small = learned["int8"]
    far = small["word3"].astype("float64") * 1e38
    expected = dict(small.most_similar(small["word3"], topn=5))
    for found in (
        small.most_similar(far, topn=5),
        small.most_similar_many(far[None], topn=5)[0],
    ):
        assert dict(found) == pytest.approx(expected, abs=1e-6)
    with refused(None, "inf"):
        small.most_similar(far * 1e10)


def test_learned_with_an_lstm(vectors):
    """Its vectors are in units of the table."""
    learner = functools.partial(
        kc.learners.KDCodeLearner,
        composition="lstm",
        training=kc.learners.Training(20),
        seed=0,
        verbose=0,
    )
    method = Codes(4, 8, "lstm", learner)
    small = CompressedVectors.learn(vectors, method, verbose=0)
    layer = method.start().from_table(vectors.vectors)
    np.testing.assert_allclose(small.table(), layer.embeddings, atol=0.1)


def test_what_cannot_be_stored_is_not_learned(vectors, monkeypatch):
    @keras.saving.register_keras_serializable("test_vectors")
    class Own(LinearComposition):
        pass

    monkeypatch.setattr(kc.learners.KDCodeLearner, "train", None)
    with refused(None, "Own"):
        CompressedVectors.learn(vectors, Codes(4, 8, Own()))


def test_interrupt_in_the_search(vectors, monkeypatch, tmp_path):
    train = AdditiveQuantizer.train
    calls = []

    def interrupted(self, table, sample_weight=None):
        calls.append(signal.raise_signal)
        # A learner that answers Ctrl-C itself.
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return train(self, table, sample_weight)

    monkeypatch.setattr(AdditiveQuantizer, "train", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        small = CompressedVectors.learn(vectors, max_bytes=6000, verbose=0)
    finally:
        signal.signal(signal.SIGINT, before)
    # One in the search, and perhaps one for the best that it measured.
    assert 1 <= len(calls) <= 2
    small.save(tmp_path / "small.npz")
    assert (tmp_path / "small.npz").stat().st_size <= 6000
