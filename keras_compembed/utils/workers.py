"""Threads of a process, and variables that several workers have alike."""

import contextlib
import threading

import tensorflow as tf
import threadpoolctl

# What TensorFlow sends from worker to worker when variables are made.
_SENT = ("bool", "float16", "float32", "float64", "int32", "int64")


# The limit is one of the process: the first that enters sets it, and the last
# that leaves takes it back.
_LOCK = threading.Lock()
_USERS = []


def has_workers(strategy):
    """Whether a `tf.distribute.Strategy` is of several workers."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return False
    cluster = strategy.cluster_resolver.cluster_spec()
    return sum(map(cluster.num_tasks, cluster.jobs)) > 1


def is_chief(strategy):
    """Whether this is the worker that writes files, or the only one."""
    if not has_workers(strategy):
        return True
    resolver = strategy.cluster_resolver
    if "chief" in resolver.cluster_spec().jobs:
        return resolver.task_type == "chief"
    return resolver.task_id == 0


def on_all_workers(strategy, number):
    """What devices of all workers have in place of an integer, a list."""
    numbers = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant([number])
    )
    return strategy.gather(numbers, axis=0).numpy().tolist()


@contextlib.contextmanager
def variables_of_workers():
    """Makes variables of any dtype start alike on all workers, in a block."""
    if not has_workers(tf.distribute.get_strategy()):
        yield
        return
    with tf.variable_creator_scope(_make_variable):
        yield


def is_of_workers(variable):
    """Whether a strategy, or `variables_of_workers`, made a Keras variable."""
    return isinstance(variable.value, tf.distribute.DistributedValues) or (
        tf.as_dtype(variable.dtype).name not in _SENT
    )


def _make_variable(next_creator, **kwargs):
    value, dtype = kwargs.pop("initial_value"), kwargs.pop("dtype", None)
    if dtype is None or tf.as_dtype(dtype).name in _SENT:
        return next_creator(initial_value=value, dtype=dtype, **kwargs)
    value = value() if callable(value) else value
    sent = next_creator(
        initial_value=tf.cast(value, tf.int32), dtype=tf.int32, trainable=False
    )
    # Of the class of a device's own variable: one that no strategy makes.
    own = tf.distribute.get_strategy().experimental_local_results(sent)[0]
    return type(own)(
        tf.cast(sent, dtype),
        dtype=dtype,
        trainable=kwargs.get("trainable"),
        name=kwargs.get("name"),
    )


@contextlib.contextmanager
def one_thread():
    """A context that keeps matrix products to one thread."""
    with _LOCK:
        limits = (
            _USERS[0]
            if _USERS
            else threadpoolctl.threadpool_limits(1, user_api="blas")
        )
        _USERS.append(limits)
    try:
        yield
    finally:
        with _LOCK:
            _USERS.pop()
            if not _USERS:
                limits.restore_original_limits()
