"""Threads of a process, and equal variables on several workers."""

import contextlib
import threading

import tensorflow as tf
import threadpoolctl

# Dtypes that TensorFlow broadcasts when it creates variables.
_SENT = ("bool", "float16", "float32", "float64", "int32", "int64")


# The limit is global: the first context sets it, and the last one resets it.
_LOCK = threading.Lock()
_USERS = []


def has_workers(strategy):
    """Whether a `tf.distribute.Strategy` has several workers."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return False
    cluster = strategy.cluster_resolver.cluster_spec()
    return sum(map(cluster.num_tasks, cluster.jobs)) > 1


def is_chief(strategy):
    """Whether this worker writes files: the chief, or the only one."""
    if not has_workers(strategy):
        return True
    resolver = strategy.cluster_resolver
    if "chief" in resolver.cluster_spec().jobs:
        return resolver.task_type == "chief"
    return resolver.task_id == 0


def on_all_workers(strategy, number):
    """List of an integer's values on the devices of all workers."""
    numbers = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant([number])
    )
    return strategy.gather(numbers, axis=0).numpy().tolist()


@contextlib.contextmanager
def variables_of_workers():
    """Context: variables of any dtype start equal on all workers."""
    if not has_workers(tf.distribute.get_strategy()):
        yield
        return
    with tf.variable_creator_scope(_make_variable):
        yield


def is_of_workers(variable):
    """Whether a Keras variable is from a strategy or `variables_of_workers`."""
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
    # The class of a device's own variable, without a strategy.
    own = tf.distribute.get_strategy().experimental_local_results(sent)[0]
    return type(own)(
        tf.cast(sent, dtype),
        dtype=dtype,
        trainable=kwargs.get("trainable"),
        name=kwargs.get("name"),
    )


@contextlib.contextmanager
def one_thread():
    """Context: matrix products use one thread."""
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
