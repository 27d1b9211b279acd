"""What all anchor initializers share, and the simple ones."""

import json
import re

import keras
import numpy as np
import pytest
from errors import refused

import keras_compembed as kc
from keras_compembed import anchors
from keras_compembed.anchors.anchor_initializer import Dynamic
from keras_compembed.anchors.anchor_initializer import Given
from keras_compembed.anchors.anchor_initializer import Mixed

COUNTS = [5, 9, 0, 9, 7, 1]
TABLE = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
DOCUMENTS = [[0, 1, 1, 5], [0, 2], [], np.array([0, 4, 4, 4, 2])]


def every_initializer():
    return [
        Dynamic(seed=1),
        anchors.Frequency(COUNTS, seed=1),
        anchors.Frequency(documents=DOCUMENTS, seed=1),
        anchors.KMeansPlusPlus(TABLE, seed=1),
        anchors.KMeansPlusPlus(TABLE, COUNTS, seed=1),
        Given(TABLE[:4], ids=[4, -1, 0, -1], seed=1),
        Mixed([anchors.Frequency(COUNTS, seed=1), Dynamic(seed=2)]),
    ]


def make_layer(initializer, width=3, num_anchors=4, **kwargs):
    return kc.ANTEmbedding(6, width, num_anchors, initializer, **kwargs)


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
    # A layer's config has no float of a table, and gives the same layer.
    layer = make_layer(initializer)
    layer.build()
    np.testing.assert_array_equal(layer.anchors, vectors)
    config = layer.get_config()
    assert not re.search(r"\d\.\d", json.dumps(config["anchors"]))
    copy = kc.ANTEmbedding.from_config(json.loads(json.dumps(config)))
    copy.build()
    np.testing.assert_array_equal(copy.anchors, vectors)


def random_basis(num_anchors, width, seed):
    return Dynamic(seed=seed).vectors(num_anchors, width)


def test_random_basis_is_orthogonal_block_by_block():
    basis = random_basis(5, 8, seed=0)
    np.testing.assert_allclose(basis @ basis.T, 8 * np.eye(5), atol=1e-5)
    basis = random_basis(19, 8, seed=0)
    for block in (basis[:8], basis[8:16], basis[16:]):
        np.testing.assert_allclose(
            block @ block.T, 8 * np.eye(len(block)), atol=1e-5
        )
    assert not np.allclose(basis[:8], basis[8:16])
    # 2,000 first coordinates, uniform on a circle: 0 on average, and the mean
    # of 2,000 of variance 1 strays 4 deviations, 0.089, once in 16,000.
    first = [random_basis(2, 2, seed)[:, 0] for seed in range(2000)]
    assert np.abs(np.mean(first, axis=0)).max() < 0.089


def test_default_seed_follows_keras():
    keras.utils.set_random_seed(3)
    first = Dynamic().vectors(4, 8)
    second = Dynamic().vectors(4, 8)
    keras.utils.set_random_seed(3)
    np.testing.assert_array_equal(Dynamic().vectors(4, 8), first)
    assert not np.allclose(first, second)


def test_what_layers_take_as_initializer():
    layer = make_layer(TABLE[:4])
    layer.build()
    np.testing.assert_array_equal(layer.anchors, TABLE[:4])
    for value in ("frequency", anchors.KMeansPlusPlus):
        with refused("anchors"):
            make_layer(value)
    # Of several sets, each begins with vectors of its own.
    two, three = (anchors.Transform(num_sets=number) for number in (2, 3))
    for sets in ("dynamic", ["dynamic", TABLE[:2]]):
        layer = make_layer(sets, transform=two)
        layer.build()
        first, second = np.split(layer.anchors.numpy(), 2)
        assert not np.allclose(first, second)
    np.testing.assert_array_equal(second, TABLE[:2])
    with pytest.raises(ValueError, match="have 3 initializers.*number=2"):
        make_layer(["dynamic"] * 2, transform=three).build()


def test_tables_of_other_lengths():
    for initializer, name, received in (
        (anchors.Frequency(COUNTS), "counts", "entries=6"),
        (anchors.KMeansPlusPlus(TABLE), "table", "entries=6"),
        (Given(TABLE), "anchors", "number=6"),
        (Given(ids=[1, 7]), "ids", "id=7"),
    ):
        with refused(name, received):
            initializer.choose(7, 2)
    for each in every_initializer()[1:5]:
        with refused(None, "num_anchors=7, input_dim=6"):
            each.choose(6, 7)
    with pytest.raises(ValueError, match="at least 2"):
        Mixed([Dynamic(), Dynamic()]).sizes(1)


def test_tf_idf_by_hand():
    initializer = anchors.Frequency(documents=DOCUMENTS)
    expected = [
        3 * np.log(4 / 3),
        2 * np.log(4 / 1),
        2 * np.log(4 / 2),
        0,
        3 * np.log(4 / 1),
        1 * np.log(4 / 1),
    ]
    np.testing.assert_allclose(initializer.counts, expected, rtol=1e-12)
    # Ids 2 and 5 tie.
    np.testing.assert_array_equal(initializer.choose(8, 4), [4, 1, 2, 5])
    assert set(initializer.choose(8, 8)[-3:]) == {3, 6, 7}


def test_given():
    initializer = Given(TABLE)
    np.testing.assert_array_equal(initializer.choose(9, 6), np.full(6, -1))
    np.testing.assert_array_equal(initializer.vectors(6, 3), TABLE)
    initializer = Given(ids=[3, -1, 0, -1], seed=0)
    np.testing.assert_array_equal(initializer.choose(4, 4), [3, -1, 0, -1])
    np.testing.assert_array_equal(
        initializer.vectors(4, 3), random_basis(4, 3, 0)
    )
    with refused(None, "(6, 3)"):
        Given(TABLE).vectors(6, 4)


def test_mixed():
    frequency, dynamic = anchors.Frequency(COUNTS), Dynamic()
    initializer = Mixed([frequency, dynamic, anchors.KMeansPlusPlus(TABLE)])
    assert initializer.sizes(8) == (3, 3, 2)
    ids = initializer.choose(6, 8)
    np.testing.assert_array_equal(ids[:6], [1, 3, 4, -1, -1, -1])
    vectors = initializer.vectors(8, 3)
    np.testing.assert_array_equal(vectors[3:6], dynamic.vectors(3, 3))
    np.testing.assert_array_equal(vectors[6:], TABLE[ids[6:]])


@pytest.mark.parametrize(
    "make, name, arguments",
    [
        (Dynamic, "seed", {"seed": -1}),
        (anchors.Frequency, "counts", {"counts": [[1, 2]]}),
        (anchors.Frequency, "counts", {"counts": [1, np.nan]}),
        (anchors.Frequency, "documents", {}),
        (anchors.Frequency, "documents", {"documents": [[1]], "counts": [1]}),
        (anchors.Frequency, "documents", {"documents": [[1, -1]]}),
        (Given, "anchors", {}),
        (Given, "anchors", {"anchors": [1.0, 2.0]}),
        (Given, "ids", {"anchors": TABLE, "ids": [1]}),
        (Given, "ids", {"ids": [-2]}),
        (Given, "ids", {"ids": [3, 1, 3, 3]}),
        (Mixed, "initializers", {"initializers": []}),
        (Mixed, "initializers", {"initializers": [Mixed([Dynamic()])]}),
    ],
)
def test_bad_arguments(make, name, arguments):
    with refused(name):
        make(**arguments)
