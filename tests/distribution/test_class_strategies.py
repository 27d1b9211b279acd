"""Two devices learn what one learns, with candidates and noises."""

import contextlib

import keras
import numpy as np
import pytest

from keras_compembed import ANTEmbedding
from keras_compembed import CANELoss
from keras_compembed import CANESoftmax
from keras_compembed import ClassAccuracy
from keras_compembed import CodeEmbedding
from keras_compembed import Coverage
from keras_compembed import FeatureEmbedding
from keras_compembed.candidates import BeamTree
from keras_compembed.candidates import FrequencySubsets
from keras_compembed.candidates import FrequentClasses
from keras_compembed.candidates import NearestCenters
from keras_compembed.candidates import Union
from keras_compembed.noises import LearnedNoise
from keras_compembed.noises import UnigramNoise
from keras_compembed.optimizers import SparseRowOptimizer
from keras_compembed.trees import ClassTree

CLASSES, WIDTH, BATCH_SIZE = 60, 8, 16
COUNTS = 1 + 600 // np.arange(1, CLASSES + 1)


def examples(rows=5 * BATCH_SIZE):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, WIDTH)).astype("float32")
    # Zipf's law, so that noises and candidates meet labels.
    return x, rng.choice(CLASSES, size=rows, p=COUNTS / COUNTS.sum())


def anchors():
    return ANTEmbedding(CLASSES, WIDTH, num_anchors=9, storage="lazy", seed=0)


def codes():
    rng = np.random.default_rng(0)
    return CodeEmbedding(
        CLASSES,
        WIDTH,
        num_codebooks=4,
        codebook_size=8,
        codes=rng.integers(8, size=(CLASSES, 4)),
        codebooks=rng.normal(size=(4, 8, WIDTH)),
    )


def table():
    start = keras.initializers.RandomNormal(seed=0)
    return keras.layers.Embedding(CLASSES, WIDTH, embeddings_initializer=start)


def tower():
    features = np.random.default_rng(0).normal(size=(CLASSES, 5))
    start = keras.initializers.GlorotUniform(0)
    encoder = keras.layers.Dense(WIDTH, "tanh", kernel_initializer=start)
    return FeatureEmbedding(features, encoder)


def tree():
    return BeamTree(ClassTree.random(CLASSES, 4, seed=0), max_frontier=4)


def sgd():
    return keras.optimizers.SGD(0.3)


def adam():
    return SparseRowOptimizer(keras.optimizers.Adam(0.02))


def fit(
    scope, optimizer, selector, embedding=None, noise=None, steps=1, **kwargs
):
    with scope:
        # A noise belongs to one layer.
        if noise is not None:
            kwargs["noise"] = noise()
        if embedding is None:
            kwargs["kernel_initializer"] = keras.initializers.RandomNormal(
                seed=0
            )
        head = CANESoftmax(
            CLASSES,
            selector(),
            num_candidates=6,
            class_embedding=embedding and embedding(),
            class_counts=COUNTS,
            seed=0,
            **{"num_noises": 4, **kwargs},
        )
        model = keras.Sequential(
            [
                keras.Input((WIDTH,)),
                keras.layers.Dense(
                    WIDTH,
                    kernel_initializer=keras.initializers.GlorotUniform(0),
                ),
                head,
            ]
        )
        model.compile(
            optimizer(),
            CANELoss(),
            metrics=[ClassAccuracy(), Coverage()],
            steps_per_execution=steps,
            jit_compile=False,
        )
    history = model.fit(
        *examples(),
        batch_size=BATCH_SIZE,
        epochs=2,
        shuffle=False,
        verbose=0,
        # The last batch leaves one device with fewer examples.
        validation_data=examples(BATCH_SIZE + 5),
        validation_batch_size=BATCH_SIZE,
    )
    return model, history.history


@pytest.mark.parametrize(
    ("optimizer", "selector", "kwargs"),
    [
        (
            adam,
            tree,
            {
                "embedding": anchors,
                "noise": lambda: LearnedNoise(refresh_every=3),
                "steps": 2,
            },
        ),
        (
            adam,
            lambda: FrequentClasses(COUNTS),
            {"embedding": codes, "share_noises": True},
        ),
        (adam, tree, {"embedding": table}),
        (adam, lambda: FrequentClasses(COUNTS), {"embedding": tower}),
        (
            sgd,
            lambda: FrequencySubsets(COUNTS, num_subsets=4, seed=0),
            {"estimate": "separate", "noise": lambda: UnigramNoise(COUNTS)},
        ),
        (
            adam,
            lambda: Union([FrequentClasses(COUNTS), NearestCenters(4)], [2, 4]),
            {"share_noises": True},
        ),
        (
            adam,
            lambda: Union([FrequentClasses(COUNTS), NearestCenters(4)], [2, 4]),
            {"share_noises": "labels", "num_noises": 12},
        ),
        (
            adam,
            lambda: FrequentClasses(COUNTS),
            {"share_noises": "labels", "num_noises": 6, "noise_groups": 3},
        ),
    ],
    ids=[
        *("tree", "frequent", "table", "tower", "subsets", "union", "labels"),
        "groups",
    ],
)
def test_two_devices_equal_one(strategy, optimizer, selector, kwargs, tmp_path):
    one, one_history = fit(
        contextlib.nullcontext(), optimizer, selector, **kwargs
    )
    two, two_history = fit(strategy.scope(), optimizer, selector, **kwargs)
    assert one_history["loss"][-1] < one_history["loss"][0]
    assert 0 < one_history["coverage"][-1] < 1
    for name, values in one_history.items():
        np.testing.assert_allclose(
            values, two_history[name], rtol=1e-4, err_msg=name
        )
    for first, second in zip(one.weights, two.weights, strict=True):
        np.testing.assert_allclose(
            first.numpy(),
            second.numpy(),
            rtol=1e-5,
            atol=1e-4,
            err_msg=first.path,
        )
        replicas = strategy.experimental_local_results(second.value)
        assert len(replicas) == 2
        np.testing.assert_array_equal(*replicas, err_msg=second.path)
    if selector is tree:
        check_files_in_a_scope(strategy, two, tmp_path / "model.keras")


def check_files_in_a_scope(strategy, model, path):
    x, y = examples()
    model.save(path)
    with strategy.scope():
        loaded = keras.saving.load_model(path)
    expected = model.evaluate(x, y, verbose=0)
    np.testing.assert_allclose(
        loaded.evaluate(x, y, verbose=0), expected, rtol=1e-6
    )
    loaded.fit(x, y, verbose=0)
    ids, _ = loaded.layers[-1].top_k(x[:3], k=2)
    assert ids.shape == (3, 2)
