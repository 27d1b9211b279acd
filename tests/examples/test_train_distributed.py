import os
import pathlib
import re
import subprocess
import sys

import pytest

from examples import train_distributed

ROOT = pathlib.Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "examples.train_distributed"]


@pytest.mark.slow
def test_two_devices_equal_one():
    """In a process of its own, where it makes the devices."""
    done = subprocess.run(
        [*COMMAND, "--quick", "--devices=2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    table = [line.split()[-4:] for line in lines[-4:-2]]
    (one_code_loss, _, one_loss, one_accuracy) = map(float, table[0])
    (two_code_loss, _, two_loss, two_accuracy) = map(float, table[1])
    # Printed with four places.
    assert abs(one_loss - two_loss) < 2e-4
    assert abs(one_accuracy - two_accuracy) < 0.02
    assert 0 < two_code_loss < 2 * one_code_loss
    difference = re.search(r"fine-tuned weights: (\S+)", done.stdout)
    assert float(difference[1]) < 1e-4


def test_bad_flags():
    message = "--batch-size must be a multiple of --devices, 3"
    with pytest.raises(SystemExit, match=message):
        train_distributed.main(["--quick", "--devices", "3"])
