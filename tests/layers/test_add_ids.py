"""Layers whose vocabulary grows."""

import gc
import itertools

import keras
import numpy as np
import pytest
from errors import refused

import keras_compembed as kc
from keras_compembed.transforms import SparseRows
from keras_compembed.transforms.sparse_coding import sparse_code

ROWS, NEW, WIDTH = 120, 7, 8
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(ROWS, WIDTH)).astype("float32")
VECTORS = RNG.normal(size=(NEW, WIDTH)).astype("float32")
VECTORS /= np.abs(VECTORS).max()
IDS = RNG.integers(ROWS, size=(8, 5)).astype("int32")
MORE = RNG.integers(ROWS + NEW, size=(8, 5)).astype("int32")
MORE[0, 0] = ROWS + NEW - 1
TARGETS = RNG.normal(size=(8, 3)).astype("float32")


def codes(cls=kc.CodeEmbedding, **kwargs):
    def make():
        rng = np.random.default_rng(1)
        layer = cls(
            ROWS, WIDTH, 4, 8, codes=rng.integers(8, size=(ROWS, 4)), **kwargs
        )
        layer.codebooks.assign(rng.normal(size=layer.codebooks.shape))
        return layer

    return make


def anchors(cls=kc.ANTEmbedding, places=None, **kwargs):
    def make():
        layer = cls.from_table(
            TABLE, 12, 3, seed=0, iterations=1, verbose=0, **kwargs
        )
        if places is not None:
            layer.sparsify(trainable=places == "trained")
        return layer

    return make


def rounded(cls=kc.QuantizedEmbedding, **kwargs):
    return lambda: cls.from_table(TABLE, seed=0, verbose=0, **kwargs)


# Each with what it is trained by.
LAYERS = {
    "codes": (codes(), "adam"),
    "codes-linear": (codes(composition="linear"), "sgd"),
    "codes-follow": (codes(learn_codes="follow"), "averaging"),
    "anchors-fixed": (anchors(places="fixed"), "sgd"),
    "anchors-dense": (anchors(storage="dense"), "adam"),
    "anchors-lazy": (anchors(kc.ANTEmbedReduce, storage="lazy"), "sparse"),
    "anchors-sparse": (anchors(storage=SparseRows(4)), "scaled"),
    "int2-blocks": (rounded(bits=2, block_size=4), "sgd"),
    "int4-rank-learned": (rounded(bits=4, rank=3, learn_rows=True), "sparse"),
}


def optimizer(name):
    adam = keras.optimizers.Adam(0.01, use_ema=name == "averaging")
    if name == "sgd":
        return keras.optimizers.SGD(0.1)
    if name == "scaled":
        return keras.optimizers.LossScaleOptimizer(adam)
    return kc.optimizers.SparseRowOptimizer(adam) if name == "sparse" else adam


def fit(model, ids):
    model.fit(ids, TARGETS, batch_size=4, shuffle=False, verbose=0)


def build(name, run_eagerly=True):
    keras.utils.set_random_seed(0)
    make, optimizer_name = LAYERS[name]
    layer = make()
    parts = [keras.Input((5,), dtype="int32"), layer]
    if not hasattr(layer, "combiner"):
        parts.append(keras.layers.GlobalAveragePooling1D())
    model = keras.Sequential([*parts, keras.layers.Dense(3)])
    model.compile(
        optimizer(optimizer_name),
        "mse",
        jit_compile=False,
        run_eagerly=run_eagerly,
    )
    fit(model, IDS)
    return model, layer


@pytest.mark.parametrize("name", LAYERS)
def test_models_go_on(name, tmp_path):
    """Old rows, and what the optimizer has of them, stay as they are."""
    # Steps that were traced before are traced anew.
    model, layer = build(name, run_eagerly=name != "anchors-dense")
    before = np.asarray(layer.embeddings)
    names = [(x.path, x.dtype) for x in model.variables]
    slots = [(x.path, x.numpy()) for x in model.optimizer.variables]
    assert layer.add_ids(VECTORS) == range(ROWS, ROWS + NEW)
    assert layer.input_dim == layer.get_config()["input_dim"] == ROWS + NEW
    table = np.asarray(layer.embeddings)
    assert table.shape == (ROWS + NEW, WIDTH)
    np.testing.assert_array_equal(table[:ROWS], before)
    assert [(x.path, x.dtype) for x in model.variables] == names
    for slot, (path, old) in zip(model.optimizer.variables, slots, strict=True):
        assert slot.path == path
        kept = slot.numpy()[: len(old)] if old.ndim else slot.numpy()
        np.testing.assert_array_equal(kept, old, path)
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = keras.saving.load_model(path)
    np.testing.assert_array_equal(loaded(MORE), model(MORE))
    loaded.run_eagerly = model.run_eagerly
    for each in (model, loaded):
        fit(each, MORE)
    for weight, same in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_allclose(
            weight.numpy(), same.numpy(), 1e-4, 1e-5, err_msg=weight.path
        )
    moved = not np.array_equal(
        np.asarray(layer.embeddings)[ROWS:], table[ROWS:]
    )
    assert moved == bool(layer.trainable_weights)


def test_codes_are_the_nearest():
    """By all codes that there are."""
    rng = np.random.default_rng(0)
    codebooks = rng.normal(size=(3, 4, WIDTH)).astype("float32")
    layer = kc.CodeEmbedding(5, WIDTH, 3, 4, codebooks=codebooks, seed=0)
    layer.add_ids(VECTORS)
    every = np.array(list(itertools.product(range(4), repeat=3)))
    rows = sum(codebooks[m][every[:, m]] for m in range(3))
    distances = np.square(VECTORS[:, None] - rows).sum(axis=2)
    np.testing.assert_array_equal(layer.codes[5:], every[distances.argmin(1)])


def test_rows_of_anchors_are_a_pursuit():
    layer = anchors(storage="dense")()
    layer.add_ids(VECTORS, max_nonzeros=2)
    expected = sparse_code(VECTORS, layer.anchors.numpy(), 2, False)
    np.testing.assert_allclose(
        layer.get_transform().dense_rows(ROWS), expected.dense_rows(), atol=1e-6
    )


def test_rounded_rows_are_the_nearest():
    """For scales next to those found, no other integer is nearer."""
    layer = rounded(bits=2)()
    layer.add_ids(VECTORS)
    table = layer.rounded_table()
    scales = table.scales[ROWS:].astype(float) * float(table.unit)
    every = np.arange(-2, 2)[:, None, None] * scales
    nearest = np.abs(every - VECTORS).min(axis=0)
    found = np.abs(table.integers[ROWS:] * scales - VECTORS)
    np.testing.assert_allclose(found, nearest, atol=1e-6)


def untied():
    return codes(kc.ReversibleCodeEmbedding, tie_weights=False)()


def test_logits_get_wider():
    layer = untied()
    vectors = layer(IDS[0])
    before = layer(vectors, reverse=True)
    layer.add_ids(VECTORS, reverse_vectors=-VECTORS)
    after = layer(vectors, reverse=True)
    assert after.shape == (5, ROWS + NEW)
    np.testing.assert_allclose(after[:, :ROWS], before, rtol=1e-5, atol=1e-5)
    assert layer.top_k(vectors, 3)[1].shape == (5, 3)
    again = type(layer).from_config(layer.get_config())
    again.build()
    assert again.reverse_embedding.packed_codes.shape[0] == ROWS + NEW


def test_bytes_of_a_file(tmp_path):
    """1,000 words at 32 x 16 are 16,000 bytes."""
    layer = kc.CodeEmbedding(500, WIDTH, 32, 16, seed=0)
    model = keras.Sequential([keras.Input((5,), dtype="int32"), layer])
    sizes = []
    for vectors in (None, np.zeros((1000, WIDTH))):
        if vectors is not None:
            layer.add_ids(vectors)
        model.save(tmp_path / "model.keras")
        sizes.append((tmp_path / "model.keras").stat().st_size)
    # Numbers in the config have one digit more.
    assert 16_000 <= sizes[1] - sizes[0] <= 16_010


def learned(learn_codes):
    return lambda: kc.CodeEmbedding(
        ROWS, WIDTH, 4, 8, learn_codes=learn_codes, seed=0
    )


def of_anchors(**kwargs):
    return lambda: kc.ANTEmbedding(ROWS, WIDTH, 12, **kwargs)


TAUGHT = kc.learners.FollowingCodes(teacher=TABLE)
RELATED = kc.anchors.Relations(np.array([[0, 1]]), ROWS)


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (learned("softmax"), {}, "Call `freeze_codes` first"),
        (learned(TAUGHT), {}, "learn_codes.teacher = None"),
        (codes(composition="lstm"), {}, "`from_table`"),
        (of_anchors(mixture="sparsemax"), {}, "Call `sparsify` first"),
        (
            of_anchors(relations=RELATED, negative_weight=0.1),
            {},
            "without relations",
        ),
        (untied, {}, "`reverse_vectors`"),
        (untied, {"reverse_vectors": VECTORS[:2]}, "`vectors`"),
        (
            codes(kc.ReversibleCodeEmbedding),
            {"reverse_vectors": VECTORS},
            "only there",
        ),
        (rounded(), {"vectors": 100 * VECTORS}, "as large as"),
        (anchors(places="fixed"), {"max_nonzeros": 13}, "`max_nonzeros`"),
        (codes(), {"vectors": np.zeros((0, WIDTH))}, "`vectors`"),
        (rounded(), {"vectors": np.zeros((2, WIDTH + 1))}, "`vectors`"),
        (anchors(places="fixed"), {"vectors": np.zeros(WIDTH)}, "`vectors`"),
        (codes(), {"vectors": np.full((2, WIDTH), np.nan)}, "`vectors`"),
    ],
)
def test_what_is_refused(make, arguments, message):
    layer = make()
    layer.build()
    with refused() as caught:
        layer.add_ids(**{"vectors": VECTORS, **arguments})
    assert message in str(caught.value)
    assert layer.input_dim == ROWS


@pytest.mark.parametrize(
    "make", [codes(), rounded(), anchors(), codes(kc.ReversibleCodeEmbedding)]
)
def test_classes_do_not_grow(make):
    layer = make()
    head = kc.CANESoftmax(ROWS, class_embedding=layer)
    with refused("class_embedding", f"{NEW} rows"):
        layer.add_ids(VECTORS)
    # Another that is gone, as `fit_search` makes them, changes nothing.
    kc.CANESoftmax(ROWS, class_embedding=layer)
    gc.collect()
    with refused("class_embedding", f"{NEW} rows"):
        layer.add_ids(VECTORS)
    assert layer.input_dim == head.num_classes
    del head
    gc.collect()
    layer.add_ids(VECTORS)


def test_layer_that_is_not_built():
    with pytest.raises(AttributeError, match="before accessing `add_ids`"):
        kc.CodeEmbedding(ROWS, WIDTH, 4, 8).add_ids(VECTORS)
