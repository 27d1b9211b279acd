import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.candidates import BeamTree
from keras_compembed.candidates import FrequentClasses
from keras_compembed.candidates import FunctionSelector
from keras_compembed.candidates import NearestCenters
from keras_compembed.candidates import NGram
from keras_compembed.candidates import Union

CLASSES, WIDTH = 60, 5
COUNTS = np.random.default_rng(0).permutation(600 // np.arange(1, CLASSES + 1))


def tree():
    return BeamTree(kc.trees.ClassTree.random(CLASSES, 3, seed=0))


def make_head(selectors, numbers=None, num_candidates=8, **kwargs):
    selector = Union(selectors, numbers)
    head = kc.CANESoftmax(CLASSES, selector, num_candidates, 6, **kwargs)
    head.build((None, WIDTH))
    return head


def features(rows=9):
    rng = np.random.default_rng(1)
    return tf.constant(rng.normal(size=(rows, WIDTH)), "float32")


@pytest.mark.parametrize(
    ("numbers", "expected"), [(None, [3, 3, 2]), ([1, 5, 2], [1, 5, 2])]
)
def test_all_parts_choose(numbers, expected):
    parts = [FrequentClasses(COUNTS), NearestCenters(2), tree()]
    head = make_head(parts, numbers)
    assert [part.num_candidates for part in parts] == expected
    assert head.selector.tree is parts[2].tree
    x = features()
    frequent, near, found = head.selector.select(head.scores, x)
    order = np.argsort(-COUNTS, kind="stable")
    np.testing.assert_array_equal(frequent, order[: expected[0]])
    assert near.ids.shape == (2, expected[1])
    np.testing.assert_array_equal(found, parts[2].select(head.scores, x))
    # It predicts as the part that searches.
    for got, right in zip(
        head.selector.top_k(head.scores, x, 4),
        parts[2].top_k(head.scores, x, 4),
        strict=True,
    ):
        np.testing.assert_array_equal(got, right)


def test_parts_of_parts():
    inner = Union([FrequentClasses(COUNTS), NearestCenters(2)])
    head = make_head([inner, FunctionSelector(lambda x: tf.range(4))])
    parts = head.selector.select(head.scores, features())
    assert len(parts) == 3
    np.testing.assert_array_equal(parts[2], range(4))


def test_context_reaches_the_parts():
    table = np.arange(CLASSES)[:, None]
    head = make_head([NGram(table, [7]), FrequentClasses(COUNTS)], [1, 7])
    context = tf.constant([5, 2, -1])
    ids, _ = head.selector.select(head.scores, features(3), context)
    np.testing.assert_array_equal(ids, [[5], [2], [7]])


def test_near_classes_are_others_than_the_frequent():
    """So that no place among candidates is wasted."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, WIDTH)).astype("float32")
    y = rng.choice(CLASSES, size=64, p=COUNTS / COUNTS.sum())
    near, frequent = NearestCenters(3), FrequentClasses(COUNTS)
    selector = Union([near, frequent], [6, 10])
    head = kc.CANESoftmax(
        CLASSES, selector, 16, 20, share_noises=True, class_counts=COUNTS
    )
    model = keras.Sequential([keras.Input((WIDTH,)), head])
    model.compile("sgd", kc.CANELoss(), run_eagerly=True)
    model.fit(x, y, verbose=0)
    ids = near.candidates.numpy()
    assert (ids >= 0).all()
    assert not np.isin(ids, frequent.classes.numpy()).any()


def test_without_a_search_all_classes_are_scored():
    head = make_head([FrequentClasses(COUNTS), NearestCenters(2)])
    for got, right in zip(
        head.selector.top_k(head.scores, features(), 3),
        head.scores.top_k(features(), 3),
        strict=True,
    ):
        np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize(
    ("selectors", "numbers", "message"),
    [
        ([], None, "`selectors` must be a list of"),
        (["frequent"], None, "`selectors` must be a list of"),
        (FrequentClasses(COUNTS), None, "`selectors` must be a list of"),
        ([tree(), tree()], None, "Received: 2 of them with a tree"),
        (2 * [NearestCenters()], None, "the same object twice"),
        ([tree()], [1, 2], "a number for each of 1 selectors"),
        ([tree()], 3, "a number for each of 1 selectors"),
        ([tree()], [0], "`num_candidates` must be a positive integer"),
    ],
)
def test_bad_arguments(selectors, numbers, message):
    with pytest.raises(ValueError, match=message):
        Union(selectors, numbers)


def test_numbers_that_do_not_add_up():
    parts = [FrequentClasses(COUNTS), NearestCenters()]
    with pytest.raises(ValueError, match=r"num_candidates=8. .*=\[4, 5\]"):
        make_head(parts, [4, 5])
    with pytest.raises(ValueError, match="a candidate for each selector"):
        make_head(parts, num_candidates=1)


def test_selectors_that_disagree_on_classes():
    parts = [FrequentClasses(COUNTS), FrequentClasses(COUNTS[:50])]
    message = (
        r"`selectors\[1\]`, a FrequentClasses, must suit the layer: `counts` "
        "must have one entry for each class, num_classes=60. Received: 50"
    )
    with pytest.raises(ValueError, match=message):
        make_head(parts)
