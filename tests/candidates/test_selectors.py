"""Selectors of your own, functions, frequent classes, and what all refuse."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

import keras_compembed as kc
from keras_compembed.candidates import BeamTree
from keras_compembed.candidates import FrequencySubsets
from keras_compembed.candidates import FrequentClasses
from keras_compembed.candidates import FunctionSelector
from keras_compembed.candidates import NearestCenters
from keras_compembed.candidates import NGram
from keras_compembed.candidates import Selector
from keras_compembed.candidates.selector import best_of
from keras_compembed.trees import ClassTree

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


class ByContext(Selector):
    """Candidates from what the layer is called with."""

    def select(self, scores, features, context=None):
        return (context[:, None] + tf.range(self.num_candidates)) % CLASSES


@keras.saving.register_keras_serializable(package="test_selectors")
def by_sign(features):
    start = 3 * tf.cast(features[:, :1] > 0, "int32")
    return start + tf.range(3)


def attached(selector, num_classes=10, num_candidates=3):
    selector.attach(num_classes, num_candidates)
    return selector


def test_best_of():
    ids = tf.constant([[4, 9, -1], [7, -1, 2], [-1, -1, -1]])
    none = -np.inf
    scores = tf.constant(
        [[1.0, 2.0, none], [0.0, none, -3.0], [none, none, none]]
    )
    for k in (2, 3, 5):
        best, values, total = best_of(ids, scores, k)
        right = [[9, 4, -1, -1, -1], [7, 2, -1, -1, -1], [-1] * 5]
        np.testing.assert_array_equal(best, np.array(right)[:, :k])
        right = [[2, 1, none, none, none], [0, -3, none, none, none]]
        right.append([none] * 5)
        np.testing.assert_array_equal(values, np.array(right)[:, :k])
        exact = [np.log(np.e + np.e**2), np.log1p(np.exp(-3)), none]
        np.testing.assert_allclose(total, exact, atol=1e-6)


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


def test_context():
    x, y = examples()
    inputs = keras.Input((6,)), keras.Input((), dtype="int32")
    head = kc.CANESoftmax(CLASSES, ByContext(), 4, 3)
    model = keras.Model(inputs, head(inputs[0], context=inputs[1]))
    model.compile("sgd", kc.CANELoss(), metrics=[kc.Coverage()])
    # The label is the third of four candidates, or comes after them.
    for place, coverage in [(2, 1.0), (4, 0.0)]:
        context = (y - place) % CLASSES
        model.fit((x, context), y, verbose=0)
        result = model.evaluate((x, context), y, verbose=0, return_dict=True)
        assert result["coverage"] == coverage


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
    for sizes, name in [((0, 4), "num_classes"), ((9, 0), "num_candidates")]:
        with refused(name, 0):
            Neighbours().attach(*sizes)


@pytest.mark.parametrize("num_candidates", [1, 4, 7])
def test_frequent_classes(num_candidates):
    selector = FrequentClasses(COUNTS)
    head = kc.CANESoftmax(10, selector, num_candidates, 2)
    head.build((None, 3))
    ids = selector.select(head.scores, np.zeros((5, 3), "float32"))
    assert ids.dtype == "int32"
    # Of classes as frequent as each other, the first.
    np.testing.assert_array_equal(ids, [6, 1, 3, 4, 0, 8, 9][:num_candidates])


def test_all_classes_are_frequent():
    selector = FrequentClasses(COUNTS)
    with pytest.warns(UserWarning, match="full softmax"):
        head = kc.CANESoftmax(10, selector, 10, 2)
    head.build((None, 3))
    assert sorted(selector.classes.numpy()) == list(range(10))


def test_function_in_a_model(tmp_path):
    x, y = examples(6)
    head = kc.CANESoftmax(CLASSES, selector=by_sign, num_candidates=3)
    model = keras.Sequential([keras.Input((6,)), head])
    metrics = [kc.Coverage()]
    model.compile("sgd", kc.CANELoss(), metrics=metrics, run_eagerly=True)
    loss, coverage = model.evaluate(x, y, verbose=0)
    assert coverage == pytest.approx(np.mean((x[:, 0] > 0) == (y >= 3)))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.layers[-1].selector.function is by_sign
    assert loaded.evaluate(x, y, verbose=0) == [loss, coverage]


BAD_IDS = [
    ([3, 10, 1], "out of range"),
    ([3, -2, 1], "out of range"),
    ([3, 4, 3], "differ within a row"),
    ([[3, 4, 5], [7, 8, 8]], "differ within a row"),
]


@pytest.mark.parametrize(("ids", "message"), BAD_IDS)
@pytest.mark.parametrize("dtype", ["int32", "int64", "int8"])
def test_functions_of_ids_that_may_not_be(ids, message, dtype):
    selector = attached(FunctionSelector(lambda x: tf.constant(ids, dtype)))
    features = tf.zeros((2, 4))
    for select in (selector.select, tf.function(selector.select)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            select(None, features)


@pytest.mark.xla
@pytest.mark.parametrize("ids", [ids for ids, _ in BAD_IDS])
def test_ids_that_may_not_be_under_xla(ids):
    """It leaves checks out; what is wrong does not count."""
    selector = attached(FunctionSelector(lambda x: tf.constant(ids)))
    compiled = tf.function(lambda x: selector.select(None, x), jit_compile=True)
    got = compiled(tf.zeros((2, 4))).numpy()
    for row, given in zip(
        np.atleast_2d(got), np.atleast_2d(np.array(ids)), strict=True
    ):
        kept = row[row >= 0]
        right = set(given[(given >= 0) & (given < 10)])
        assert len(set(kept)) == len(kept) and set(kept) == right


@pytest.mark.parametrize(
    ("ids", "dtype"),
    [
        ([[3, -1, -1], [9, 0, 4]], "int32"),
        ([[3, -1, -1], [9, 0, 4]], "int64"),
        ([[3, 1, 2], [9, 0, 4]], "uint8"),
    ],
)
def test_functions_of_ids_that_may_be(ids, dtype):
    selector = attached(FunctionSelector(lambda x: tf.constant(ids, dtype)))
    got = selector.select(None, tf.zeros((2, 4)))
    assert got.dtype == "int32"
    np.testing.assert_array_equal(got, ids)


@pytest.mark.parametrize(
    ("function", "received"),
    [
        (lambda x: tf.cast(x[:, :2], "int32"), (5, 2)),
        (lambda x: tf.zeros((4, 3), "int32"), (4, 3)),
        (lambda x: x[:, :3], "float32"),
        (lambda x: None, None),
    ],
)
def test_functions_of_what_is_no_id(function, received):
    selector = attached(FunctionSelector(function))
    with refused(received=str(received)):
        selector.select(None, tf.zeros((5, 4)))


TREE = ClassTree.random(50, seed=0)
SELECTORS = {
    "beam tree": lambda: BeamTree(TREE, 7, 30, name="its own"),
    "refreshed tree": lambda: BeamTree(TREE, refresh_every=5),
    "frequent": lambda: FrequentClasses(COUNTS, name="its own"),
    "subsets": lambda: FrequencySubsets(COUNTS, 4, seed=5),
    "n-gram": lambda: NGram([[0, 1], [2, -1]], [1, 2]),
    "centers": lambda: NearestCenters(3, BeamTree(TREE), 7),
}


@pytest.mark.parametrize("name", SELECTORS)
def test_configs(name):
    selector = SELECTORS[name]()
    config = json.loads(json.dumps(selector.get_config()))
    again = type(selector).from_config(config)
    assert json.loads(json.dumps(again.get_config())) == config
    assert again.name == selector.name


@pytest.mark.parametrize(
    "build, argument, values",
    [
        (BeamTree, "tree", [None, [[0, 1]], "random"]),
        (lambda v: BeamTree(TREE, v), "beam_width", [0, -1, 2.5, True]),
        (lambda v: BeamTree(TREE, 1, v), "max_frontier", [0, -1, 2.5, True]),
        (lambda v: BeamTree(TREE, refresh_every=v), "refresh_every", [0, 1.5]),
        (
            FrequentClasses,
            "counts",
            [[], [1, -1], [1, np.inf], [[1, 2]], "ab"],
        ),
        (
            lambda v: FrequencySubsets(v, 2),
            "counts",
            [None, [], [1, -1], [1, np.nan], [[1, 2]], ["a", "b"]],
        ),
        (
            lambda v: FrequencySubsets([1, 2, 3], v),
            "num_subsets",
            [1, 0, 4, 2.0],
        ),
        (FunctionSelector, "function", [3]),
        (lambda v: kc.CANESoftmax(50, v), "selector", ["beam", 3]),
        (
            lambda v: kc.CANESoftmax(40, v),
            "tree",
            [BeamTree(TREE)],
        ),
        (
            lambda v: kc.CANESoftmax(40, v),
            "counts",
            [FrequentClasses(COUNTS), FrequencySubsets(COUNTS, 2)],
        ),
    ],
)
def test_wrong_arguments(build, argument, values):
    for value in values:
        with refused(argument):
            build(value)
