"""The subcommands of `keras-compembed`, one module each."""

import contextlib
import importlib
import signal
import sys
import tempfile
import warnings

from keras_compembed.utils.files import check_temporary_folder
from keras_compembed.utils.files import temporary_folder


def run(arguments):
    """Runs a subcommand; returns the text to print at the end."""
    verb = importlib.import_module(f"keras_compembed.cli.{arguments.verb}")
    check_temporary_folder()
    before = tempfile.tempdir
    with (
        warnings.catch_warnings(),
        # Removed however the process ends.
        temporary_folder(tempfile.gettempdir()) as folder,
    ):
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = _warn
        tempfile.tempdir = folder
        try:
            return verb.run(arguments)
        finally:
            tempfile.tempdir = before


@contextlib.contextmanager
def keeping(is_kept):
    """Makes Ctrl-C keep the best result so far, if `is_kept`."""
    handler = signal.getsignal(signal.SIGINT)
    if is_kept and handler != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _warn(message, *where, **more):
    line = " ".join(str(message).split())
    print(f"keras-compembed: warning: {line}", file=sys.stderr)
