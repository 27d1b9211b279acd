"""`open_table`: tables that stay in their files."""

import pathlib

import joblib
import ml_dtypes
import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.checkpoints.descriptions import digest

safetensors = pytest.importorskip("safetensors.numpy")

TABLE = np.random.default_rng(0).normal(size=(600, 8)).astype("float32")


def write_npy(path, rows):
    np.save(path, rows)
    return path


def write_safetensors(path, rows):
    tensors = {"other": np.ones(5, "float64"), "rows": rows}
    safetensors.save_file(tensors, path)
    return path


WRITERS = {"npy": write_npy, "safetensors": write_safetensors}


def write_shards(folder, kind, table=TABLE):
    for start in range(0, 600, 50):
        rows = table[start : start + 50]
        WRITERS[kind](folder / f"part-{start // 50}.{kind}", rows)
    return folder


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        # `numpy.save` keeps no bfloat16.
        *(("npy", dtype) for dtype in ("float32", "float16", "int8")),
        *(("safetensors", dtype) for dtype in ("float32", "int8", "bfloat16")),
    ],
)
def test_a_file_is_mapped(tmp_path, kind, dtype):
    if dtype == "bfloat16":
        dtype = ml_dtypes.bfloat16
    expected = TABLE.astype(dtype)
    table = kc.vectors.open_table(
        WRITERS[kind](tmp_path / f"table.{kind}", expected)
    )
    assert isinstance(table, np.memmap) and not table.flags.writeable
    assert table.dtype == expected.dtype
    np.testing.assert_array_equal(table, expected)


def test_other_layouts_of_numpy(tmp_path):
    for order, dtype in (("F", "<f4"), ("C", ">f8")):
        path = tmp_path / "table.npy"
        np.save(path, np.asarray(TABLE, dtype, order=order))
        np.testing.assert_array_equal(kc.vectors.open_table(path), TABLE)


@pytest.mark.parametrize("kind", WRITERS)
def test_files_of_a_folder_in_the_order_of_numbers(tmp_path, kind):
    folder = write_shards(tmp_path, kind)
    (folder / "README.md").write_text("of the table")
    (folder / f".hidden.{kind}").write_text("nothing")
    table = kc.vectors.open_table(folder)
    assert isinstance(table, kc.vectors.TableShards)
    np.testing.assert_array_equal(table, TABLE)
    paths = [str(folder / f"part-{i}.{kind}") for i in (11, 2)]
    np.testing.assert_array_equal(
        kc.vectors.open_table(paths), np.r_[TABLE[550:], TABLE[100:150]]
    )


def learners():
    training = kc.learners.Training(20, batch_size=16)
    return [
        kc.learners.AdditiveQuantizer(2, 4, seed=0, verbose=0),
        kc.learners.FactorQuantizer(2, 4, 3, seed=0, verbose=0),
        kc.learners.RandomCodeLearner(2, 4, seed=0),
        kc.learners.GumbelCodeLearner(
            2, 4, training=training, seed=0, verbose=0
        ),
        kc.learners.KDCodeLearner(2, 4, training=training, seed=0, verbose=0),
    ]


@pytest.mark.parametrize("place", range(5))
def test_learners_read_shards_as_one_table(tmp_path, place, monkeypatch):
    table = kc.vectors.open_table(write_shards(tmp_path, "npy"))
    weight = np.arange(600.0)
    expected = learners()[place].train(TABLE, weight)
    # Nothing reads it whole.
    monkeypatch.delattr(kc.vectors.TableShards, "__array__")
    learner = learners()[place].train(table, weight)
    np.testing.assert_array_equal(learner.codes, expected.codes)
    np.testing.assert_array_equal(learner.codebooks, expected.codebooks)
    np.testing.assert_array_equal(learner.encode(table), expected.encode(TABLE))


def test_layers_read_shards_as_one_table(tmp_path, monkeypatch):
    table = kc.vectors.open_table(write_shards(tmp_path, "safetensors"))
    monkeypatch.delattr(kc.vectors.TableShards, "__array__")
    for make in (
        lambda x: kc.CodeEmbedding.from_table(x, 2, 4, seed=0, verbose=0),
        lambda x: kc.ANTEmbedding.from_table(x, 9, 2, seed=0, verbose=0),
        lambda x: kc.QuantizedEmbedding.from_table(x, 4, seed=0),
        lambda x: kc.QuantizedEmbedding.from_table(x, 4, rank=0.9, seed=0),
    ):
        ids = np.arange(600)
        np.testing.assert_array_equal(make(table)(ids), make(TABLE)(ids))


def test_shards_go_to_processes_and_checkpoints(tmp_path):
    table = kc.vectors.open_table(write_shards(tmp_path, "npy"))
    assert digest("codes", {}, [table]) == digest("codes", {}, [TABLE])
    expected = learners()[0].train(TABLE)
    with (
        joblib.parallel_config("threading", n_jobs=2),
        kc.checkpoint_folder(tmp_path / "checkpoint"),
    ):
        for _ in range(2):  # The second finds all done.
            learner = learners()[0].train(table)
            np.testing.assert_array_equal(learner.codes, expected.codes)


def refused(folder):
    """Makers of a path that `open_table` refuses, and what it says."""
    short = write_npy(folder / "short.npy", TABLE)
    short.write_bytes(short.read_bytes()[:-1])
    torn = write_safetensors(folder / "torn.safetensors", TABLE)
    torn.write_bytes(torn.read_bytes()[:-1])
    np.savez(folder / "table.npz", TABLE)
    (folder / "text").write_text("word 1 2\n")
    (folder / "empty").write_bytes(b"")
    for name in ("both", "neither", "lost", "nested", "parts"):
        (folder / name).mkdir()
    for name, numbers in (
        ("hole", "02"),
        ("late", "23"),
        ("twice", ("1", "01")),
    ):
        (folder / name).mkdir()
        for number in numbers:
            write_npy(folder / name / f"part-{number}.npy", TABLE)
    for name in ("lost", "nested"):
        write_npy(folder / name / "part-0.npy", TABLE)
    (folder / "lost" / "part-1.npy").symlink_to(folder / "no such file")
    (folder / "nested" / "part-1.npy").mkdir()
    for number in (1, 3):
        write_npy(folder / "parts" / f"t-0000{number}-of-00003.npy", TABLE)
    for name, other in (
        ("copied", "part-1 (copy).npy"),
        ("mixed", "test-0.npy"),
        ("both parts", "t-1-of-1.npy"),
    ):
        (folder / name).mkdir()
        for part in ("part-0.npy", "part-1.npy", other):
            write_npy(folder / name / part, TABLE)
    write_npy(folder / "both" / "a.npy", TABLE)
    write_safetensors(folder / "both" / "a.safetensors", TABLE)
    np.save(folder / "objects.npy", np.array([["a"]], object))
    safetensors.save_file({"x": np.ones(3)}, folder / "one.safetensors")
    narrow = write_npy(folder / "narrow.npy", TABLE[:, :3])
    half = write_npy(folder / "half.npy", TABLE.astype("float16"))
    whole = write_npy(folder / "whole.npy", TABLE)
    several = folder / "several.safetensors"
    safetensors.save_file({"a": TABLE, "b": TABLE}, several)
    return [
        ("nothing", {}, "nothing is there"),
        ("empty", {}, "no bytes"),
        ("text", {}, "must be written by `numpy.save` or be a safetensors"),
        ("table.npz", {}, "a zip file. Decompress it; of a `.npz`"),
        ("short.npy", {}, "must be whole"),
        ("torn.safetensors", {}, "must be a whole safetensors file"),
        ("objects.npy", {}, "real numbers"),
        ("one.safetensors", {}, "no tensor of two axes"),
        ("several.safetensors", {}, "`tensor` must name the table"),
        ("several.safetensors", {"tensor": "c"}, "tensor='c'"),
        ("whole.npy", {"tensor": "a"}, "`tensor` must be None"),
        ("both", {}, "with .npy and .safetensors"),
        ("neither", {}, "with neither"),
        ("lost", {}, "nothing is there"),
        ("nested", {}, "must list files"),
        ("parts", {}, "with 2 of the 00003 parts 't-...-of-00003'"),
        ("hole", {}, "with 2 files 'part-...', numbered 0 to 2. A list"),
        ("late", {}, "with 2 files 'part-...', numbered 2 to 3. A list"),
        ("twice", {}, "with 2 files 'part-...', numbered 1 to 1. A list"),
        ("copied", {}, r"with 'part-...' and 'part-1 \(copy\).npy'. A list"),
        ("mixed", {}, "with 'part-...' and 'test-...'. A list"),
        ("both parts", {}, "with 'part-...' and 't-...-of-1'. A list"),
        (3, {}, "`path` must be a path.*path=3"),
        (None, {}, "`path` must be a path.*path=None"),
        ([], {}, "an empty list"),
        ([whole, narrow], {}, "as many columns.*narrow.npy' with 3"),
        ([whole, half], {}, "of one dtype.*half.npy' with 8 of float16"),
        ([whole, folder / "both"], {}, "must list files"),
    ]


def test_refuses_other_files(tmp_path):
    for path, options, message in refused(tmp_path):
        if isinstance(path, str):
            path = pathlib.Path(tmp_path, path)
        error = FileNotFoundError if "nothing is" in message else ValueError
        with pytest.raises(error, match=message):
            kc.vectors.open_table(path, **options)
