"""Benchmarks as modules, and data of the form that they read."""

import importlib.util
import lzma
import os
import pathlib
import sys
from unittest import mock

import numpy as np

BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"


def load(name):
    """The benchmark of this name, made anew."""
    spec = importlib.util.spec_from_file_location(
        f"benchmark_{name}", BENCHMARKS / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    # Data classes look their own module up.
    sys.modules[spec.name] = module
    # It sets numbers of threads, which are its own affair.
    with mock.patch.dict(os.environ):
        spec.loader.exec_module(module)
    return module


def write_sentences(folder):
    """Files as of Penn Treebank; each word follows from the one before."""
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
