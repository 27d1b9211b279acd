"""Parts of benchmarks of tables, by references on plain arrays."""

import itertools

import numpy as np
import pytest
from benchmark_files import load

import keras_compembed as kc
from benchmarks.codes import clusters
from benchmarks.codes import sentiment
from benchmarks.common import best_rows
from benchmarks.common import litert
from benchmarks.data import visits
from benchmarks.litert import lookups
from benchmarks.rivals import accuracy
from benchmarks.rivals import methods
from benchmarks.rivals.tasks import QUICK
from benchmarks.rivals.tasks import Task
from benchmarks.vectors import quality

learning = load("codes.learning")


def test_rank(monkeypatch):
    monkeypatch.setattr(visits, "TOP", 2)
    # User 0 is offered items 1 and 2, user 2 items 3 and 2.
    recall, ndcg = visits.rank(
        np.array([[1, 0], [0, 0], [0, 1]], "float32"),
        np.array([[4, 1], [3, 2], [2, 3], [1, 4]], "float32"),
        np.array([2, 0]),
        seen=np.array([[0, 0]]),
        relevant=np.array([[0, 2], [2, 3], [2, 0], [2, 1]]),
    )
    discount = 1 / np.log2(3)
    assert recall == pytest.approx((1 + 1 / 3) / 2)
    assert ndcg == pytest.approx((discount + 1 / (1 + discount)) / 2)


@pytest.mark.parametrize(
    ("module", "flags", "message"),
    [
        (learning, ["--methods", "magic"], "magic"),
        (learning, ["--tables", "nowhere"], "nowhere"),
        # Before any table is begun.
        (learning, ["--tables", "generated,reviews"], "--data"),
        (accuracy, ["--tasks", "nowhere"], "--tasks must be.*: nowhere"),
        (accuracy, ["--methods", "magic,codes"], "--methods must.*: magic, co"),
    ],
)
def test_unknown_names_are_refused(module, flags, message, monkeypatch):
    monkeypatch.delenv("COMPEMBED_DATA", raising=False)
    with pytest.raises(SystemExit, match=message):
        module.main(["--quick", *flags])


def test_reviews_of_like_length_meet():
    rng = np.random.default_rng(0)
    reviews = [rng.integers(9, size=rng.integers(1, 30)) for _ in range(101)]
    labels = np.arange(101, dtype="int32")
    seen = []
    for seed in (None, 1):
        dataset = sentiment.batches(reviews, labels, 10, seed)
        assert len(dataset) == 11
        order = []
        for ids, batch in dataset.as_numpy_iterator():
            for row, label in zip(ids, batch, strict=True):
                # Padding is before the words.
                start = len(row) - len(reviews[label])
                assert (row[:start] == 0).all()
                np.testing.assert_array_equal(row[start:] - 1, reviews[label])
            assert (ids[:, 0] > 0).any()
            order += batch.tolist()
        assert sorted(order) == labels.tolist()
        seen.append(order)
    lengths = [len(reviews[label]) for label in seen[0]]
    assert lengths == sorted(lengths) and seen[0] != seen[1]


def test_figures_of_clusters():
    labels = np.array([0, 0, 1, 1, 2, 2])
    # The halves follow from the labels.
    halves = np.array([0, 0, 0, 0, 1, 1])
    entropy = np.log(3) - 2 / 3 * np.log(2)
    for other, expected in (
        (2 - labels, 1),
        (np.zeros(6, int), 0),
        (halves, 2 * entropy / (np.log(3) + entropy)),
    ):
        found = clusters.mutual_information(labels, other)
        assert found == pytest.approx(expected)
    table = np.array([[0.0], [2.0], [5.0], [5.0]])
    assert clusters.loss_of_clusters(table, np.array([0, 0, 1, 1])) == 0.5


@pytest.mark.parametrize("name", [*lookups.TABLES, *lookups.ROUNDED])
def test_files_hold_the_table(name, tmp_path):
    pytest.importorskip("ai_edge_litert")
    size, width = 2 * lookups.DIFFERENT_ROWS + 5, 32
    row = lookups.Row(name, size, pooled=False)
    path = lookups.write(row, tmp_path / "table.tflite", width, 0)
    ids = np.array([[0, 1, 4098, 4099, 4100, size - 1]], "int32")
    file = litert.File(path, {None: ids.shape})
    file.run(ids)
    (rows,) = file.outputs().values()
    table = lookups.random_rows(width, 0)
    wanted, atol = table[ids % lookups.DIFFERENT_ROWS], 0
    np.testing.assert_array_equal(rows[0, 0], rows[0, 3])
    if name in lookups.ROUNDED:
        bits, rank = lookups.ROUNDED[name]
        layer = kc.QuantizedEmbedding.from_table(
            table, bits, rank=rank, seed=0, verbose=0
        )
        wanted, atol = layer(ids % lookups.DIFFERENT_ROWS), 1e-6
    elif lookups.TABLES[name] == "float16":
        wanted = wanted.astype("float16")
    elif lookups.TABLES[name] == "int8":
        # One scale for the table.
        atol = np.abs(table).max() / 254
    np.testing.assert_allclose(rows, wanted, rtol=0, atol=atol)


def test_times_are_of_turns():
    calls = []

    def function(name, seconds):
        def run(value):
            calls.append((name, value))
            return seconds * value

        return run

    taken = litert.in_turns(
        function("a", 1), function("b", 10), itertools.count(), 0.0, least=4
    )
    # The first is left out: 1, 2, 3 and 4.
    assert taken == [2.5, 25.0]
    first = [name for name, _ in calls[::2]]
    assert first == ["b", "a", "b", "a", "b"]
    assert [value for _, value in calls[::2]] == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_all_epochs_are_spent(tmp_path, monkeypatch):
    """Whatever is made has as many epochs as the table."""
    spent = {}

    def train(task, model, epochs, rate, seed, callbacks=()):
        spent.setdefault(rate, []).append(epochs)

    monkeypatch.setattr(Task, "train", train)
    flags = ["--quick", "--tasks", "generated", "--rates", "0.003"]
    flags += ["--cache", str(tmp_path)]
    epochs = QUICK[0].epochs
    for names, expected in (
        ("int4", [epochs // 2, epochs - epochs // 2]),
        ("quotient x remainder", [epochs]),
        # Half of them are in the cache.
        ("table", [epochs, epochs - epochs // 2]),
    ):
        spent.clear()
        accuracy.main([*flags, "--methods", names])
        assert spent == {0.003: expected}


def test_climb():
    for scores, first, best, expected in (
        ((0, 1, 2, 3), 1, 100, [1, 10, 100]),
        ((3, 2, 1, 9), 1.1, 0.1, [1, 10, 0.1]),
        ((0, 1, 0, 9), 1, 1, [1, 10, 0.1]),
    ):
        tried = []
        of_rate = dict(zip((0.1, 1, 10, 100), scores, strict=True))

        def score_of(rate, of_rate=of_rate, tried=tried):
            tried.append(rate)
            return of_rate[rate]

        found = best_rows.climb(tuple(of_rate), first, score_of)
        assert max(found, key=found.get) == best and tried == expected


@pytest.mark.parametrize("name", list(methods.RIVALS))
def test_largest_that_fits(name):
    rival, shape = methods.RIVALS[name], (2000, 64)
    counts, sizes = np.arange(2000)[::-1].astype("float32"), []
    for ratio in (4, 16, 64):
        limit = 4 * 2000 * 64 // ratio
        method = rival.largest(shape, counts, limit)
        if method is not None:
            assert method.reason_against(*shape) is None
            sizes.append(method.litert_bytes(*shape, methods.QUANTIZE))
            assert sizes[-1] <= limit
    assert sizes and sizes == sorted(sizes, reverse=True)


def test_largest_is_the_largest():
    sizes = methods.Sizes(lambda number: methods.methods.Codes(number, 16))
    # 2,000 codes of 2 bytes, and 4 codebooks in int8.
    needed = 2000 * 2 + 4 * 16 * 64
    assert sizes.fit((2000, 64), needed).num_codebooks == 4
    assert sizes.fit((2000, 64), needed - 1).num_codebooks < 4
    for family in quality.FAMILIES:
        method = quality.largest(family, (3000, 32), 24_000)
        size = method.litert_bytes(3000, 32, quality.QUANTIZE)
        assert 18_000 < size <= 24_000
        assert quality.largest(family, (3000, 32), 10) is None
