"""Embeddings to compare with, against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from benchmarks.baselines import DeepHashEmbedding
from benchmarks.baselines import HashEmbedding
from benchmarks.baselines import QuotientRemainderEmbedding
from benchmarks.baselines import TensorTrainEmbedding
from benchmarks.baselines import Word2KetEmbedding
from benchmarks.baselines import methods
from benchmarks.baselines.hash_embedding import PRIME
from benchmarks.baselines.hash_embedding import hash_ids

IDS, WIDTH = 400, 24
CASES = {
    "hash": (HashEmbedding, (60,), {}),
    "hash-shared": (HashEmbedding, (60, 3), {"num_importances": 50}),
    "multiply": (QuotientRemainderEmbedding, (30,), {}),
    "add": (QuotientRemainderEmbedding, (30, "add"), {}),
    "concat": (QuotientRemainderEmbedding, (30, "concat"), {}),
    "tensor-train": (TensorTrainEmbedding, (6,), {}),
    "word2ket": (Word2KetEmbedding, (2, 5), {}),
    "word2ket-3": (Word2KetEmbedding, (3, 4), {}),
    "deep-hash": (DeepHashEmbedding, (48, (16, 12)), {}),
    "deep-hash-linear": (DeepHashEmbedding, (48, ()), {}),
}
EVERY = pytest.mark.parametrize("case", CASES)


def make(case, **kwargs):
    cls, settings, options = CASES[case]
    return cls(IDS, WIDTH, *settings, seed=0, **options).in_layer(**kwargs)


@pytest.fixture(scope="module")
def trained():
    """A layer of each case within a model, trained for a step."""
    known = {}

    def train(case):
        if case not in known:
            layer = make(case, mask_zero=True, name="words")
            inputs = keras.Input((None,), dtype="int32")
            model = keras.Model(inputs, layer(inputs))
            model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
            ids = np.arange(IDS, dtype="int32").reshape(4, -1)
            targets = np.random.default_rng(0).normal(size=(*ids.shape, WIDTH))
            before = [weight.numpy() for weight in layer.weights]
            model.fit(ids, targets, batch_size=2, verbose=0)
            for weight, old in zip(layer.weights, before, strict=True):
                same = np.array_equal(weight.numpy(), old)
                assert same != weight.trainable, weight.path
            known[case] = model, layer
        return known[case]

    return train


def rows_of(layer):
    return keras.ops.convert_to_numpy(layer(np.arange(layer.input_dim)))


def hashed(identity, hashes, size):
    """Exact, in Python's own integers."""
    a, b = np.asarray(hashes).tolist()
    return [
        (x * identity + y) % PRIME % size for x, y in zip(a, b, strict=True)
    ]


def hash_row(store, identity):
    hashes = store.hashes.numpy()
    places = hashed(identity, hashes[:, : store.num_hashes], store.num_rows)
    owner = identity
    if store.num_importances:
        (owner,) = hashed(
            identity, hashes[:, store.num_hashes :], store.num_importances
        )
    return store.importances.numpy()[owner] @ store.shared_rows.numpy()[places]


def quotient_remainder_row(store, identity):
    quotient, remainder = divmod(identity, store.num_remainders)
    first = store.quotients.numpy()[quotient]
    second = store.remainders.numpy()[remainder]
    if store.operation == "concat":
        return np.concatenate([first, second])
    return first * second if store.operation == "multiply" else first + second


def tensor_train_row(store, identity):
    row = np.ones((1, 1))
    for k, place in enumerate(np.unravel_index(identity, store.row_factors)):
        core = (
            store.cores[k]
            .numpy()[place]
            .reshape(
                store.ranks[k], store.column_factors[k], store.ranks[k + 1]
            )
        )
        row = np.einsum("da,acb->dcb", row, core)
        row = row.reshape(-1, store.ranks[k + 1])
    return row[:, 0]


def word2ket_row(store, identity):
    places = np.unravel_index(identity, store.row_factors)
    row = 0
    for product in range(store.rank):
        vector = np.ones(1)
        for factor, place in zip(store.factors, places, strict=True):
            parts = factor.numpy()[place].reshape(store.rank, -1)
            vector = np.kron(vector, parts[product])
        row = row + vector
    return row


def deep_hash_row(store, identity):
    codes = hashed(identity, store.hashes.numpy(), store.num_buckets)
    vector = 2 * np.array(codes) / (store.num_buckets - 1) - 1
    last = len(store.hidden_units)
    for k in range(last + 1):
        kernel, bias = (
            getattr(store, f"kernel_{k}"),
            getattr(store, f"bias_{k}"),
        )
        vector = vector @ kernel.numpy() + bias.numpy()
        if k < last:
            # Mish.
            vector = vector * np.tanh(np.log1p(np.exp(vector)))
    return vector


REFERENCES = {
    HashEmbedding: hash_row,
    QuotientRemainderEmbedding: quotient_remainder_row,
    TensorTrainEmbedding: tensor_train_row,
    Word2KetEmbedding: word2ket_row,
    DeepHashEmbedding: deep_hash_row,
}


@EVERY
def test_rows_are_those_of_the_reference(case, trained):
    _, layer = trained(case)
    reference = REFERENCES[type(layer.store)]
    expected = [reference(layer.store, identity) for identity in range(IDS)]
    np.testing.assert_allclose(rows_of(layer), expected, rtol=1e-4, atol=1e-6)
    # Hash functions may take two ids for one.
    different = len(np.unique(np.round(expected, 6), axis=0))
    assert different >= (IDS if "hash" not in case else IDS - 4)


@pytest.mark.parametrize(
    ("case", "quantize"),
    [
        ("hash-shared", None),
        ("multiply", None),
        ("word2ket", None),
        ("tensor-train", "int8"),
        ("deep-hash", None),
    ],
)
def test_litert_file(case, quantize, trained, tmp_path):
    """All rows are as in Keras, and bytes are those that it says."""
    model, layer = trained(case)
    path = tmp_path / "model.tflite"
    export = kc.export_litert(model, path, quantize=quantize, verbose=0)
    assert not any(op.startswith(("FLEX", "CUSTOM")) for op in export.ops)
    assert {"LESS", "REDUCE_ALL"}.isdisjoint(export.ops)
    if quantize is None:
        assert export.max_error < 1e-5
        assert export.max_row_error < 1e-5 and export.held_layers == ("words",)
    found = kc.export.inspect_litert(path).constant_bytes
    assert 0 <= found - layer.store.litert_bytes(quantize) < 150


@pytest.mark.parametrize(
    "case", ["hash", "multiply", "tensor-train", "word2ket-3", "deep-hash"]
)
def test_training_composes_each_vector_once(case):
    """With the gradients of all of them."""
    layer = make(case)
    ids = tf.constant([[3, 3, 70], [0, 70, 3]])
    upstream = np.random.default_rng(0).normal(size=(2, 3, WIDTH))
    weights = [weight.value for weight in layer.trainable_weights]
    found = []
    for training in (True, False):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids, training=training) * upstream)
        found.append(tape.gradient(loss, weights))
    for gradient, exact in zip(*found, strict=True):
        if case in ("hash", "multiply"):
            rows = gradient.indices.numpy()
            assert len(set(rows)) == len(rows) <= 6
        exact = tf.convert_to_tensor(exact)
        size = np.abs(exact).max()
        np.testing.assert_allclose(
            tf.convert_to_tensor(gradient), exact, rtol=1e-5, atol=1e-5 * size
        )


@pytest.mark.parametrize("size", [7, 1_000_000, 1 << 24])
def test_hashes_are_exact(size):
    ids = np.array([0, 1, 12345, PRIME - 1], "int64")
    largest = np.array([[PRIME - 1, 1], [PRIME - 1, 0]])
    found = hash_ids(tf.constant(ids), tf.constant(largest), size)
    expected = [hashed(identity, largest, size) for identity in ids.tolist()]
    np.testing.assert_array_equal(found, expected)


TABLE = np.random.default_rng(3).normal(size=(IDS, WIDTH)).astype("float32")


def error(layer, table=TABLE, weight=1.0):
    return float(np.sum(weight * np.sum((rows_of(layer) - table) ** 2, axis=1)))


@pytest.mark.parametrize("case", ["hash", "hash-shared"])
def test_hash_fit_is_least_squares(case):
    """No rows are better for these importances, and no importances."""
    cls, settings, options = CASES[case]
    fit = {"seed": 0, **options}
    first = cls.from_table(TABLE, *settings, iterations=1, **fit)
    layer = cls.from_table(TABLE, *settings, iterations=15, **fit)
    assert error(layer) < error(first) < np.sum(TABLE**2)
    found = layer.store.places(tf.range(IDS))
    places, owners = (part.numpy() for part in found)
    matrix = np.zeros((IDS, layer.store.num_rows))
    own = layer.importances.numpy()[owners]
    np.add.at(matrix, (np.arange(IDS)[:, None], places), own)
    best = np.linalg.lstsq(matrix, TABLE, rcond=None)[0]
    assert error(layer) < 1.005 * np.sum((matrix @ best - TABLE) ** 2)


def test_quotient_remainder_fits_are_least_squares():
    # Sums of two: one system of equations for all columns.
    matrix = np.zeros((IDS, 44))
    matrix[np.arange(IDS), np.arange(IDS) // 30] = 1
    matrix[np.arange(IDS), 14 + np.arange(IDS) % 30] = 1
    best = np.linalg.lstsq(matrix, TABLE, rcond=None)[0]
    layer = QuotientRemainderEmbedding.from_table(TABLE, 30, "add")
    np.testing.assert_allclose(rows_of(layer), matrix @ best, atol=1e-4)
    # Products: matrices of rank 1, where no ids are missing.
    layer = QuotientRemainderEmbedding.from_table(TABLE, 20, iterations=200)
    best = sum(
        np.sum(np.linalg.svd(column, compute_uv=False)[1:] ** 2)
        for column in TABLE.reshape(20, 20, WIDTH).transpose(2, 0, 1)
    )
    assert error(layer) < 1.02 * best


def test_tensor_train_fit():
    # Exact where ranks suffice, with room for more ids too.
    for ids in (IDS, IDS - 7):
        layer = TensorTrainEmbedding.from_table(TABLE[:ids], 500, iterations=2)
        np.testing.assert_allclose(rows_of(layer), TABLE[:ids], atol=1e-4)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        (methods.Hashed(60), "hashed 60 rows x 2"),
        (methods.Hashed(60, 3, 9), "hashed 60 rows x 3, 9 importances"),
        (
            methods.QuotientRemainder(20),
            "quotient and remainder 20 multiply",
        ),
        (methods.TensorTrain(8), "tensor train rank 8"),
    ],
)
def test_methods(method, name):
    assert method.name == name
    layer = method.start(seed=0).from_table(TABLE)
    assert isinstance(layer.store, method.store)
    assert error(layer) < np.sum(TABLE**2)
    assert method.litert_bytes(IDS, WIDTH) == layer.store.litert_bytes()


def test_litert_quantizer_rounds_each_row():
    pytest.importorskip("litert_quantizer")
    from benchmarks.baselines.litert_quantizer import LiteRTQuantizer

    table = np.random.default_rng(0).normal(size=(50, 64)).astype("float32")
    for bits, highest in ((4, 7), (2, 1)):
        scales = np.abs(table).max(axis=1, keepdims=True) / highest
        integers = np.round(table / scales).clip(-highest - 1, highest)
        rows = LiteRTQuantizer(bits).rows(table)
        np.testing.assert_allclose(rows, integers * scales, atol=1e-5)
    assert LiteRTQuantizer(4).litert_bytes(50, 64) == 50 * (32 + 4 + 8)
