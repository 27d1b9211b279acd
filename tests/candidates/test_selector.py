import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.candidates import Selector
from keras_compembed.candidates import selector as selector_module
from keras_compembed.candidates.selector import best_of
from keras_compembed.candidates.selector import exact_top_k


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

    def select(self, head, features, context=None):
        vectors = head.class_vectors(tf.range(head.num_classes))
        scores = tf.matmul(features, vectors, transpose_b=True)
        best = tf.argmax(scores, axis=1, output_type="int32")
        ids = best[:, None] + self.step * tf.range(self.num_candidates)
        return ids % head.num_classes

    def after_step(self, head, labels, hit):
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

    def select(self, head, features, context=None):
        return (context[:, None] + tf.range(self.num_candidates)) % 30


def scored(scores):
    """A head whose features are the scores of all classes."""
    rows, num_classes = scores.shape

    def score_chunk(features, start, size):
        ids = start + tf.range(size)
        exists = ids < num_classes
        ids = tf.minimum(ids, num_classes - 1)
        chunk = tf.gather(features, ids, axis=1)
        return ids, tf.where(exists, chunk, float("-inf"))

    return types.SimpleNamespace(
        num_classes=num_classes, score_chunk=score_chunk
    )


@pytest.fixture
def small_chunks(monkeypatch):
    """300 classes and 4 rows at a time."""
    monkeypatch.setattr(selector_module, "chunk_sizes", lambda *_: (4, 300))


@pytest.mark.parametrize("num_classes", [299, 300, 301, 600, 1234])
@pytest.mark.parametrize("k", [1, 7, 299])
def test_exact_top_k(small_chunks, num_classes, k):
    rng = np.random.default_rng(num_classes)
    scores = rng.normal(size=(6, num_classes)).astype("float32")
    # The best and the worst at the boundaries of chunks.
    scores[0, [0, -1]] = 10, 20
    scores[1, [min(299, num_classes - 1), num_classes // 2]] = 20, 10
    scores[2, -min(3, num_classes) :] = -50
    ids, best, total = exact_top_k(scored(scores), tf.constant(scores), k)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    assert ids.dtype == tf.int32
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_array_equal(
        best, np.take_along_axis(scores, order, axis=1)
    )
    exact = np.log(np.exp(scores.astype("float64")).sum(axis=1))
    np.testing.assert_allclose(total, exact, rtol=1e-5)


def test_ties_go_to_the_first(small_chunks):
    scores = np.zeros((2, 1000), "float32")
    ids, _, total = exact_top_k(scored(scores), tf.constant(scores), 400)
    np.testing.assert_array_equal(ids, [np.arange(400)] * 2)
    np.testing.assert_allclose(total, [np.log(1000)] * 2, rtol=1e-6)


def test_more_than_a_chunk(small_chunks):
    scores = np.random.default_rng(0).normal(size=(3, 700)).astype("float32")
    ids, _, _ = exact_top_k(scored(scores), tf.constant(scores), 700)
    np.testing.assert_array_equal(ids, np.argsort(-scores, axis=1))


def test_nan_and_infinite_scores(small_chunks):
    scores = np.random.default_rng(0).normal(size=(5, 700)).astype("float32")
    scores[0, :650] = np.nan
    scores[1, :650] = -np.inf
    scores[2] = np.nan
    scores[3, 5] = 1e30
    ids, best, total = exact_top_k(scored(scores), tf.constant(scores), 100)
    for row in (0, 1):
        order = 650 + np.argsort(-scores[row, 650:])
        np.testing.assert_array_equal(ids[row, :50], order)
        assert (ids[row, 50:].numpy() == -1).all()
        assert (best[row, 50:].numpy() == -np.inf).all()
        exact = np.log(np.exp(scores[row, 650:]).sum())
        np.testing.assert_allclose(total[row], exact, rtol=1e-5)
    assert (ids[2].numpy() == -1).all() and total[2] == -np.inf
    assert ids[3, 0] == 5 and total[3] == 1e30
    assert (ids[4].numpy() >= 0).all()


@pytest.mark.parametrize("rows", [None, 4])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_exact_top_k_in_graphs(small_chunks, rows, jit_compile):
    scores = np.random.default_rng(0).normal(size=(4, 700)).astype("float32")
    head = scored(scores)

    @tf.function(
        input_signature=[tf.TensorSpec((rows, 700))], jit_compile=jit_compile
    )
    def run(features):
        ids, best, total = exact_top_k(head, features, 5)
        assert ids.shape == best.shape == (rows, 5)
        assert total.shape == (rows,)
        return ids

    order = np.argsort(-scores, axis=1)[:, :5]
    np.testing.assert_array_equal(run(scores), order)


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
    candidates = head.selector.select(head, x).numpy()
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
