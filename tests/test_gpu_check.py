"""`tools/gpu_check.py`, on two logical devices of the processor."""

import pathlib

import pytest
from children import run_python

pytestmark = pytest.mark.slow
TOOLS = pathlib.Path(__file__).parents[1] / "tools"
START = f"""
import sys
sys.path.insert(0, {str(TOOLS)!r})
import gpu_check
"""
END = """
sys.exit(gpu_check.main(["--device", "cpu", "--quick", *sys.argv[1:]]))
"""
PLANTED = """
train = gpu_check.by_own_loop
def wrong(case):
    results = train(case)
    results["losses"] += 1e-3
    return results
gpu_check.by_own_loop = wrong
"""


def test_devices_train_the_same():
    done = run_python(START + END)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    rows = [line.split() for line in done.stdout.splitlines()]
    ways = {row[1] for row in rows if len(row) > 3 and row[0] == "codes"}
    assert ways >= {"fit", "own", "mirrored,", "jit_compile", "mixed_float16"}
    assert "Step of Embedding" in done.stdout
    assert done.stdout.endswith("All rows agree\n")


def test_a_difference_is_found():
    done = run_python(START + PLANTED + END, "--only", "codes-softmax")
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-2000:]
    bad = [line for line in done.stdout.splitlines() if "DIFFERS" in line]
    assert len(bad) == 1 and "own loop" in bad[0] and "losses" in bad[0]
