"""`open_table`: tables that stay in their files."""

import joblib
import ml_dtypes
import numpy as np
import pytest

import keras_compembed as kc

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
    # Other layouts of NumPy.
    for order, dtype in (("F", "<f4"), ("C", ">f8")):
        path = tmp_path / "other.npy"
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
    training = kc.learners.Training(5, batch_size=16)
    return [
        kc.learners.AdditiveQuantizer(2, 4, seed=0, verbose=0),
        kc.learners.FactorQuantizer(2, 4, 3, seed=0, verbose=0),
        kc.learners.RandomCodeLearner(2, 4, seed=0),
        kc.learners.GumbelCodeLearner(
            2, 4, training=training, seed=0, verbose=0
        ),
        kc.learners.KDCodeLearner(2, 4, training=training, seed=0, verbose=0),
    ]


def test_learners_read_shards_as_one_table(tmp_path, monkeypatch):
    table = kc.vectors.open_table(write_shards(tmp_path, "npy"))
    weight = np.arange(600.0)
    for learner, other in zip(learners(), learners(), strict=True):
        expected = other.train(TABLE, weight)
        # Nothing reads it whole.
        with monkeypatch.context() as patch:
            patch.delattr(kc.vectors.TableShards, "__array__")
            learner.train(table, weight)
            found = learner.encode(table)
        np.testing.assert_array_equal(learner.codes, expected.codes)
        np.testing.assert_array_equal(learner.codebooks, expected.codebooks)
        np.testing.assert_array_equal(found, expected.encode(TABLE))


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


def test_shards_go_to_threads(tmp_path):
    table = kc.vectors.open_table(write_shards(tmp_path, "npy"))
    expected = learners()[0].train(TABLE)
    with joblib.parallel_config("threading", n_jobs=2):
        learner = learners()[0].train(table)
    np.testing.assert_array_equal(learner.codes, expected.codes)


def write_parts(folder, *names):
    folder.mkdir()
    for name in names:
        write_npy(folder / f"{name}.npy", TABLE)
    return folder


def test_folders_that_are_refused(tmp_path):
    both = write_parts(tmp_path / "both", "a")
    write_safetensors(both / "a.safetensors", TABLE)
    nested = write_parts(tmp_path / "nested", "part-0")
    (nested / "part-1.npy").mkdir()
    of_3 = [f"t-0000{number}-of-00003" for number in (1, 3)]
    parts = [f"part-{number}" for number in range(4)]
    cases = (
        ([], "with neither"),
        (of_3, "with 2 of the 00003 parts"),
        (parts[::2], "numbered 0 to 2"),
        (parts[2:], "numbered 2 to 3"),
        (["part-1", "part-01"], "numbered 1 to 1"),
        ([*parts[:2], "part-1 (copy)"], r"'part-1 \(copy\).npy'"),
        ([*parts[:2], "test-0"], "with 'part-...' and 'test-...'"),
        ([*parts[:2], "t-1-of-1"], "'part-...' and 't-...-of-1'"),
    )
    for number, (names, message) in enumerate(cases):
        folder = write_parts(tmp_path / str(number), *names)
        with pytest.raises(ValueError, match=message):
            kc.vectors.open_table(folder)
    with pytest.raises(ValueError, match="with .npy and .safetensors"):
        kc.vectors.open_table(both)
    with pytest.raises(ValueError, match="must list files"):
        kc.vectors.open_table(nested)
    (nested / "part-1.npy").rmdir()
    (nested / "part-1.npy").symlink_to(tmp_path / "no such file")
    with pytest.raises(FileNotFoundError, match="nothing is there"):
        kc.vectors.open_table(nested)


def test_files_that_are_refused(tmp_path):
    short = write_npy(tmp_path / "short.npy", TABLE)
    short.write_bytes(short.read_bytes()[:-1])
    torn = write_safetensors(tmp_path / "torn.safetensors", TABLE)
    torn.write_bytes(torn.read_bytes()[:-1])
    np.savez(tmp_path / "table.npz", TABLE)
    (tmp_path / "text").write_text("word 1 2\n")
    (tmp_path / "empty").write_bytes(b"")
    np.save(tmp_path / "objects.npy", np.array([["a"]], object))
    one, several = (tmp_path / f"{x}.safetensors" for x in ("one", "several"))
    safetensors.save_file({"x": np.ones(3)}, one)
    safetensors.save_file({"a": TABLE, "b": TABLE}, several)
    narrow = write_npy(tmp_path / "narrow.npy", TABLE[:, :3])
    half = write_npy(tmp_path / "half.npy", TABLE.astype("float16"))
    whole = write_npy(tmp_path / "whole.npy", TABLE)
    for path, options, message in (
        (tmp_path / "empty", {}, "no bytes"),
        (tmp_path / "text", {}, "`numpy.save`"),
        (tmp_path / "table.npz", {}, "a zip file"),
        (short, {}, "must be whole"),
        (torn, {}, "whole safetensors file"),
        (tmp_path / "objects.npy", {}, "real numbers"),
        (one, {}, "no tensor of two axes"),
        (several, {}, "`tensor`"),
        (several, {"tensor": "c"}, "tensor='c'"),
        (whole, {"tensor": "a"}, "`tensor` must be None"),
        (3, {}, "`path`.*path=3"),
        ([], {}, "an empty list"),
        ([whole, narrow], {}, "narrow.npy' with 3"),
        ([whole, half], {}, "half.npy' with 8 of float16"),
        ([whole, tmp_path], {}, "must list files"),
    ):
        with pytest.raises(ValueError, match=message):
            kc.vectors.open_table(path, **options)
    with pytest.raises(FileNotFoundError, match="nothing is there"):
        kc.vectors.open_table(tmp_path / "nothing")
