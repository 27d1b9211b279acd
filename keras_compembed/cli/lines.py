"""What the command says on stderr, in single lines."""

import sys

PROGRAM = "keras-compembed"


def complain(problem, status):
    """Says what went wrong; returns `status`."""
    line = " ".join(str(problem).split()) or type(problem).__name__
    line = line.replace("Pass `overwrite=True`", "Pass --overwrite")
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
