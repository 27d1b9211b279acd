"""Sparse codes and dictionaries against codes of one row at a time."""

import itertools

import numpy as np
import pytest
from errors import refused
from small_learners import interrupted

from keras_compembed.anchors.sparse_coding import learn_dictionary
from keras_compembed.anchors.sparse_coding import sparse_code


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def planted(rows=600, num_anchors=20, columns=16, nonzeros=3, seed=0):
    """A table that is exactly T A, and A."""
    rng = np.random.default_rng(seed)
    anchors = rng.normal(size=(num_anchors, columns))
    anchors /= np.linalg.norm(anchors, axis=1, keepdims=True)
    transform = np.zeros((rows, num_anchors))
    for row in transform:
        places = rng.choice(num_anchors, nonzeros, replace=False)
        row[places] = rng.uniform(0.5, 1.5, nonzeros)
    return (transform @ anchors).astype("float32"), anchors


def naive_pursuit(row, anchors, max_nonzeros):
    """Orthogonal matching pursuit as it is written down."""
    row, anchors = row.astype("float64"), anchors.astype("float64")
    lengths = np.linalg.norm(anchors, axis=1)
    chosen, left = [], row
    for _ in range(max_nonzeros):
        scores = np.abs(anchors @ left) / lengths
        chosen.append(int(np.argmax(scores)))
        weights = np.linalg.lstsq(anchors[chosen].T, row, rcond=None)[0]
        left = row - weights @ anchors[chosen]
    code = np.zeros(len(anchors))
    code[chosen] = weights
    return code


def best_non_negative(row, anchors):
    """Least squares with weights of at least 0, over all sets of anchors."""
    best = np.sum(row**2), np.zeros(len(anchors))
    for size in range(1, len(anchors) + 1):
        for chosen in itertools.combinations(range(len(anchors)), size):
            chosen = list(chosen)
            weights = np.linalg.lstsq(anchors[chosen].T, row, rcond=None)[0]
            distance = np.sum((row - weights @ anchors[chosen]) ** 2)
            if (weights >= 0).all() and distance < best[0]:
                code = np.zeros(len(anchors))
                code[chosen] = weights
                best = distance, code
    return best[1]


@pytest.mark.parametrize("max_nonzeros", [1, 4])
def test_codes_equal_the_naive_ones(max_nonzeros):
    # Parts of 8738 rows, of which the last is shorter.
    table, anchors = normal(9000, 12), normal(30, 12, seed=1) * 3
    found = sparse_code(table, anchors, max_nonzeros, non_negative=False)
    some = [*range(20), *range(8730, 8750), 8999]
    expected = [naive_pursuit(table[i], anchors, max_nonzeros) for i in some]
    # Products of 12 float32 numbers.
    np.testing.assert_allclose(
        found.dense_rows()[some], expected, rtol=1e-4, atol=1e-5
    )
    assert (found.row_lengths == max_nonzeros).all()
    for start, stop in itertools.pairwise(found.offsets):
        assert (np.diff(found.columns[start:stop].astype(int)) > 0).all()


def test_all_anchors_give_the_best_non_negative_weights():
    # With a place for every anchor nothing keeps it from the optimum.
    table, anchors = normal(40, 8), normal(5, 8, seed=1)
    found = sparse_code(table, anchors, 5, non_negative=True).dense_rows()
    expected = [best_non_negative(row, anchors) for row in table]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_rows_that_need_fewer():
    anchors = normal(6, 8)
    anchors[4] = 0
    anchors[5] = anchors[1]
    table = np.stack([np.zeros(8), 2 * anchors[1], anchors[0] - anchors[1]])
    found = sparse_code(table, anchors, 4, non_negative=False)
    expected = np.zeros((3, 6))
    expected[1, 1] = 2
    expected[2, :2] = 1, -1
    np.testing.assert_allclose(found.dense_rows(), expected, atol=1e-5)
    np.testing.assert_array_equal(found.row_lengths, [0, 1, 2])


@pytest.mark.parametrize("non_negative", [True, False])
def test_anchors_that_depend_on_each_other(non_negative):
    # More anchors than columns, most of them nearly the same.
    table, anchors = normal(60, 3), normal(20, 3, seed=1)
    anchors[5:] = anchors[5] + 1e-5 * anchors[5:]
    few = sparse_code(table, anchors, 1, non_negative)
    many = sparse_code(table, anchors, 12, non_negative, total_nonzeros=200)

    def distance(transform):
        return ((table - transform.dense_rows() @ anchors) ** 2).sum()

    assert np.isfinite(many.values).all()
    assert many.offsets[-1] <= 200
    assert distance(many) < 0.6 * distance(few)


@pytest.mark.parametrize("non_negative", [True, False])
def test_planted_anchors_are_found(non_negative):
    table, anchors = planted(rows=1000)
    transform, found = learn_dictionary(
        table,
        20,
        3,
        non_negative=non_negative,
        iterations=40,
        seed=0,
        verbose=0,
    )
    agreement = np.abs(found @ anchors.T).max(axis=0)
    assert np.mean(agreement > 0.99) >= 0.8
    left = table - transform.dense_rows() @ found
    assert (left**2).sum() < 0.05 * (table**2).sum()
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)


def test_unused_anchors_are_replaced():
    # Anchors that begin as rows of zeros suit no row.
    table = np.concatenate([normal(25, 6), np.zeros((25, 6))])
    transform, anchors = learn_dictionary(
        table, 5, 2, iterations=3, seed=0, verbose=0
    )
    assert (np.linalg.norm(anchors, axis=1) > 0.9).all()
    assert set(transform.columns) == set(range(5))


def test_ctrl_c_keeps_what_was_learned(capsys):
    table = normal(60, 6)

    def learn(iterations):
        return learn_dictionary(
            table, 8, 2, iterations=iterations, seed=1, verbose=0
        )

    whole = [learn(iterations) for iterations in range(4)]
    reached, place = set(), 1
    while (result := interrupted(lambda: learn(3), place))[1]:
        place += 3
        if result[0] is None:
            reached.add(None)
            continue
        transform, anchors = result[0]
        (number,) = (
            number
            for number, (codes, found) in enumerate(whole)
            if np.array_equal(found, anchors)
            and np.array_equal(codes.values, transform.values)
        )
        reached.add(number)
    # Before the first codes, it comes through.
    assert reached >= {None, 0, 1, 2}
    assert "Interrupted" in capsys.readouterr().out


@pytest.mark.parametrize(
    "function, name, value",
    [
        (sparse_code, "anchors", np.ones((4, 5))),
        (sparse_code, "total_nonzeros", 0),
        (learn_dictionary, "num_anchors", 8),
        (learn_dictionary, "seed", 1.5),
    ],
)
def test_bad_arguments(function, name, value):
    arguments = {"table": normal(7, 6), "max_nonzeros": 2}
    if function is sparse_code:
        arguments["anchors"] = normal(4, 6)
    else:
        arguments |= {"num_anchors": 4, "verbose": 0}
    with refused(name, np.shape(value) or value):
        function(**arguments | {name: value})


@pytest.mark.parametrize("non_negative", [False, True])
def test_numbers_go_where_they_lower_the_distance_most(non_negative):
    """Against a search over the numbers of each row."""
    table, anchors = normal(12, 6), normal(7, 6, seed=1)
    weight = np.arange(13)[:0:-1]
    most, total = 4, 20

    def distances(numbers):
        codes = sparse_code(table, anchors, numbers, non_negative)
        left = table - codes.dense_rows() @ anchors
        return np.square(left).sum(axis=1)

    by_number = [np.square(table).sum(axis=1)]
    by_number += [distances(numbers) for numbers in range(1, most + 1)]
    gains = -np.diff(by_number, axis=0).T
    gains = np.minimum.accumulate(gains, axis=1) * weight[:, None]
    least = np.sort(gains, axis=None)[-total]
    expected = np.count_nonzero(gains >= max(least, 1e-6), axis=1)
    found = sparse_code(
        table,
        anchors,
        most,
        non_negative,
        total_nonzeros=total,
        sample_weight=weight,
    )
    assert found.nnz == total
    left = np.square(table - found.dense_rows() @ anchors).sum(axis=1)
    best = np.array(by_number)[expected, np.arange(12)]
    if non_negative:
        # Numbers that are taken out again make way for better ones.
        assert weight @ left < 1.02 * weight @ best
    else:
        np.testing.assert_array_equal(found.row_lengths, expected)
        np.testing.assert_allclose(left, best, atol=1e-5)
        # As many as there are places for.
        one, two = (
            sparse_code(table, anchors, 3, False, total_nonzeros=total)
            for total in (None, 100)
        )
        np.testing.assert_array_equal(one.dense_rows(), two.dense_rows())


def test_rows_that_count_nothing_share_no_numbers():
    # In several parts, of which one has all that count.
    table, anchors = normal(14_000, 8), normal(20, 8, seed=1)
    weight = np.arange(14_000) < 20
    code = sparse_code(
        table, anchors, 4, False, total_nonzeros=100, sample_weight=weight
    )
    assert (code.row_lengths[20:] == 0).all()
    assert (code.row_lengths[:20] == 4).all()
