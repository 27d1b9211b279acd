import dataclasses
import json

import keras
import numpy as np
import pytest

from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.reports import table_rows
from keras_compembed.reports.fidelity import fidelity


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


@pytest.mark.parametrize("num_neighbors", [1, 10, 199])
@pytest.mark.parametrize("chunk_elements", [1 << 20, 700])
def test_overlap_against_brute_force(
    monkeypatch, num_neighbors, chunk_elements
):
    monkeypatch.setattr(table_rows, "_CHUNK_ELEMENTS", chunk_elements)
    table, rebuilt = make_tables()
    result = fidelity(table, rebuilt, num_neighbors)
    expected = brute_force_overlap(
        table.astype("float32"), rebuilt.astype("float32"), num_neighbors
    )
    assert result.neighbor_overlap == pytest.approx(expected)
    assert 0 < result.neighbor_overlap <= 1


def test_chunks_do_not_change_the_result(monkeypatch):
    table, rebuilt = make_tables()
    whole = dataclasses.asdict(fidelity(table, rebuilt, num_queries=50))
    monkeypatch.setattr(table_rows, "_CHUNK_ELEMENTS", 13)
    parts = dataclasses.asdict(fidelity(table, rebuilt, num_queries=50))
    assert not parts.pop("word_scores") + parts.pop("original_word_scores")
    assert parts == pytest.approx({key: whole[key] for key in parts}, rel=1e-9)


def test_sample_is_seeded():
    table, rebuilt = make_tables(noise=1)
    first = fidelity(table, rebuilt, num_queries=20, seed=1)
    assert first == fidelity(table, rebuilt, num_queries=20, seed=1)
    assert first.num_queries == 20
    others = [
        fidelity(table, rebuilt, num_queries=20, seed=seed).neighbor_overlap
        for seed in range(2, 6)
    ]
    assert {first.neighbor_overlap} != set(others)


def test_same_table():
    table, _ = make_tables()
    result = fidelity(table, table.copy())
    assert result.mean_squared_distance == 0
    assert result.relative_squared_error == 0
    assert result.centred_relative_squared_error == 0
    assert result.mean_cosine == pytest.approx(1)
    assert result.neighbor_overlap == 1


def test_mean_row_explains_raw_but_not_centred_energy():
    table, _ = make_tables()
    rebuilt = np.broadcast_to(table.mean(axis=0), table.shape)
    result = fidelity(table, rebuilt)
    assert result.centred_relative_squared_error == pytest.approx(1)
    assert result.relative_squared_error < 0.7


def test_zero_rows_of_the_table_are_left_out():
    table, rebuilt = make_tables()
    table[[3, 70]] = 0
    result = fidelity(table, rebuilt)
    assert result.num_queries == 198
    rest = np.delete(table, [3, 70], 0), np.delete(rebuilt, [3, 70], 0)
    assert result.mean_cosine == pytest.approx(fidelity(*rest).mean_cosine)


def test_zero_rows_of_the_reconstruction_count_as_lost():
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


def test_equal_rows_have_no_centred_error():
    table = np.full((7, 3), 0.1, "float32")
    result = fidelity(table, table + 1)
    assert result.centred_relative_squared_error is None
    assert result.relative_squared_error == pytest.approx(100, rel=1e-6)


def test_one_row():
    result = fidelity([[1.0, 2.0]], [[1.0, 1.0]])
    assert (result.neighbor_overlap, result.num_neighbors) == (None, 0)
    assert result.mean_squared_distance == 1


def test_fewer_rows_than_neighbors():
    table, rebuilt = make_tables(rows=4)
    result = fidelity(table, rebuilt, num_neighbors=10)
    assert (result.num_neighbors, result.neighbor_overlap) == (3, 1)


def test_huge_and_tiny_rows():
    table, _ = make_tables()
    table *= np.logspace(-30, 30, len(table))[:, None]
    result = fidelity(table, 2 * table)
    assert result.relative_squared_error == pytest.approx(1)
    assert result.mean_cosine == pytest.approx(1)
    assert result.neighbor_overlap == 1


@pytest.mark.parametrize("dtype", ["int8", "float16", "float64"])
def test_other_dtypes_and_orders(dtype):
    table = np.asfortranarray(np.arange(24).reshape(8, 3), dtype=dtype)
    result = fidelity(table, np.asarray(table, "float32") + 1)
    assert result.mean_squared_distance == 3


def test_memory_mapped(tmp_path):
    table, rebuilt = make_tables()
    np.save(tmp_path / "table.npy", table)
    mapped = np.load(tmp_path / "table.npy", mmap_mode="r")
    assert fidelity(mapped, rebuilt) == fidelity(table, rebuilt)


def test_layers_are_their_tables(monkeypatch):
    monkeypatch.setattr(table_rows, "_CHUNK_ELEMENTS", 500)
    table, _ = make_tables()
    coded = CodeEmbedding(200, 12, 4, 8, codebooks=np.ones((4, 8, 12)))
    original = keras.layers.Embedding(200, 12, weights=table)
    expected = fidelity(table.astype("float32"), coded.embeddings)
    assert fidelity(original, coded) == expected


def test_quantized_layer_is_read_in_its_own_units():
    table, _ = make_tables()
    layer = keras.layers.Embedding(200, 12, weights=table)
    layer.quantize("int8")
    assert fidelity(table, layer).relative_squared_error < 1e-4


def test_shapes_must_agree():
    with pytest.raises(ValueError, match=r"\(3, 4\). Received: shape \(3, 5\)"):
        fidelity(np.ones((3, 4)), np.ones((3, 5)))


@pytest.mark.parametrize("place", [0, 1])
def test_tables_must_be_finite_matrices(place):
    tables = [np.ones((3, 4)), np.ones((3, 4))]
    name = ("table", "reconstruction")[place]
    tables[place] = np.full((3, 4), np.nan)
    with pytest.raises(ValueError, match=f"`{name}` must be finite"):
        fidelity(*tables)
    tables[place] = np.ones(3)
    with pytest.raises(ValueError, match=f"`{name}` must have two axes"):
        fidelity(*tables)


@pytest.mark.parametrize(
    "layer", [CodeEmbedding(3, 4, 2, 4), keras.layers.Dense(4)]
)
def test_layers_must_be_built_embeddings(layer):
    with pytest.raises(ValueError, match="built embedding layer"):
        fidelity(np.ones((3, 4)), layer)


@pytest.mark.parametrize("name", ["num_neighbors", "num_queries"])
def test_counts_must_be_positive(name):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive int"):
        fidelity(np.ones((3, 4)), np.ones((3, 4)), **{name: 0})
