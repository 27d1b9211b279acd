"""Results of benchmarks, and data of the form that they read."""

import contextlib
import importlib
import io
import lzma
import os
from unittest import mock

import numpy as np
import pytest


def load(name):
    """The module of a benchmark, which may set numbers of threads."""
    with mock.patch.dict(os.environ):
        return importlib.import_module(f"benchmarks.{name}")


# Names of figures that are above 0, by their ends.
POSITIVE = ("milliseconds", "_ms", "ratio", "second", "file_bytes", "fastest")


def quick(name, *, by=None, **flags):
    """Runs a benchmark in its quick mode, and looks at all its figures.

    Returns a dict from names of rows, or, where rows of one name differ in
    `by`, from pairs of that and names, to figures.
    """
    if name.startswith("litert."):
        pytest.importorskip("ai_edge_litert")
        pytest.importorskip("matplotlib")
    arguments = [
        f"--{flag.replace('_', '-')}={value}" for flag, value in flags.items()
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        rows = load(name).main(["--quick", *arguments])
    found = {}
    for row in rows:
        key = (row["row"][by], row["name"]) if by else row["name"]
        found[key] = figures(row)
        check_figures(found[key], key)
    assert len(found) == len(rows)
    return found


def check_figures(value, name):
    """Numbers are finite, and times and sizes above 0."""
    if isinstance(value, dict):
        for key, each in value.items():
            check_figures(each, key)
    elif isinstance(value, float | int):
        assert np.isfinite(value), name
        if isinstance(name, str) and name.endswith(POSITIVE):
            assert value > 0, name


def figures(row):
    """The figures of the one seed that a row has."""
    (run,) = row["runs"]
    return run["figures"]


def write_sentences(folder):
    """Files of Penn Treebank; each word follows from the one before."""
    rng = np.random.default_rng(0)
    folder = folder / "ptb"
    folder.mkdir()
    for part, lines in (("train", 60), ("valid", 20), ("test", 20)):
        text = ""
        for start in rng.integers(30, size=lines):
            words = (start + np.arange(8)) % 30
            text += "".join(f" w{word}" for word in words) + " \n"
        with lzma.open(folder / f"ptb.{part}.txt.xz", "wt") as file:
            file.write(text)
