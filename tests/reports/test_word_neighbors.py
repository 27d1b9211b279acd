import numpy as np

from keras_compembed.reports.table_rows import TableRows
from keras_compembed.reports.table_rows import nearest_rows
from keras_compembed.reports.word_neighbors import word_neighbors


def reference(table, query, count):
    """Nearest rows by cosine, by a full sort."""
    lengths = np.linalg.norm(table, axis=1)
    cosine = table @ table[query] / np.maximum(lengths, 1e-9)
    cosine[query] = -np.inf
    return np.argsort(-cosine)[:count]


def test_nearest_rows_come_in_order():
    table = np.random.default_rng(0).normal(size=(60, 5)).astype("float32")
    found, has_direction = nearest_rows(
        TableRows("table", table), np.array([3, 40]), 7
    )
    assert has_direction.all()
    for query, row in zip((3, 40), found, strict=True):
        np.testing.assert_array_equal(row, reference(table, query, 7))


def test_frequent_and_random_words():
    rng = np.random.default_rng(1)
    table = rng.normal(size=(30, 4)).astype("float32")
    table[0] = 0
    words = ["[PAD]", "", *(f"w{x}" for x in range(2, 30))]
    # Small changes keep most neighbours.
    near = table + 0.1 * rng.normal(size=table.shape).astype("float32")
    rows = word_neighbors(
        TableRows("model", near),
        TableRows("original", table),
        words,
        num_frequent=3,
        num_random=4,
        num_neighbors=5,
    )
    # A row without direction, and one without a word, are not asked for.
    assert [row.word for row in rows[:3]] == ["w2", "w3", "w4"]
    assert [row.is_frequent for row in rows] == [True] * 3 + [False] * 4
    assert len({row.word for row in rows}) == 7
    expected = [words[x] for x in reference(table, 2, 5)]
    assert list(rows[0].before) == expected
    assert rows[0].num_shared == len(set(expected) & set(rows[0].after)) > 0


def test_few_rows_and_no_words():
    table = TableRows("model", np.eye(3, 4, dtype="float32"))
    rows = word_neighbors(table)
    assert [row.word for row in rows] == [0, 1, 2]
    assert all(row.before is None and len(row.after) == 2 for row in rows)
    one = TableRows("model", np.ones((1, 4), "float32"))
    assert word_neighbors(one) == []
    assert word_neighbors(TableRows("model", np.zeros((3, 4)))) == []
