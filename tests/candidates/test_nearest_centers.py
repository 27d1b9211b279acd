import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.candidates import BeamTree
from keras_compembed.candidates import ClassScores
from keras_compembed.candidates import NearestCenters
from keras_compembed.candidates.candidates_vs_noises import CandidatesVsNoises
from keras_compembed.candidates.nearest_centers import _FEW
from keras_compembed.candidates.nearest_centers import _KEPT

CLASSES, WIDTH = 90, 6


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
    return features.astype("float32"), own


def nearest(features, centers):
    apart = (features[:, None] - centers) ** 2
    return apart.sum(axis=2).argmin(axis=1)


def plain_step(centers, totals, features, shifts):
    """A step of k-means, one example and one center after the other."""
    totals = _KEPT * totals
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
    few = _FEW * weights.mean()
    for pair in range(pairs):
        small, large = order[pair], order[-1 - pair]
        if weights[small] >= few or weights[large] <= 2 * few:
            continue
        middle, half = centers[large].copy(), totals[large] / 2
        spread = 2 * half[-2] / weights[large] - middle @ middle
        shift = 0.5 * shifts[pair] * np.sqrt(max(spread, 0) / WIDTH)
        for place, center in (
            (small, middle + shift),
            (large, middle - shift),
        ):
            centers[place] = center
            totals[place] = [*half[-1] * center, *half[-2:]]
    return centers, totals


@pytest.mark.parametrize(
    ("number", "jit_compile"), [(1, False), (5, False), (12, True)]
)
def test_k_means_as_one_by_one(number, jit_compile):
    selector, scores = built(num_centers=number), make_scores()
    observe = tf.function(
        lambda x: selector.observe(scores, x, None), jit_compile=jit_compile
    )
    # XLA draws other numbers.
    normal = tf.function(
        lambda age: tf.random.stateless_normal((number // 2, WIDTH), (age, 0)),
        jit_compile=jit_compile,
    )
    for age in range(6):
        features, _ = clusters(40, seed=age)
        features[3, 2] = [np.nan, np.inf, 0, 0, 0, 0][age]
        state = selector.centers.numpy(), selector.totals.numpy()
        centers, totals = plain_step(
            *state, features, normal(tf.constant(age)).numpy()
        )
        observe(tf.constant(features))
        # Sums of 40 float32 numbers, of sizes up to 20.
        np.testing.assert_allclose(selector.centers, centers, atol=2e-4)
        np.testing.assert_allclose(
            selector.totals, totals, rtol=1e-4, atol=2e-3
        )
        assert selector.age.numpy() == age + 1


def test_finds_clusters():
    """Also from a start at which one center is nearest to all."""
    selector, scores = built(num_centers=14), make_scores()
    selector.centers.assign(100 + np.arange(14)[:, None] * np.ones(WIDTH))
    for step in range(30):
        features, _ = clusters(100, seed=step)
        selector.observe(scores, tf.constant(features), None)
    found = selector.select(scores, tf.constant(features)).groups.numpy()
    centers = selector.centers.numpy()
    np.testing.assert_array_equal(found, nearest(features, centers))
    # What centers leave of the variance.
    left = ((features - centers[found]) ** 2).sum(axis=1).mean()
    assert left < 0.15 * features.var(axis=0).sum()
    assert len(set(found)) > 7


def test_candidates_are_the_best_of_their_centers():
    selector, scores = built(num_centers=4), make_scores()
    features, _ = clusters(30)
    first = selector.select(scores, tf.constant(features))
    assert first.ids.shape == (4, 5) and (first.ids.numpy() == -1).all()
    selector.observe(scores, tf.constant(features), None)
    every = selector.centers.numpy() @ scores.table.numpy().T
    best = np.argsort(-(every + scores.bias.numpy()), axis=1)
    ids = selector.select(scores, tf.constant(features)).ids.numpy()
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
    features = tf.constant(clusters(20)[0])
    ages = []
    for age in range(1, 20):
        selector.candidates.assign(-np.ones((3, 5)))
        selector.observe(scores, features, None)
        if (selector.candidates.numpy() >= 0).any():
            ages.append(age)
    assert ages == [1, 2, 4, 6, 8, 12, 16, 18]


def test_an_inner_selector_searches_for_centers():
    tree = kc.trees.ClassTree.random(CLASSES, 4, seed=0)
    selector = NearestCenters(3, BeamTree(tree, max_frontier=4))
    head = kc.CANESoftmax(CLASSES, selector, 5, 5, seed=0)
    head.build((None, WIDTH))
    assert head.nodes is not None
    features = tf.constant(clusters(20)[0])
    selector.observe(head.scores, features, None)
    centers = tf.constant(selector.centers.numpy())
    expected = selector.selector.top_k(head.scores, centers, 5)[0]
    np.testing.assert_array_equal(selector.candidates, expected)
    for got, right in zip(
        selector.top_k(head.scores, features, 7),
        selector.selector.top_k(head.scores, features, 7),
        strict=True,
    ):
        np.testing.assert_array_equal(got, right)


def test_sets_depend_on_own_features_and_earlier_steps_alone():
    """Else features of the next position would tell the label of this one."""
    scores = make_scores()
    features, _ = clusters(20)
    others = features.copy()
    others[1:] = clusters(20, seed=5)[0][1:]
    labels = np.random.default_rng(0).integers(CLASSES, size=(2, 20))
    sets, states = [], []
    for x, y in (
        (features, labels[0]),
        (features, labels[1]),
        (others, labels[0]),
    ):
        selector = built(num_centers=5)
        selector.observe(scores, tf.constant(clusters(40)[0]), None)
        noise = kc.noises.UniformNoise()
        noise.attach(CLASSES)
        noise.build()
        estimation = CandidatesVsNoises(selector, noise, share_noises=True)
        chosen = []
        select = selector.select

        def recording(*arguments, select=select, chosen=chosen):
            chosen.append(select(*arguments))
            return chosen[-1]

        selector.select = recording
        estimation.draw(
            scores,
            tf.constant(x),
            tf.constant(y, "int32"),
            tf.constant([0, 1]),
        )
        (found,) = chosen
        sets.append(found.of_rows().numpy())
        state = [np.ravel(weight) for weight in selector.weights]
        states.append(np.concatenate(state))
    # Labels change neither sets nor what is learned of features.
    np.testing.assert_array_equal(sets[0], sets[1])
    np.testing.assert_array_equal(states[0], states[1])
    # Other rows' features change what comes after the step, and no set in it.
    np.testing.assert_array_equal(sets[0][0], sets[2][0])
    assert (sets[0] != sets[2]).any()
    assert (states[0] != states[2]).any()


def test_no_copy_of_the_table_by_xla():
    """Candidates are looked up in the table before its update, in place."""
    scores, selector = make_scores(), built(num_centers=4)
    noise = kc.noises.UnigramNoise(np.ones(CLASSES))
    noise.attach(CLASSES)
    noise.build()
    estimation = CandidatesVsNoises(selector, noise, share_noises=True)

    @tf.function(jit_compile=True)
    def step(features, labels):
        table = scores.table.value
        with tf.GradientTape() as tape:
            losses = estimation.draw(scores, features, labels, [1, 2]).losses
        gradient = tape.gradient(losses, table)
        table.scatter_sub(gradient)

    features, labels = clusters(30)
    arguments = tf.constant(features), tf.constant(labels, "int32")
    hlo = step.experimental_get_compiler_ir(*arguments)("optimized_hlo")
    table = rf"f32\[{CLASSES},{WIDTH}\]"
    assert re.search(rf"{table}\S* scatter\(|{table}\S* while\(", hlo)
    assert not re.search(rf"{table}\S* copy\(", hlo)


def test_covers_labels_that_features_tell():
    x, own = clusters(1000)
    # Seven of the classes at each point.
    y = 7 * own + np.random.default_rng(0).integers(7, size=1000)
    head = kc.CANESoftmax(
        CLASSES,
        NearestCenters(8, refresh_every=10),
        num_candidates=10,
        num_noises=20,
        share_noises=True,
        seed=0,
    )
    model = keras.Sequential([keras.Input((WIDTH,)), head])
    model.compile(
        keras.optimizers.SGD(0.5),
        kc.CANELoss(),
        metrics=[kc.Coverage()],
        jit_compile=False,
    )
    history = model.fit(x, y, epochs=10, verbose=0).history
    assert history["coverage"][-1] > 0.8
    # All that can be known is the point.
    assert model.evaluate(x, y, verbose=0)[0] < np.log(7) + 0.3


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_centers": 0}, "`num_centers` must be a positive integer"),
        ({"refresh_every": 0}, "`refresh_every` must be a positive integer"),
        ({"selector": "tree"}, "`selector` must be a `keras_compembed.cand"),
    ],
)
def test_bad_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        NearestCenters(**kwargs)
