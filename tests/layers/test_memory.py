"""Training and evaluation never hold the scores of all classes, and one long
row of ids makes no others as long.
"""

import sys

import pytest
from children import run_python

SCRIPT = """
import re

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc

CLASSES, WIDTH, BATCH, LENGTH = 8192, 8, 64, 256
counts = np.ones(CLASSES)
selector = kc.classes.FrequentClasses(counts)
x = np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH))
x = x.astype("float32")
y = np.zeros((BATCH, LENGTH), "int32")


def peak(function):
    "The highest memory meanwhile, in MB."
    # From here on, the peak is that of what follows.
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    function()
    with open("/proc/self/status") as file:
        return int(re.search(r"VmHWM:\\s+(\\d+) kB", file.read())[1]) / 1024


def use(model, predictor, length):
    def run():
        model.evaluate(x[:, :length], y[:, :length], BATCH, verbose=0)
        predictor.predict(x[:, :length], BATCH, verbose=0)

    return peak(run)


def train(classes):
    head = kc.CANESoftmax(classes, class_counts=np.ones(classes))
    model = keras.Sequential([keras.Input((WIDTH,)), head])
    model.compile("sgd", kc.CANELoss())
    return peak(lambda: model.fit(x[:2].reshape(-1, WIDTH), y[:2].ravel(), 512))


def pool(longest):
    layer = kc.CodeEmbedding(50, WIDTH, 4, 8, combiner="mean")
    lengths = [longest] + [1] * 5000
    ids = np.ones(sum(lengths), "int32")
    ids = tf.RaggedTensor.from_row_lengths(ids, lengths)
    return peak(lambda: layer(ids))


head = kc.CANESoftmax(CLASSES, sampling=kc.Sampling(selector))
model = keras.Sequential([keras.Input((None, WIDTH)), head])
model.compile("sgd", kc.CANELoss(), metrics=[kc.ClassAccuracy(k=5)])
parts = model, kc.top_k_model(model, 5)
few, many = use(*parts, 2), use(*parts, LENGTH)
print("MB more", "evaluation", many - few)
train(100)
few, many = train(10_000), train(500_000)
print("MB more", "training", many - few)
few, many = pool(1), pool(50_000)
print("MB more", "pooling", many - few)
"""
# Ten tensors of 4 million numbers; of training ten times
# the variables, 9 numbers a class. Of ids, rows as long as the longest would
# be 1,000 MB.
BOUNDS = {"evaluation": 200, "training": 180, "pooling": 100}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="no peaks to be reset")
def test_peak_memory():
    """All scores would be 512 MB: 64 x 256 rows of 8,192 classes.

    In training they would be 1,000 MB: 512 rows of 500,000 classes.
    """
    run = run_python(SCRIPT)
    run.check_returncode()
    lines = [line.split() for line in run.stdout.splitlines()]
    more = {
        line[2]: float(line[3]) for line in lines if line[:2] == ["MB", "more"]
    }
    assert set(more) == set(BOUNDS)
    for name, bound in BOUNDS.items():
        assert more[name] < bound, name
