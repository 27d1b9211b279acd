"""Benchmarks of training run."""

import keras
import numpy as np
import pytest

from benchmarks.training import precision


@pytest.mark.slow
def test_precision(capsys):
    kinds = "Embedding|CodeEmbedding, nearest|CANESoftmax, tree|KDCodeLearner"
    arguments = ["--quick", "--rows", f"^({kinds}) in"]
    rows = precision.main(arguments)
    assert len(rows) == 4 * len(precision.POLICIES)
    losses = {}
    for row in rows:
        (run,) = row["runs"]
        assert run["figures"]["finite"] is True
        losses[row["name"]] = run["figures"]["loss"]
    for name, loss in losses.items():
        expected = losses[f"{name.split(' in ')[0]} in float32"]
        np.testing.assert_allclose(loss, expected, rtol=0.02)
    assert len(set(losses.values())) > 4
    # Learners by themselves are of float32.
    learned = {
        losses[f"KDCodeLearner in {policy}"] for policy in precision.POLICIES
    }
    assert len(learned) == len(precision.POLICIES)
    assert keras.config.dtype_policy().name == "float32"
