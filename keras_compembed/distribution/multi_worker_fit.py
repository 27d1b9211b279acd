"""Keras `fit` on several machines, and waiting for workers."""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator

import tensorflow as tf
from keras import tree

from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import require
from keras_compembed.utils.workers import has_workers
from keras_compembed.utils.workers import is_of_workers
from keras_compembed.utils.workers import on_all_workers

# Tasks that do not train.
_OTHERS = ("evaluator", "ps")
# Seconds between calls, for a connection, and for a reply.
_PAUSE, _REACH, _ANSWER = 0.1, 2.0, 10.0


@contextlib.contextmanager
def multi_worker_fit(strategy: tf.distribute.Strategy) -> Iterator:
    """Makes `fit`, `evaluate` and `predict` work on several workers.

    With `tf.distribute.MultiWorkerMirroredStrategy`, Keras 3 fails before the
    first step. This context replaces three parts of Keras's TensorFlow trainer
    to fix that, and checks that all workers do the same.

    Run the same program with the same data on each worker, with a separate
    `TF_CONFIG`. Each worker reads its part of the data, according to
    `tf.data.Options().experimental_distribute.auto_shard_policy`. `predict`
    returns predictions for all data on each worker.

    Example:

    >>> # On workers: `tf.distribute.MultiWorkerMirroredStrategy()`.
    >>> strategy = tf.distribute.get_strategy()
    >>> with strategy.scope():
    ...     model = keras.Sequential([keras.layers.Dense(1)])
    ...     model.compile("sgd", "mse")
    >>> x, y = np.ones((8, 2)), np.ones((8, 1))
    >>> data = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    >>> with kc.distribution.multi_worker_fit(strategy):
    ...     history = model.fit(data, shuffle=False, verbose=0)

    Args:
        strategy: The `tf.distribute.Strategy` of the model, not a
            `ParameterServerStrategy`. The context has no effect on one machine.

    Raises:
        tf.errors.UnavailableError: In `fit`, if another worker ended.
        ValueError: In `fit` and `evaluate`, if workers have different numbers
            of batches, or if the model or a weight was made outside of
            `strategy.scope()`.

    References:
        - https://github.com/keras-team/keras/issues/20585
    """
    require(
        isinstance(strategy, tf.distribute.Strategy)
        and not isinstance(strategy, tf.distribute.ParameterServerStrategy),
        "`strategy` must be a `tf.distribute.Strategy` with synchronous "
        "training.",
        strategy=strategy,
    )
    if not has_workers(strategy):
        yield
        return
    # This module is private, and needed only here.
    from keras.src.backend.tensorflow import trainer

    cls = trainer.TensorFlowTrainer
    build, reduce = cls._maybe_symbolic_build, trainer.reduce_per_replica
    iterator = trainer.TFEpochIterator
    try:
        cls._maybe_symbolic_build = _from_local_batches(build, strategy)
        trainer.reduce_per_replica = _of_numbers(reduce)
        trainer.TFEpochIterator = _of_equal_batches(iterator, strategy)
        yield
    except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
        raise type(error)(
            error.node_def,
            error.op,
            "A worker ended or cannot be reached. Start all workers again. "
            "With a `WorkerBackup`, they resume from the last epoch.\n"
            f"{error.message}",
        ) from error
    finally:
        cls._maybe_symbolic_build = build
        trainer.reduce_per_replica = reduce
        trainer.TFEpochIterator = iterator


def _of_equal_batches(iterator, strategy):
    """A `TFEpochIterator` that checks the number of batches of workers."""

    class CheckedEpochIterator(iterator):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            if kwargs.get("distribute_strategy") is strategy:
                own = self.num_batches
                batches = on_all_workers(strategy, -1 if own is None else own)
                require(
                    len(set(batches)) == 1,
                    "All workers must have the same number of batches in an "
                    "epoch. Pass `steps_per_epoch`, or give all the same data.",
                    batches=batches,
                )

    return CheckedEpochIterator


def _from_local_batches(build, strategy):
    """A `_maybe_symbolic_build` from the worker's first batch, with checks."""

    def build_from_local_batch(self, iterator=None, data_batch=None):
        require(
            self.distribute_strategy is strategy,
            "Models must be made and compiled under `strategy.scope()`, with "
            "the strategy of `multi_worker_fit`.",
            model=self.name,
        )
        if iterator is not None:
            for _, _, batches in iterator:
                data_batch = tree.map_structure(
                    lambda x: strategy.experimental_local_results(x)[0],
                    next(batches),
                )
                break
        build(self, data_batch=data_batch)
        for variable in self.variables:
            require(
                is_of_workers(variable),
                "Layers and their weights must be made under "
                "`strategy.scope()`.",
                model=self.name,
                variable=variable.path,
            )

    return build_from_local_batch


def _of_numbers(reduce):
    """A `reduce_per_replica` that sums or averages numbers over workers."""

    def reduce_numbers(values, strategy, reduction):
        operation = {"auto": "MEAN", "mean": "MEAN", "sum": "SUM"}
        if reduction not in operation or not has_workers(strategy):
            return reduce(values, strategy, reduction)
        return tree.map_structure(
            lambda value: strategy.reduce(
                operation[reduction], value, axis=None
            ),
            values,
        )

    return reduce_numbers


def wait_for_workers(timeout: float = 600) -> None:
    """Waits until all workers in `TF_CONFIG` have started.

    `tf.distribute.MultiWorkerMirroredStrategy()` waits for other workers
    forever, without a message, and ignores Ctrl-C and SIGTERM. Call this
    function first, on all workers. It raises an error with the address of each
    missing worker. For a single worker, it returns at once.

    Example:

    >>> kc.distribution.wait_for_workers(timeout=300)
    >>> # On workers: `tf.distribute.MultiWorkerMirroredStrategy()`.
    >>> strategy = tf.distribute.get_strategy()

    Args:
        timeout: Positive number of seconds. Defaults to `600`.

    Raises:
        TimeoutError: If a worker did not start.
        ValueError: If `TF_CONFIG` is not that of a worker.
        OSError: If this worker cannot listen on its address.
    """
    check_positive_number("timeout", timeout)
    text = os.environ.get("TF_CONFIG")
    if text:
        addresses, own = _read(text)
        if len(addresses) > 1:
            _Meeting(addresses, own).hold(timeout)


def _read(text):
    """Addresses of all workers, and the place of this one."""
    try:
        config = json.loads(text)
        task = config["task"]
        own = task["type"], int(task["index"])
        places = [
            (kind, index, address)
            for kind, addresses in sorted(config["cluster"].items())
            if kind not in _OTHERS
            for index, address in enumerate(addresses)
        ]
        for _, _, address in places:
            int(address.rpartition(":")[2])
        place = [each[:2] for each in places].index(own)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            "`TF_CONFIG` must have a `cluster` of addresses, such as "
            '{"worker": ["host:port", ...]}, and the `type` and `index` of '
            f"this `task` in it. Received: {text}"
        ) from error
    return [address for _, _, address in places], place


class _Meeting:
    """Each worker calls all others, and waits for a call from each."""

    def __init__(self, addresses, own):
        self._addresses = addresses
        self._own = own
        self._others = set(range(len(addresses))) - {own}
        self._called = set()
        self._heard = set()

    def hold(self, timeout):
        deadline = time.monotonic() + timeout
        with self._listening():
            while self._missing():
                if time.monotonic() > deadline:
                    raise TimeoutError(self._message(timeout))
                for other in sorted(self._others - self._called):
                    self._call(other)
                time.sleep(_PAUSE)

    def _missing(self):
        return self._others - (self._called & self._heard)

    @contextlib.contextmanager
    def _listening(self):
        address = self._addresses[self._own]
        port = int(address.rpartition(":")[2])
        try:
            options = {}
            if socket.has_dualstack_ipv6():
                options = {"family": socket.AF_INET6, "dualstack_ipv6": True}
            server = socket.create_server(("", port), **options)
        except OSError as error:
            raise type(error)(
                f"Cannot listen on {address!r}, this worker's address in "
                f"`TF_CONFIG`: {error.strerror}."
            ) from error
        server.settimeout(_PAUSE)
        ended = threading.Event()
        thread = threading.Thread(
            target=self._hear, args=(server, ended), daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            server.close()

    def _hear(self, server, ended):
        while not ended.is_set():
            with contextlib.suppress(OSError, ValueError):
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(_ANSWER)
                    other = int(connection.recv(16))
                    # The reply identifies this worker to the caller.
                    connection.sendall(b"%d" % self._own)
                self._heard.add(other)

    def _call(self, other):
        host, _, port = self._addresses[other].rpartition(":")
        with contextlib.suppress(OSError, ValueError):
            address = host.strip("[]"), int(port)
            with socket.create_connection(address, _REACH) as connection:
                connection.settimeout(_ANSWER)
                connection.sendall(b"%d" % self._own)
                if int(connection.recv(16)) == other:
                    self._called.add(other)

    def _message(self, timeout):
        lines = []
        for other in sorted(self._missing()):
            reason = "it did not reach this worker"
            if other not in self._called:
                reason = "it cannot be reached"
            lines.append(f"{self._addresses[other]} ({reason})")
        return (
            f"Workers did not start within {timeout:g} seconds: "
            f"{', '.join(lines)}. This one is {self._addresses[self._own]}. "
            "Check that they run, that this address is in their `TF_CONFIG`, "
            "and that hosts can reach each other."
        )
