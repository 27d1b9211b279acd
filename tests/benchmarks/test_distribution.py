"""Benchmarks of training on several devices run."""

import pytest

from benchmarks.distribution import replicas


@pytest.mark.slow
def test_replicas(capsys):
    arguments = ["--quick", "--rows", "^(CodeEmbedding|CANESoftmax) by steps"]
    rows = replicas.main(arguments)
    assert [row["row"]["model"] for row in rows] == [
        "CodeEmbedding",
        "CANESoftmax",
    ]
    for row in rows:
        (run,) = row["runs"]
        assert run["figures"]["replicas"] > 0
