"""What the command says: answers on stdout, the rest on stderr in lines."""

import contextlib
import os
import sys

from keras_compembed.utils.one_line import on_one_line

PROGRAM = "keras-compembed"
# What messages of the Python API mean for the command.
_TRANSLATIONS = {
    "Pass `overwrite=True`": "Pass --overwrite",
    "`max_bytes` must": "--max-bytes must",
    "`subwords` must": "--subwords must",
    "`input_signature` must be given": "`input_signature` must be given, so "
    "use the Python API, export.export_litert of keras_compembed,",
}


@contextlib.contextmanager
def answering():
    """For printing what was asked for: a reader, as `head`, may leave early."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()


def drop_output():
    """Lets go of what a closed stdout did not take, else Python complains."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def complain(problem, status):
    """Says what went wrong; returns `status`."""
    line = on_one_line(problem)
    for said, meant in _TRANSLATIONS.items():
        line = line.replace(said, meant)
    _say(f"error: {line}")
    return status


def warn(message, *where, **more):
    """Says what Python warns of; takes the place of `warnings.showwarning`."""
    line = " ".join(str(message).split())
    _say(f"warning: {line}")


def _say(line):
    print(f"{PROGRAM}: {line}", file=sys.stderr)


def show(what):
    """Says on a terminal what is going on, where it takes a while."""
    if sys.stderr.isatty():
        _say(f"{what} ...")
