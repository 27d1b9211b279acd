import os

import pytest

from keras_compembed.utils.files import replacing


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "out.txt"
    with replacing(path) as temporary:
        assert os.path.splitext(temporary)[1] == ".txt"
        with open(temporary, "w") as file:
            file.write("new")
        assert not path.exists()
    assert path.read_text() == "new"
    with pytest.raises(FileExistsError, match="overwrite=True"):
        with replacing(path):
            raise AssertionError("not reached")
    with replacing(path, overwrite=True) as temporary:
        with open(temporary, "w") as file:
            file.write("newer")
    assert path.read_text() == "newer"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(OSError, match="No space left"):
        with replacing(path, overwrite=True) as temporary:
            with open(temporary, "w") as file:
                file.write("half")
            raise OSError("No space left on device")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_bad_outputs(tmp_path):
    with pytest.raises(FileNotFoundError, match="folder of the output"):
        with replacing(tmp_path / "none" / "out.txt"):
            pass
    with pytest.raises(IsADirectoryError, match="must be a file"):
        with replacing(tmp_path, overwrite=True):
            pass
