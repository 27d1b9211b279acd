"""Tables larger than memory: mapped files, and lists of tables."""

import ml_dtypes
import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.utils.validation import TableShards

safetensors = pytest.importorskip("safetensors.numpy")

TABLE = np.random.default_rng(0).normal(size=(600, 8)).astype("float32")


def write(path, rows):
    if path.suffix == ".npy":
        np.save(path, rows)
    else:
        tensors = {"other": np.ones(5, "float64"), "rows": rows}
        safetensors.save_file(tensors, path)
    return path


@pytest.fixture
def shards(tmp_path):
    return [
        kc.vectors.open_table(write(tmp_path / f"{start}.npy", TABLE[part]))
        for start in range(0, 600, 50)
        for part in [slice(start, start + 50)]
    ]


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("npy", "float16"), ("safetensors", ml_dtypes.bfloat16)],
)
def test_a_file_is_mapped(tmp_path, kind, dtype):
    expected = TABLE.astype(dtype)
    path = write(tmp_path / f"table.{kind}", expected)
    table = kc.vectors.open_table(path)
    assert isinstance(table, np.memmap) and not table.flags.writeable
    assert table.dtype == expected.dtype
    np.testing.assert_array_equal(table, expected)
    # Other layouts of NumPy.
    for order, dtype in (("F", "<f4"), ("C", ">f8")):
        path = tmp_path / "other.npy"
        np.save(path, np.asarray(TABLE, dtype, order=order))
        np.testing.assert_array_equal(kc.vectors.open_table(path), TABLE)


def test_layers_read_a_list_as_one_table(shards, monkeypatch):
    monkeypatch.delattr(TableShards, "__array__")
    for make in (
        lambda x: kc.CodeEmbedding.from_table(x, 2, 4, seed=0, verbose=0),
        lambda x: kc.ANTEmbedding.from_table(x, 9, 2, seed=0, verbose=0),
        lambda x: kc.QuantizedEmbedding.from_table(x, 4, seed=0),
        lambda x: kc.QuantizedEmbedding.from_table(x, 4, rank=0.9, seed=0),
    ):
        ids = np.arange(600)
        np.testing.assert_array_equal(make(shards)(ids), make(TABLE)(ids))


def test_files_that_are_refused(tmp_path):
    short = write(tmp_path / "short.npy", TABLE)
    short.write_bytes(short.read_bytes()[:-1])
    (tmp_path / "text").write_text("word 1 2\n")
    np.save(tmp_path / "objects.npy", np.array([["a"]], object))
    several = tmp_path / "several.safetensors"
    safetensors.save_file({"a": TABLE, "b": TABLE}, several)
    for path, options, message in (
        (tmp_path / "text", {}, "text' cannot be read"),
        (short, {}, "short.npy' cannot be read"),
        (tmp_path / "objects.npy", {}, "objects.npy' cannot be read"),
        (several, {}, "`tensor`"),
        (several, {"tensor": "c"}, "`tensor`.* not c"),
    ):
        with pytest.raises(ValueError, match=message):
            kc.vectors.open_table(path, **options)
    with pytest.raises(FileNotFoundError):
        kc.vectors.open_table(tmp_path / "nothing")
    with pytest.raises(ValueError, match="A list of tables"):
        kc.CodeEmbedding.from_table([TABLE, TABLE[:, :3]], 2, 4)
