"""Keras's `fit` on several workers, which are processes of this machine."""

import json
import pathlib
import socket
import subprocess
import sys

import keras
import multi_worker
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend.tensorflow import trainer

from keras_compembed.distribution import multi_worker_fit
from keras_compembed.distribution.keras_probe import OfWorkers

WORKERS = 2


def free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("localhost", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Folder of what each worker got."""
    folder = tmp_path_factory.mktemp("workers")
    ports = ",".join(map(str, free_ports(WORKERS)))
    processes = [
        subprocess.Popen(
            [sys.executable, multi_worker.__file__, folder, ports, str(index)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=pathlib.Path(__file__).parents[2],
        )
        for index in range(WORKERS)
    ]
    try:
        outputs = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output[-5000:]
    return folder


@pytest.mark.parametrize("name", multi_worker.MODELS)
def test_two_workers_equal_one_process(results, name):
    expected = multi_worker.train(name, tf.distribute.get_strategy())
    assert expected["history loss"][1] < expected["history loss"][0]
    for index in range(WORKERS):
        with np.load(results / f"{name}-{index}.npz") as found:
            assert set(found.files) == set(expected)
            for key, value in expected.items():
                np.testing.assert_allclose(
                    found[key],
                    value,
                    rtol=1e-4,
                    atol=1e-4,
                    err_msg=f"{key} of worker {index}",
                )


def test_tables_of_bytes_are_refused(results):
    for index in range(WORKERS):
        messages = json.loads((results / f"refused-{index}.json").read_text())
        for name, message in zip(
            ("CodeEmbedding", "QuantizedEmbedding"), messages, strict=True
        ):
            assert message.startswith(f"{name} must be made on one machine")
            assert "sends no uint8" in message


def trainer_methods():
    return (
        trainer.TensorFlowTrainer._maybe_symbolic_build,
        trainer.reduce_per_replica,
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
        assert trainer_methods() == (build, reduce)


@pytest.mark.parametrize(
    "owner, name",
    [
        (trainer.TensorFlowTrainer, "_maybe_symbolic_build"),
        (trainer, "reduce_per_replica"),
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
