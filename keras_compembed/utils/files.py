"""Sizes of files, and safe writing: a failure keeps the old file."""

import contextlib
import decimal
import errno
import math
import numbers
import os
import re
import secrets
import shutil
import tempfile

import tensorflow as tf

from keras_compembed.utils.validation import check_boolean

# Bytes of a test file in a folder.
_ROOM = 1 << 14
# Error numbers of a full disk, if the system has them.
FULL = [
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EFBIG")
    if hasattr(errno, name)
]
_VARIABLES = ("TMPDIR", "TEMP", "TMP")
_folders = set()


# Bytes of an entry of a weight in a LiteRT file, and entries of the smallest
# matrix that the converter makes int8.
WEIGHT_BYTES = {None: 4, "float16": 2, "int8": 1, "int8_codebooks": 1}
_LEAST_INT8 = 1024
_UNITS = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


@contextlib.contextmanager
def replacing(path, overwrite=False):
    """Yields a temporary path and moves it to `path` at the end."""
    path = os.fspath(path)
    check_output(path, overwrite)
    # Keep a symbolic link and replace its target.
    target = os.path.realpath(path)
    with naming_path(path), temporary_folder(os.path.dirname(target)) as beside:
        temporary = os.path.join(beside, os.path.basename(path))
        yield temporary
        if overwrite:
            os.replace(temporary, target)
        else:
            _move_to_new(temporary, target)


def _move_to_new(temporary, target):
    """Moves a file; raises if another process has made the target."""
    try:
        os.link(temporary, target)
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError:  # A file system without hard links.
        open(target, "xb").close()
        os.replace(temporary, target)


@contextlib.contextmanager
def naming_path(path):
    """Adds the path to errors of a full disk."""
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
            f"Received: {path!r}, but there is no folder {folder!r}."
        )
    if os.path.isdir(path):
        raise IsADirectoryError(
            f"The output must be a file. Received: the folder {path!r}."
        )
    # Do not replace /dev/stdout and the like.
    in_dev = os.path.realpath(os.path.dirname(path)) == "/dev"
    if in_dev or (os.path.exists(path) and not os.path.isfile(path)):
        raise ValueError(
            f"The output must be a file. Received: the device {path!r}."
        )
    if os.path.lexists(path) and not overwrite:
        raise FileExistsError(
            f"The output already exists: {path!r}. "
            "Pass `overwrite=True` to replace it."
        )
    check_room(folder, 0, f"of the output {path!r}", name)


def check_temporary_folder(room=0):
    """Raises if temporary files cannot be written; call it before long work."""
    hint = "for temporary files; set the environment variable TMPDIR to another"
    # Python silently skips an unusable folder.
    for variable in _VARIABLES if tempfile.tempdir is None else ():
        folder = os.environ.get(variable)
        if folder:
            hint = f"for temporary files, set by {variable}"
            if not os.path.isdir(folder):
                raise FileNotFoundError(
                    f"The folder {hint}, must exist. Received: "
                    f"{variable}={folder!r}."
                )
            break
    else:
        folder = tempfile.gettempdir()
        if folder in _folders:
            # The command has its own folder.
            folder = os.path.dirname(folder)
    check_room(folder, room, hint)


def check_room(folder, room, whose, name="file"):
    """Raises unless a folder has room for a file of `room` bytes."""
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
    # Some network folders give 0.
    if disk.total and disk.free < room:
        raise OSError(
            f"Cannot write to the folder {folder!r} {whose}: at least "
            f"{room:,} bytes are needed, and {disk.free:,} are free."
        )


@contextlib.contextmanager
def temporary_folder(parent):
    """Yields the path of a new folder, removed at the end."""
    # Note the name first: `remove_temporary_folders` may be called at any
    # moment.
    folder = os.path.join(parent, f".writing-{secrets.token_hex(8)}")
    _folders.add(folder)
    try:
        os.mkdir(folder, 0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _folders.discard(folder)


def remove_temporary_folders():
    """Removes all temporary folders before the process is killed."""
    for folder in list(_folders):
        shutil.rmtree(folder, ignore_errors=True)


def format_bytes(count):
    """`1816032` as `"1.82 MB"`; a kB is 1,000 bytes, as in an app store."""
    for unit, size in _UNITS:
        # Values that round to 1000 get the next unit.
        if count >= size - size / 2000:
            number = count / size
            decimals = 2 if number < 9.995 else 1 if number < 99.95 else 0
            return f"{number:.{decimals}f} {unit}"
    return f"{count:.0f} B"


def describe_bytes(count):
    """`1816032` as `"1.82 MB (1,816,032 bytes)"`."""
    if count < 1000:
        return f"{count:,} bytes"
    return f"{format_bytes(count)} ({count:,} bytes)"


def count_bytes(variables):
    """Bytes of the values of Keras variables, each counted once."""
    different = {id(variable): variable for variable in variables}
    return sum(
        math.prod(variable.shape) * tf.as_dtype(variable.dtype).size
        for variable in different.values()
    )


def count_litert_bytes(num_numbers, quantize=None):
    """Bytes of a matrix of codewords or anchors in a LiteRT file."""
    if quantize == "int8" and num_numbers < _LEAST_INT8:
        quantize = None
    return WEIGHT_BYTES[quantize] * num_numbers


def number_of_bytes(name, value):
    """A size in bytes, from `"500k"`, `"2 MB"` or an integer."""
    if isinstance(value, str):
        found = re.fullmatch(
            r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+) ?([kmg]?)b?",
            value.strip(),
            re.IGNORECASE | re.ASCII,
        )
        count = 0
        if found:
            count = decimal.Decimal(found[1]) * _FACTORS[found[2].lower()]
    else:
        is_whole = isinstance(value, numbers.Integral)
        count = value if is_whole and not isinstance(value, bool) else 0
    if count <= 0 or count != int(count):
        raise ValueError(
            f"`{name}` must be a size in bytes, such as 500000, '500k' or "
            f"'2MB'. Received: {name}={value!r}."
        )
    return int(count)
