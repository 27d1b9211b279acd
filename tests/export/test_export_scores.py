"""Scores from codes, and the best ids, in LiteRT files."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.export import scored_codes
from keras_compembed.export.export_litert import export_litert

V, D = 203, 12
SIZES = [
    # Bits that share bytes, fill them, cross them, and take two.
    ("sum", (5, 2)),
    ("sum", (5, 4)),
    ("sum", (3, 10)),
    ("linear", (4, 16)),
    ("sum", (3, 40)),
    ("sum", (3, 256)),
    ("concat", (5, 16)),
    ("concat", (4, 256)),
    ("sum", (2, 300)),
    ("lstm", (3, 16)),
    (kc.compositions.ScaledComposition("concat"), (3, 16)),
]


@pytest.fixture(params=["one chunk", "chunks", "words"])
def chunks(request, monkeypatch):
    if request.param != "one chunk":
        monkeypatch.setattr(scored_codes, "_CHUNK", 64)
    if request.param == "words":
        monkeypatch.setattr(scored_codes, "_WORD_ROWS", 10)


def items(composition="sum", shape=(4, 16), rows=V, seed=1, **kwargs):
    initializer = keras.initializers.RandomNormal(seed=seed)
    layer = kc.CodeEmbedding(
        rows,
        D,
        *shape,
        composition,
        codebooks_initializer=initializer,
        seed=seed,
        **kwargs,
    )
    layer.build()
    return layer


def two_towers(table, batch_size=None):
    """Users in, logits of items out."""
    users = keras.Input((3,), batch_size=batch_size, dtype="int32")
    vectors = keras.layers.Embedding(50, D, name="users")(users)
    query = keras.layers.GlobalAveragePooling1D()(vectors)
    query = keras.layers.Dense(D, name="query")(query)
    return keras.Model(users, table(query, reverse=True))


def run(model, path, batches=(1, 3), k=None, **kwargs):
    """The file's and the model's answers for some batches."""
    export = export_litert(model, path, top_k=k, verbose=0, **kwargs)
    assert not any("CUSTOM" in op for op in export.ops)
    litert = kc.export.LiteRTModel(path)
    if k is not None:
        model = kc.top_k_model(model, k)
    pairs = []
    for rows in batches:
        users = np.random.default_rng(rows).integers(50, size=(rows, 3))
        users = users.astype("int32")
        pairs.append((litert(users), model.predict(users, verbose=0)))
    return export, pairs


@pytest.mark.parametrize("batch_size", [None, 1])
def test_two_towers_of_every_code(batch_size, tmp_path, monkeypatch):
    """Logits and best ids, for all codes in one file."""
    monkeypatch.setattr(scored_codes, "_CHUNK", 64)
    if batch_size == 1:
        monkeypatch.setattr(scored_codes, "_WORD_ROWS", 10)
    users = keras.Input((3,), batch_size=batch_size, dtype="int32")
    query = keras.layers.Flatten()(keras.layers.Embedding(50, 4)(users))
    tables = [items(*size) for size in SIZES]
    outputs = {
        f"logits_{place}": table(query, reverse=True)
        for place, table in enumerate(tables)
    }
    model = keras.Model(users, outputs)
    for k in (None, 7) if batch_size is None else (7,):
        path = tmp_path / f"{k}.tflite"
        batches = (1, 4) if batch_size is None else (1,)
        export, pairs = run(model, path, batches, k)
        for got, expected in pairs:
            for name, wanted in expected.items():
                if name.endswith("ids"):
                    np.testing.assert_array_equal(got[name], wanted)
                else:
                    np.testing.assert_allclose(got[name], wanted, atol=2e-5)
        held = export.held_layers if k is None else export.not_held_layers
        assert {table.name for table in tables} <= set(held)


def test_file_holds_codes_and_no_table(tmp_path):
    """A byte for two subcodes, the codebooks, the users and some ops."""
    table = items(rows=70_000)
    path = tmp_path / "model.tflite"
    export, ((got, expected),) = run(two_towers(table), path, (2,), 10)
    np.testing.assert_array_equal(got["ids"], expected["ids"])
    weights = 4 * (4 * 16 * D + 50 * D + D * D + D)
    assert export.file_bytes < 2 * 70_000 + weights + 20_000


@pytest.mark.parametrize("quantize", ["float16", "int8", "int8_codebooks"])
def test_quantized(quantize, tmp_path):
    path = tmp_path / "model.tflite"
    export, ((got, expected),) = run(
        two_towers(items()), path, (3,), 5, quantize=quantize
    )
    scale = np.abs(expected["scores"]).max()
    bound = {"float16": 2e-3}.get(quantize, 0.05)
    assert np.abs(got["scores"] - expected["scores"]).max() < bound * scale


def test_words_in_older_runtimes(tmp_path, monkeypatch):
    monkeypatch.setattr(scored_codes, "_WORD_ROWS", 10)
    path = tmp_path / "model.tflite"
    model = two_towers(items(shape=(3, 16)), batch_size=1)
    export, ((got, expected),) = run(model, path, (1,), 5, min_runtime="2.17")
    np.testing.assert_array_equal(got["ids"], expected["ids"])


def test_language_model_stores_codes_once(tmp_path, chunks):
    """Rows that are looked up are read for logits too."""
    table = items(shape=(4, 256))
    ids = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Dense(D)(table(ids))
    model = keras.Model(ids, table(hidden, reverse=True))
    path = tmp_path / "model.tflite"
    export, pairs = run(model, path, (1, 2), 6)
    for got, expected in pairs:
        assert got["ids"].shape == expected["ids"].shape
        np.testing.assert_array_equal(got["ids"], expected["ids"])
        np.testing.assert_allclose(got["scores"], expected["scores"], atol=1e-5)
    with open(path, "rb") as file:
        content = file.read()
    assert content.count(table.codes[:40].tobytes()) == 1
    assert export.not_held_layers == (table.name,)


@pytest.mark.parametrize("tie_weights", [True, False])
def test_reversible(tie_weights, tmp_path):
    table = kc.ReversibleCodeEmbedding(
        V, D, 4, 16, tie_weights=tie_weights, logit_soft_cap=2.0, seed=0
    )
    ids = keras.Input((3,), dtype="int32")
    model = keras.Model(ids, table(table(ids), reverse=True))
    _, ((got, expected),) = run(model, tmp_path / "model.tflite", (2,), 5)
    np.testing.assert_array_equal(got["ids"], expected["ids"])
    np.testing.assert_allclose(got["scores"], expected["scores"], atol=1e-6)


def test_anchors(tmp_path):
    table = kc.ANTEmbedding(V, D, 8, seed=0)
    table.build()
    model = two_towers(table)
    _, pairs = run(model, tmp_path / "model.tflite", (1, 3), 5)
    for got, expected in pairs:
        np.testing.assert_array_equal(got["ids"], expected["ids"])


def test_ties_go_to_lower_ids(tmp_path, chunks):
    codes = np.zeros((V, 2), "int32")
    codes[[7, 90, 150, 151]] = 1
    table = items(shape=(2, 2), codes=codes)
    table.codebooks.assign(np.tile([[[0.0], [1.0]]], (2, 1, D)))
    vectors = keras.Input((D,))
    model = keras.Model(vectors, table(vectors, reverse=True))
    path = tmp_path / "model.tflite"
    export_litert(model, path, top_k=6, verbose=0)
    got = kc.export.LiteRTModel(path)(np.ones((2, D), "float32"))
    np.testing.assert_array_equal(got["ids"], [[7, 90, 150, 151, 0, 1]] * 2)


def test_more_vectors_than_columns_compose_rows(tmp_path):
    table = items()
    vectors = keras.Input((D + 1, D), batch_size=1)
    model = keras.Model(vectors, table(vectors, reverse=True))
    path = tmp_path / "model.tflite"
    export_litert(model, path, verbose=0)
    inputs = np.random.default_rng(0).normal(size=(1, D + 1, D))
    inputs = inputs.astype("float32")
    got = kc.export.LiteRTModel(path)(inputs)
    np.testing.assert_allclose(got, model(inputs), atol=2e-5)


@pytest.mark.parametrize("k", [0, V + 1, True, "ten"])
def test_k_out_of_range(k, tmp_path):
    path = tmp_path / "model.tflite"
    with pytest.raises(ValueError, match=f"`k` must be .* from 1 to {V}"):
        export_litert(two_towers(items()), path, top_k=k, verbose=0)
    assert not path.exists()


def test_what_follows_logits(tmp_path):
    model = two_towers(items())
    shares = keras.layers.Activation("softmax", name="shares")(model.output)
    with pytest.raises(ValueError, match="such as a softmax: .*'shares'"):
        export_litert(
            keras.Model(model.input, shares),
            tmp_path / "model.tflite",
            top_k=3,
            verbose=0,
        )


def test_every_way_gives_what_numpy_gives():
    """In a graph too, where the converter knows nothing yet."""
    table = items(shape=(3, 10))
    lookup = kc.export.code_lookup.TracedLookup(table)
    vectors = np.random.default_rng(0).normal(size=(2, D)).astype("float32")
    expected = vectors @ np.asarray(table.embeddings).T
    for is_looked_up in (False, True):
        chunks = lookup.scores.chunks(tf.constant(vectors), is_looked_up)
        got = tf.concat(list(chunks), axis=1)
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_parts_of_vectors_in_units_are_as_short_as_they_are(tmp_path):
    table = kc.CodeEmbedding(
        V, 63, 7, 64, composition=kc.compositions.ScaledComposition("concat")
    )
    table.build()
    rng = np.random.default_rng(0)
    for weight in table.trainable_weights:
        weight.assign(rng.normal(size=weight.shape))
    queries = keras.Input((63,))
    model = keras.Model(queries, table(queries, reverse=True))
    path = tmp_path / "model.tflite"
    export = export_litert(model, path, verbose=0)
    assert export.held_layers == (table.name,)
    assert export.file_bytes < 8 * V + 4 * 64 * 63 + 20_000
