import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.candidates import Selector
from keras_compembed.candidates.selector import best_of


@keras.saving.register_keras_serializable(package="test_selector")
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


@keras.saving.register_keras_serializable(package="test_selector")
class ByContext(Selector):
    """Candidates from what the layer is called with."""

    def select(self, scores, features, context=None):
        return (context[:, None] + tf.range(self.num_candidates)) % 30


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


def examples(num_classes=30):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 6)).astype("float32")
    return x, rng.integers(num_classes, size=60)


def test_a_selector_of_your_own(tmp_path):
    x, y = examples()
    head = kc.CANESoftmax(30, Neighbours(step=2), 4, 3)
    model = keras.Sequential([keras.Input((6,)), head])
    model.compile(keras.optimizers.SGD(1.0), kc.CANELoss())
    losses = model.fit(x, y, epochs=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    np.testing.assert_array_equal(
        head.selector.seen, 8 * np.bincount(y, minlength=30)
    )
    assert head.nodes is None
    candidates = head.selector.select(head.scores, x).numpy()
    ids, probabilities = head.top_k(x, k=30)
    scores = x @ head.kernel.numpy().T + head.bias.numpy()
    order = np.argsort(-scores, axis=1)
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_allclose(probabilities.numpy().sum(axis=1), 1, rtol=1e-5)
    steps = np.diff(candidates, axis=1) % 30
    assert (steps == 2).all()

    path = tmp_path / "model.keras"
    model.save(path)
    again = keras.saving.load_model(path)
    selector = again.layers[-1].selector
    assert isinstance(selector, Neighbours) and selector.step == 2
    for a, b in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    again.fit(x, y, verbose=0)
    np.testing.assert_array_equal(
        selector.seen, 9 * np.bincount(y, minlength=30)
    )


def test_context():
    x, y = examples()
    inputs = keras.Input((6,)), keras.Input((), dtype="int32")
    head = kc.CANESoftmax(30, ByContext(), 4, 3)
    model = keras.Model(inputs, head(inputs[0], context=inputs[1]))
    model.compile("sgd", kc.CANELoss(), metrics=[kc.Coverage()])
    # The label is the third of four candidates, or comes after them.
    for place, coverage in [(2, 1.0), (4, 0.0)]:
        context = (y - place) % 30
        model.fit((x, context), y, verbose=0)
        result = model.evaluate((x, context), y, verbose=0, return_dict=True)
        assert result["coverage"] == coverage


def test_a_selector_without_select():
    head = kc.CANESoftmax(30, Selector())
    features = head(np.zeros((2, 4), "float32"), training=True)
    with pytest.raises(NotImplementedError, match="Selector must have a meth"):
        kc.CANELoss()(np.zeros(2), features)


def test_attach():
    selector = Neighbours()
    selector.attach(30, 4)
    selector.attach(30, 4)
    for sizes in ((31, 4), (30, 5)):
        with pytest.raises(ValueError, match="must belong to one layer"):
            selector.attach(*sizes)
    for sizes, name in [((0, 4), "num_classes"), ((9, 0), "num_candidates")]:
        with pytest.raises(ValueError, match=f"`{name}` must be a positive"):
            Neighbours().attach(*sizes)


def test_what_is_no_selector():
    with pytest.raises(ValueError, match="`selector` must be"):
        kc.CANESoftmax(30, "beam")
