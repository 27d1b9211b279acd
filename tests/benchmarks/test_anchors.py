"""Benchmarks of anchors run, each once in its quick mode."""

import types

import numpy as np
import pytest
from benchmark_files import figures
from benchmark_files import write_sentences

from benchmarks.anchors import classification
from benchmarks.anchors import from_table
from benchmarks.anchors import language_model
from benchmarks.anchors import recommendation
from benchmarks.anchors import sparse_coding
from benchmarks.anchors import storage
from benchmarks.common import word_lstm
from benchmarks.common.arguments import parse
from benchmarks.data import visits
from benchmarks.data.words import Text
from benchmarks.litert import anchors


@pytest.mark.slow
def test_classification(tmp_path, capsys):
    found = classification.main(["--quick", "--picture", str(tmp_path)])
    assert len(found) == len(classification.quick_rows())
    rows = {
        (row["row"]["task"]["name"], row["name"]): figures(row) for row in found
    }
    assert len(rows) == len(found)
    full = rows["words", "full table"]
    words = full["parameters"] // 8
    # 180 words, most of which occur twice, padding and unknown.
    assert 150 < words <= 182
    assert full["times_fewer"] == 1 and full["bytes"] == 4 * 8 * words
    assert full["test"] > 0.6
    for row in found:
        epochs = row["row"]["task"]["epochs"]
        assert len(figures(row)["by_epoch"]) == epochs
        if row["row"]["layer"] is not None:
            nonzeros = figures(row)["nonzeros"]
            assert figures(row)["parameters"] == nonzeros + 4 * 8
    sparse = rows["words", "l1 1e-3"]
    assert sparse["nonzeros"] == sparse["by_epoch"][-1]["nonzeros"]
    assert sparse["by_epoch"][-1]["l1"] == pytest.approx(1e-3)
    # Every number that training has touched.
    assert rows["words", "subgradient"]["nonzeros"] > 4 * (words - 3)
    assert rows["words", "frequency"]["nonzeros"] == 150
    assert rows["words", "50 words by tf-idf"]["parameters"] == 50 * 8
    assert rows["words", "sparse code"]["nonzeros"] <= 2 * words
    assert (tmp_path / "ant_words.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "ant_words_cnn.png").exists()
    table = capsys.readouterr().out
    assert "| task |  | anchors | non-zeros | parameters |" in table
    assert f"| words | l1 1e-3 | 4 | {sparse['nonzeros']:,} |" in table


@pytest.mark.slow
def test_sparse_coding():
    pytest.importorskip("sklearn")
    rows = sparse_coding.main(["--quick"])
    found = {row["name"]: figures(row)["relative_error"] for row in rows}
    assert list(found) == list(sparse_coding.WAYS)
    assert all(0 < error < 0.6 for error in found.values())
    # Two ways to the same.
    ours, its = list(found.values())[-2:]
    assert ours == pytest.approx(its, rel=1e-2)


def test_frequent_words_are_kept():
    texts = types.SimpleNamespace
    task = classification.Task("t", "generated", "mean", 12, 8, 1, 32, 1e-2)
    texts = classification.text_ids.read("generated", None, 12)
    row = classification.Row("50 words", task, kept_words=50)
    kept = classification.keep_words(texts, row).train[0]
    assert kept.max() == 49
    often = np.argsort(-texts.counts, kind="stable")[:48]
    assert (kept[np.isin(texts.train[0], often)] >= 2).all()


@pytest.mark.data
def test_domain_knowledge(data_dir):
    words = ["", "[UNK]", "dogs", "puppy", "paper"]
    relations = classification.read_wordnet(words, data_dir)
    assert relations.pairs.tolist() == [[2, 3]]


@pytest.mark.slow
def test_language_model(tmp_path, capsys):
    write_sentences(tmp_path)
    arguments = ["--quick", "--data", str(tmp_path)]
    arguments += ["--cache", str(tmp_path / "cache")]
    table, anchors = map(figures, language_model.main(arguments))
    # 31 words, of width 8.
    assert table["parameters"] == 31 * 8
    assert 6 * 8 < anchors["parameters"] <= 6 * 8 + 31 * 6
    for row in (table, anchors):
        assert 1 < row["test"] < 40
    assert "| 6 anchors, l1 0.001 | 2 | " in capsys.readouterr().out


@pytest.mark.slow
def test_from_table(tmp_path, capsys):
    write_sentences(tmp_path)
    arguments = ["--quick", "--data", str(tmp_path)]
    arguments += ["--cache", str(tmp_path / "cache")]
    rows = [figures(row) for row in from_table.main(arguments)]
    table, anchors, narrow, pruned, k_svd, lasso, dropout = rows
    # 31 words, of width 8; then words of width 8 too.
    assert table["numbers"] == 31 * 8 and anchors["numbers"] <= 130
    assert narrow["numbers"] == 3 * (31 + 8)
    # The same first half.
    assert table["valid_before"] < anchors["valid_before"] < 40
    assert pruned["numbers"] <= 400 and k_svd["numbers"] <= 400
    assert lasso["numbers"] == dropout["numbers"] == 400
    for row in (pruned, k_svd, lasso, dropout):
        assert row["test"] > 60
    # One first half of each kind, and no unfinished row.
    kept = [path.name for path in (tmp_path / "cache").iterdir()]
    assert len(kept) == 4 and all(name.endswith(".npz") for name in kept)
    assert "| ptb | anchors | " in capsys.readouterr().out


def test_sampled_loss_of_all_words_is_full(tmp_path):
    write_sentences(tmp_path)
    text = Text(tmp_path / "ptb")
    # What is not frequent is sampled whole.
    recipe = word_lstm.Recipe(
        batch_size=4, steps=3, units=8, layers=1, frequent=10, sampled=100
    )
    row = language_model.Row("anchors", num_anchors=6, l1=0.0)
    embedding = language_model.make_embedding(row, len(text.vocabulary), recipe)
    model = language_model.TiedLanguageModel(
        embedding, text.counts, recipe, 100
    )
    model.build((4, 3))
    rng = np.random.default_rng(0)
    features = rng.normal(size=(12, 8)).astype("float32")
    labels = np.arange(12, dtype="int64") * 2
    np.testing.assert_allclose(
        model._sampled_loss(features, labels),
        model._full_loss(features, labels),
        rtol=1e-5,
    )


@pytest.mark.slow
def test_recommendation(tmp_path, capsys):
    arguments = ["--quick", "--cache", str(tmp_path)]
    rows = recommendation.main(
        [*arguments, "--rows", "^tables|fitted|nearest|l1"]
    )
    rows = [figures(row) for row in rows]
    tables, fitted, nearest, shrunk = rows
    assert tables["parameters"] == (150 + 100) * 8
    assert tables["times_smaller"] == 1
    for row in rows:
        # 20 of 100 places at random are 0.2 of them.
        assert row["recall"] > 0.5
        assert 0 < row["ndcg"] <= 1
        assert len(row["by_epoch"]) == 4
    for row in (fitted, nearest):
        # Ten anchors of width 8 on each side, two numbers a row.
        assert 160 < row["parameters"] <= 160 + 2 * 250
    numbers = [size for _, size in shrunk["by_epoch"]]
    assert shrunk["parameters"] == numbers[-1] < numbers[0]
    assert "| tables | 2,000 | 1.0 | " in capsys.readouterr().out


def test_rank(monkeypatch):
    monkeypatch.setattr(recommendation, "TOP", 2)
    # User 0 is offered items 1 and 2, user 2 items 3 and 2.
    users = np.array([[1, 0], [0, 0], [0, 1]], "float32")
    items = np.array([[4, 1], [3, 2], [2, 3], [1, 4]], "float32")
    recall, ndcg = recommendation.rank(
        users,
        items,
        np.array([2, 0]),
        seen=np.array([[0, 0]]),
        relevant=np.array([[0, 2], [2, 3], [2, 0], [2, 1]]),
    )
    discount = 1 / np.log2(3)
    assert recall == pytest.approx((1 + 1 / 3) / 2)
    assert ndcg == pytest.approx((discount + 1 / (1 + discount)) / 2)


def test_visits_relate_what_is_shared():
    train = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, 2], [2, 1]])
    pairs = types.SimpleNamespace(train=train)
    # Of two users each; users 0 and 1 share two places.
    items = recommendation.shared_visits(pairs, 1, 3, 0, seed=0)
    users = recommendation.shared_visits(pairs, 0, 3, 0, seed=0)
    assert items.pairs.tolist() == [[0, 1]]
    assert users.pairs.tolist() == [[0, 1]]


def test_nearest_have_the_same_visits():
    pairs = visits.generated()
    relations = recommendation.nearest(pairs, 1, pairs.num_items, 20, 0)
    anchors = np.argsort(-np.bincount(pairs.train[:, 1]), kind="stable")[:20]
    assert np.isin(relations.pairs, anchors).any(axis=1).all()
    alike = relations.pairs[:, 0] % 5 == relations.pairs[:, 1] % 5
    # A fifth of the pairs by chance.
    assert alike.mean() > 0.5


# Keras's own Adam, which is there for comparison, warns of tables it fills.
@pytest.mark.filterwarnings("ignore:Converting sparse")
@pytest.mark.slow
def test_storage(capsys):
    rows = storage.main(["--quick", "--rows", "^(dense|sparse)"])
    *times, memory = rows
    assert [row["row"]["input_dim"] for row in times] == [100, 100, 1000, 1000]
    for row in times:
        assert 0 < figures(row)["fastest"] <= figures(row)["milliseconds"]
    assert memory["row"]["num_anchors"] == 20
    assert figures(memory)["peak_bytes"] > 1e8
    line = "| 2,000 | 20 | sparse | SparseRowOptimizer(Adam) |  |  |  | "
    assert line in capsys.readouterr().out


def test_rows_of_storage():
    args = parse(storage.Storage, "anchors.storage", ["--quick"])
    *times, memory = storage.Storage(args, None).rows()
    variants = [(row.storage, row.optimizer) for row in times]
    assert variants == 2 * list(storage.VARIANTS)
    assert memory.memory and not any(row.memory for row in times)


@pytest.mark.slow
def test_litert(capsys):
    pytest.importorskip("ai_edge_litert")
    rows = anchors.main(["--quick"])
    assert [row["name"] for row in rows] == [
        "table, float32",
        "rows, float32",
        "rows, float32, static",
        "rows, float16",
        "rows, int8",
    ]
    rows = [figures(row) for row in rows]
    assert rows[0]["file_bytes"] > 4 * 2000 * 64
    sizes = [row["file_bytes"] for row in rows[1:]]
    # Every form is smaller than the one before.
    assert sizes == sorted(sizes, reverse=True)
    assert all(row["microseconds"] > 0 for row in rows)
    assert "| table, float32 | 5" in capsys.readouterr().out
