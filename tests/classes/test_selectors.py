"""Selectors of your own, by counts and by n-grams, and what all refuse."""

import collections
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from class_models import cane
from errors import refused

import keras_compembed as kc
from keras_compembed.classes import BeamTree
from keras_compembed.classes import ClassTree
from keras_compembed.classes import FrequencySubsets
from keras_compembed.classes import FrequentClasses
from keras_compembed.classes import NGram
from keras_compembed.classes import Selector
from keras_compembed.classes.selectors import split_evenly

CLASSES = 30
COUNTS = np.array([3, 9, 0, 9, 4, 0.5, 1e9, 0, 2, 1])
# Of subsets.
MANY = 10_000 // np.arange(1, 101)
TABLE = [[4, 1, 0], [2, -1, -1]]


@keras.saving.register_keras_serializable(package="test_selectors")
class Neighbours(Selector):
    """A user's own: classes in a circle, from the one of the highest score."""

    _settings = ("step",)

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
        counts = tf.math.bincount(labels, minlength=self.num_classes)
        self.seen.assign_add(tf.cast(counts, "float32"))


def built(selector, num_classes, num_candidates):
    selector.attach(num_classes, num_candidates)
    selector.build((None, 2))
    return selector


def test_a_selector_of_your_own(tmp_path):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 6)).astype("float32")
    y = rng.integers(CLASSES, size=60)
    selector = Neighbours(step=2)
    head = cane(CLASSES, selector=selector, num_candidates=4, num_noises=3)
    model = keras.Sequential([keras.Input((6,)), head])
    model.compile(keras.optimizers.SGD(1.0), kc.CANELoss(), run_eagerly=True)
    losses = model.fit(x, y, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    times = np.bincount(y, minlength=CLASSES)
    np.testing.assert_array_equal(selector.seen, 4 * times)
    assert head.nodes is None
    candidates = selector.select(head.scores, x).numpy()
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


@pytest.mark.parametrize("number", [4, 10])
def test_frequent_classes(number):
    selector = built(FrequentClasses(COUNTS), 10, number)
    ids = selector.select(None, np.zeros((5, 3), "float32"))
    assert ids.dtype == "int32"
    # Of classes as frequent as each other, the first.
    right = [6, 1, 3, 4, 0, 8, 9, 5, 2, 7][:number]
    np.testing.assert_array_equal(ids, right)


# Subsets of classes.


def subsets_of(counts=MANY, num_subsets=4, num_candidates=5):
    selector = FrequencySubsets(counts, num_subsets, seed=0)
    return built(selector, len(counts), num_candidates)


def choose(selector, subsets):
    """Candidates where the subsets' scores are the features themselves."""
    number = selector.num_subsets
    scores = types.SimpleNamespace(
        of_nodes=lambda depth: (tf.eye(number), tf.zeros(number))
    )
    return selector.select(scores, tf.one_hot(subsets, number))


def members(selector):
    """The classes of each subset, by the tree."""
    parents = selector.tree.class_parents.numpy()
    return [np.flatnonzero(parents == i) for i in range(selector.num_subsets)]


@pytest.mark.parametrize("num_candidates", [1, 5, 40])
def test_candidates_differ_and_are_of_the_subset(num_candidates):
    selector = subsets_of(num_candidates=num_candidates)
    subsets = np.repeat(np.arange(4), 300)
    candidates = choose(selector, subsets).numpy()
    assert candidates.shape == (1200, num_candidates)
    assert candidates.dtype == "int32"
    groups = members(selector)
    for subset, row in zip(subsets, candidates, strict=True):
        row = row[row >= 0]
        assert len(row) == min(num_candidates, len(groups[subset]))
        assert len(set(row)) == len(row)
        assert set(row) <= set(groups[subset])


def test_candidates_are_drawn_evenly(size=7, num_candidates=5):
    """Also where places do not divide into parts of one length."""
    counts = np.concatenate([[size], np.ones(size)])
    selector = subsets_of(counts, 2, num_candidates)
    groups = members(selector)
    assert [len(group) for group in groups] == [1, size]
    rows = 20_000
    candidates = choose(selector, np.ones(rows, int)).numpy()
    drawn = np.bincount(candidates.ravel(), minlength=size + 1)[groups[1]]
    share = num_candidates / size
    deviation = np.sqrt(rows * share * (1 - share))
    assert np.abs(drawn - rows * share).max() < 5 * deviation
    # A candidate is not always in the same place of its row.
    assert len(np.unique(candidates[:, 0])) == size


def test_rows_and_steps_differ():
    selector, again = (subsets_of(num_candidates=8) for _ in "ab")
    run = tf.function(lambda x: choose(selector, x))
    places, before = tf.fill((20,), 3), None
    for _ in range(2):
        found = run(places).numpy()
        np.testing.assert_array_equal(found, choose(again, places))
        assert len(np.unique(found, axis=0)) > 15
        assert not np.array_equal(found, before)
        before = found
        for each in (selector, again):
            each.after_step(None, None, None)


def test_routes_to_the_highest_score():
    """By vectors and biases of the subsets."""
    selector = FrequencySubsets(MANY, 3, seed=0)
    head = cane(100, 3, selector=selector, num_candidates=4, num_noises=4)
    head.nodes.assign(np.eye(3))
    head.node_bias.assign(np.zeros(3))
    features = tf.constant([[2.0, 1, 0], [0, 2.0, 1], [0, 1, 2.0]])
    parents = selector.tree.class_parents.numpy()
    ids = selector.select(head.scores, features).numpy()
    assert [set(parents[row[row >= 0]]) for row in ids] == [{0}, {1}, {2}]
    head.node_bias.assign([0, 3, 0])
    ids = selector.select(head.scores, features).numpy()
    assert set(parents[ids.ravel()]) == {1}


@pytest.mark.parametrize("num_groups", [2, 3])
@pytest.mark.parametrize(
    "counts",
    [
        np.random.default_rng(0).permutation(MANY),
        np.zeros(7),
        [1e300, 1, 1, 1],
        2.0 ** -np.arange(60),
    ],
)
def test_split_is_even_and_no_subset_is_empty(counts, num_groups):
    counts = np.asarray(counts, "float64")
    groups = split_evenly(counts, num_groups)
    assert set(groups) == set(range(num_groups))
    # Where one class more or less is what an even split allows.
    mass = np.bincount(groups, counts)
    assert np.abs(mass - counts.sum() / num_groups).max() <= counts.max()
    # The most frequent classes come first.
    assert (np.diff(groups[np.argsort(-counts, kind="stable")]) >= 0).all()


# N-grams.


def look_up(selector, context):
    rows = 1 if context is None else len(context)
    if context is not None:
        context = tf.constant(context)
    return selector.select(None, tf.zeros((rows, 2)), context).numpy()


def plain_table(sequences, num_classes, number):
    """Rows of what follows each class, and the most frequent classes."""
    frequent = collections.Counter()
    followers = collections.defaultdict(collections.Counter)
    for sequence in sequences:
        frequent.update(i for i in sequence if i >= 0)
        for one, other in zip(sequence, sequence[1:], strict=False):
            if one >= 0 and other >= 0:
                followers[one][other] += 1

    def ranked(counts):
        return sorted(counts, key=lambda i: (-counts[i], i))

    every = ranked({c: frequent[c] for c in range(num_classes)})
    rows = []
    for c in range(num_classes):
        first = ranked(followers[c])[:number]
        rest = [i for i in every[:number] if i not in first]
        rows.append((first + rest)[:number])
    return rows, every[:number]


def test_n_gram_by_hand():
    selector = built(NGram(TABLE, fallback=[3, 2, 1]), 5, 3)
    np.testing.assert_array_equal(
        look_up(selector, [1, 0, -1, 2, 99]),
        [[2, -1, -1], [4, 1, 0], [3, 2, 1], [3, 2, 1], [3, 2, 1]],
    )
    np.testing.assert_array_equal(look_up(selector, None), [3, 2, 1])
    selector = built(NGram(np.asarray(TABLE, "int64")), 5, 2)
    found = look_up(selector, [0, -1])
    np.testing.assert_array_equal(found, [[4, 1], [-1, -1]])


@pytest.mark.parametrize("num_classes", [3, 20, 60])
@pytest.mark.parametrize("number", [1, 4, 100])
def test_text_as_counted_one_by_one(num_classes, number):
    """What never came is last; ties are in the order of ids."""
    rng = np.random.default_rng(num_classes)
    text = np.minimum(rng.zipf(1.4, size=(8, 30)) - 1, num_classes - 1)
    text[rng.random(text.shape) < 0.1] = -1
    number = min(number, num_classes)
    for ids in (text, text[:0, :0], text[0]):
        sequences = [ids.tolist()] if ids.ndim == 1 else ids.tolist()
        rows, frequent = plain_table(sequences, num_classes, number)
        selector = NGram.from_text(ids, num_classes, num_best=number)
        selector = built(selector, num_classes, number)
        found = look_up(selector, np.arange(-1, num_classes + 1))
        np.testing.assert_array_equal(found, [frequent, *rows, frequent])


def test_text_of_small_integers():
    text = np.array([200, 201, 200, 201], "uint8")
    selector = built(NGram.from_text(text, 202, num_best=2), 202, 2)
    found = look_up(selector, [200, 201, 5])
    np.testing.assert_array_equal(found, [[201, 200], [200, 201], [200, 201]])


def test_a_model_of_a_text():
    """The layer is called with the ids; files are in the table of layers."""
    # Each word is followed by one of two.
    rng = np.random.default_rng(0)
    text = np.zeros((40, 9), "int32")
    text[:, 0] = rng.integers(50, size=40)
    for step in range(8):
        text[:, step + 1] = (2 * text[:, step] + rng.integers(2, size=40)) % 50
    ids = keras.Input((8,), dtype="int32")
    features = keras.layers.Embedding(50, 6)(ids)
    selector = NGram.from_text(text, 50, num_best=4)
    head = cane(50, selector=selector, num_candidates=4, num_noises=2)
    model = keras.Model(ids, head(features, context=ids))
    metrics = [kc.Coverage()]
    model.compile("sgd", kc.CANELoss(), metrics=metrics, run_eagerly=True)
    logs = model.evaluate(text[:, :-1], text[:, 1:], verbose=0)
    assert logs[1] == 1
    assert logs[0] == pytest.approx(np.log(50), abs=0.1)


TREE = ClassTree.random(50, seed=0)


@pytest.mark.parametrize(
    "argument, build, values",
    [
        ("tree", BeamTree, [None, [[0, 1]]]),
        ("beam_width", lambda v: BeamTree(TREE, v), [0, 2.5]),
        ("max_frontier", lambda v: BeamTree(TREE, 1, v), [0]),
        ("refresh_every", lambda v: BeamTree(TREE, refresh_every=v), [0]),
        ("counts", FrequentClasses, [[], [1, -1], [1, np.nan], ["a"]]),
        ("counts", lambda v: FrequencySubsets(v, 2), [[1, -1]]),
        ("num_subsets", lambda v: FrequencySubsets([1, 2, 3], v), [1, 4]),
        ("tree", lambda v: BeamTree(v).attach(40, 2), [TREE]),
        ("counts", lambda v: FrequentClasses(v).attach(40, 2), [COUNTS]),
        ("counts", lambda v: FrequencySubsets(v).attach(40, 2), [COUNTS]),
    ],
)
def test_wrong_arguments(argument, build, values):
    for value in values:
        with refused(argument):
            build(value)


def test_wrong_tables_and_texts():
    for arguments, argument, received in (
        ((None,), "table", None),
        (([1, 2],), "table", "shape=(2,)"),
        (([[]],), "table", None),
        (([[0.0]],), "table", "float64"),
        (([[0, -2]],), "table", "row=0"),
        (([[0, 2**31]],), "table", "row=0"),
        (([[0, 1], [2, 2]],), "table", "row=1"),
        (([[0, 1]], [2, 2]), "fallback", "row=1"),
        (([[0, 1]], [2]), "fallback", "shape=(1,)"),
        (([[0, 1]], [2.0, 3.0]), "fallback", "float64"),
    ):
        with refused(argument, received):
            NGram(*arguments)
    for sizes, received in (((4, 3), "largest=4"), ((9, 4), "columns=3")):
        with refused("table", received):
            NGram(TABLE).attach(*sizes)
    for argument, value in (
        ("ids", [[[1]]]),
        ("ids", [0.5]),
        ("ids", [1, 5]),
        ("num_classes", 0),
        ("num_best", 0),
    ):
        arguments = {"ids": [0, 1], "num_classes": 5, argument: value}
        with refused(argument):
            NGram.from_text(**arguments)


def test_a_selector_without_select():
    head = cane(CLASSES, selector=Selector())
    features = head(np.zeros((2, 4), "float32"), training=True)
    with refused("select", error=NotImplementedError):
        kc.CANELoss()(np.zeros(2), features)
