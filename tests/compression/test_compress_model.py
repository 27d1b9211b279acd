"""Which tables `compress_model` replaces, by what, and what it says."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from compressing import NeverTrained
from compressing import codes
from compressing import compress
from compressing import layers_of
from errors import refused

import keras_compembed as kc
from benchmarks.baselines import RandomCodeLearner

layers = keras.layers


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


def test_trainability():
    model = sequential()
    model.get_layer("words").trainable = False
    small = compress(model)
    assert not small.get_layer("words").trainable_weights
    assert len(small.trainable_weights) == 2
    model.trainable = False
    assert not compress(model).trainable


# What is said.


def test_what_is_done_and_skipped_is_said(capsys):
    model = several(large=60, unnamed=60, tiny=20)
    # As many bytes are not below it.
    compress(model, smallest=1920, verbose=1)
    said = capsys.readouterr().out
    assert "tiny: skipped, 640 B is below 1.92 kB" in said
    assert "large: 60 x 8 table, 1.92 kB (1,920 bytes) -> 1.14 kB" in said
    compress(model, codes(2), layers=["large"], verbose=1)
    said = capsys.readouterr().out
    assert "unnamed: skipped, not named in `layers`" in said


# Layers by name.


def two_towers():
    """Two models with an Embedding of one name, and another."""
    inputs = keras.Input((5,), dtype="int32")
    parts = [layers.Embedding(80, 8, name="kinds")]
    for name, rows in ("tower_a", 60), ("tower_b", 70):
        words = layers.Embedding(rows, 8, name="words")
        parts.append(keras.Sequential([words, layers.Dense(8)], name=name))
    outputs = layers.Add()([part(inputs) for part in parts])
    return keras.Model(inputs, outputs)


def test_layers_of_one_name(capsys):
    how = {"tower_b/words": codes(2), "kinds": codes()}
    small = compress(two_towers(), how, verbose=1)
    towers = map(small.get_layer, ("tower_a", "tower_b"))
    first, second = (tower.get_layer("words") for tower in towers)
    assert isinstance(first, layers.Embedding)
    assert second.codes.shape == (70, 2)
    said = capsys.readouterr().out
    assert "tower_a/words: skipped" in said
    assert "tower_b/words: 70 x 8 table" in said
    assert "\nkinds: 80 x 8 table" in said


def test_method_of_each_layer():
    learner = kc.learners.AdditiveQuantizer
    last = codes(3, 5, learner=learner).for_table(np.arange(60))
    # Tables that are named may be small.
    how = {"first": kc.methods.Quantized(2), "last": last}
    model = several(first=60, last=60, other=60)
    small = kc.compress_model(model, how, verbose=0)
    assert small.get_layer("first").bits == 2
    assert small.get_layer("last").codebooks.shape == (3, 5, 8)
    assert type(small.get_layer("other")) is layers.Embedding


def error_of_first(model, inputs, method):
    small = compress(model, method, ["words"], seed=0, sample_inputs=inputs)
    (layer,) = layers_of(small)
    rows = layer.embeddings - model.weights[0]
    return float(np.square(rows[:10]).sum())


def test_rows_that_inputs_read_often_are_nearer():
    keras.utils.set_random_seed(0)
    model, method = sequential(), kc.methods.Codes(2, 4)
    often = np.tile(np.arange(10), (100, 1))
    equal = error_of_first(model, None, method)
    near = error_of_first(model, often, method)
    assert near < 0.5 * equal
    ragged = tf.RaggedTensor.from_tensor(often)
    assert error_of_first(model, ragged, method) == near
    given = method.for_table(np.ones(60))
    assert error_of_first(model, often, given) == pytest.approx(equal)
    # A nested model reads the same table for its second input, and backwards.
    inputs = {x: keras.Input((None,), dtype="int32", name=x) for x in "ba"}
    words = layers.ReversibleEmbedding(60, 8, name="words")
    rows = words(inputs["a"]) + words(inputs["b"])
    inner = keras.Model(inputs, words(rows, reverse=True))
    outer = keras.Model(inputs, inner(inputs))
    outer.set_weights([model.weights[0]])
    found = [
        error_of_first(outer, {"a": a, "b": b}, method)
        for a, b in ((often, often), (often, often + 50), (often + 50, often))
    ]
    assert found[0] < 0.5 * equal and found[1] == found[2] < 0.8 * equal


def test_texts_are_sample_inputs():
    texts = ["the cat", "a dog", "the the cat"]
    vectorize = layers.TextVectorization(vocabulary=["the", "cat", "a", "dog"])
    words = layers.Embedding(6, 64, name="words")
    model = keras.Sequential(
        [keras.Input((), dtype="string"), vectorize, words]
    )
    for how in codes(2, 2), kc.Budget("9k", methods=[kc.methods.Quantized(4)]):
        small = compress(model, how, ["words"], sample_inputs=texts)
        assert small(tf.constant(texts)).shape == (3, 3, 64)


# Learners.


def codes_with(learner, **kwargs):
    model = sequential()
    model.set_weights(
        [np.random.default_rng(0).normal(size=w.shape) for w in model.weights]
    )
    small = compress(model, codes(learner=learner), **kwargs)
    return small.get_layer("words").codes


def test_seed_of_given_learners():
    learner = RandomCodeLearner
    found = codes_with(learner, seed=3)
    np.testing.assert_array_equal(found, codes_with(learner, seed=3))
    assert np.any(found != codes_with(learner, seed=4))
    # Its own comes first, and that of the table.
    own = functools.partial(learner, seed=3)
    np.testing.assert_array_equal(found, codes_with(own, seed=4))
    small = compress(sequential(), codes().for_table(seed=3), seed=4)
    np.testing.assert_array_equal(found, small.get_layer("words").codes)


# What is refused, before codes are learned.


def test_bad_arguments():
    never = codes(learner=NeverTrained)
    bad = {"layers": ["word"], "sample_inputs": np.array([[60]])}
    for name, value in bad.items():
        with refused(name):
            compress(sequential(), never, **{name: value})
    with refused("how", error=TypeError):
        compress(sequential(), {"words": "codes"})
    with refused("sample_weight"):
        compress(sequential(), never.for_table(sample_weight=[1.0]))


def test_names_that_are_no_layer():
    two = codes(2)
    for how, names, received in (
        (two, ["words"], "tower_a/words"),
        # It would be no smaller.
        (codes(4, 256), ["kinds"], "kinds"),
        ({"words": two}, None, "tower_b/words"),
        ({"word": two}, None, "'word'"),
    ):
        with refused("layers" if names else "how", received):
            compress(two_towers(), how, layers=names)


def test_tables_must_be_finite():
    model = sequential()
    table = np.ones((60, 8))
    table[3] = np.nan
    model.get_layer("words").set_weights([table])
    with refused("embeddings of words") as caught:
        compress(model, codes(learner=NeverTrained))
    assert "row 3" in str(caught.value)


def test_bad_models():
    class Subclassed(keras.Model):
        pass

    for model in Subclassed(), keras.Sequential([layers.Embedding(60, 8)]):
        with refused("model", model.name):
            compress(model)
    dense = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    with pytest.raises(ValueError, match="no Embedding"):
        compress(dense)
    small = compress(sequential(600))
    with pytest.raises(ValueError, match="already: words"):
        kc.compress_model(small, None)


def test_what_would_be_no_smaller():
    with pytest.raises(ValueError, match="not make it smaller"):
        compress(sequential(), codes(4, 64))


@pytest.mark.parametrize("how", ["codes", {"words": None}])
def test_methods_of_a_wrong_type(how):
    with refused("how", error=TypeError):
        compress(sequential(), how)
