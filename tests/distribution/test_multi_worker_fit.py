"""Keras's `fit` on several workers, which are processes of this machine."""

import functools
import json
import os
import pathlib
import subprocess
import sys

import keras
import multi_worker
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend.tensorflow import trainer

from examples.multi_worker import launch
from keras_compembed.distribution import multi_worker_fit
from keras_compembed.distribution.keras_probe import OfWorkers

NAMES = [*multi_worker.MODELS, *multi_worker.LEARNERS]
# With the numbers of dense gradients: of three tables of anchors, a dense
# transform and the classifier, and of a dense layer before the classes.
LOOPS = {
    "anchors": 3 * 6 * 8 + 60 * 6 + 8 * 2 + 2,
    "labels": 8 * 8 + 8,
}
OF_FOUR = ["codes", "labels"]
if os.environ.get("COMPEMBED_FOUR_WORKERS"):
    # Seven minutes on two cores.
    OF_FOUR = NAMES


def run_workers(number, names, folder, timeout=400):
    ports = ",".join(map(str, launch.free_ports(number)))
    program = [sys.executable, multi_worker.__file__, folder, ports]
    processes = [
        subprocess.Popen(
            [*program, str(index), ",".join(names)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=pathlib.Path(__file__).parents[2],
        )
        for index in range(number)
    ]
    try:
        outputs = [
            process.communicate(timeout=timeout)[0] for process in processes
        ]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output[-5000:]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Folder of what each of two workers got."""
    folder = tmp_path_factory.mktemp("workers")
    loops = [f"loop {name}" for name in LOOPS]
    run_workers(2, [*NAMES, *loops, "mistakes"], folder)
    return folder


@functools.cache
def in_one_process(name):
    return multi_worker.train(name, tf.distribute.get_strategy())


def check_workers(folder, number, name, expected, tolerance=1e-5):
    for index in range(number):
        with np.load(folder / f"{name}-{index}.npz") as found:
            assert set(found.files) == set(expected)
            for key, value in expected.items():
                # Sums of 16 gradients in another order, of which Adam makes
                # steps of the same size, whatever that of the gradient.
                np.testing.assert_allclose(
                    found[key],
                    value,
                    rtol=tolerance,
                    atol=tolerance,
                    err_msg=f"{key} of worker {index}",
                )


@pytest.mark.parametrize("name", NAMES)
def test_two_workers_equal_one_process(results, name):
    expected = in_one_process(name)
    losses = expected["history loss"]
    assert losses[-1] < losses[0] or name in multi_worker.LEARNERS
    check_workers(results, 2, name, expected)


def test_four_workers_equal_one_process(tmp_path):
    run_workers(4, OF_FOUR, tmp_path, timeout=max(400, 150 * len(OF_FOUR)))
    for name in OF_FOUR:
        # Here a number comes of sums of sums.
        tolerance = 2e-5 if name == "sums" else 1e-5
        check_workers(tmp_path, 4, name, in_one_process(name), tolerance)


@pytest.mark.parametrize("name", LOOPS)
def test_own_steps_on_two_workers_equal_fit(results, name):
    fitted = in_one_process(name)
    expected = {x: y for x, y in fitted.items() if x.startswith("weight")}
    expected["losses"] = fitted["history loss"]
    expected["added"] = LOOPS[name]
    check_workers(results, 2, f"loop {name}", expected)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model outside", "made under _DefaultDistributionStrategy."),
        ("layer outside", "/anchors' was made outside."),
        *(
            (name, "must have as many batches an epoch. Received: 14, 28, by")
            for name in ("uneven", "uneven evaluate", "uneven predict")
        ),
    ],
)
def test_mistakes_are_named(results, name, message):
    for index in range(2):
        messages = json.loads((results / f"mistakes-{index}.json").read_text())
        assert message in messages[name]


def trainer_methods():
    return (
        trainer.TensorFlowTrainer._maybe_symbolic_build,
        trainer.reduce_per_replica,
        trainer.TFEpochIterator,
    )


def test_functions_are_exchanged_only_within():
    before = trainer_methods()
    with pytest.raises(KeyError), multi_worker_fit(OfWorkers()):
        within = trainer_methods()
        raise KeyError
    assert trainer_methods() == before
    for one, other in zip(before, within, strict=True):
        assert one is not other


def test_nothing_is_exchanged_on_one_machine(strategy):
    before = trainer_methods()
    for each in (tf.distribute.get_strategy(), strategy):
        with multi_worker_fit(each):
            assert trainer_methods() == before


def test_keras_that_does_it_right_is_left_alone(monkeypatch):
    def build(self, iterator=None, data_batch=None):
        _, _, batches = next(iter(iterator))
        first = next(batches)
        self.distribute_strategy.experimental_local_results(first[0])

    def reduce(values, strategy, reduction):
        return keras.tree.map_structure(
            lambda value: strategy.reduce("MEAN", value, axis=None), values
        )

    cls = trainer.TensorFlowTrainer
    monkeypatch.setattr(cls, "_maybe_symbolic_build", build)
    monkeypatch.setattr(trainer, "reduce_per_replica", reduce)
    with multi_worker_fit(OfWorkers()):
        _, within, _ = trainer_methods()
        assert within is reduce
    assert trainer_methods()[:2] == (build, reduce)


@pytest.mark.parametrize(
    "owner, name",
    [
        (trainer.TensorFlowTrainer, "_maybe_symbolic_build"),
        (trainer, "reduce_per_replica"),
        (trainer, "TFEpochIterator"),
    ],
)
@pytest.mark.parametrize("other", [lambda *args: None, lambda self: None])
def test_unknown_keras_is_refused(owner, name, other, monkeypatch):
    monkeypatch.setattr(owner, name, other)
    before = trainer_methods()
    message = f"`{name}` .* Received: keras {keras.__version__}"
    with pytest.raises(RuntimeError, match=message):
        with multi_worker_fit(OfWorkers()):
            pass
    assert trainer_methods() == before


@pytest.mark.parametrize(
    "given, message",
    [
        (None, "must be a `tf.distribute.Strategy`. Received: strategy=None"),
        (
            tf.distribute.ParameterServerStrategy.__new__(
                tf.distribute.ParameterServerStrategy
            ),
            "does not train on parameter servers. Received: a ParameterServer",
        ),
    ],
)
def test_other_strategies_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        with multi_worker_fit(given):
            pass
