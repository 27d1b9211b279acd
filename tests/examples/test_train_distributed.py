import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "examples.train_distributed", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )


def test_two_devices_equal_one():
    done = run("--quick", "--devices", "2")
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
    done = run("--quick", "--devices", "3")
    assert done.returncode != 0
    assert "--batch-size must be a multiple of --devices, 3" in done.stderr
