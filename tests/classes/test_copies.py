"""Copies made from a config alone train as the original does."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from class_models import cane

import keras_compembed as kc
from keras_compembed.classes import BeamTree
from keras_compembed.classes import ClassTree
from keras_compembed.classes import FrequencySubsets
from keras_compembed.classes import FrequentClasses
from keras_compembed.classes import LearnedNoise

CLASSES, WIDTH, ROWS = 60, 5, 64
RNG = np.random.default_rng(0)
# Not in order: ids 0, 1, 2 are no guess.
COUNTS = RNG.permutation(600 // np.arange(1, CLASSES + 1)).astype("float64")


def head(selector=None, noise=None, **kwargs):
    """A function that makes a layer, of parts of its own."""

    def make():
        parts = {"selector": selector() if selector else "auto"}
        parts["noise"] = noise and noise()
        numbers = {"num_candidates": 6, "num_noises": 4}
        return cane(CLASSES, **parts, **numbers, **kwargs)

    return make


def tree():
    return ClassTree.random(CLASSES, branching=3, seed=1)


def beam():
    return BeamTree(tree(), beam_width=3, max_frontier=4, name="its own")


def refreshed():
    return BeamTree(tree(), max_frontier=4, refresh_every=2)


HEADS = {
    "default": head(),
    "refreshed tree": head(refreshed),
    "beam tree": head(beam, class_counts=COUNTS),
    "subsets": head(lambda: FrequencySubsets(COUNTS, 4, seed=5)),
    "learned": head(None, lambda: LearnedNoise(refresh_every=2, counts=COUNTS)),
}


def make_model(head):
    features = keras.Input((WIDTH,))
    return keras.Model(features, head(features))


COPIES = {
    "clone_model": keras.models.clone_model,
    "from_config": lambda model: model.from_config(model.get_config()),
    "JSON": lambda model: keras.models.model_from_json(model.to_json()),
}


def data():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(ROWS, WIDTH)).astype("float32")
    return x, rng.integers(CLASSES, size=ROWS)


def fitted(model):
    """Numbers that training shows, and weights after it."""
    # A few steps are made sooner than a graph of them.
    model.compile(
        "sgd", kc.CANELoss(), metrics=[kc.Coverage()], run_eagerly=True
    )
    x, y = data()
    history = model.fit(x, y, batch_size=32, shuffle=False, verbose=0).history
    numbers = model.evaluate(x, y, batch_size=ROWS, verbose=0)
    return history, model.get_weights(), numbers


@pytest.mark.parametrize("name", HEADS)
def test_copies_train_alike(name):
    model = make_model(HEADS[name]())
    copies = [copy(model) for copy in COPIES.values()]
    config = json.dumps(model.layers[-1].get_config())
    for copy in copies:
        assert json.dumps(copy.layers[-1].get_config()) == config
        # Before anything is learned, and without weights given.
        for right, got in zip(
            model.get_weights(), copy.get_weights(), strict=True
        ):
            np.testing.assert_array_equal(got, right)
    history, weights, numbers = fitted(model)
    copy_history, copy_weights, copy_numbers = fitted(copies[-1])
    assert copy_history == history
    for right, got in zip(weights, copy_weights, strict=True):
        np.testing.assert_array_equal(got, right)
    np.testing.assert_array_equal(copy_numbers, numbers)


def means_model(**kwargs):
    vectors = np.random.default_rng(3).normal(size=(CLASSES, WIDTH))
    known = ClassTree.from_vectors(vectors, 4, seed=0, verbose=0)
    selector = BeamTree(known, max_frontier=4)
    return make_model(head(lambda: selector, **kwargs)())


@pytest.mark.parametrize(
    ("copy", "loss"),
    [("clone_model", kc.CANELoss), ("from_config", kc.NCELoss)],
)
def test_means_are_no_part_of_a_config(copy, loss):
    """They may be as large as the model."""
    model = means_model()
    x, y = data()
    expected = model.layers[-1].top_k(x)
    again = COPIES[copy](model)
    head = again.layers[-1]
    # Graphs order the check before all that comes after it.
    compiled = {"run_eagerly": copy != "clone_model", "jit_compile": False}
    again.compile("sgd", loss(), **compiled)
    for use in (
        lambda: again.fit(x, y, verbose=0),
        lambda: again.evaluate(x, y, verbose=0),
        lambda: head.top_k(x),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match="alone"):
            use()
    for weight, same in zip(model.weights, again.weights, strict=True):
        same.assign(weight)
    for got, right in zip(head.top_k(x), expected, strict=True):
        np.testing.assert_array_equal(got, right)
    for each in (model, again):
        each.compile("sgd", loss(), **compiled)
    loss = again.evaluate(x, y, verbose=0)
    assert np.isfinite(loss) and loss == model.evaluate(x, y, verbose=0)


def test_counts_are_those_of_the_layer_that_loads_weights(tmp_path):
    """Labels as noises rest on counts of the data that come."""
    models = []
    for counts in (COUNTS, COUNTS[::-1]):
        made = head(
            lambda own=counts: FrequentClasses(own),
            class_counts=counts,
            shared="labels",
        )
        models.append(make_model(made()))
    first, second = (model.layers[-1] for model in models)
    tables = [each.noise.table.numpy() for each in (first, second)]
    classes = second.selector.classes.numpy()
    models[0].save_weights(tmp_path / "a.weights.h5")
    models[1].load_weights(tmp_path / "a.weights.h5")
    np.testing.assert_array_equal(second.kernel, first.kernel)
    np.testing.assert_array_equal(second.noise.table, tables[1])
    np.testing.assert_array_equal(second.selector.classes, classes)
    assert (tables[0] != tables[1]).any()
