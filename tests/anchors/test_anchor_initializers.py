"""What all anchor initializers share, and the simple ones."""

import json
import re

import keras
import numpy as np
import pytest

import keras_compembed  # noqa: F401
from keras_compembed import anchors
from keras_compembed.anchors.anchor_initializer import random_basis
from keras_compembed.anchors.registry import get_anchor_initializer
from keras_compembed.anchors.registry import without_data

COUNTS = [5, 9, 0, 9, 7, 1]
TABLE = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
DOCUMENTS = [[0, 1, 1, 5], [0, 2], [], np.array([0, 4, 4, 4, 2])]


def every_initializer():
    return [
        anchors.Dynamic(seed=1),
        anchors.Frequency(COUNTS, seed=1),
        anchors.TfIdf(DOCUMENTS, seed=1),
        anchors.TfIdf(scores=COUNTS, seed=1),
        anchors.KMeansPlusPlus(TABLE, sample_weight=[1, 2, 1, 2, 1, 2], seed=1),
        anchors.KMeansPlusPlus(TABLE, num_candidates=3, seed=1),
        anchors.FrequencyThenKMeansPlusPlus(
            COUNTS, TABLE, num_frequent=1, seed=1
        ),
        anchors.Coreset(TABLE, seed=1),
        anchors.Given(TABLE[:4], ids=[4, -1, 0, -1], seed=1),
        anchors.Mixed(
            [anchors.Frequency(COUNTS, seed=1), anchors.Dynamic(seed=2)]
        ),
    ]


@pytest.mark.parametrize(
    "initializer", every_initializer(), ids=lambda value: type(value).__name__
)
def test_contract(initializer):
    assert sum(initializer.sizes(4)) == 4
    ids = initializer.choose(6, 4)
    assert ids.dtype == "int64"
    assert ids.shape == (4,)
    assert (-1 <= ids).all() and (ids < 6).all()
    objects = ids[ids >= 0]
    assert len(np.unique(objects)) == len(objects)
    vectors = initializer.vectors(4, 3)
    assert vectors.dtype == "float32"
    assert vectors.shape == (4, 3)
    np.testing.assert_array_equal(initializer.choose(6, 4), ids)
    np.testing.assert_array_equal(initializer.vectors(4, 3), vectors)

    config = keras.saving.serialize_keras_object(initializer)
    copy = get_anchor_initializer(json.loads(json.dumps(config)))
    assert type(copy) is type(initializer)
    np.testing.assert_array_equal(copy.choose(6, 4), ids)
    np.testing.assert_array_equal(copy.vectors(4, 3), vectors)


@pytest.mark.parametrize(
    "initializer", every_initializer(), ids=lambda value: type(value).__name__
)
def test_without_data(initializer):
    chosen = without_data(initializer, 6, 4, 3)
    config = json.dumps(keras.saving.serialize_keras_object(chosen))
    # No float of a table.
    assert not re.search(r"\d\.\d", config)
    copy = get_anchor_initializer(json.loads(config))
    assert copy.sizes(4) == initializer.sizes(4)
    np.testing.assert_array_equal(copy.choose(6, 4), initializer.choose(6, 4))
    np.testing.assert_array_equal(copy.vectors(4, 3), initializer.vectors(4, 3))


def test_random_basis_is_orthogonal_block_by_block():
    basis = random_basis(5, 8, seed=0)
    np.testing.assert_allclose(basis @ basis.T, 8 * np.eye(5), atol=1e-5)
    basis = random_basis(19, 8, seed=0)
    for block in (basis[:8], basis[8:16], basis[16:]):
        np.testing.assert_allclose(
            block @ block.T, 8 * np.eye(len(block)), atol=1e-5
        )
    assert not np.allclose(basis[:8], basis[8:16])


def test_random_basis_has_no_preferred_direction():
    # 2,000 first coordinates, uniform on a circle: 0 on average, and the mean
    # of 2,000 of variance 1 strays 4 deviations, 0.089, once in 16,000.
    first = [random_basis(2, 2, seed)[:, 0] for seed in range(2000)]
    assert np.abs(np.mean(first, axis=0)).max() < 0.089


def test_default_seed_follows_keras():
    keras.utils.set_random_seed(3)
    first = anchors.Dynamic().vectors(4, 8)
    second = anchors.Dynamic().vectors(4, 8)
    keras.utils.set_random_seed(3)
    np.testing.assert_array_equal(anchors.Dynamic().vectors(4, 8), first)
    assert not np.allclose(first, second)


def test_seed_is_checked():
    with pytest.raises(ValueError, match="`seed` must be .* Received: seed=-1"):
        anchors.Dynamic(seed=-1)


def test_get_anchor_initializer():
    assert isinstance(get_anchor_initializer("dynamic"), anchors.Dynamic)
    initializer = anchors.Frequency(COUNTS)
    assert get_anchor_initializer(initializer) is initializer
    for array in (TABLE, keras.ops.convert_to_tensor(TABLE)):
        given = get_anchor_initializer(array)
        np.testing.assert_array_equal(given.vectors(6, 3), TABLE)


@pytest.mark.parametrize(
    "value", ["frequency", None, 3, {}, anchors.KMeansPlusPlus]
)
def test_get_anchor_initializer_of_something_else(value):
    with pytest.raises(ValueError, match="`anchors_initializer` must be"):
        get_anchor_initializer(value)


def test_own_initializer():
    class Every(anchors.AnchorInitializer):
        def choose(self, input_dim, num_anchors):
            return np.arange(0, input_dim, input_dim // num_anchors)

    initializer = get_anchor_initializer(Every(seed=0))
    np.testing.assert_array_equal(initializer.choose(6, 3), [0, 2, 4])
    np.testing.assert_array_equal(
        without_data(initializer, 6, 3, 2).choose(6, 3), [0, 2, 4]
    )


def test_frequency_takes_the_most_frequent():
    initializer = anchors.Frequency(COUNTS)
    np.testing.assert_array_equal(initializer.choose(6, 4), [1, 3, 4, 0])


@pytest.mark.parametrize(
    "counts",
    [[], [[1, 2]], ["a"], [1, -1], [1, np.nan], [np.inf, 1]],
)
def test_frequency_checks_counts(counts):
    with pytest.raises(ValueError, match="`counts` must"):
        anchors.Frequency(counts)


@pytest.mark.parametrize(
    "initializer", every_initializer()[1:8], ids=lambda v: type(v).__name__
)
def test_more_anchors_than_objects(initializer):
    with pytest.raises(ValueError, match="num_anchors=7, input_dim=6"):
        initializer.choose(6, 7)


def test_lengths_are_checked():
    with pytest.raises(ValueError, match="`counts`.*input_dim=7.* 6 of them"):
        anchors.Frequency(COUNTS).choose(7, 2)
    with pytest.raises(ValueError, match="`scores`.*input_dim=7.* 6 of them"):
        anchors.TfIdf(scores=COUNTS).choose(7, 2)
    with pytest.raises(ValueError, match="`table`.*input_dim=7.* 6 of them"):
        anchors.KMeansPlusPlus(TABLE).choose(7, 2)


def test_tf_idf_by_hand():
    initializer = anchors.TfIdf(DOCUMENTS)
    expected = [
        3 * np.log(4 / 3),
        2 * np.log(4 / 1),
        2 * np.log(4 / 2),
        0,
        3 * np.log(4 / 1),
        1 * np.log(4 / 1),
    ]
    np.testing.assert_allclose(initializer.scores, expected, rtol=1e-12)
    # Ids 2 and 5 tie.
    np.testing.assert_array_equal(initializer.choose(8, 4), [4, 1, 2, 5])
    assert set(initializer.choose(8, 8)[-3:]) == {3, 6, 7}


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "One of `documents` and `scores`.*none"),
        ({"documents": [[1]], "scores": [1]}, "One of .*both"),
        ({"documents": []}, "at least one id"),
        ({"documents": [[], []]}, "at least one id"),
        ({"documents": [[1, -1]]}, "integers of at least 0"),
        ({"documents": [[0.5]]}, "integers of at least 0"),
        ({"documents": [[[1]]]}, "integers of at least 0"),
        ({"scores": [-1]}, "`scores` must be finite and not negative"),
    ],
)
def test_tf_idf_checks(arguments, message):
    with pytest.raises(ValueError, match=message):
        anchors.TfIdf(**arguments)


def test_tf_idf_with_ids_beyond():
    with pytest.raises(ValueError, match="below input_dim=5. Received: id 5"):
        anchors.TfIdf(DOCUMENTS).choose(5, 2)


def test_given():
    initializer = anchors.Given(TABLE)
    np.testing.assert_array_equal(initializer.choose(9, 6), np.full(6, -1))
    np.testing.assert_array_equal(initializer.vectors(6, 3), TABLE)
    initializer = anchors.Given(ids=[3, -1, 0, -1], seed=0)
    np.testing.assert_array_equal(initializer.choose(4, 4), [3, -1, 0, -1])
    np.testing.assert_array_equal(
        initializer.vectors(4, 3), random_basis(4, 3, 0)
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "`anchors`, `ids` or both"),
        ({"anchors": [1.0, 2.0]}, "`anchors` must have two axes"),
        ({"anchors": TABLE, "ids": [1]}, "1 ids, 6 anchors"),
        ({"ids": [0.5]}, "`ids` must hold one integer"),
        ({"ids": [-2]}, "`ids` must hold one integer"),
        ({"ids": []}, "`ids` must hold one integer"),
        ({"ids": [3, 1, 3, 3]}, "id 3 3 times"),
    ],
)
def test_given_checks(arguments, message):
    with pytest.raises(ValueError, match=message):
        anchors.Given(**arguments)


def test_given_for_another_layer():
    with pytest.raises(ValueError, match="num_anchors=5. Received: anchors fo"):
        anchors.Given(TABLE).choose(9, 5)
    with pytest.raises(ValueError, match="num_anchors=5. Received: anchors fo"):
        anchors.Given(TABLE).vectors(5, 3)
    with pytest.raises(ValueError, match="output_dim=4.*shape"):
        anchors.Given(TABLE).vectors(6, 4)
    with pytest.raises(ValueError, match="num_anchors=5. Received: ids for 2"):
        anchors.Given(ids=[1, 2]).choose(9, 5)
    with pytest.raises(ValueError, match="below input_dim=2. Received: id 2"):
        anchors.Given(ids=[1, 2]).choose(2, 2)


def test_mixed():
    frequency, dynamic = anchors.Frequency(COUNTS), anchors.Dynamic()
    initializer = anchors.Mixed(
        [frequency, dynamic, anchors.KMeansPlusPlus(TABLE)]
    )
    assert initializer.sizes(8) == (3, 3, 2)
    ids = initializer.choose(6, 8)
    np.testing.assert_array_equal(ids[:6], [1, 3, 4, -1, -1, -1])
    vectors = initializer.vectors(8, 3)
    np.testing.assert_array_equal(vectors[3:6], dynamic.vectors(3, 3))
    np.testing.assert_array_equal(vectors[6:], TABLE[ids[6:]])
    assert anchors.Mixed([frequency, dynamic], [5, 2]).sizes(7) == (5, 2)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([[]], "at least one"),
        ([["dynamic"]], "instances of `AnchorInitializer`.*'dynamic'"),
        (
            [[anchors.Mixed([anchors.Dynamic()])]],
            "none of them `Mixed`",
        ),
        ([[anchors.Dynamic()], [0]], "`sizes` must be a positive integer"),
        ([[anchors.Dynamic()], [1, 2]], "2 sizes, 1 initializers"),
    ],
)
def test_mixed_checks(arguments, message):
    with pytest.raises(ValueError, match=message):
        anchors.Mixed(*arguments)


def test_mixed_sizes_that_do_not_fit():
    pair = [anchors.Dynamic(), anchors.Dynamic()]
    with pytest.raises(ValueError, match=r"add up.*\(2, 3\), num_anchors=6"):
        anchors.Mixed(pair, [2, 3]).sizes(6)
    with pytest.raises(ValueError, match="num_anchors=1, 2 initializers"):
        anchors.Mixed(pair).sizes(1)
