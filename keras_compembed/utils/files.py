"""Writing files so that a failure leaves the old one intact."""

import contextlib
import errno
import os
import secrets
import shutil
import tempfile

from keras_compembed.utils.validation import check_boolean

# What a folder must take to be tried at all.
_ROOM = 1 << 14
# What a full disk is called, where the system knows it.
FULL = [
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EFBIG")
    if hasattr(errno, name)
]
_VARIABLES = ("TMPDIR", "TEMP", "TMP")
_folders = set()


@contextlib.contextmanager
def replacing(path, overwrite=False):
    """Yields a path beside `path`; renames it at the end."""
    path = os.fspath(path)
    check_output(path, overwrite)
    # A symbolic link stays: the file that it leads to is replaced.
    target = os.path.realpath(path)
    with naming_path(path), temporary_folder(os.path.dirname(target)) as beside:
        temporary = os.path.join(beside, os.path.basename(path))
        yield temporary
        if overwrite:
            os.replace(temporary, target)
        else:
            _move_to_new(temporary, target)


def _move_to_new(temporary, target):
    """Raises if another process has made the target in the meantime."""
    try:
        os.link(temporary, target)
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError:  # A file system without hard links.
        open(target, "xb").close()
        os.replace(temporary, target)


@contextlib.contextmanager
def naming_path(path):
    """Makes errors of a full disk say what could not be written."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise OSError(f"Cannot write {path!r}: {error.strerror}.") from error


def check_output(path, overwrite=False):
    """Raises if `path` cannot be written to; call it before long work."""
    check_boolean("overwrite", overwrite)
    path = os.fspath(path)
    folder, name = os.path.split(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            "The folder of the output must exist. "
            f"Received: {path!r}, and there is no folder {folder!r}."
        )
    if os.path.isdir(path):
        raise IsADirectoryError(
            f"The output must be a file. Received: the folder {path!r}."
        )
    # What leads to a file that a shell opened is not to be replaced by one.
    in_dev = os.path.realpath(os.path.dirname(path)) == "/dev"
    if in_dev or (os.path.exists(path) and not os.path.isfile(path)):
        raise ValueError(
            f"The output must be a file. Received: the device {path!r}."
        )
    if os.path.lexists(path) and not overwrite:
        raise FileExistsError(
            f"The output exists already: {path!r}. "
            "Pass `overwrite=True` to replace it."
        )
    check_room(folder, 0, f"of the output {path!r}", name)


def check_temporary_folder(room=0):
    """Raises if temporary files cannot be written; call it before long work."""
    hint = "for temporary files; the environment variable TMPDIR names another"
    # Python passes over a folder that does not serve without a word.
    for variable in _VARIABLES if tempfile.tempdir is None else ():
        folder = os.environ.get(variable)
        if folder:
            hint = f"for temporary files, which {variable} names"
            if not os.path.isdir(folder):
                raise FileNotFoundError(
                    f"The folder {hint}, must exist. Received: "
                    f"{variable}={folder!r}."
                )
            break
    else:
        folder = tempfile.gettempdir()
        if folder in _folders:
            # The command has one of its own.
            folder = os.path.dirname(folder)
    check_room(folder, room, hint)


def check_room(folder, room, whose, name="file"):
    """Raises unless a file can be made in a folder, and grow so large."""
    try:
        with (
            temporary_folder(folder) as beside,
            open(os.path.join(beside, name), "wb") as file,
        ):
            file.write(bytes(_ROOM))
    except OSError as error:
        raise type(error)(
            f"Cannot write to the folder {folder!r} {whose}: {error.strerror}."
        ) from error
    disk = shutil.disk_usage(folder)
    # Some network folders do not know.
    if disk.total and disk.free < room:
        raise OSError(
            f"Cannot write to the folder {folder!r} {whose}: at least "
            f"{room:,} bytes are needed, and {disk.free:,} are free."
        )


@contextlib.contextmanager
def temporary_folder(parent):
    """A folder that is there for a while; yields its path."""
    # Its name is known before it is made: `remove_temporary_folders` may be
    # called at any moment.
    folder = os.path.join(parent, f".writing-{secrets.token_hex(8)}")
    _folders.add(folder)
    try:
        os.mkdir(folder, 0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _folders.discard(folder)


def remove_temporary_folders():
    """Removes those that are there, before the process ends at once."""
    for folder in list(_folders):
        shutil.rmtree(folder, ignore_errors=True)
