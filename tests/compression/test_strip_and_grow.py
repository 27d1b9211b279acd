"""Copies without what only training needs, and copies with more ids."""

import itertools

import keras
import numpy as np
import pytest
from errors import refused

import keras_compembed as kc
from keras_compembed.anchors.sparse_coding import sparse_code
from keras_compembed.learners.task_codes import FollowingCodes

ROWS, NEW, WIDTH = 120, 7, 8
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(ROWS, WIDTH)).astype("float32")
VECTORS = RNG.normal(size=(NEW, WIDTH)).astype("float32")
VECTORS /= np.abs(VECTORS).max()
IDS = RNG.integers(ROWS, size=(8, 5)).astype("int32")
MORE = RNG.integers(ROWS + NEW, size=(8, 5)).astype("int32")
MORE[0, 0] = ROWS + NEW - 1
TARGETS = RNG.normal(size=(8, 3)).astype("float32")


def codes(follow=False, **kwargs):
    def make():
        rng = np.random.default_rng(1)
        given = rng.integers(8, size=(ROWS, 4))
        layer = kc.CodeEmbedding(
            ROWS,
            WIDTH,
            4,
            8,
            codes=FollowingCodes(codes=given) if follow else given,
            name="words",
            **kwargs,
        )
        layer.codebooks.assign(rng.normal(size=layer.codebooks.shape))
        return layer

    return make


def anchors(places=None, **kwargs):
    def make():
        arguments = {"iterations": 1, "verbose": 0, "name": "words"}
        arguments |= kwargs
        layer = kc.ANTEmbedding.from_table(TABLE, 12, 3, seed=0, **arguments)
        if places is not None:
            layer = kc.strip(layer, trainable=places == "trained")
        return layer

    return make


def rounded(**kwargs):
    return lambda: kc.QuantizedEmbedding.from_table(
        TABLE, seed=0, verbose=0, name="words", **kwargs
    )


def of_class(cls, **kwargs):
    return lambda: cls(ROWS, WIDTH, name="words", **kwargs)


def learned(codes):
    return of_class(
        kc.CodeEmbedding,
        num_codebooks=4,
        codebook_size=8,
        codes=codes,
    )


def build(make, optimizer="adam"):
    keras.utils.set_random_seed(0)
    layer = make()
    parts = [keras.Input((5,), dtype="int32"), layer]
    if layer.combiner is None:
        parts.append(keras.layers.GlobalAveragePooling1D())
    model = keras.Sequential([*parts, keras.layers.Dense(3)])
    model.compile(optimizer, "mse", run_eagerly=True)
    return model, layer


def fit(model, ids):
    model.fit(ids, TARGETS, batch_size=4, shuffle=False, verbose=0)


# Each with what it is trained by.
TRAINED = {
    "codes-softmax": (learned("softmax"), "adam"),
    "codes-follow": (codes(follow=True), "sgd"),
    "anchors-lazy": (
        of_class(
            kc.ANTEmbedding, num_anchors=9, transform="lazy", combiner="mean"
        ),
        lambda: kc.optimizers.SparseRowOptimizer("adam"),
    ),
    "rounded-learned": (rounded(bits=4, rank=3, learn_rows=True), "adam"),
}


@pytest.mark.filterwarnings("ignore:Codes did not change")
@pytest.mark.parametrize("name", TRAINED)
def test_strip(name, tmp_path):
    make, optimizer = TRAINED[name]
    model, layer = build(
        make, optimizer() if callable(optimizer) else optimizer
    )
    fit(model, IDS)
    layer.trainable = name != "codes-follow"
    weights = model.get_weights()
    small = kc.strip(model)
    for weight, same in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, same)
    assert small.count_params() < model.count_params()
    np.testing.assert_allclose(small(IDS), model(IDS), rtol=1e-6, atol=1e-7)
    assert small.get_layer("words").trainable == layer.trainable
    # Compiled as the model is, with an optimizer that starts anew.
    assert type(small.optimizer) is type(model.optimizer)
    assert int(small.optimizer.iterations) == 0
    small.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for one in (small, loaded):
        one.run_eagerly = True
        fit(one, IDS)
    np.testing.assert_array_equal(loaded(IDS), small(IDS))
    # What is stripped may be stripped again.
    np.testing.assert_array_equal(kc.strip(small)(IDS), small(IDS))


GROWING = {
    "codes-linear": codes(composition="linear"),
    "codes-follow": codes(follow=True),
    "anchors-fixed": anchors(places="fixed"),
    "anchors-lazy": anchors(transform="lazy", combiner="mean"),
    "int2-blocks": rounded(bits=2, block_size=4),
    "int4-rank-learned": rounded(bits=4, rank=3, learn_rows=True),
}


@pytest.mark.parametrize("name", GROWING)
def test_grow(name, tmp_path):
    model, layer = build(GROWING[name])
    fit(model, IDS)
    before = np.asarray(layer.embeddings)
    large = kc.grow(model, {"words": VECTORS})
    assert layer.input_dim == ROWS
    grown = large.get_layer("words")
    assert grown.input_dim == grown.get_config()["input_dim"] == ROWS + NEW
    table = np.asarray(grown.embeddings)
    assert table.shape == (ROWS + NEW, WIDTH)
    np.testing.assert_allclose(table[:ROWS], before, atol=1e-7)
    np.testing.assert_allclose(large(IDS), model(IDS), atol=1e-6)
    path = tmp_path / "model.keras"
    large.save(path)
    loaded = keras.saving.load_model(path)
    np.testing.assert_array_equal(loaded(MORE), large(MORE))
    for each in (large, loaded):
        each.run_eagerly = True
        fit(each, MORE)
    np.testing.assert_allclose(loaded(MORE), large(MORE), 1e-4, 1e-5)
    moved = not np.array_equal(
        np.asarray(grown.embeddings)[ROWS:], table[ROWS:]
    )
    assert moved == bool(grown.trainable_weights)


def grown(make, vectors=VECTORS):
    return kc.grow(make(), {"words": vectors})


def test_codes_are_the_nearest():
    """By all codes that there are."""
    rng = np.random.default_rng(0)
    codebooks = rng.normal(size=(3, 4, WIDTH)).astype("float32")
    layer = grown(
        of_class(
            kc.CodeEmbedding,
            num_codebooks=3,
            codebook_size=4,
            codebooks=codebooks,
        )
    )
    every = np.array(list(itertools.product(range(4), repeat=3)))
    rows = sum(codebooks[m][every[:, m]] for m in range(3))
    distances = np.square(VECTORS[:, None] - rows).sum(axis=2)
    np.testing.assert_array_equal(
        layer.codes[ROWS:], every[distances.argmin(1)]
    )


def test_rows_of_anchors_are_a_pursuit():
    layer = grown(anchors(transform="dense"))
    expected = sparse_code(VECTORS, layer.anchors.numpy(), 3, False)
    np.testing.assert_allclose(
        layer.get_transform().dense_rows(ROWS), expected.dense_rows(), atol=1e-6
    )


def test_rounded_rows_are_the_nearest():
    """For scales next to those found, no other integer is nearer."""
    table = grown(rounded(bits=2)).rounded_table()
    scales = table.scales[ROWS:].astype(float) * float(table.unit)
    every = np.arange(-2, 2)[:, None, None] * scales
    vectors = VECTORS - table.mean_row
    nearest = np.abs(every - vectors).min(axis=0)
    found = np.abs(table.integers[ROWS:] * scales - vectors)
    np.testing.assert_allclose(found, nearest, atol=1e-6)


@pytest.mark.parametrize("cls, tied", [(codes, True), (rounded, False)])
def test_logits_grow(cls, tied):
    options = {"reverse": kc.Reverse()} if tied else {"reverse_table": -TABLE}
    layer = cls(**options)()
    ids = keras.Input((5,), dtype="int32")
    model = keras.Model(ids, layer(layer(ids), reverse=True))
    vectors = VECTORS if tied else (VECTORS, -VECTORS)
    large = kc.grow(model, {"words": vectors})
    assert large.output_shape == (None, 5, ROWS + NEW)
    np.testing.assert_allclose(
        large(IDS)[..., :ROWS], model(IDS), rtol=1e-5, atol=1e-5
    )


def classifier():
    layer = codes()()
    counts = np.arange(ROWS) + 1
    ids = keras.Input((5,), dtype="int32")
    hidden = keras.layers.GlobalAveragePooling1D()(layer(ids))
    head = kc.CANESoftmax(
        ROWS,
        sampling=kc.Sampling(
            kc.classes.FrequentClasses(counts),
            num_candidates=20,
            num_noises=10,
        ),
        class_counts=counts,
        class_embedding=layer,
        name="head",
    )
    model = keras.Model(ids, head(hidden))
    model.compile("sgd", kc.CANELoss(), run_eagerly=True)
    return model


def test_tied_classes_grow(tmp_path):
    model = classifier()
    model.fit(IDS, IDS[:, 0], verbose=0)
    large = kc.grow(model, {"words": VECTORS})
    head = large.get_layer("head")
    assert head.class_embedding is large.get_layer("words")
    assert head.num_classes == ROWS + NEW
    bias = model.get_layer("head").bias.numpy()
    np.testing.assert_array_equal(head.bias[:ROWS], bias)
    np.testing.assert_array_equal(head.bias[ROWS:], bias.min())
    large.fit(MORE, MORE[:, 0], verbose=0)
    large.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    head = loaded.get_layer("head")
    assert head.class_embedding is loaded.get_layer("words")
    larger = kc.grow(loaded, {"words": VECTORS})
    assert larger.get_layer("head").num_classes == ROWS + 2 * NEW
    larger.save(tmp_path / "model.keras")
    keras.saving.load_model(tmp_path / "model.keras")


TAUGHT = FollowingCodes(teacher=TABLE)


@pytest.mark.parametrize(
    ("make", "vectors", "message"),
    [
        (learned("softmax"), VECTORS, "must be fixed"),
        (learned(TAUGHT), VECTORS, "without a teacher"),
        (codes(composition="lstm"), VECTORS, "linear composition"),
        (rounded(), 100 * VECTORS, "much larger than"),
        (codes(), np.full((2, WIDTH), np.nan), "finite"),
    ],
    ids=itertools.count(),
)
def test_layers_that_do_not_grow(make, vectors, message):
    layer = make()
    layer.build()
    with refused() as caught:
        kc.grow(layer, {"words": vectors})
    assert message in str(caught.value)


def test_bad_models():
    model, _ = build(codes())
    with refused("vectors", "other"):
        kc.grow(model, {"other": VECTORS})
