"""Which tables `compress_model` replaces, by what, and what it says."""

import functools

import keras
import numpy as np
import pytest
from errors import refused

import keras_compembed as kc

layers = keras.layers
IDS = np.array([[1, 2, 0], [59, 3, 4]])


class Holder(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = layers.Embedding(40, 8, name="inner")

    def build(self, input_shape):
        self.inner.build()

    def call(self, inputs):
        return self.inner(inputs)


class NeverTrained(kc.learners.AdditiveQuantizer):
    """A learner that no error may come after."""

    def train(self, table, sample_weight=None):
        raise AssertionError("codes are learned before all is checked")


def compress(model, **kwargs):
    settings = {
        "num_codebooks": 4,
        "codebook_size": 8,
        "min_bytes": 1000,
        "seed": 0,
        "verbose": 0,
    }
    return kc.compression.compress_model(model, **{**settings, **kwargs})


def sequential(rows=60, **kwargs):
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layers.Embedding(rows, 8, name="words", **kwargs),
            layers.GlobalAveragePooling1D(),
            layers.Dense(3),
        ]
    )


def several(**rows):
    """A model that adds up what tables of these names and rows give."""
    inputs = keras.Input((None,), dtype="int32")
    parts = [
        layers.Embedding(number, 8, name=name)(inputs)
        for name, number in rows.items()
    ]
    return keras.Model(inputs, layers.Add()(parts))


def find(model, name):
    (layer,) = (x for x in model._flatten_layers() if x.name == name)
    return layer


def check_rows(model, small, ids, *names):
    """The copy gives what the original gives with the copy's tables in it."""
    tables = {}
    for name in names:
        layer = find(model, name)
        tables[layer] = layer.get_weights()
        layer.set_weights([find(small, name).embeddings])
    expected = np.asarray(model(ids))
    for layer, weights in tables.items():
        layer.set_weights(weights)
    np.testing.assert_allclose(small(ids), expected, atol=1e-6)


def kilobytes(number):
    return f"{number / 1024:#.3g} KB"


def test_sequential(tmp_path):
    model = sequential(mask_zero=True)
    before = np.asarray(model(IDS))
    weights = model.get_weights()
    small = compress(model)
    layer = small.get_layer("words")
    assert isinstance(layer, kc.CodeEmbedding)
    assert layer.mask_zero
    assert [x.name for x in small.layers] == [x.name for x in model.layers]
    check_rows(model, small, IDS, "words")

    small.save(tmp_path / "small.keras")
    loaded = keras.saving.load_model(tmp_path / "small.keras")
    np.testing.assert_array_equal(loaded(IDS), small(IDS))
    assert not small.compiled
    small.compile("sgd", "mse", run_eagerly=True)
    small.fit(IDS, np.ones((2, 3)), verbose=0)
    np.testing.assert_array_equal(np.asarray(model(IDS)), before)
    for weight, same in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(weight, same)


def test_codes_follow_the_table():
    model = sequential(embeddings_initializer="zeros")
    table = np.repeat(np.eye(8), 8, axis=0)[:60]
    model.get_layer("words").set_weights([table])
    small = compress(model, codebook_size=8)
    error = small.get_layer("words").embeddings - table
    assert np.sum(error**2) < 0.05 * np.sum(table**2)


def test_functional_with_shared_layers_and_several_inputs():
    left = keras.Input((4,), dtype="int32", name="left")
    right = keras.Input((4,), dtype="int32", name="right")
    shared = layers.Embedding(50, 8, name="shared")
    other = layers.Embedding(70, 8, name="other")
    merged = layers.Concatenate()([shared(left), shared(right), other(left)])
    outputs = layers.Dense(2)(layers.Flatten()(merged))
    model = keras.Model({"left": left, "right": right}, outputs)
    small = compress(model)
    assert sum(isinstance(x, kc.CodeEmbedding) for x in small.layers) == 2
    ids = {
        "left": np.array([[1, 2, 3, 49]]),
        "right": np.array([[0, 7, 7, 9]]),
    }
    check_rows(model, small, ids, "shared", "other")


def test_nested_models():
    tower = sequential()
    inputs = keras.Input((None,), dtype="int32")
    model = keras.Model(inputs, layers.Dense(2)(tower(inputs)))
    outer = keras.Sequential([keras.Input((None,), dtype="int32"), model])
    check_rows(outer, compress(outer), IDS, "words")
    assert isinstance(tower.get_layer("words"), layers.Embedding)


def test_trainability():
    model = sequential()
    model.get_layer("words").trainable = False
    small = compress(model)
    assert not small.get_layer("words").trainable_weights
    assert len(small.trainable_weights) == 2
    model.trainable = False
    small = compress(model)
    assert not small.trainable
    assert not small.trainable_weights


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float16"])
def test_dtype_policy(policy):
    layer = find(compress(sequential(dtype=policy), min_bytes=0), "words")
    assert layer.dtype_policy == keras.DTypePolicy(policy)
    assert layer.compute_dtype == keras.DTypePolicy(policy).compute_dtype


# What is said.


def test_what_is_done_and_skipped_is_said(capsys):
    inputs = keras.Input((None,), dtype="int32")
    parts = [
        layers.Embedding(60, 8, name="large")(inputs),
        layers.Embedding(60, 8, name="unnamed")(inputs),
        layers.Embedding(20, 8, name="tiny")(inputs),
        Holder(name="holder")(inputs),
    ]
    model = keras.Model(inputs, layers.Concatenate()(parts))
    # As many bytes are not below it.
    small = compress(model, min_bytes=1920, verbose=1)
    said = capsys.readouterr().out
    assert "tiny: left as it is, 640 B is below `min_bytes`" in said
    assert "inner: left as it is, 1.25 KB is below `min_bytes`" in said
    assert "large: 60 x 8 table, 1.88 KB -> 1.12 KB" in said
    assert isinstance(small.get_layer("holder"), Holder)
    compress(model, layers=["large"], num_codebooks=2, verbose=1)
    said = capsys.readouterr().out
    assert "unnamed: left as it is, not named in `layers`" in said


@pytest.mark.parametrize(
    "policy, composition", [("float16", "sum"), ("float32", "lstm")]
)
def test_bytes_said_are_those_of_the_copy(policy, composition, capsys):
    model = sequential(rows=3000, dtype=policy)
    learner = None
    if composition == "lstm":
        learner = functools.partial(
            kc.learners.KDCodeLearner,
            composition="lstm",
            training=kc.learners.Training(iterations=3),
            verbose=0,
        )
    small = compress(model, learner=learner, verbose=1)
    said = capsys.readouterr().out
    layer = find(small, "words")
    name = type(layer.composition.unscaled()).__name__.lower()
    assert name == f"{composition}composition"
    held = sum(w.numpy().nbytes for w in layer.weights)
    table = 3000 * 8 * layer.codebooks.numpy().itemsize
    sizes = f"{kilobytes(table)} -> {kilobytes(held)}"
    assert f"words: 3000 x 8 table, {sizes}" in said
    sizes = [
        kilobytes(sum(w.numpy().nbytes for w in x.weights))
        for x in (model, small)
    ]
    assert f"{model.name}: {sizes[0]} -> {sizes[1]} in all" in said


def test_latent_vectors_are_said_apart(capsys):
    small = compress(sequential(), recode_every=5, verbose=1)
    said = capsys.readouterr().out
    assert "1.88 KB -> 1.12 KB" in said
    assert "besides, 1.88 KB of latent vectors until `freeze_codes`" in said
    layer = find(small, "words")
    layer.freeze_codes()
    assert sum(w.numpy().nbytes for w in layer.weights) == 2 * 60 + 1024


# Layers by name.


def two_towers():
    """Two models with an Embedding of one name, and another."""
    inputs = keras.Input((5,), dtype="int32")
    parts = [
        keras.Sequential(
            [layers.Embedding(rows, 8, name="words"), layers.Dense(8)],
            name=name,
        )
        for name, rows in (("tower_a", 60), ("tower_b", 70))
    ]
    parts.append(layers.Embedding(80, 8, name="kinds"))
    outputs = layers.Add()([part(inputs) for part in parts])
    return keras.Model(inputs, outputs)


def test_layers_of_one_name(capsys):
    small = compress(
        two_towers(),
        layers=["tower_b/words", "kinds"],
        layer_settings={"tower_b/words": {"num_codebooks": 2}},
        verbose=1,
    )
    words = [
        small.get_layer(name).get_layer("words")
        for name in ("tower_a", "tower_b")
    ]
    assert isinstance(words[0], layers.Embedding)
    assert words[1].codes.shape == (70, 2)
    said = capsys.readouterr().out
    assert "tower_a/words: left as it is" in said
    assert "tower_b/words: 70 x 8 table" in said
    assert "\nkinds: 80 x 8 table" in said


def test_settings_of_one_layer():
    small = compress(
        several(first=60, last=60),
        layer_settings={
            "last": {
                "num_codebooks": 3,
                "codebook_size": 5,
                "sample_weight": np.arange(60),
                "learner": lambda m, k: kc.learners.AdditiveQuantizer(
                    m, k, seed=3, verbose=0
                ),
            }
        },
    )
    assert small.get_layer("first").codebooks.shape == (4, 8, 8)
    assert small.get_layer("last").codebooks.shape == (3, 5, 8)
    # A composition of its own, too.
    small = compress(
        sequential(),
        composition="lstm",
        layer_settings={"words": {"composition": "sum"}},
    )
    composition = find(small, "words").composition
    assert isinstance(composition, kc.compositions.SumComposition)


# Learners.


def codes_with(learner, **kwargs):
    model = sequential()
    model.set_weights(
        [np.random.default_rng(0).normal(size=w.shape) for w in model.weights]
    )
    return find(compress(model, learner=learner, **kwargs), "words").codes


def test_seed_of_given_learners():
    learner = kc.learners.RandomCodeLearner
    codes = codes_with(learner, seed=3)
    np.testing.assert_array_equal(codes, codes_with(learner, seed=3))
    assert np.any(codes != codes_with(learner, seed=4))
    # Its own comes first.
    own = functools.partial(learner, seed=3)
    np.testing.assert_array_equal(codes, codes_with(own, seed=4))


def test_learners_that_take_no_seed():
    def unseeded(*shape):
        return kc.learners.RandomCodeLearner(*shape)

    with refused("seed", "0"):
        codes_with(unseeded, seed=0)
    assert codes_with(unseeded, seed=None).shape == (60, 4)


@pytest.mark.parametrize("verbose", [0, 1])
def test_given_learners_are_as_silent(verbose, capsys):
    codes_with(kc.learners.AdditiveQuantizer, verbose=verbose)
    assert ("step" in capsys.readouterr().out) == bool(verbose)


# What is refused, before codes are learned.


@pytest.mark.parametrize(
    "arguments, name, received",
    [
        ({"num_codebooks": 0}, "num_codebooks", 0),
        ({"codebook_size": 1}, "codebook_size", 1),
        ({"min_bytes": -1}, "min_bytes", -1),
        ({"min_bytes": 10**6}, "min_bytes", None),
        ({"layers": ["word"]}, "layers", "word"),
        ({"layers": "words"}, "layers", "words"),
        ({"layers": []}, "layers", None),
        ({"layer_settings": {"word": {}}}, "layer_settings", "word"),
        ({"layer_settings": {"words": {"m": 4}}}, "layer_settings", "m"),
        (
            {"layer_settings": {"words": {"codebook_size": 1}}},
            "codebook_size",
            1,
        ),
        (
            {"layer_settings": {"words": {"sample_weight": [1.0]}}},
            "sample_weight",
            None,
        ),
        ({"sample_inputs": np.array([[60]])}, "sample_inputs", None),
        ({"composition": "concat"}, "composition", "concat"),
        ({"composition": "mean", "learner": None}, "composition", "mean"),
        (
            {"num_codebooks": 9, "composition": "concat", "learner": None},
            "num_codebooks",
            None,
        ),
    ],
)
def test_bad_arguments(arguments, name, received):
    with refused(name, received):
        compress(sequential(), **{"learner": NeverTrained, **arguments})


@pytest.mark.parametrize(
    "arguments, name, received",
    [
        ({"layers": ["words"]}, "layers", "tower_a/words"),
        ({"layers": ["tower_c/words"]}, "layers", "tower_c/words"),
        ({"layers": ["kinds"], "codebook_size": 256}, "layers", "kinds"),
        (
            {"layer_settings": {"words": {"num_codebooks": 2}}},
            "layer_settings",
            "tower_b/words",
        ),
        (
            {
                "layer_settings": {
                    "kinds": {
                        "method": kc.methods.Rounded(4),
                        "num_codebooks": 8,
                    }
                }
            },
            "method",
            "kinds",
        ),
        (
            {"method": kc.methods.Codes(4, 16), "num_codebooks": 32},
            "method",
            "codes 4x16",
        ),
    ],
)
def test_names_that_are_no_layer(arguments, name, received):
    with refused(name, received):
        compress(two_towers(), **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"codebook_size": 64},
        # The weights of an LSTM, which the default composition has not.
        {
            "codebook_size": 2,
            "learner": functools.partial(
                kc.learners.KDCodeLearner, composition="lstm"
            ),
        },
    ],
)
def test_what_would_be_no_smaller(arguments):
    with pytest.raises(ValueError, match="no smaller"):
        compress(sequential(), **arguments)


def test_tables_must_be_finite():
    model = sequential()
    table = np.ones((60, 8))
    table[3] = np.nan
    model.get_layer("words").set_weights([table])
    with refused("embeddings of words") as caught:
        compress(model, learner=NeverTrained)
    assert "row 3" in str(caught.value)


def test_bad_models():
    class Subclassed(keras.Model):
        pass

    for model in Subclassed(), keras.Sequential([layers.Embedding(60, 8)]):
        with refused("model", model.name):
            compress(model)
    with refused("model", "model.keras", TypeError):
        compress("model.keras")
    dense = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    with pytest.raises(ValueError, match="no Embedding"):
        compress(dense)
    small = compress(sequential(600))
    for limit in ({}, {"max_bytes": 50_000}):
        with pytest.raises(ValueError, match="already: words"):
            kc.compression.compress_model(small, **limit)
