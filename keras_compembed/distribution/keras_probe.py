"""What Keras's TensorFlow trainer does of several workers."""

import contextlib
import types

import keras
import tensorflow as tf


class OfWorkers(tf.distribute.MultiWorkerMirroredStrategy):
    """Stands for several workers, and keeps what it is asked for."""

    def __init__(self):
        self.asked = []

    @property
    def extended(self):
        return types.SimpleNamespace(_in_multi_worker_mode=lambda: True)

    def scope(self):
        return contextlib.nullcontext()

    def reduce(self, reduce_op, value, axis="none"):
        self.asked.append(("reduce", axis))
        return value

    def experimental_local_results(self, value):
        self.asked.append(("local", None))
        return (value,)


class _Value(tf.distribute.DistributedValues):
    """A batch as workers have it."""

    def __init__(self):
        pass


def reduces_first_batches(build):
    """Whether Keras reduces first batches over workers."""
    probe = OfWorkers()
    model = types.SimpleNamespace(
        _distribute_strategy=probe,
        distribute_strategy=probe,
        _symbolic_build=lambda data_batch: None,
    )
    try:
        build(model, iterator=[(0, 0, iter([(_Value(),)]))])
    except Exception as error:
        raise _unknown("_maybe_symbolic_build") from error
    if probe.asked not in ([("reduce", None)], [("local", None)]):
        raise _unknown("_maybe_symbolic_build")
    return probe.asked == [("reduce", None)]


def takes_numbers_for_batches(reduce):
    """Whether Keras reduces losses as if they were batches."""
    probe = OfWorkers()
    try:
        reduce({"loss": 1.0}, probe, "auto")
    except Exception as error:
        raise _unknown("reduce_per_replica") from error
    if probe.asked not in ([("reduce", 0)], [("reduce", None)]):
        raise _unknown("reduce_per_replica")
    return probe.asked == [("reduce", 0)]


def epoch_iterator(trainer):
    """The class by which `fit`, `evaluate` and `predict` read data."""
    cls = getattr(trainer, "TFEpochIterator", None)
    if not isinstance(cls, type):
        raise _unknown("TFEpochIterator")
    return cls


def _unknown(name):
    return RuntimeError(
        f"Keras must have a `{name}` of the TensorFlow trainer that "
        "`multi_worker_fit` knows, such as that of Keras 3.15, or one that "
        f"is mended. Received: keras {keras.__version__}."
    )
