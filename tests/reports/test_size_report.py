import json

import keras
import numpy as np
import pytest
from errors import refused

import keras_compembed as kc
from keras_compembed import ANTEmbedding
from keras_compembed import CodeEmbedding
from keras_compembed import SparseEmbedding
from keras_compembed import size_report

GLOVE = (75102, 300)
# Shu & Nakayama, Table 2, right; rows K = 8, 16, 32, 64, columns M.
TABLE_2 = {
    8: {8: "0.28", 16: "0.57", 32: "1.15", 64: "2.30"},
    16: {8: "0.43", 16: "0.86", 32: "1.73", 64: "3.46"},
    32: {8: "0.65", 16: "1.30", 32: "2.60", 64: "5.20"},
    64: {8: "1.01", 16: "2.03", 32: "4.06", 64: "8.12"},
}
# Table 3: M, K, MB of the vectors, bits of a code, MB in all.
TABLE_3 = [
    (8, 8, "0.07", 24, "0.28"),
    (16, 8, "0.14", 48, "0.57"),
    (16, 32, "0.58", 80, "1.30"),
    (64, 8, "0.58", 192, "2.30"),
]


def printed_mb(count):
    """MB of 2**20 bytes cut off after two digits, as the paper prints."""
    hundredths = int(count * 100) // 2**20
    return f"{hundredths // 100}.{hundredths % 100:02d}"


def one_row(*args, **kwargs):
    (row,) = size_report(CodeEmbedding(*args, **kwargs)).embeddings
    return row


def count_bytes(weights):
    return sum(keras.ops.convert_to_numpy(weight).nbytes for weight in weights)


def test_tables_of_the_paper():
    for k, line in TABLE_2.items():
        for m, mb in line.items():
            row = one_row(*GLOVE, m, k)
            assert printed_mb(row.exact_bytes) == mb
            # Every code of Table 2 fills whole bytes.
            assert row.stored_bytes == row.exact_bytes
    for m, k, vector_mb, bits, total_mb in TABLE_3:
        row = one_row(*GLOVE, m, k)
        assert printed_mb(row.parts["codebooks"]) == vector_mb
        assert row.code_bits == bits
        assert printed_mb(row.exact_bytes) == total_mb
        assert printed_mb(row.table_bytes) == "85.94"
    # "achieving a reduction rate of 98.4%" (cut off).
    assert 0.984 < 1 - 1 / one_row(*GLOVE, 16, 32).ratio < 0.985


def text_model():
    inputs = keras.Input((None,), dtype="int32")
    tokens = CodeEmbedding(1000, 8, 4, 16, name="tokens")
    other = keras.layers.Embedding(50, 8, name="kinds")
    vectors = tokens(inputs) + other(inputs) + tokens(inputs[:, ::-1])
    return keras.Model(inputs, keras.layers.Dense(3)(vectors))


def test_model_with_shared_layer_and_table_left():
    model = text_model()
    report = size_report(model)
    tokens, kinds = report.embeddings
    assert tokens.name == "tokens"
    assert tokens.parts == {"codes": 1000 * 2, "codebooks": 4 * 16 * 8 * 4}
    assert (kinds.name, kinds.stored_bytes, kinds.ratio) == ("kinds", 1600, 1)
    assert kinds.code_bits is None and kinds.exact_bytes is None
    assert report.embedding_bytes == 2000 + 2048 + 1600
    assert report.table_bytes == 32000 + 1600
    assert report.other_bytes == 4 * (8 * 3 + 3)
    assert report.total_bytes == 5648 + 108
    assert report.ratio == 33600 / 5648
    assert report.total_bytes == count_bytes(model.weights)
    # A dict for JSON, here with a reference of one of the tables.
    table = np.random.default_rng(0).normal(size=(1000, 8))
    figures = size_report(model, reference=table).to_dict()
    figures = json.loads(json.dumps(figures, allow_nan=False))
    assert figures["embedding_bytes"] == report.embedding_bytes
    tokens, kinds = figures["embeddings"]
    assert tokens["exact_bytes"] == 4048
    assert tokens["fidelity"]["num_neighbors"] == 10
    assert kinds["num_codebooks"] is None and kinds["fidelity"] is None


def test_nested_models_and_wrappers():
    inner = keras.Sequential(
        [keras.Input((5,)), CodeEmbedding(100, 4, 2, 4, name="embedding")],
        name="inner",
    )
    inputs = keras.Input((2, 5), dtype="int32")
    outputs = keras.layers.TimeDistributed(inner, name="each")(inputs)
    outputs += CodeEmbedding(30, 4, 2, 4, name="embedding")(inputs)
    report = size_report(keras.Model(inputs, outputs))
    assert sorted((row.name, row.input_dim) for row in report.embeddings) == [
        ("each/inner/embedding", 100),
        ("embedding", 30),
    ]


def anchor_embedding(num_rows=1000, num_anchors=20, **kwargs):
    """A layer with two non-zeros in each second row."""
    layer = ANTEmbedding(num_rows, 8, num_anchors=num_anchors, **kwargs)
    layer.build()
    transform = np.zeros((num_rows, num_anchors))
    transform[::2, :2] = 1.5
    layer.assign_transform(transform)
    return layer


def test_anchors():
    layer = anchor_embedding(transform="lazy", name="tokens")
    (row,) = size_report(layer).embeddings
    assert (row.num_anchors, row.num_nonzeros) == (20, 1000)
    assert row.num_values == 1000 + 20 * 8
    # Columns, values, and an offset of four bytes a row.
    rows = 1000 + 4000 + 4 * 1001
    assert row.parts == {"sparse rows": rows, "anchors": 20 * 8 * 4}
    assert row.stored_bytes == row.id_bytes + 640
    assert (row.table_bytes, row.table_int8_bytes) == (32_000, 8000)
    assert row.exact_bytes is None and row.code_bits is None
    assert "1,000 non-zeros, 1 per row" in str(size_report(layer))


@pytest.mark.parametrize("learn_rows", [False, True])
def test_rounded_rows(learn_rows):
    layer = kc.QuantizedEmbedding(
        1000, 30, 4, rank=15, learn_rows=learn_rows, name="words"
    )
    if not learn_rows:
        layer.build()
    report = size_report(layer)
    (row,) = report.embeddings
    assert row.stored_as == "int4 rank 15"
    sizes = [1000 * 8, 1000 + 4 + 4 * 15, 4 * 15 * 30]
    assert list(row.parts.values()) == sizes
    assert row.id_bytes == 9064 and row.shared_bytes == 1800
    assert row.stored_bytes == sum(sizes) == report.to_dict()["total_bytes"]
    if not learn_rows:
        assert count_bytes(layer.weights) == row.stored_bytes


def test_other_layers_that_look_up():
    table = np.random.default_rng(0).normal(size=(60, 8))
    layer = SparseEmbedding(60, 8, 0.8)
    anchors = ANTEmbedding(100, 8, num_anchors=5, name="words")
    for each in (layer, anchors):
        with refused("model", each.name):
            size_report(each)
    layer.build()
    report = size_report(layer, table)
    (row,) = report.embeddings
    assert row.stored_as == "SparseEmbedding"
    assert row.parts == {"weights": count_bytes(layer.weights)}
    assert row.fidelity.relative_squared_error > 0
    assert "SparseEmbedding" in str(report) and "relative error" in str(report)


def test_tables_that_keras_quantized():
    layer = keras.layers.Embedding(100, 8)
    layer.build()
    layer.quantize("int8")
    report = size_report(layer)
    # One int8 a value and a float32 scale a row.
    assert report.embedding_bytes == 100 * 8 + 100 * 4
    assert report.table_bytes == 3200


def test_no_embeddings():
    dense = keras.layers.Dense(3)
    assert str(size_report(dense)).endswith("not built yet")
    dense.build((None, 2))
    report = size_report(dense)
    assert report.ratio is None
    assert (report.embedding_bytes, report.total_bytes) == (0, 36)
    assert str(report) == "No embedding layers; all weights: 36 bytes"


def exact_codes():
    """A layer, and the table that it holds without error."""
    rng = np.random.default_rng(0)
    layer = CodeEmbedding(
        300,
        6,
        2,
        16,
        codes=rng.integers(16, size=(300, 2)),
        codebooks=rng.normal(size=(2, 16, 6)),
        name="tokens",
    )
    return layer, layer.embeddings


def test_reference_table():
    layer, table = exact_codes()
    (row,) = size_report(layer, reference=table).embeddings
    assert row.fidelity.mean_squared_distance == 0
    (row,) = size_report(layer, reference=2 * table).embeddings
    assert row.fidelity.relative_squared_error == pytest.approx(0.25)
    assert row.fidelity.mean_cosine == pytest.approx(1)
    assert "relative error 0.250" in str(size_report(layer, 2 * table))
    # A layer of another name.
    original = keras.layers.Embedding(300, 6, weights=table, name="old")
    (row,) = size_report(layer, original).embeddings
    assert row.fidelity.mean_squared_distance == 0


def test_what_is_refused():
    coded, table = exact_codes()
    for reference, received in (
        (np.zeros((299, 6)), (299, 6)),
        (keras.layers.Embedding(300, 7, name="tokens"), (300, 7)),
    ):
        with refused("reference", received):
            size_report(coded, reference=reference)
    twice = keras.Sequential([coded, CodeEmbedding(300, 6, 2, 16)])
    with refused("reference", (300, 6)):
        size_report(twice, reference=table)
    with refused("model", "array"):
        size_report(np.zeros((3, 4)))


def test_tokenizer():
    pytest.importorskip("tensorflow_text")
    tokenizer = kc.text.WordTokenizer([f"word{i}" for i in range(100)])
    model = keras.Sequential(
        [
            keras.Input((), dtype="string"),
            tokenizer,
            keras.layers.Embedding(102, 4),
        ]
    )
    report = size_report(model)
    assert report.tokenizer_bytes == tokenizer.count_bytes() > 1000
    assert report.total_bytes == 4 * 4 * 102
    assert report.to_dict()["tokenizer_bytes"] == report.tokenizer_bytes
