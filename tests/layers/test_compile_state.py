"""A model that was saved and loaded trains on as if it had not been."""

import os
import pathlib
import subprocess
import sys

import compile_states
import keras
import numpy as np
import pytest
from compile_states import CASES


@pytest.fixture(scope="module")
def went_on(tmp_path_factory):
    """States of models that were saved, and that a new process went on with."""
    folder = tmp_path_factory.mktemp("models")
    states = {}
    for name, case in CASES.items():
        model = case.build()
        case.fit(model, 0)
        model.save(folder / f"{name}.keras")
        states[name] = compile_states.state(model, case.fit(model, 1))
    subprocess.run(
        [sys.executable, compile_states.__file__, str(folder)],
        check=True,
        env={
            **os.environ,
            "PYTHONPATH": str(pathlib.Path(__file__).parents[2]),
        },
    )
    loaded = {name: dict(np.load(folder / f"{name}.npz")) for name in states}
    return states, loaded


def check_same(states, expected, **kwargs):
    assert list(states) == list(expected)
    for key, values in expected.items():
        np.testing.assert_allclose(states[key], values, err_msg=key, **kwargs)


@pytest.mark.parametrize("name", CASES)
def test_training_goes_on(went_on, name):
    expected, loaded = (states[name] for states in went_on)
    assert "error" not in loaded, str(loaded["error"])
    check_same(loaded, expected, rtol=0)


@pytest.mark.parametrize("name", ["anchors_lazy", "anchors_sparse"])
def test_saving_changes_nothing(name, tmp_path):
    """Rows that owe shrinkage are written as if they had been settled."""
    states = []
    for saves in (False, True):
        keras.utils.set_random_seed(0)
        case = CASES[name]
        model = case.build()
        case.fit(model, 0)
        if saves:
            model.save(tmp_path / "model.keras")
        states.append(compile_states.state(model, case.fit(model, 1)))
    # Thresholds of the clock, sums of 1e-4, are taken in one or two parts.
    check_same(*states, rtol=1e-5, atol=1e-6)
