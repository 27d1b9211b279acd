"""Models that earlier versions saved load, answer the same, and train on."""

import keras
import make_golden
import numpy as np
import pytest

COMMAND = "python tests/support/make_golden.py"
THERE = {path.stem for path in make_golden.FOLDER.glob("*.keras")}


@pytest.mark.parametrize("name", sorted({*make_golden.NAMES, *THERE}))
def test_golden_file(name):
    path = make_golden.FOLDER / f"{name}.keras"
    assert path.exists(), f"No {path.name}: run `{COMMAND}`, and commit it."
    model = keras.saving.load_model(path)
    # Single batches are done sooner than graphs of them.
    model.run_eagerly = True
    with np.load(path.with_suffix(".npz")) as file:
        expected = dict(file)
    batch = expected.pop("inputs"), expected.pop("labels")
    got = make_golden.describe(model, *batch)
    assert set(got) == set(expected)
    for key, values in expected.items():
        # Weights are read; the rest is computed, perhaps on another machine.
        rtol, atol = (0, 0) if key.startswith("weight") else (1e-4, 1e-5)
        np.testing.assert_allclose(got[key], values, rtol, atol, err_msg=key)

    steps = int(model.optimizer.iterations)
    model.train_on_batch(*batch)
    assert model.optimizer.iterations == steps + 1
    for number, weight in enumerate(model.weights):
        if weight.trainable:
            old = got[make_golden.weight_name(number, weight)]
            new = weight.numpy()
            assert np.isfinite(new).all() and not np.array_equal(old, new)
