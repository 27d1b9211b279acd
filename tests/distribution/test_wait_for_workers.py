"""Workers that never come up are an error with their address."""

import json
import socket
import threading

import pytest

from examples.multi_worker.launch import free_ports
from keras_compembed.distribution import wait_for_workers
from keras_compembed.distribution.wait_for_workers import _Meeting


@pytest.fixture
def addresses():
    return [f"localhost:{port}" for port in free_ports(3)]


def config(monkeypatch, cluster, kind="worker", index=0):
    task = {"type": kind, "index": index}
    text = json.dumps({"cluster": cluster, "task": task})
    monkeypatch.setenv("TF_CONFIG", text)


def hold(addresses, places, timeout):
    """Holds a meeting of some of the workers; dict of how each ended."""
    ended = {}

    def meet(place):
        try:
            ended[place] = _Meeting(addresses, place).hold(timeout)
        except TimeoutError as error:
            ended[place] = str(error)

    threads = [threading.Thread(target=meet, args=(x,)) for x in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ended


def test_all_meet_and_leave_their_addresses(addresses):
    assert hold(addresses, (0, 1, 2), 60) == {0: None, 1: None, 2: None}
    for address in addresses:
        port = int(address.rpartition(":")[2])
        socket.create_server(("localhost", port)).close()


def test_the_missing_one_is_named(addresses):
    for message in hold(addresses, (0, 2), 1.5).values():
        assert message.startswith(
            "Workers did not come up within 1.5 seconds: "
            f"{addresses[1]} (it is not reached). This one is"
        )


def test_one_that_others_do_not_reach_is_named(addresses):
    # A worker whose own list is wrong: it calls no one.
    silent = _Meeting(addresses[:2], 1)
    silent._call = lambda other: None
    thread = threading.Thread(
        target=lambda: pytest.raises(TimeoutError, silent.hold, 2)
    )
    thread.start()
    message = hold(addresses[:2], (0,), 1)[0]
    thread.join()
    assert f"{addresses[1]} (it did not reach this worker)" in message


def test_what_else_listens_there_is_not_a_worker(addresses):
    port = int(addresses[1].rpartition(":")[2])
    with socket.create_server(("localhost", port)) as other:
        thread = threading.Thread(target=answer, args=(other,), daemon=True)
        thread.start()
        message = hold(addresses[:2], (0,), 1)[0]
    assert f"{addresses[1]} (it is not reached)" in message


def answer(server):
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad")


def test_one_worker_waits_for_no_one(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    wait_for_workers()
    config(monkeypatch, {"worker": ["localhost:1"], "evaluator": ["other:1"]})
    wait_for_workers()


def test_a_chief_is_a_worker(addresses, monkeypatch):
    cluster = {"chief": addresses[:1], "worker": addresses[1:2]}
    config(monkeypatch, cluster, index=0)
    with pytest.raises(TimeoutError, match=f"{addresses[0]} .* This one is"):
        wait_for_workers(timeout=0.3)


def test_an_address_that_is_taken(addresses, monkeypatch):
    config(monkeypatch, {"worker": addresses})
    port = int(addresses[0].rpartition(":")[2])
    with (
        socket.create_server(("", port)),
        pytest.raises(OSError, match="Cannot listen on 'localhost:.*in use"),
    ):
        wait_for_workers()


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"cluster": {"worker": ["a:1", "b"]}}', '{"task": {}}']
)
def test_other_configurations(text, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match="`TF_CONFIG` must have a `cluster`"):
        wait_for_workers()
    with pytest.raises(ValueError, match="`timeout` must be a positive number"):
        wait_for_workers(timeout=0)
