"""Pruning equals that of tensorflow-model-optimization, step by step.

For `make test-prune`: the same model in tf_keras, in the same process.
"""

import importlib

import keras
import numpy as np
import pytest

from keras_compembed.compression import MagnitudePruning
from keras_compembed.compression import PolynomialSparsity

pytest.importorskip("tensorflow_model_optimization", exc_type=ImportError)
pytestmark = [pytest.mark.prune, pytest.mark.filterwarnings("ignore")]

IDS, WIDTH, LENGTH, LABELS, BATCH_SIZE, STEPS = 200, 8, 5, 3, 16, 22


@pytest.fixture(scope="module")
def weights():
    rng = np.random.default_rng(0)
    return [
        rng.normal(scale=0.05, size=(IDS, WIDTH)).astype("float32"),
        rng.normal(scale=0.3, size=(WIDTH * LENGTH, LABELS)).astype("float32"),
        np.zeros(LABELS, "float32"),
    ]


def batches():
    rng = np.random.default_rng(1)
    for _ in range(STEPS):
        ids = rng.integers(IDS, size=(BATCH_SIZE, LENGTH)).astype("int32")
        yield ids, ids[:, 0] % LABELS


def compiled(framework, layers):
    model = framework.Sequential(layers)
    model.compile(
        framework.optimizers.SGD(2.0),
        framework.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def native_tables(weights, schedule):
    """Tables before the first step and after each."""

    class Record(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if not tables:
                tables.append(words.embeddings.numpy())

        def on_train_batch_end(self, batch, logs=None):
            tables.append(words.embeddings.numpy())

    words = keras.layers.Embedding(IDS, WIDTH)
    model = compiled(
        keras,
        [
            keras.Input((LENGTH,), dtype="int32"),
            words,
            keras.layers.Flatten(),
            keras.layers.Dense(LABELS),
        ],
    )
    model.set_weights(weights)
    ids, labels = map(np.concatenate, zip(*batches(), strict=True))
    tables = []
    model.fit(
        ids,
        labels,
        batch_size=BATCH_SIZE,
        shuffle=False,
        verbose=0,
        callbacks=[MagnitudePruning(schedule), Record()],
    )
    return tables


def twin_tables(weights, schedule):
    """The same by tfmot: what each step's look-ups read, and its masks.

    It prunes before a step what `MagnitudePruning` prunes after the one
    before, and counts steps from 1.
    """
    tfmot = importlib.import_module("tensorflow_model_optimization")
    tf_keras = importlib.import_module("tf_keras")
    sparsity = tfmot.sparsity.keras
    decay = sparsity.PolynomialDecay(
        schedule.initial_sparsity,
        schedule.final_sparsity,
        schedule.begin_step + 1,
        schedule.end_step + 1,
        power=schedule.power,
        frequency=schedule.frequency,
    )
    words = sparsity.prune_low_magnitude(
        tf_keras.layers.Embedding(IDS, WIDTH), pruning_schedule=decay
    )
    model = compiled(
        tf_keras,
        [
            tf_keras.layers.InputLayer((LENGTH,), dtype="int32"),
            words,
            tf_keras.layers.Flatten(),
            tf_keras.layers.Dense(LABELS),
        ],
    )
    dense = model.layers[-1]
    table, mask, _ = words.pruning_vars[0]
    table.assign(weights[0])
    dense.set_weights(weights[1:])
    update = sparsity.UpdatePruningStep()
    update.set_model(model)
    update.on_train_begin()
    before, tables, masks = weights[0], [], []
    for ids, labels in batches():
        model.train_on_batch(ids, labels)
        masks.append(mask.numpy())
        tables.append(before * masks[-1])
        before = table.numpy()
    return tables, masks


@pytest.mark.parametrize(
    "schedule",
    [
        PolynomialSparsity(share, end_step=16, begin_step=begin, frequency=2)
        for share, begin in ((0.8, 0), (0.9, 2), (0.95, 4), (0.98, 0))
    ],
    ids=lambda schedule: f"{schedule.final_sparsity:.0%}",
)
def test_masks_and_weights_are_equal(schedule, weights):
    native = native_tables(weights, schedule)
    twin, masks = twin_tables(weights, schedule)
    assert len(twin) == STEPS
    for step, (table, same, mask) in enumerate(
        zip(native, twin, masks, strict=False)
    ):
        np.testing.assert_array_equal(table != 0, mask != 0, f"step {step}")
        np.testing.assert_allclose(table, same, rtol=1e-5, atol=1e-7)
    zeros = [np.mean(table == 0) for table in native]
    np.testing.assert_allclose(zeros[16:], schedule.final_sparsity, atol=1e-3)
    # Some came back on the way.
    assert any(
        ((before == 0) & (after != 0)).any()
        for before, after in zip(native[:16], native[1:], strict=False)
    )
