"""Benchmarks of LiteRT files run, each once in its quick mode."""

import itertools

import numpy as np
import pytest
from benchmark_files import figures

import keras_compembed as kc
from benchmarks.common import litert
from benchmarks.common import peak_memory
from benchmarks.common.arguments import parse
from benchmarks.litert import lookups
from benchmarks.litert import scoring
from benchmarks.litert import whole_models

pytest.importorskip("ai_edge_litert")


@pytest.mark.slow
def test_lookups(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    path = tmp_path / "picture.png"
    found = lookups.main(
        ["--quick", "--full-dim", "2000", "--picture", str(path)]
        + ["--picture-length", "8"]
    )
    assert path.read_bytes().startswith(b"\x89PNG")
    rows = [row for row in found if not row["row"]["pooled"]]
    assert len(found) == 2 * len(rows)
    sizes = {row["name"]: figures(row)["file_bytes"] for row in rows}
    floats = sizes["table, float32"]
    # 2,000 rows of 32 numbers, a scale for each in few bits, and a graph.
    for name, row_bytes in (
        ("table, float32", 128),
        ("table, float16", 64),
        ("table, int8", 32),
        ("rounded, int8", 32 + 1),
        ("rounded, int4", 16 + 1),
        ("rounded, int2", 8 + 1),
        ("rounded, int4 rank 16", 8 + 1 + 1),
    ):
        rest = sizes[name] - 2000 * row_bytes
        assert 500 < rest < 4000
    assert sizes["codes 8x16, int8"] < sizes["codes 8x16, float32"] < floats / 5
    for row in found:
        for length in ("1", "8"):
            measured = figures(row)["lengths"][length]
            assert measured["microseconds"] > 0
            assert measured["latency_ratio"] > 0
            peak = measured["peak_bytes"]
            assert peak is None or peak > 0.5 * figures(row)["file_bytes"]
    assert "| 2,000 | mean | codes 8x16, int8 | " in capsys.readouterr().out


@pytest.mark.parametrize("name", [*lookups.TABLES, *lookups.ROUNDED])
def test_files_hold_the_table(name, tmp_path):
    size, width = 2 * lookups.DIFFERENT_ROWS + 5, 32
    row = lookups.Row(name, size, pooled=False)
    path = lookups.write(row, tmp_path / "table.tflite", width, 0)
    ids = np.array([[0, 1, 4098, 4099, 4100, size - 1]], "int32")
    file = litert.File(path, {None: ids.shape})
    file.run(ids)
    (rows,) = file.outputs().values()
    table = lookups.random_rows(width, 0)
    wanted = table[ids % lookups.DIFFERENT_ROWS]
    np.testing.assert_array_equal(rows[0, 0], rows[0, 3])
    if name in lookups.ROUNDED:
        bits, rank = lookups.ROUNDED[name]
        layer = kc.QuantizedEmbedding.from_table(
            table, bits, rank=rank, seed=0, verbose=0
        )
        wanted = np.asarray(layer(ids % lookups.DIFFERENT_ROWS))
        np.testing.assert_allclose(rows, wanted, atol=1e-6)
        return
    kind = lookups.TABLES[name]
    if kind == "float16":
        wanted = wanted.astype("float16").astype("float32")
    if kind == "int8":
        # One scale for the table.
        np.testing.assert_allclose(rows, wanted, atol=np.abs(table).max() / 254)
    else:
        np.testing.assert_array_equal(rows, wanted)


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


def test_peak_memory(tmp_path):
    row = lookups.Row("table, float32", 100_000, pooled=False)
    path = lookups.write(row, tmp_path / "table.tflite", 32, 0)
    size = path.stat().st_size
    with peak_memory.measuring() as measure:
        small, large = (
            measure([(path, {None: (1, length)})]) for length in (1, 50_000)
        )
        if small is None:
            pytest.skip("The system does not count memory.")
        assert size < small < size + 5e5
        # Ids and rows.
        assert large - small == pytest.approx(50_000 * 132, rel=0.1)
        with pytest.raises(RuntimeError, match="not measured: .*Error"):
            measure([(tmp_path / "none.tflite", {})])
        assert measure([(path, {None: (1, 1)})]) > size


@pytest.mark.slow
def test_whole_models(capsys):
    found = whole_models.main(["--quick"])
    rows = {(row["row"]["model"], row["name"]): figures(row) for row in found}
    for row in rows.values():
        assert row["milliseconds"] > 0 and row["latency_ratio"] > 0
    for model in ("mean", "encoder-decoder"):
        tables = rows[model, "tables, float32"]
        codes = rows[model, "codes 4x16, float32"]
        assert codes["file_bytes"] < tables["file_bytes"]
    for name in ("tables, float32", "codes 4x16, float32"):
        sentences = rows["encoder-decoder", name]
        assert sentences["equal_sentences"] == 1
        # They depend on what is read.
        assert sentences["different_sentences"] > 10
    assert "| mean of words | tables, float32 | " in capsys.readouterr().out


def test_rows_of_whole_models():
    args = parse(whole_models.WholeModels, "litert.whole_models", [])
    rows = whole_models.WholeModels(args, None).rows()
    assert len(set(rows)) == len(rows)
    assert {row.model for row in rows} == set(whole_models.KINDS)
    for row in rows:
        assert row.name.endswith(", static") == row.static
    names = [row.name for row in rows if row.model == "mean"]
    assert names == [
        "tables, float32",
        "tables, float16",
        "tables, int8",
        "codes 32x16, float32",
        "codes 32x16, int8",
        "codes 32x16, int8_codebooks",
        "codes 32x16, float32, latency",
        "codes 32x16, int8, latency",
        "tables, float32, static",
        "tables, int8, static",
        "codes 32x16, float32, static",
        "codes 32x16, int8, static",
    ]


def test_words_are_decoded_one_by_one():
    def encode(source):
        return source.sum(axis=1, keepdims=True)

    def step(inputs):
        state = inputs["state"] + inputs["token"]
        return {"logits": np.eye(10)[state[:, 0] % 10], "state": state}

    source = np.array([[1, 2, 0], [4, 4, 0]], "int32")
    words = whole_models.decode(encode, step, source)
    assert words.tolist() == [[3, 6, 2], [8, 6, 2]]


@pytest.mark.slow
def test_scoring(capsys):
    found = scoring.main(["--quick", "--rows", "LiteRT|8x256"])
    rows = {row["name"]: figures(row) for row in found}
    for name, codewords in (("8x256", 8 * 256), ("16x16", 16 * 16)):
        row = rows[f"codes {name} of 64, LiteRT"]
        # Eight bytes a row, and a graph.
        rest = row["file_bytes"] - 3000 * 8 - codewords * 64 * 4
        assert 0 < rest < 30_000
    for measured in rows.values():
        assert measured["milliseconds"] > 0
        assert measured["ratio"] > 0
    assert "| codes 8x256 of 64, Keras |" in capsys.readouterr().out
