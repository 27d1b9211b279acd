"""Selectors of your own, frequent classes, and what all refuse."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

import keras_compembed as kc
from keras_compembed.classes import BeamTree
from keras_compembed.classes import ClassTree
from keras_compembed.classes import FrequencySubsets
from keras_compembed.classes import FrequentClasses
from keras_compembed.classes import Selector

CLASSES = 30
COUNTS = np.array([3, 9, 0, 9, 4, 0.5, 1e9, 0, 2, 1])


@keras.saving.register_keras_serializable(package="test_selectors")
class Neighbours(Selector):
    """A user's own: classes in a circle, from the one of the highest score."""

    def __init__(self, step=1, **kwargs):
        super().__init__(**kwargs)
        self.step = step

    def build(self, input_shape=None):
        # Sizes are known by now, and weights are saved with the model.
        self.seen = self.add_weight(
            shape=(self.num_classes,), trainable=False, initializer="zeros"
        )
        self.built = True

    def select(self, scores, features, context=None):
        vectors = scores.class_vectors(tf.range(scores.num_classes))
        products = tf.matmul(features, vectors, transpose_b=True)
        best = tf.argmax(products, axis=1, output_type="int32")
        ids = best[:, None] + self.step * tf.range(self.num_candidates)
        return ids % scores.num_classes

    def after_step(self, scores, labels, hit):
        self.seen.assign_add(
            tf.math.bincount(
                labels, minlength=self.num_classes, dtype="float32"
            )
        )

    def get_config(self):
        return {**super().get_config(), "step": self.step}


def attached(selector, num_classes=10, num_candidates=3):
    selector.attach(num_classes, num_candidates)
    return selector


def examples(num_classes=CLASSES):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 6)).astype("float32")
    return x, rng.integers(num_classes, size=60)


def test_a_selector_of_your_own(tmp_path):
    x, y = examples()
    head = kc.CANESoftmax(CLASSES, Neighbours(step=2), 4, 3)
    model = keras.Sequential([keras.Input((6,)), head])
    model.compile(keras.optimizers.SGD(1.0), kc.CANELoss(), run_eagerly=True)
    losses = model.fit(x, y, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    times = np.bincount(y, minlength=CLASSES)
    np.testing.assert_array_equal(head.selector.seen, 4 * times)
    assert head.nodes is None
    candidates = head.selector.select(head.scores, x).numpy()
    assert (np.diff(candidates, axis=1) % CLASSES == 2).all()
    # Predictions are by the scores of all classes.
    ids, probabilities = head.top_k(x, k=CLASSES)
    scores = x @ head.kernel.numpy().T + head.bias.numpy()
    np.testing.assert_array_equal(ids, np.argsort(-scores, axis=1))
    np.testing.assert_allclose(probabilities.numpy().sum(axis=1), 1, rtol=1e-5)

    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    selector = again.layers[-1].selector
    assert isinstance(selector, Neighbours) and selector.step == 2
    for a, b in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    again.run_eagerly = True
    again.fit(x, y, verbose=0)
    np.testing.assert_array_equal(selector.seen, 5 * times)


def test_a_selector_without_select():
    head = kc.CANESoftmax(CLASSES, Selector())
    features = head(np.zeros((2, 4), "float32"), training=True)
    with refused("select", error=NotImplementedError):
        kc.CANELoss()(np.zeros(2), features)


def test_a_selector_belongs_to_one_layer():
    selector = attached(Neighbours(), 30, 4)
    selector.attach(30, 4)
    for sizes in ((31, 4), (30, 5)):
        with refused(received=f"num_classes={sizes[0]}"):
            selector.attach(*sizes)
    with refused("num_classes", 0):
        Neighbours().attach(0, 4)


@pytest.mark.filterwarnings("ignore:.*full softmax")
@pytest.mark.parametrize("number", [1, 4, 7, 10])
def test_frequent_classes(number):
    selector = FrequentClasses(COUNTS)
    head = kc.CANESoftmax(10, selector, number, 2)
    head.build((None, 3))
    ids = selector.select(head.scores, np.zeros((5, 3), "float32"))
    assert ids.dtype == "int32"
    # Of classes as frequent as each other, the first.
    right = [6, 1, 3, 4, 0, 8, 9, 5, 2, 7][:number]
    np.testing.assert_array_equal(ids, right)


TREE = ClassTree.random(50, seed=0)
COUNTS_OF_NO_USE = [None, [], [1, -1], [1, np.nan], [[1, 2]], ["a", "b"]]


@pytest.mark.parametrize(
    "argument, build, values",
    [
        ("tree", BeamTree, [None, [[0, 1]], "random"]),
        ("beam_width", lambda v: BeamTree(TREE, v), [0, -1, 2.5, True]),
        ("max_frontier", lambda v: BeamTree(TREE, 1, v), [0, 2.5, True]),
        ("refresh_every", lambda v: BeamTree(TREE, refresh_every=v), [0, 1.5]),
        ("counts", FrequentClasses, COUNTS_OF_NO_USE),
        ("counts", lambda v: FrequencySubsets(v, 2), COUNTS_OF_NO_USE),
        (
            "num_subsets",
            lambda v: FrequencySubsets([1, 2, 3], v),
            [1, 0, 4, 2.0],
        ),
        ("selector", lambda v: kc.CANESoftmax(50, v), ["beam", 3, len]),
        ("tree", lambda v: kc.CANESoftmax(40, BeamTree(v)), [TREE]),
        ("counts", lambda v: kc.CANESoftmax(40, FrequentClasses(v)), [COUNTS]),
        ("counts", lambda v: kc.CANESoftmax(40, FrequencySubsets(v)), [COUNTS]),
    ],
)
def test_wrong_arguments(argument, build, values):
    for value in values:
        with refused(argument):
            build(value)
