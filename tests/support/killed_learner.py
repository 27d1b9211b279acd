"""A learner that a test kills; run in processes of their own."""

import numpy as np

import keras_compembed as kc

ROWS = 12_000


def make():
    return kc.learners.AdditiveQuantizer(4, 16, effort=0.5, seed=0, verbose=0)


def table():
    return np.random.default_rng(0).normal(size=(ROWS, 12)).astype("float32")


def train(folder, path, started):
    """Trains within a folder of checkpoints, and writes what was learned."""
    with kc.checkpoint_folder(folder, interval=0):
        started.set()
        learner = make().train(table())
    np.savez(path, codes=learner.codes, codebooks=learner.codebooks)
