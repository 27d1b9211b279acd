"""Workers that never come up are an error with their address."""

import contextlib
import json
import socket
import threading
import time

import pytest
from errors import refused

from examples.multi_worker.launch import free_ports
from keras_compembed.distribution import wait_for_workers


@pytest.fixture
def addresses():
    return [f"localhost:{port}" for port in free_ports(3)]


def port_of(address):
    return int(address.rpartition(":")[2])


def config(monkeypatch, cluster, kind="worker", index=0):
    task = {"type": kind, "index": index}
    text = json.dumps({"cluster": cluster, "task": task})
    monkeypatch.setenv("TF_CONFIG", text)


def meet(monkeypatch, workers, timeout):
    """Starts workers one after the other; dict of how each of them ended.

    Args:
        workers: Dict from the place of each to the addresses that it knows.
    """
    ended, threads = {}, []

    def wait(place):
        try:
            ended[place] = wait_for_workers(timeout)
        except TimeoutError as error:
            ended[place] = str(error)

    for place, known in workers.items():
        config(monkeypatch, {"worker": known}, index=place)
        threads.append(threading.Thread(target=wait, args=(place,)))
        threads[-1].start()
        # Once it listens, it has read its configuration.
        while place not in ended:
            with contextlib.suppress(OSError):
                address = "localhost", port_of(known[place])
                socket.create_connection(address).close()
                break
            time.sleep(0.01)
    for thread in threads:
        thread.join()
    return ended


def test_all_meet_and_leave_their_addresses(addresses, monkeypatch):
    workers = dict.fromkeys(range(3), addresses)
    assert meet(monkeypatch, workers, 600) == dict.fromkeys(range(3))
    for address in addresses:
        socket.create_server(("localhost", port_of(address))).close()


def test_the_missing_one_is_named(addresses, monkeypatch):
    ended = meet(monkeypatch, dict.fromkeys((0, 2), addresses), 1.5)
    for message in ended.values():
        assert f"1.5 seconds: {addresses[1]} (it cannot be reached)" in message


def test_one_that_others_do_not_reach_is_named(addresses, monkeypatch):
    # One that calls another address.
    wrong = [addresses[2], addresses[1]]
    ended = meet(monkeypatch, {1: wrong, 0: addresses[:2]}, 1)
    assert f"{addresses[1]} (it did not reach this worker)" in ended[0]
    assert f"{addresses[2]} (it cannot be reached)" in ended[1]


def test_one_worker_waits_for_no_one(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    wait_for_workers()
    config(monkeypatch, {"worker": ["localhost:1"], "evaluator": ["other:1"]})
    wait_for_workers()


def test_an_address_that_is_taken(addresses, monkeypatch):
    config(monkeypatch, {"worker": addresses})
    with (
        socket.create_server(("", port_of(addresses[0]))),
        pytest.raises(OSError, match=addresses[0]),
    ):
        wait_for_workers()


@pytest.mark.parametrize("text", ["{", '{"cluster": {"worker": ["a:1", "b"]}}'])
def test_other_configurations(text, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    with refused("TF_CONFIG", text):
        wait_for_workers()
    with refused("timeout", 0):
        wait_for_workers(timeout=0)


def test_what_else_listens_there_is_not_a_worker(addresses, monkeypatch):
    port = port_of(addresses[1])
    with socket.create_server(("localhost", port)) as other:
        threading.Thread(target=answer, args=(other,), daemon=True).start()
        message = meet(monkeypatch, {0: addresses[:2]}, 1)[0]
    assert f"{addresses[1]} (it cannot be reached)" in message


def answer(server):
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad")


def test_a_chief_is_a_worker(addresses, monkeypatch):
    cluster = {"chief": addresses[:1], "worker": addresses[1:2]}
    config(monkeypatch, cluster)
    with pytest.raises(TimeoutError, match=f"{addresses[0]} .* This one is"):
        wait_for_workers(timeout=0.3)
