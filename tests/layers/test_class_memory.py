"""Evaluation of many rows at once takes no more memory than of a few."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = """
import re

import keras
import numpy as np

import keras_compembed as kc
from keras_compembed.baselines import FullSoftmaxLoss
from keras_compembed.baselines import HierarchicalSoftmax

CLASSES, WIDTH, BATCH, LENGTH = 8192, 8, 64, 256
counts = np.ones(CLASSES)
selector = kc.candidates.FrequentClasses(counts)
tree = kc.trees.ClassTree.random(CLASSES, 90, seed=0)
heads = [
    (kc.CANESoftmax(CLASSES, selector), kc.CANELoss()),
    (HierarchicalSoftmax(tree), FullSoftmaxLoss()),
]
x = np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH))
x = x.astype("float32")
y = np.zeros((BATCH, LENGTH), "int32")


def use(model, predictor, length):
    "The highest memory meanwhile, in MB."
    # From here on, the peak is that of what follows.
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    model.evaluate(x[:, :length], y[:, :length], BATCH, verbose=0)
    predictor.predict(x[:, :length], BATCH, verbose=0)
    with open("/proc/self/status") as file:
        return int(re.search(r"VmHWM:\\s+(\\d+) kB", file.read())[1]) / 1024


for head, loss in heads:
    model = keras.Sequential([keras.Input((None, WIDTH)), head])
    model.compile("sgd", loss, metrics=[kc.ClassAccuracy(k=5)])
    parts = model, kc.top_k_model(model, 5)
    few, many = use(*parts, 2), use(*parts, LENGTH)
    print("MB more", type(head).__name__, many - few)
"""
# Ten tensors of 4 million, or of 16 million, numbers.
BOUNDS = {"CANESoftmax": 200, "HierarchicalSoftmax": 350}


@pytest.mark.skipif(sys.platform != "linux", reason="no peaks to be reset")
def test_peak_memory():
    """64 x 256 rows of 8,192 classes: all scores would be 512 MB."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split() for line in run.stdout.splitlines()]
    more = {
        line[2]: float(line[3]) for line in lines if line[:2] == ["MB", "more"]
    }
    assert set(more) == set(BOUNDS)
    for name, bound in BOUNDS.items():
        assert more[name] < bound, name
