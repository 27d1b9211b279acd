"""Writing files so that a failure leaves the old one intact."""

import contextlib
import os
import tempfile


@contextlib.contextmanager
def replacing(path, overwrite=False):
    """Yields a path to write to, beside `path`, and moves it there at the end.

    Args:
        path: String or path-like, the file to make. Its folder must exist.
        overwrite: Boolean, whether `path` may exist already.

    Yields:
        A path in the same folder with the same suffix. If the block raises, it
        is removed and what stood at `path` is untouched.

    Raises:
        FileExistsError: if `path` exists and `overwrite` is False.
        FileNotFoundError: if the folder of `path` does not exist.
    """
    path = os.fspath(path)
    check_output(path, overwrite)
    folder, name = os.path.split(os.path.abspath(path))
    with tempfile.TemporaryDirectory(dir=folder, prefix=".writing-") as beside:
        temporary = os.path.join(beside, name)
        yield temporary
        os.replace(temporary, path)


def check_output(path, overwrite=False):
    """Raises if `path` cannot be written to; call it before long work."""
    path = os.fspath(path)
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"The folder of the output must exist. Received: {path!r}."
        )
    if os.path.isdir(path):
        raise IsADirectoryError(
            f"The output must be a file. Received: the folder {path!r}."
        )
    if os.path.exists(path) and not overwrite:
        raise FileExistsError(
            f"The output exists already: {path!r}. "
            "Pass `overwrite=True` to replace it."
        )
