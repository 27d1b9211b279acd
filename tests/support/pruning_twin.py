"""One model in Keras 3 and in tf_keras, which others prune.

tensorflow-model-optimization makes `tf.keras` Keras 2 in its process, so that
`children.run_python` runs what imports it.
"""

import sys

import numpy as np

IDS, WIDTH = 30, 4


def compiled(framework, optimizer=None, wrap=lambda table: table, **kwargs):
    layers = framework.layers
    model = framework.Sequential(
        [
            layers.InputLayer((6,), dtype="int32"),
            wrap(layers.Embedding(IDS, WIDTH, name="words")),
            layers.GlobalAveragePooling1D(),
            layers.Dense(3, name="scores"),
        ]
    )
    optimizer = optimizer or framework.optimizers.SGD(4.0)
    loss = framework.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=False, **kwargs)
    return model


def data(batches):
    rng = np.random.default_rng(0)
    ids = rng.integers(IDS, size=(8 * batches, 6)).astype("int32")
    return ids, ids[:, 0] % 3


def write_twin_tables():
    """What each step's look-ups read, for `weights.npz` in the folder.

    tensorflow-model-optimization prunes before a step what `MagnitudePruning`
    prunes after the one before, and counts steps from 1.
    """
    import tensorflow_model_optimization as tfmot
    import tf_keras

    share, begin, end, frequency, batches = map(float, sys.argv[1:])
    weights = list(np.load("weights.npz").values())
    sparsity = tfmot.sparsity.keras
    decay = sparsity.PolynomialDecay(
        0.0, share, int(begin) + 1, int(end) + 1, 3, int(frequency)
    )
    model = compiled(
        tf_keras,
        wrap=lambda table: sparsity.prune_low_magnitude(
            table, pruning_schedule=decay
        ),
    )
    table, mask, _ = model.layers[0].pruning_vars[0]
    table.assign(weights[0])
    model.layers[-1].set_weights(weights[1:])
    update = sparsity.UpdatePruningStep()
    update.set_model(model)
    update.on_train_begin()
    before, tables = weights[0], []
    ids, labels = data(int(batches))
    for start in range(0, len(ids), 8):
        part = slice(start, start + 8)
        model.train_on_batch(ids[part], labels[part])
        tables.append(before * mask.numpy())
        before = table.numpy()
    np.save("tables.npy", tables)
