"""Data files of commands."""

import numpy as np
import pytest

from keras_compembed.cli.data_file import find_parts
from keras_compembed.cli.data_file import read_part
from keras_compembed.cli.data_file import require_parts


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "data.npz")


def test_parts(path):
    np.savez(
        path,
        x_train_left=[1, 2],
        x_train_right=[3, 4],
        y_train=[0, 1],
        x_validation=[5],
        y_validation=[1],
        notes=[0],
    )
    assert find_parts(path) == {
        "train": [["x_train_left", "x_train_right"], ["y_train"]],
        "validation": [["x_validation"], ["y_validation"]],
    }
    assert require_parts(path, "test", "validation") == "validation"
    inputs, labels = read_part(path, "train")
    assert {name: x.tolist() for name, x in inputs.items()} == {
        "left": [1, 2],
        "right": [3, 4],
    }
    assert labels.tolist() == [0, 1]
    inputs, labels = read_part(path, "validation")
    assert inputs.tolist() == [5] and labels.tolist() == [1]


def test_files_that_are_none(path, tmp_path):
    with pytest.raises(FileNotFoundError, match="No such file"):
        find_parts(path)
    np.savez(path, x_test=[1])
    with pytest.raises(ValueError, match="x_test and y_test.*with x_test"):
        find_parts(path)
    np.savez(path, x_test=[1], y_test=[2])
    with pytest.raises(ValueError, match="x_validation.*x_test, y_test"):
        require_parts(path, "validation")
    np.savez(path, x_test=np.array([None]), y_test=[2])
    with pytest.raises(ValueError, match="numbers or texts"):
        read_part(path, "test")
    (tmp_path / "data.npz").write_text("words")
    with pytest.raises(ValueError, match="must be an .npz"):
        find_parts(path)
