import itertools
import json
import tracemalloc

import keras
import numpy as np
import pytest

from keras_compembed.anchors import Relations
from keras_compembed.anchors import cooccurrence

PAIRS = [(0, 3), (3, 0), (4, 1), (2, 2), (3, 1), (0, 3)]


class CooMatrix:
    """What `Relations` uses of SciPy's sparse matrices."""

    def __init__(self, dense):
        self.row, self.col = np.nonzero(np.asarray(dense) != 0)
        self.data = np.asarray(dense)[self.row, self.col]
        self.shape = np.shape(dense)

    def tocoo(self):
        return self


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


def test_no_pairs():
    relations = Relations([], 5)
    assert len(relations) == 0
    assert relations.pairs.shape == (0, 2)
    assert not relations.related([0, 1], [2, 3]).any()
    offsets, columns = relations.free_entries([0, 1])
    np.testing.assert_array_equal(offsets, np.zeros(6))
    assert len(columns) == 0


def test_small_dtypes_do_not_overflow():
    pairs = np.array([[200, 100]], "uint8")
    np.testing.assert_array_equal(Relations(pairs, 256).pairs, [[100, 200]])


@pytest.mark.parametrize(
    "pairs, input_dim, message",
    [
        ([(0, 5)], 5, "`pairs` .* below input_dim=5. Received: id 5"),
        ([(0, -1)], 5, "`pairs` .* below input_dim=5. Received: id -1"),
        ([(0, 1, 2)], 5, r"two columns of ids. .* shape \(1, 3\)"),
        ([0, 1], 5, "two columns of ids"),
        ([(0.5, 1)], 5, "must hold sequences of integers.*float64"),
        ([], 0, "`input_dim` must be"),
        ([], 2**31 + 1, "`input_dim` must be"),
    ],
)
def test_pairs_are_checked(pairs, input_dim, message):
    with pytest.raises(ValueError, match=message):
        Relations(pairs, input_dim)


def test_related_equals_the_matrix():
    relations = random_relations()
    ids = np.arange(30)
    np.testing.assert_array_equal(
        relations.related(ids[:, None], ids), dense(relations)
    )
    assert relations.related(*relations.pairs[0])
    with pytest.raises(ValueError, match="`second` .* Received: id 30"):
        relations.related([1, 2], 30)


def test_steps_equal_powers_of_the_matrix(monkeypatch):
    rng = np.random.default_rng(3)
    relations = Relations(rng.integers(30, size=(25, 2)), 30)
    matrix = np.zeros((30, 30), int)
    matrix[tuple(relations.pairs.T)] = 1
    matrix += matrix.T
    reached = matrix.copy()
    for steps in (1, 2, 3):
        expected = np.argwhere(np.triu(reached, 1))
        found = relations.within(steps).pairs
        np.testing.assert_array_equal(found, expected)
        some = relations.within(steps, ids=[4, -1, 29, 4])
        mine = np.isin(expected, [4, 29]).any(axis=1)
        np.testing.assert_array_equal(some.pairs, expected[mine])
        reached = reached + reached @ matrix
    assert len(relations.within(2, ids=[])) == 0
    with pytest.raises(ValueError, match="`ids` must hold.*Received: id 30"):
        relations.within(2, ids=[30])
    assert len(Relations([], 5).within(2)) == 0
    with pytest.raises(ValueError, match="`steps` must be a positive"):
        relations.within(0)
    monkeypatch.setattr(
        "keras_compembed.anchors.relations._MOST_CLUSTER_PAIRS", 10
    )
    with pytest.raises(ValueError, match="more than 10 pairs"):
        relations.within(2)


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


def test_free_entries_of_no_objects():
    offsets, columns = random_relations().free_entries([-1, -1])
    assert offsets[-1] == len(columns) == 0


@pytest.mark.parametrize("unknown", [-2, 30])
def test_free_entries_of_unknown_objects(unknown):
    with pytest.raises(ValueError, match=f"`anchor_ids`.*id {unknown}"):
        random_relations().free_entries([0, unknown])


def test_union():
    first, second = random_relations(), random_relations(seed=1)
    union = first | second
    np.testing.assert_array_equal(dense(union), dense(first) | dense(second))
    with pytest.raises(ValueError, match="input_dim=30 and input_dim=31"):
        _ = first | Relations([], 31)
    with pytest.raises(TypeError):
        _ = first | {(0, 1)}


def test_config():
    relations = random_relations(1000, 5000)
    config = json.dumps(keras.saving.serialize_keras_object(relations))
    assert len(config) < 5 * len(relations)
    copy = keras.saving.deserialize_keras_object(json.loads(config))
    assert copy.input_dim == 1000
    np.testing.assert_array_equal(copy.keys, relations.keys)
    empty = Relations.from_config(Relations([], 3).get_config())
    assert len(empty) == 0


def test_from_sparse():
    matrix = np.zeros((5, 5))
    matrix[0, 3] = matrix[3, 0] = 2.5
    matrix[4, 1] = matrix[2, 2] = -1
    sparse = CooMatrix(matrix)
    sparse.row, sparse.col = np.append(sparse.row, 0), np.append(sparse.col, 1)
    # A zero that is held.
    sparse.data = np.append(sparse.data, 0)
    relations = Relations.from_sparse(sparse)
    np.testing.assert_array_equal(relations.pairs, [[0, 3], [1, 4]])
    assert relations.input_dim == 5
    with pytest.raises(ValueError, match=r"square.*\(5, 4\)"):
        Relations.from_sparse(CooMatrix(matrix[:, :4]))
    with pytest.raises(ValueError, match="sparse matrix.*ndarray"):
        Relations.from_sparse(matrix)


def test_from_a_matrix_of_scipy():
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.csr_matrix(np.array([[1, 2, 0], [0, 0, 0], [0, 1, 0]]))
    for form in (matrix, matrix.tolil(), sparse.coo_array(matrix)):
        relations = Relations.from_sparse(form)
        np.testing.assert_array_equal(relations.pairs, [[0, 1], [1, 2]])


def test_from_clusters():
    labels = np.random.default_rng(0).integers(-1, 4, 30)
    relations = Relations.from_clusters(labels)
    expected = (labels[:, None] == labels) & (labels >= 0)
    np.fill_diagonal(expected, False)
    np.testing.assert_array_equal(dense(relations), expected)
    assert len(Relations.from_clusters([-1, -3])) == 0
    assert len(Relations.from_clusters(np.arange(9))) == 0


def test_clusters_are_checked():
    with pytest.raises(ValueError, match="`labels` must hold one integer"):
        Relations.from_clusters([0.5, 1])
    with pytest.raises(ValueError, match="`labels` must hold one integer"):
        Relations.from_clusters([[0, 1]])
    with pytest.raises(ValueError, match="49,995,000 pairs.* 10,000 objects"):
        Relations.from_clusters(np.zeros(10_000, int))


def naive_counts(documents, window, ignore=()):
    counts = {}
    for document in documents:
        for i, j in itertools.combinations(range(len(document)), 2):
            pair = tuple(sorted((int(document[i]), int(document[j]))))
            if j - i <= window and pair[0] != pair[1]:
                if not set(pair) & set(ignore):
                    counts[pair] = counts.get(pair, 0) + 1
    return counts


@pytest.mark.parametrize("chunk", [7, 64, 10_000])
@pytest.mark.parametrize("window", [1, 10])
@pytest.mark.parametrize("waiting", [0, 10_000])
def test_counts_equal_the_naive_ones(monkeypatch, chunk, window, waiting):
    monkeypatch.setattr(cooccurrence, "_CHUNK", chunk)
    monkeypatch.setattr(cooccurrence, "_WAITING", waiting)
    rng = np.random.default_rng(0)
    documents = [rng.integers(12, size=n) for n in (50, 0, 3, 1, 200, 21)]
    keys, counts = cooccurrence.count_pairs(documents, 12, window, [2, 5])
    expected = naive_counts(documents, window, [2, 5])
    found = zip(zip(*np.divmod(keys, 12), strict=True), counts, strict=True)
    assert {(int(u), int(v)): n for (u, v), n in found} == expected
    assert (np.diff(keys) > 0).all()

    stream = np.concatenate(documents).astype("uint8")
    keys, counts = cooccurrence.count_pairs(stream, 12, window)
    expected = naive_counts([stream], window)
    assert dict(zip(keys.tolist(), counts.tolist(), strict=True)) == {
        u * 12 + v: n for (u, v), n in expected.items()
    }


@pytest.mark.parametrize(
    "tokens",
    [
        [3, 1, 0, 4, 3, 1],
        np.array([3, 1, 0, 4, 3, 1]),
        [[3, 1, 0], [4, 3, 1], [0, 4]],
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


@pytest.mark.parametrize("tokens", [[], [[], []], np.zeros(0, int)])
def test_no_tokens(tokens):
    assert len(Relations.from_tokens(tokens, 5, top=3)) == 0
    assert len(Relations.from_tokens(tokens, 5, min_information=0)) == 0


def test_pairs_kept():
    rng = np.random.default_rng(0)
    tokens = (rng.pareto(1, 2000) * 2).astype(int) % 20
    counts = naive_counts([tokens], 3)
    matrix = np.zeros((20, 20))
    for (u, v), count in counts.items():
        matrix[u, v] = matrix[v, u] = count

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


def test_memory_does_not_grow_with_the_text(monkeypatch):
    monkeypatch.setattr(cooccurrence, "_CHUNK", 1000)
    monkeypatch.setattr(cooccurrence, "_WAITING", 5000)
    tokens = np.random.default_rng(0).integers(50, size=100_000)
    tracemalloc.start()
    Relations.from_tokens(tokens, 50)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # All pairs at once would take 8 MB.
    assert peak < 2_000_000


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"tokens": [0, 5]}, "`tokens` must hold ids .* Received: id 5"),
        ({"tokens": [[0], [-1]]}, "`tokens` must hold ids .* Received: id -1"),
        ({"tokens": [0.5, 1.5]}, "`tokens` must hold sequences of integers"),
        ({"tokens": [[[0]]]}, "`tokens` must hold sequences of integers"),
        ({"window": 0}, "`window` must be a positive integer"),
        ({"min_count": 0}, "`min_count` must be a positive integer"),
        ({"top": 0}, "`top` must be a positive integer"),
        ({"ignore": [9]}, "`ignore` must hold ids .* Received: id 9"),
        ({"input_dim": 0}, "`input_dim` must be"),
    ],
)
def test_token_arguments_are_checked(arguments, message):
    arguments = {"tokens": [0, 1, 2], "input_dim": 5, **arguments}
    with pytest.raises(ValueError, match=message):
        Relations.from_tokens(**arguments)
