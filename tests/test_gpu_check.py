"""`tools/gpu_check.py`, on two logical devices of the processor."""

import pathlib

import pytest
from children import run_python

pytestmark = pytest.mark.slow
TOOLS = pathlib.Path(__file__).parents[1] / "tools"
CODE = f"""
import sys
sys.path.insert(0, {str(TOOLS)!r})
import gpu_check
sys.exit(gpu_check.main(["--device", "cpu", "--quick"]))
"""


def test_devices_train_the_same():
    done = run_python(CODE)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    rows = [line.split() for line in done.stdout.splitlines()]
    ways = {row[1] for row in rows if len(row) > 3 and row[0] == "codes"}
    assert ways >= {"fit", "own", "mirrored,", "jit_compile", "mixed_float16"}
    assert "Step of Embedding" in done.stdout
    assert done.stdout.endswith("All rows agree\n")
