"""Evaluation of many rows at once takes no more memory than of a few."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = """
import resource
import sys

import keras
import numpy as np

import keras_compembed as kc
from keras_compembed.baselines import FullSoftmaxLoss
from keras_compembed.baselines import HierarchicalSoftmax

CLASSES, WIDTH, BATCH, LENGTH = 8192, 8, 64, 512
counts = np.ones(CLASSES)
name = sys.argv[1]
if name == "CANESoftmax":
    selector = kc.candidates.FrequentClasses(counts)
    head, loss = kc.CANESoftmax(CLASSES, selector), kc.CANELoss()
else:
    tree = kc.trees.ClassTree.random(CLASSES, 90, seed=0)
    head, loss = HierarchicalSoftmax(tree), FullSoftmaxLoss()
model = keras.Sequential([keras.Input((None, WIDTH)), head])
model.compile("sgd", loss, metrics=[kc.ClassAccuracy(k=5)])
predictor = kc.top_k_model(model, 5)
x = np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH))
x = x.astype("float32")
y = np.zeros((BATCH, LENGTH), "int32")


def use(length):
    model.evaluate(x[:, :length], y[:, :length], BATCH, verbose=0)
    predictor.predict(x[:, :length], BATCH, verbose=0)
    # Kilobytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


few, many = use(2), use(LENGTH)
print("MB more", many - few, "of", many)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="units of ru_maxrss")
@pytest.mark.parametrize(
    ("name", "bound"),
    # Ten tensors of 4 million, or of 16 million, numbers.
    [("CANESoftmax", 200), ("HierarchicalSoftmax", 350)],
)
def test_peak_memory(name, bound):
    """64 x 512 rows of 8,192 classes: all scores would be 1 GB."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    more = float(run.stdout.split("MB more")[1].split()[0])
    assert more < bound
