import dataclasses
import json

import keras
import numpy as np
import pytest
from errors import refused

import keras_compembed as kc
from keras_compembed.reports import fidelity


def make_tables(rows=200, columns=12, noise=0.5):
    rng = np.random.default_rng(3)
    table = rng.normal(size=(rows, columns)) + 1
    return table, table + noise * rng.normal(size=table.shape)


def brute_force_overlap(table, reconstruction, num_neighbors):
    """Over all rows, from the whole matrix of cosines."""

    def neighbors(rows):
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        cosines = rows @ rows.T
        np.fill_diagonal(cosines, -np.inf)
        return np.argsort(-cosines, axis=1)[:, :num_neighbors]

    pairs = zip(neighbors(table), neighbors(reconstruction), strict=True)
    return np.mean([len(set(a) & set(b)) / num_neighbors for a, b in pairs])


def test_hand_computed():
    table = np.array([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]])
    rebuilt = np.array([[4.0, 3.0], [0.0, 1.0], [1.0, 1.0]])
    result = fidelity(table, rebuilt, num_neighbors=1)
    # Squared errors 2, 1, 1; energies 25, 4, 1; mean row (4/3, 2).
    assert result.mean_squared_distance == pytest.approx(4 / 3)
    assert result.relative_squared_error == pytest.approx(4 / 30)
    centred = (25 / 9 + 4) + 16 / 9 + (1 / 9 + 4)
    assert result.centred_relative_squared_error == pytest.approx(4 / centred)
    assert result.mean_cosine == pytest.approx((24 / 25 + 1 + 0.5**0.5) / 3)
    # Nearest to rows 0, 1, 2 were 1, 0, 0 and are 2, 2, 0.
    assert result.neighbor_overlap == pytest.approx(1 / 3)
    assert (result.num_neighbors, result.num_queries) == (1, 3)


def test_overlap_against_brute_force():
    # Cosines are of 953 rows at a time.
    table, rebuilt = (x.astype("float32") for x in make_tables(1100))
    result = fidelity(table, rebuilt, 10, num_queries=1100)
    expected = brute_force_overlap(table, rebuilt, 10)
    assert result.neighbor_overlap == pytest.approx(expected)


def test_rows_of_several_parts():
    """More than are read at a time."""
    table, rebuilt = make_tables(rows=90_001)
    result = fidelity(table, rebuilt, num_queries=3)
    error = np.square(table - rebuilt).sum()
    spread = np.square(table - table.mean(axis=0)).sum()
    assert result.mean_squared_distance == pytest.approx(error / len(table))
    assert result.centred_relative_squared_error == pytest.approx(
        error / spread
    )
    lengths = np.linalg.norm(table, axis=1) * np.linalg.norm(rebuilt, axis=1)
    cosines = (table * rebuilt).sum(axis=1) / lengths
    assert result.mean_cosine == pytest.approx(cosines.mean())


def test_rows_of_zeros():
    table, rebuilt = make_tables()
    table[[3, 70]] = 0
    result = fidelity(table, rebuilt)
    assert result.num_queries == 198
    rest = np.delete(table, [3, 70], 0), np.delete(rebuilt, [3, 70], 0)
    assert result.mean_cosine == pytest.approx(fidelity(*rest).mean_cosine)
    # Those of the reconstruction count as lost.
    table, _ = make_tables(rows=100)
    rebuilt = table.copy()
    rebuilt[:50] = 0
    result = fidelity(table, rebuilt)
    assert result.mean_cosine == pytest.approx(0.5)
    assert 0 < result.neighbor_overlap < 0.5


def test_table_of_zeros():
    result = fidelity(np.zeros((5, 3)), np.ones((5, 3)))
    assert result.mean_squared_distance == 3
    undefined = dataclasses.asdict(result)
    assert [name for name, value in undefined.items() if value is None] == [
        "relative_squared_error",
        "centred_relative_squared_error",
        "mean_cosine",
        "neighbor_overlap",
    ]
    json.dumps(undefined, allow_nan=False)


def test_other_dtypes_orders_and_files(tmp_path):
    for dtype in ("int8", "float16"):
        table = np.asfortranarray(np.arange(24).reshape(8, 3), dtype=dtype)
        result = fidelity(table, np.asarray(table, "float32") + 1)
        assert result.mean_squared_distance == 3
    table, rebuilt = make_tables()
    np.save(tmp_path / "table.npy", table)
    mapped = np.load(tmp_path / "table.npy", mmap_mode="r")
    assert fidelity(mapped, rebuilt) == fidelity(table, rebuilt)


def test_layers_are_their_tables():
    table, _ = make_tables()
    coded = kc.CodeEmbedding(200, 12, 4, 8, codebooks=np.ones((4, 8, 12)))
    original = keras.layers.Embedding(200, 12, weights=table)
    expected = fidelity(table.astype("float32"), coded.embeddings)
    assert fidelity(original, coded) == expected
    # One of Keras that is quantized is read in its own units.
    original.quantize("int8")
    assert fidelity(table, original).relative_squared_error < 1e-4


ONES = np.ones((3, 4))


@pytest.mark.parametrize(
    "arguments, argument, received",
    [
        ((ONES, np.ones((3, 5))), "reconstruction", (3, 5)),
        ((np.full((3, 4), np.nan), ONES), "table", "row 0"),
        ((ONES, np.full((3, 4), np.inf)), "reconstruction", "row 0"),
        ((np.ones(3), ONES), "table", (3,)),
        ((ONES, kc.CodeEmbedding(3, 4, 2, 4)), "reconstruction", "Code"),
        ((ONES, keras.layers.Dense(4)), "reconstruction", "Dense"),
        ((ONES, ONES, 0), "num_neighbors", 0),
    ],
)
def test_what_is_refused(arguments, argument, received):
    with refused(argument, received):
        fidelity(*arguments)
