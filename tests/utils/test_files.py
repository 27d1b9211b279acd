import errno
import os
import re
import tempfile

import pytest

from keras_compembed.utils.files import check_output
from keras_compembed.utils.files import check_temporary_folder
from keras_compembed.utils.files import remove_temporary_folders
from keras_compembed.utils.files import replacing
from keras_compembed.utils.files import temporary_folder


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "out.txt"
    with replacing(path) as temporary:
        assert os.path.splitext(temporary)[1] == ".txt"
        with open(temporary, "w") as file:
            file.write("old")
        assert not path.exists()
    assert path.read_text() == "old"
    with pytest.raises(FileExistsError, match="overwrite"):
        with replacing(path):
            raise AssertionError("not reached")
    # A failure leaves the old file.
    with pytest.raises(OSError, match="No space"):
        with replacing(path, overwrite=True) as temporary:
            with open(temporary, "w") as file:
                file.write("half")
            raise OSError("No space left on device")
    assert path.read_text() == "old"
    with replacing(path, overwrite=True) as temporary:
        with open(temporary, "w") as file:
            file.write("newer")
    assert path.read_text() == "newer"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_bad_outputs(tmp_path):
    path = tmp_path / "out.txt"
    with pytest.raises(FileNotFoundError, match="folder"):
        with replacing(tmp_path / "none" / "out.txt"):
            pass
    with pytest.raises(IsADirectoryError, match="file"):
        with replacing(tmp_path, overwrite=True):
            pass
    with pytest.raises(OSError, match="Cannot write '.*out.txt': No space"):
        with replacing(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no such files here")
def test_only_files_are_replaced(tmp_path):
    path = tmp_path / "out.txt"
    os.mkfifo(path)
    with pytest.raises(ValueError, match="device"):
        check_output(path, overwrite=True)
    # It leads to a file wherever output goes into one, as it does here.
    with pytest.raises(ValueError, match="/dev/stdout"):
        check_output("/dev/stdout", overwrite=True)
    os.remove(path)
    os.symlink(tmp_path / "none", path)
    with pytest.raises(FileExistsError):
        check_output(path)


def test_folders_that_nothing_can_be_written_to(tmp_path, monkeypatch):
    with pytest.raises(OSError, match="Cannot write to .*: File name too long"):
        check_output(tmp_path / ("a" * 300))

    def refuse(path, *mode):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    check_output(tmp_path / "out.txt")
    monkeypatch.setattr(os, "mkdir", refuse)
    place = re.escape(f"folder {str(tmp_path)!r} of the output")
    with pytest.raises(PermissionError, match=f"{place} .*denied"):
        check_output(tmp_path / "out.txt")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = re.escape(f"folder {str(tmp_path)!r} for temporary files; ")
    with pytest.raises(PermissionError, match=f"{place}.*TMPDIR"):
        check_temporary_folder()
    assert os.listdir(tmp_path) == []


def test_temporary_folders_are_removed(tmp_path, monkeypatch):
    with temporary_folder(tmp_path) as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        # It names the one that the user knows.
        place = re.escape(f"folder {str(tmp_path)!r} for temporary files; ")
        with pytest.raises(OSError, match=f"{place}.*are needed"):
            check_temporary_folder(room=1 << 60)
        with open(os.path.join(folder, "file"), "w"):
            pass
        remove_temporary_folders()
        assert os.listdir(tmp_path) == []
