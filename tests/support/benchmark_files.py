"""Results of benchmarks, and data of the form that they read."""

import importlib
import lzma
import os
from unittest import mock

import numpy as np


def load(name):
    """The module of a benchmark, which may set numbers of threads."""
    with mock.patch.dict(os.environ):
        return importlib.import_module(f"benchmarks.{name}")


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
