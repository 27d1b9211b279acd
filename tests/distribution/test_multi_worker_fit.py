"""Keras's `fit` on several workers, which are processes of this machine."""

import json
import pathlib
import subprocess
import sys

import keras
import multi_worker
import numpy as np
import pytest
import tensorflow as tf
from errors import refused
from keras.src.backend.tensorflow import trainer

from examples.multi_worker import launch
from keras_compembed.distribution import multi_worker_fit

NAMES = ["codes", "tree", "learner"]
# With the numbers of dense gradients: of three tables of anchors, a dense
# transform and the classifier, and of a dense layer before the classes.
LOOPS = {
    "anchors": 3 * 6 * 8 + 60 * 6 + 8 * 2 + 2,
    "labels": 8 * 8 + 8,
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Folder of what each of two workers got."""
    folder = tmp_path_factory.mktemp("workers")
    names = [*NAMES, *(f"loop {name}" for name in LOOPS), "messages"]
    ports = ",".join(map(str, launch.free_ports(2)))
    program = [sys.executable, multi_worker.__file__, folder, ports]
    workers = [
        subprocess.Popen(
            [*program, str(index), ",".join(names)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=pathlib.Path(__file__).parents[2],
        )
        for index in range(2)
    ]
    try:
        # Only ends what hangs.
        outputs = [worker.communicate(timeout=1800)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    for worker, output in zip(workers, outputs, strict=True):
        assert worker.returncode == 0, output[-5000:]
    return folder


def check_workers(folder, name, expected):
    for index in range(2):
        with np.load(folder / f"{name}-{index}.npz") as found:
            assert set(found.files) == set(expected)
            for key, value in expected.items():
                # Sums of 16 gradients in another order, of which Adam makes
                # steps of the same size, whatever that of the gradient.
                np.testing.assert_allclose(
                    found[key],
                    value,
                    rtol=1e-5,
                    atol=1e-5,
                    err_msg=f"{key} of worker {index}",
                )


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, *LOOPS])
def test_two_workers_equal_one_process(results, name):
    expected = multi_worker.train(name, tf.distribute.get_strategy())
    losses = expected["history loss"]
    assert losses[-1] < losses[0] or name == "learner"
    if name in LOOPS:
        weights = {x: y for x, y in expected.items() if x.startswith("weight")}
        expected = {**weights, "losses": losses, "added": LOOPS[name]}
        name = f"loop {name}"
    check_workers(results, name, expected)


@pytest.mark.slow
def test_mistakes_are_named(results):
    for index in range(2):
        text = (results / f"messages-{index}.json").read_text()
        messages = json.loads(text)
        assert "made and compiled under" in messages["model outside"]
        assert "/anchors'" in messages["layer outside"]
        assert "batches=[10, 20]" in messages["uneven"]


class OfWorkers(tf.distribute.MultiWorkerMirroredStrategy):
    """Stands for several workers."""

    def __init__(self):
        pass

    @property
    def cluster_resolver(self):
        spec = tf.train.ClusterSpec({"worker": ["one:1", "two:1"]})
        return tf.distribute.cluster_resolver.SimpleClusterResolver(spec)


def functions_of_keras():
    """What Keras 3 does wrong on several workers."""
    build = trainer.TensorFlowTrainer._maybe_symbolic_build
    return build, trainer.reduce_per_replica, trainer.TFEpochIterator


def test_functions_are_exchanged_only_within(strategy):
    before = functions_of_keras()
    with pytest.raises(KeyError), multi_worker_fit(OfWorkers()):
        assert not set(before) & set(functions_of_keras())
        raise KeyError
    assert functions_of_keras() == before
    # On one machine, not at all.
    with multi_worker_fit(strategy):
        assert functions_of_keras() == before


def test_what_cannot_be_right_is_named():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with refused(None, model.name), multi_worker_fit(OfWorkers()):
        model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
    for error in (tf.errors.UnavailableError, tf.errors.AbortedError):
        with (
            pytest.raises(error, match="`WorkerBackup`.*\ngone"),
            multi_worker_fit(OfWorkers()),
        ):
            raise error(None, None, "gone")


def test_other_strategies_are_refused():
    cls = tf.distribute.ParameterServerStrategy
    for given, shown in ((None, None), (cls.__new__(cls), cls.__name__)):
        with refused("strategy", shown), multi_worker_fit(given):
            pass
