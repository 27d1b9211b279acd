import itertools
import json

import keras
import numpy as np
import pytest
from errors import refused

from keras_compembed.anchors import Relations
from keras_compembed.anchors.relations import count_pairs

PAIRS = [(0, 3), (3, 0), (4, 1), (2, 2), (3, 1), (0, 3)]


def random_relations(input_dim=30, pairs=60, seed=0):
    rng = np.random.default_rng(seed)
    return Relations(rng.integers(input_dim, size=(pairs, 2)), input_dim)


def dense(relations):
    matrix = np.zeros((relations.input_dim, relations.input_dim), bool)
    for u, v in relations.pairs:
        matrix[u, v] = matrix[v, u] = True
    return matrix


def test_pairs_are_sorted_unique_and_apart():
    relations = Relations(PAIRS, 5)
    np.testing.assert_array_equal(relations.pairs, [[0, 3], [1, 3], [1, 4]])
    np.testing.assert_array_equal(relations.keys, [3, 8, 9, 15, 16, 21])
    assert relations.keys.dtype == relations.pairs.dtype == "int64"
    assert len(relations) == 3
    small = np.array([[200, 100]], "uint8")
    np.testing.assert_array_equal(Relations(small, 256).pairs, [[100, 200]])
    none = Relations([], 5)
    assert len(none) == 0 and none.pairs.shape == (0, 2)
    offsets, columns = none.free_entries([0, 1])
    np.testing.assert_array_equal(offsets, np.zeros(6))
    assert len(columns) == 0


def test_free_entries_equal_the_matrix():
    relations = random_relations()
    anchor_ids = np.array([7, -1, 29, 0, 7, -1])
    offsets, columns = relations.free_entries(anchor_ids)
    assert offsets.dtype == columns.dtype == "int64"
    found = np.zeros((30, 6), bool)
    for row, (start, stop) in enumerate(itertools.pairwise(offsets)):
        assert (np.diff(columns[start:stop]) > 0).all()
        found[row, columns[start:stop]] = True
    expected = dense(relations)[:, anchor_ids]
    expected[:, anchor_ids == -1] = False
    np.testing.assert_array_equal(found, expected)
    with refused("anchor_ids", "id=30"):
        relations.free_entries([0, 30])


def test_union():
    first, second = random_relations(), random_relations(seed=1)
    union = first | second
    np.testing.assert_array_equal(dense(union), dense(first) | dense(second))
    with pytest.raises(ValueError, match="objects, 30.*input_dim=31"):
        _ = first | Relations([], 31)


def test_config():
    relations = random_relations(1000, 5000)
    config = json.dumps(keras.saving.serialize_keras_object(relations))
    assert len(config) < 5 * len(relations)
    copy = keras.saving.deserialize_keras_object(json.loads(config))
    assert copy.input_dim == 1000
    np.testing.assert_array_equal(copy.keys, relations.keys)
    empty = Relations.from_config(Relations([], 3).get_config())
    assert len(empty) == 0


def test_from_clusters():
    labels = np.random.default_rng(0).integers(-1, 4, 30)
    relations = Relations.from_clusters(labels)
    expected = (labels[:, None] == labels) & (labels >= 0)
    np.fill_diagonal(expected, False)
    np.testing.assert_array_equal(dense(relations), expected)
    assert len(Relations.from_clusters([-1, -3])) == 0
    assert len(Relations.from_clusters(np.arange(9))) == 0
    with refused("labels"):
        Relations.from_clusters([0.5, 1])
    with pytest.raises(ValueError, match="pairs=49995000"):
        Relations.from_clusters(np.zeros(10_000, int))


def test_counts_of_long_texts():
    """Read part by part."""
    input_dim = 12
    rng = np.random.default_rng(0)
    stream = rng.integers(input_dim, size=600_000).astype("uint32")
    keys, counts = count_pairs(stream, input_dim, 9)
    expected = []
    for distance in range(1, 10):
        pairs = np.stack([stream[:-distance], stream[distance:]])
        low, high = np.sort(pairs.astype("int64"), axis=0)
        expected.append((low * input_dim + high)[low != high])
    expected = np.unique(np.concatenate(expected), return_counts=True)
    np.testing.assert_array_equal(keys, expected[0])
    np.testing.assert_array_equal(counts, expected[1])
    # No pair spans two documents, however many are read at once.
    documents = np.split(stream[:300_000], 150_000)
    keys, counts = count_pairs(documents, input_dim, 9)
    assert counts.sum() == np.count_nonzero(
        stream[:300_000:2] != stream[1:300_000:2]
    )


@pytest.mark.parametrize(
    "tokens",
    [
        np.array([3, 1, 0, 4, 3, 1]),
        ([3, 1, 0, 4], [], [4, 3, 1]),
        iter([[3, 1, 0, 4], [4, 3]]),
    ],
)
def test_forms_of_tokens(tokens):
    relations = Relations.from_tokens(tokens, 5, window=1)
    np.testing.assert_array_equal(
        relations.pairs, [[0, 1], [0, 4], [1, 3], [3, 4]]
    )


def test_rows_of_a_matrix_are_documents():
    tokens = np.array([[1, 2, 0, 0], [3, 0, 0, 0]])
    relations = Relations.from_tokens(tokens, 5, ignore=[0])
    np.testing.assert_array_equal(relations.pairs, [[1, 2]])
    assert len(Relations.from_tokens([[], []], 5, top=3)) == 0


def test_pairs_kept():
    rng = np.random.default_rng(0)
    tokens = (rng.pareto(1, 2000) * 2).astype(int) % 20
    matrix = np.zeros((20, 20))
    for distance in (1, 2, 3):
        np.add.at(matrix, (tokens[:-distance], tokens[distance:]), 1)
    matrix += matrix.T
    np.fill_diagonal(matrix, 0)

    found = Relations.from_tokens(tokens, 20, window=3, min_count=40)
    np.testing.assert_array_equal(dense(found), matrix >= 40)

    # Of pairs as frequent, those of lower ids first.
    order = np.argsort(-matrix, axis=1, kind="stable")[:, :4]
    top = np.zeros_like(matrix, bool)
    np.put_along_axis(top, order, True, 1)
    top &= matrix > 0
    found = Relations.from_tokens(tokens, 20, window=3, top=4)
    np.testing.assert_array_equal(dense(found), top | top.T)

    of_id = matrix.sum(axis=1)
    with np.errstate(divide="ignore"):
        information = np.log(matrix * of_id.sum() / np.outer(of_id, of_id))
    found = Relations.from_tokens(tokens, 20, window=3, min_information=0.1)
    np.testing.assert_array_equal(dense(found), information >= 0.1)


@pytest.mark.parametrize(
    "make, arguments, name, received",
    [
        (Relations, {"pairs": [(0, -1)]}, "pairs", "id=-1"),
        (Relations, {"pairs": [0, 1]}, "pairs", "(2,)"),
        (Relations, {"pairs": [(0.5, 1)]}, "pairs", "float64"),
        (Relations, {"pairs": [], "input_dim": 0}, "input_dim", 0),
        (Relations.from_tokens, {"tokens": [0, 5]}, "tokens", "id=5"),
        (Relations.from_tokens, {"tokens": [0.5, 1]}, "tokens", "float64"),
        (Relations.from_tokens, {"tokens": [0], "window": 0}, "window", 0),
        (Relations.from_tokens, {"tokens": [0], "top": 0}, "top", 0),
        (Relations.from_tokens, {"tokens": [0], "ignore": [9]}, "ignore", 9),
    ],
)
def test_bad_arguments(make, arguments, name, received):
    with refused(name, received):
        make(**{"input_dim": 5, **arguments})
