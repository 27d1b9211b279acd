"""A meeting of all workers before TensorFlow waits for them without an end."""

import contextlib
import json
import os
import socket
import threading
import time

from keras_compembed.utils.validation import check_positive_number

# Tasks that take no part in training by all workers together.
_OTHERS = ("evaluator", "ps")
# Seconds between calls, to reach a host, and for its answer.
_PAUSE, _REACH, _ANSWER = 0.1, 2.0, 10.0


def wait_for_workers(timeout=600):
    """Returns once all workers of `TF_CONFIG` have started.

    `tf.distribute.MultiWorkerMirroredStrategy()` waits for the other workers
    without an end, says nothing, and heeds neither Ctrl-C nor SIGTERM. Call
    this before it: a worker that never comes up is an error with its address,
    on all others. Workers meet by short connections between the addresses that
    TensorFlow uses afterwards. All of them have to call it, or none.

    Without a `TF_CONFIG`, or with one of a single worker, it returns at once.

    Example:

    >>> kc.distribution.wait_for_workers(timeout=300)
    >>> # On workers: `tf.distribute.MultiWorkerMirroredStrategy()`.
    >>> strategy = tf.distribute.get_strategy()

    Args:
        timeout: Positive number of seconds. Defaults to `600`.

    Raises:
        TimeoutError: if a worker did not come up.
        ValueError: if `TF_CONFIG` is not one of a worker.
        OSError: if the worker's own address cannot be listened on.
    """
    check_positive_number("timeout", timeout)
    text = os.environ.get("TF_CONFIG")
    if text:
        addresses, own = _read(text)
        if len(addresses) > 1:
            _Meeting(addresses, own).hold(timeout)


def _read(text):
    """Addresses of all workers, and the place of one's own."""
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
    """Each calls all others, and stays until all others have called."""

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
            server = _listen(port)
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
                    # The answer tells it from what else may listen there.
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
                reason = "it is not reached"
            lines.append(f"{self._addresses[other]} ({reason})")
        return (
            f"Workers did not come up within {timeout:g} seconds: "
            f"{', '.join(lines)}. This one is {self._addresses[self._own]}. "
            "Look whether they were started, with this address in their "
            "`TF_CONFIG`, and whether hosts reach each other."
        )


def _listen(port):
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", port), family=socket.AF_INET6, dualstack_ipv6=True
        )
    return socket.create_server(("", port))
