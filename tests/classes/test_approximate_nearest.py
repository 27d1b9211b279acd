"""Classes in lists of those near each other, in training and for prediction."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from beam_heads import score_all_classes as all_scores
from class_models import cane
from errors import refused

import keras_compembed as kc
from keras_compembed.classes import ApproximateNearest
from keras_compembed.classes import BeamTree
from keras_compembed.classes import FrequentClasses
from keras_compembed.classes import calibrate_beam
from keras_compembed.classes import fit_search
from keras_compembed.classes import fitted_search
from keras_compembed.classes.class_scores import ClassScores

WIDTH = 8


def scores_of(vectors, biases=None):
    """`ClassScores` of vectors and biases."""
    if biases is None:
        biases = np.zeros(len(vectors))
    return ClassScores(
        keras.Variable(vectors, dtype="float32"),
        keras.Variable(biases, dtype="float32"),
    )


def clusters(num_classes=600, number=30, rows=50, seed=0):
    """Vectors near one of some centres, and features near vectors."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(number, WIDTH))
    own = rng.permutation(np.arange(num_classes) % number)
    vectors = centres[own] + 0.1 * rng.normal(size=(num_classes, WIDTH))
    labels = rng.integers(num_classes, size=rows)
    features = vectors[labels] + 0.1 * rng.normal(size=(rows, WIDTH))
    return vectors, features.astype("float32")


def built(selector, class_scores, num_candidates=10):
    selector.attach(class_scores.num_classes, num_candidates)
    selector.build((None, class_scores.table.shape[1]))
    return selector


def check_lists(selector):
    """That each class is in one list, and padding at the end."""
    lists = selector.lists.numpy()
    np.testing.assert_array_equal(
        np.sort(lists[lists >= 0]), np.arange(selector.num_classes)
    )
    assert ((lists[:, 1:] >= 0) <= (lists[:, :-1] >= 0)).all()


def recall(ids, vectors, features, biases=0):
    best = np.argmax(features @ vectors.T + biases, axis=1)
    return (ids.numpy() == best[:, None]).any(axis=1).mean()


def opened(selector, class_scores, x, probes):
    """The classes in the lists whose best scores may be the highest."""
    vectors, biases = class_scores.table.numpy(), class_scores.bias.numpy()
    lists = [row[row >= 0] for row in selector.lists.numpy()]
    deviations = np.sqrt(2 * np.log(selector.lists.shape[1]))
    likely = np.full(len(lists), -np.inf)
    for place, own in enumerate(lists):
        if len(own):
            spread = x @ x * vectors[own].var(axis=0).mean() + biases[own].var()
            likely[place] = x @ vectors[own].mean(axis=0) + biases[own].mean()
            likely[place] += deviations * np.sqrt(spread)
    return np.concatenate([lists[i] for i in np.argsort(-likely)[:probes]])


def best_in_lists(selector, class_scores, features, k, probes):
    """What `top_k` is to return, list by list."""
    vectors, biases = class_scores.table.numpy(), class_scores.bias.numpy()
    ids = np.full((len(features), k), -1)
    scores = np.full((len(features), k), -np.inf)
    totals = np.zeros(len(features))
    for row, x in enumerate(features):
        classes = opened(selector, class_scores, x, probes)
        own = vectors[classes] @ x + biases[classes]
        order = np.argsort(-own, kind="stable")[:k]
        ids[row, : len(order)] = classes[order]
        scores[row, : len(order)] = own[order]
        totals[row] = np.log(np.exp(own).sum())
    return ids, scores, totals


@pytest.mark.parametrize("rows, width", [(50, WIDTH), (5, 21_000)])
def test_top_k_as_list_by_list(rows, width):
    """Rows are scored a part at a time where there are many numbers."""
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(600, width)) / np.sqrt(width)
    features = rng.normal(size=(rows, width)).astype("float32")
    class_scores = scores_of(vectors, rng.normal(size=600))
    selector = built(ApproximateNearest(40, 2), class_scores)
    for k in (1, 7, 80):
        found = selector.top_k(class_scores, tf.constant(features), k)
        right = best_in_lists(selector, class_scores, features, k, 2)
        np.testing.assert_array_equal(found[0], right[0])
        np.testing.assert_allclose(found[1], right[1], atol=1e-5)
        np.testing.assert_allclose(found[2], right[2], atol=1e-5)
    check_lists(selector)


def test_lists_follow_the_vectors():
    vectors, features = clusters()
    selector = ApproximateNearest(30, refresh_every=3)
    head = cane(600, selector=selector, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((WIDTH,)), head])
    model.compile(keras.optimizers.SGD(0.0), kc.CANELoss())
    class_scores = head.scores
    features = tf.constant(features)

    def step():
        model.train_on_batch(features, np.zeros(50))
        return selector.select(class_scores, features)

    step()
    before = selector.lists.numpy()
    class_scores.table.assign(vectors)
    for changes in (False, False, True):
        # Looking alone does not make it older.
        selector.select(class_scores, features)
        step()
        assert (selector.lists.numpy() != before).any() == changes
    check_lists(selector)
    # Means of what was all alike are no start: it takes a few times.
    for _ in range(6):
        ids = step()
    assert recall(ids, vectors, features.numpy()) > 0.9


def test_what_is_equal_or_not_finite():
    class_scores = scores_of(np.ones((100, 3)))
    selector = ApproximateNearest(num_lists=20, capacity_factor=1)
    selector = built(selector, class_scores)
    selector.select(class_scores, tf.zeros((2, 3)))
    check_lists(selector)
    # Equal vectors fill all of them.
    assert (selector.lists.numpy() >= 0).all()
    vectors, features = clusters()
    vectors[7] = np.nan
    class_scores = scores_of(vectors)
    selector = built(ApproximateNearest(num_lists=30), class_scores)
    ids, _, _ = selector.top_k(class_scores, tf.constant(features), 10)
    check_lists(selector)
    assert not (ids.numpy() == 7).any()


def test_wrong_arguments():
    """Of themselves, or for 5 candidates of 10 classes."""
    for name, value in (
        ("num_lists", 11),
        ("num_probes", 1),
        ("refresh_every", -1),
        ("capacity_factor", 0.9),
    ):
        with refused(received=f"{name}={value!r}"):
            ApproximateNearest(**{"num_lists": 5, name: value}).attach(10, 5)


CLASSES = 400


def make_head(selector=None, **kwargs):
    """A layer with vectors in clusters, and features."""
    vectors, features = clusters(CLASSES, 20, 300)
    if not selector:
        selector = FrequentClasses(np.arange(CLASSES, 0, -1))
    head = cane(CLASSES, WIDTH, selector=selector, **kwargs)
    if head.kernel is not None:
        rng = np.random.default_rng(2)
        head.kernel.assign(vectors + 0.3 * rng.normal(size=vectors.shape))
    return head, features


def plain_recall(head, features, k, probes):
    """Share of the best classes that are in the lists that are opened."""
    best = np.argsort(-all_scores(head, features), axis=1)[:, :k]
    hits = [
        np.isin(row, opened(head.selector, head.scores, x, probes))
        for row, x in zip(best, features, strict=True)
    ]
    return np.mean(hits)


@pytest.mark.parametrize(("k", "target"), [(1, 0.8), (1, 1.0), (5, 0.97)])
def test_fewest_lists_that_reach_the_recall(k, target, capsys):
    head, features = make_head()
    before = [np.array(w) for w in head.get_weights()]
    searched = fit_search(head, features, target, k, num_lists=40)
    probes = searched.selector.num_probes
    found = plain_recall(searched, features, k, probes)
    needed = 1.0
    if target < 1:
        needed = fitted_search.share_to_find(target, len(features))
    assert found >= needed >= target
    assert plain_recall(searched, features, k, probes - 1) < needed
    assert 1 < probes < 40
    ids = searched.top_k(features, k)[0].numpy()
    best = np.argsort(-all_scores(head, features), axis=1)[:, :k]
    hits = (ids[:, :, None] == best[:, None]).any(axis=1).mean()
    assert hits == pytest.approx(found, abs=1e-9)
    out = capsys.readouterr().out
    assert out.startswith(
        f"{probes} of 40 lists of 10 classes: recall {found:.4f}"
    )
    # What it was made from is as before, and the vectors are the same.
    for old, new in zip(before, head.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    np.testing.assert_array_equal(searched.kernel, head.kernel)


TREE = kc.classes.ClassTree.random(CLASSES, branching=5, seed=0)


@pytest.mark.parametrize(
    "kwargs",
    [
        lambda: {"use_bias": False, "noise": "learned"},
        lambda: {"selector": BeamTree(TREE)},
        lambda: {"class_embedding": kc.ANTEmbedding(CLASSES, WIDTH, 16)},
    ],
)
def test_scores_stay_what_they_are(kwargs):
    head, features = make_head(**kwargs())
    searched = fit_search(head, features, 1.0, k=3, verbose=0)
    assert isinstance(searched.selector, ApproximateNearest)
    assert searched.sampling.num_candidates <= 10
    scores = all_scores(head, features)
    np.testing.assert_allclose(
        all_scores(searched, features), scores, atol=1e-4
    )
    ids = searched.top_k(features, 3)[0].numpy()
    found = np.take_along_axis(scores, ids, axis=1)
    best = -np.sort(-scores, axis=1)[:, :3]
    np.testing.assert_allclose(found, best, atol=1e-4)


@pytest.mark.parametrize("search", [fit_search, calibrate_beam])
def test_wrong_searches(search):
    head, features = make_head(search is calibrate_beam and BeamTree(TREE))
    for argument, value in (
        ("head", kc.CANESoftmax(CLASSES)),
        # Searches and exact scores find nothing alike for these.
        ("features", features[:, :3]),
        ("features", features * np.nan),
        ("target_recall", 99),
        ("k", CLASSES + 1),
    ):
        with refused(argument):
            search(**{"head": head, "features": features, argument: value})


@pytest.mark.parametrize("target, rows", [(0.8, 300), (0.99, 3000)])
def test_share_to_find_is_seldom_found_below_the_target(target, rows):
    needed = fitted_search.share_to_find(target, rows)
    assert target < needed <= 1
    assert fitted_search.stated_recall(needed, rows) == pytest.approx(target)
    # Exactly: rows that are found with a chance just below the target.
    logs = np.concatenate([[0], np.cumsum(np.log(np.arange(1, rows + 1)))])
    hits = np.arange(rows + 1)
    log_chances = logs[-1] - logs - logs[::-1]
    log_chances += hits * np.log(target) + (rows - hits) * np.log(1 - target)
    passes = hits >= np.ceil(needed * rows - 1e-9)
    assert 1e-4 < np.exp(log_chances[passes]).sum() <= 0.05
    # Few features show less than all of them found.
    assert fitted_search.share_to_find(0.99, 100) == 1
    stated = fitted_search.stated_recall(1.0, 100)
    assert stated == pytest.approx(0.05 ** (1 / 100))
