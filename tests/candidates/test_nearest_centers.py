"""Candidates of the nearest centers, alone and in a `Union`."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

import keras_compembed as kc
from keras_compembed.candidates import BeamTree
from keras_compembed.candidates import ClassScores
from keras_compembed.candidates import FrequentClasses
from keras_compembed.candidates import NearestCenters
from keras_compembed.candidates import Union

CLASSES, WIDTH = 90, 6
# Share of what was known that a step leaves, and of examples that is few.
KEPT, FEW = 0.98, 0.2
COUNTS = np.random.default_rng(0).permutation(900 // np.arange(1, CLASSES + 1))


def make_scores(seed=0):
    rng = np.random.default_rng(seed)
    return ClassScores(
        keras.Variable(rng.normal(size=(CLASSES, WIDTH)), dtype="float32"),
        keras.Variable(rng.normal(size=CLASSES), dtype="float32"),
    )


def built(num_candidates=5, **kwargs):
    selector = NearestCenters(**kwargs)
    selector.attach(CLASSES, num_candidates)
    selector.build((None, WIDTH))
    return selector


def clusters(rows, number=7, seed=0):
    """Features near a few points, of very different shares."""
    rng = np.random.default_rng(seed)
    points = np.random.default_rng(99).normal(size=(number, WIDTH))
    shares = 1 / np.arange(1, number + 1)
    own = rng.choice(number, size=rows, p=shares / shares.sum())
    features = points[own] + 0.1 * rng.normal(size=(rows, WIDTH))
    return features.astype("float32")


def nearest(features, centers):
    apart = (features[:, None] - centers) ** 2
    return apart.sum(axis=2).argmin(axis=1)


def plain_step(centers, totals, features, shifts):
    """A step of k-means, one example and one center after the other."""
    totals = KEPT * totals
    for row in features:
        if np.isfinite(row).all():
            own = nearest(row[None], centers)[0]
            totals[own] += [*row, row @ row, 1]
    centers = centers.copy()
    for place, total in enumerate(totals):
        if total[-1] > 0:
            centers[place] = total[:WIDTH] / total[-1]
    weights = totals[:, -1].copy()
    order = np.argsort(weights, kind="stable")
    pairs = len(centers) // 2
    few = FEW * weights.mean()
    for pair in range(pairs):
        small, large = order[pair], order[-1 - pair]
        if weights[small] >= few or weights[large] <= 2 * few:
            continue
        middle, half = centers[large].copy(), totals[large] / 2
        spread = 2 * half[-2] / weights[large] - middle @ middle
        shift = 0.5 * shifts[pair] * np.sqrt(max(spread, 0) / WIDTH)
        for place, center in ((small, middle + shift), (large, middle - shift)):
            centers[place] = center
            totals[place] = [*half[-1] * center, *half[-2:]]
    return centers, totals


@pytest.mark.parametrize("number", [1, 5, 12])
def test_k_means_as_one_by_one(number):
    selector, scores = built(num_centers=number), make_scores()
    for age in range(6):
        features = clusters(40, seed=age)
        features[3, 2] = [np.nan, np.inf, 0, 0, 0, 0][age]
        shape = (number // 2, WIDTH)
        shifts = tf.random.stateless_normal(shape, (age, 0)).numpy()
        state = selector.centers.numpy(), selector.totals.numpy()
        centers, totals = plain_step(*state, features, shifts)
        selector.observe(scores, tf.constant(features), None)
        # Sums of 40 float32 numbers, of sizes up to 20.
        np.testing.assert_allclose(selector.centers, centers, atol=2e-4)
        np.testing.assert_allclose(
            selector.totals, totals, rtol=1e-4, atol=2e-3
        )


def test_candidates_are_the_best_of_their_centers():
    selector, scores = built(num_centers=4), make_scores()
    features = tf.constant(clusters(30))
    first = selector.select(scores, features)
    assert first.ids.shape == (4, 5) and (first.ids.numpy() == -1).all()
    selector.observe(scores, features, None)
    every = selector.centers.numpy() @ scores.table.numpy().T
    best = np.argsort(-(every + scores.bias.numpy()), axis=1)
    ids = selector.select(scores, features).ids.numpy()
    np.testing.assert_array_equal(ids, best[:, :5])
    # Those that all examples have anyway are left out.
    shared = np.append(best[0, :20], -1).astype("int32")
    selector.refresh(scores, tf.constant(shared))
    expected = [[k for k in row if k not in shared][:5] for row in best]
    np.testing.assert_array_equal(selector.candidates, expected)
    # There may be fewer than wanted.
    selector.refresh(scores, tf.range(CLASSES - 2))
    expected = [[k for k in row if k >= CLASSES - 2] + [-1] * 3 for row in best]
    np.testing.assert_array_equal(selector.candidates, expected)


def test_when_candidates_are_looked_up():
    selector, scores = built(num_centers=3, refresh_every=6), make_scores()
    features = tf.constant(clusters(20))
    ages = []
    for age in range(1, 20):
        selector.candidates.assign(-np.ones((3, 5)))
        selector.observe(scores, features, None)
        if (selector.candidates.numpy() >= 0).any():
            ages.append(age)
    assert ages == [1, 2, 4, 6, 8, 12, 16, 18]


def tree():
    return BeamTree(kc.trees.ClassTree.random(CLASSES, 4, seed=0), 4)


def test_an_inner_selector_searches_for_centers():
    selector = NearestCenters(3, tree())
    head = kc.CANESoftmax(CLASSES, selector, 5, 5, seed=0)
    head.build((None, WIDTH))
    assert head.nodes is not None
    features = tf.constant(clusters(20))
    selector.observe(head.scores, features, None)
    centers = tf.constant(selector.centers.numpy())
    search = selector.selector.top_k
    expected = search(head.scores, centers, 5)[0]
    np.testing.assert_array_equal(selector.candidates, expected)
    for got, right in zip(
        selector.top_k(head.scores, features, 7),
        search(head.scores, features, 7),
        strict=True,
    ):
        np.testing.assert_array_equal(got, right)


def test_an_inner_selector_follows_training():
    first = kc.trees.ClassTree.random(CLASSES, branching=3, seed=0)
    inner = BeamTree(first, refresh_every=1)
    head = kc.CANESoftmax(CLASSES, NearestCenters(4, inner), 5, 5)
    model = keras.Sequential([keras.Input((WIDTH,)), head])
    model.compile("sgd", kc.CANELoss(), run_eagerly=True)
    for _ in range(2):
        model.train_on_batch(clusters(8), np.arange(8))
    assert (inner.tree.children.numpy() != first.children).any()


def test_sets_depend_on_own_features_and_earlier_steps_alone():
    """Else features of the next position would tell the label of this one."""
    features = clusters(20)
    others = features.copy()
    others[1:] = clusters(20, seed=5)[1:]
    labels = np.random.default_rng(0).integers(CLASSES, size=(2, 20))
    losses, states = [], []
    for x, y in (
        (features, labels[0]),
        (features, labels[1]),
        (others, labels[0]),
    ):
        # All are candidates or noises alike, so that only sets matter.
        head = kc.CANESoftmax(
            CLASSES, NearestCenters(5), 5, 5, share_noises=True, seed=0
        )
        head.build((None, WIDTH))
        head.kernel.assign(make_scores().table)
        head.selector.observe(head.scores, tf.constant(clusters(40)), None)
        outputs = head(x, training=True)
        losses.append(kc.CANELoss(reduction=None)(y, outputs).numpy())
        state = [np.ravel(weight) for weight in head.selector.weights]
        states.append(np.concatenate(state))
    # Labels do not change what is learned of features.
    np.testing.assert_array_equal(states[0], states[1])
    # Other rows' features change what comes after the step, and no set in it.
    np.testing.assert_allclose(losses[0][0], losses[2][0], rtol=1e-5)
    assert (losses[0] != losses[2]).any()
    assert (states[0] != states[2]).any()


@pytest.mark.apart
def test_no_copy_of_the_table_by_xla():
    """Candidates are looked up in the table before its update, in place."""
    head = kc.CANESoftmax(
        CLASSES, NearestCenters(4), 5, 10, share_noises=True, seed=0
    )
    head.build((None, WIDTH))

    @tf.function(jit_compile=True)
    def step(features, labels):
        kernel = head.kernel.value
        with tf.GradientTape() as tape:
            loss = kc.CANELoss()(labels, head(features, training=True))
        kernel.scatter_sub(tape.gradient(loss, kernel))

    features = tf.constant(clusters(30))
    labels = tf.range(30)
    hlo = step.experimental_get_compiler_ir(features, labels)("optimized_hlo")
    table = rf"f32\[{CLASSES},{WIDTH}\]"
    assert re.search(rf"{table}\S* scatter\(|{table}\S* while\(", hlo)
    assert not re.search(rf"{table}\S* copy\(", hlo)


def make_head(selectors, numbers=None, num_candidates=8):
    selector = Union(selectors, numbers)
    head = kc.CANESoftmax(CLASSES, selector, num_candidates, 6)
    head.build((None, WIDTH))
    return head


@pytest.mark.parametrize(
    ("numbers", "expected"), [(None, [3, 3, 2]), ([1, 5, 2], [1, 5, 2])]
)
def test_all_parts_of_a_union_choose(numbers, expected):
    parts = [FrequentClasses(COUNTS), NearestCenters(2), tree()]
    head = make_head(parts, numbers)
    assert [part.num_candidates for part in parts] == expected
    assert head.selector.tree is parts[2].tree
    x = tf.constant(clusters(9))
    frequent, near, found = head.selector.select(head.scores, x)
    order = np.argsort(-COUNTS, kind="stable")
    np.testing.assert_array_equal(frequent, order[: expected[0]])
    assert near.ids.shape == (2, expected[1])
    np.testing.assert_array_equal(found, parts[2].select(head.scores, x))
    # What all have is no candidate of a center.
    head.selector.observe(head.scores, x, frequent)
    assert not np.isin(parts[1].candidates, frequent).any()
    # It predicts as the part that searches; without one, by all classes.
    others = make_head([NearestCenters(2), FrequentClasses(COUNTS)])
    for each, search in (
        (head, parts[2].top_k(head.scores, x, 4)),
        (others, others.scores.top_k(x, 4)),
    ):
        for got, right in zip(
            each.selector.top_k(each.scores, x, 4), search, strict=True
        ):
            np.testing.assert_array_equal(got, right)


def test_wrong_arguments():
    for name, value in {
        "num_centers": 0,
        "refresh_every": 0,
        "selector": "tree",
    }.items():
        with refused(name, value):
            NearestCenters(**{name: value})
    frequent, fewer = FrequentClasses(COUNTS), FrequentClasses(COUNTS[:50])
    for argument, selectors, numbers in (
        ("selectors", [], None),
        ("selectors", ["frequent"], None),
        ("selectors", frequent, None),
        ("selectors", [tree(), tree()], None),
        ("selectors", 2 * [NearestCenters()], None),
        ("num_candidates", [tree()], [1, 2]),
        ("num_candidates", [tree()], 3),
        ("num_candidates", [tree()], [0]),
        ("num_candidates", [frequent, NearestCenters()], [4, 5]),
        ("counts", [frequent, fewer], None),
    ):
        with refused(argument):
            make_head(selectors, numbers)
