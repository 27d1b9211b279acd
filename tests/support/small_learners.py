"""Learners of codes that train in a moment, and Ctrl-C in the midst of it."""

import os
import sys

import keras
import numpy as np

import keras_compembed as kc

PACKAGE = os.path.dirname(kc.__file__)
_TRAINING = kc.learners.Training().get_config()


def clustered_table(rows=300, width=8, clusters=12, mean=0):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(clusters, width)) + mean
    table = centres[rng.integers(clusters, size=rows)]
    return (table + 0.05 * rng.normal(size=table.shape)).astype("float32")


def make_learner(cls, eager=True, **kwargs):
    """A learner of a class; arguments of `Training` stand among its own."""
    training = kc.learners.Training(
        **{name: kwargs.pop(name) for name in _TRAINING if name in kwargs}
    )
    learner = cls(training=training, **kwargs)
    if eager:
        # A few steps take less time than making a graph.
        rate = learner.training.learning_rate
        learner.compile(keras.optimizers.Adam(rate), run_eagerly=True)
    return learner


def interrupted(run, place):
    """Runs with Ctrl-C at the so-manieth call of a function of the package.

    Returns what `run` returns, or None if the interrupt came through; and
    whether there was such a call.
    """
    calls = 0

    def count(frame, event, arg):
        nonlocal calls
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls += 1
            if calls == place:
                raise KeyboardInterrupt

    sys.setprofile(count)
    try:
        result = run()
    except KeyboardInterrupt:
        result = None
    finally:
        sys.setprofile(None)
    return result, calls == place
