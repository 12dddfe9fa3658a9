"""An address at which something answers that is no Ray cluster, or nothing at all."""

import ctypes
import signal
import socket
import threading
import time

import pytest

pytest.importorskip("ray")

from slm_lab.core.errors import LabError, UsageError
from slm_lab.core.process import signals_handled
from slm_lab.parallel.ray import connect
from tests.faults.lab import call, command, started, wait_until, write_spec
from tests.support import ppo

SETTINGS = b"\0\0\0\4\0\0\0\0\0"
"""How a server of gRPC answers."""


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def address(server):
    return f"127.0.0.1:{server.getsockname()[1]}"


def answer(server, content):
    """Accepts connections and sends `content` to each, until the server is closed."""

    def serve():
        kept = []
        while True:
            try:
                connection, _ = server.accept()
                kept.append(connection)
                connection.sendall(content)
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()


def test_a_listener_that_stays_silent_is_no_cluster(listener, monkeypatch):
    monkeypatch.setattr(connect, "CONNECT_SECONDS", 0.2)
    answer(listener, b"")
    with pytest.raises(
        UsageError, match=f"no Ray cluster at {address(listener)}: timed out"
    ):
        connect.check_cluster(address(listener))


def test_a_port_where_nothing_listens_is_no_cluster(listener):
    place = address(listener)
    listener.close()
    with pytest.raises(UsageError, match=f"no Ray cluster at {place}: .*refused"):
        connect.check_cluster(place)


def test_a_connection_that_hangs_is_given_up_and_ends_at_once_when_the_run_is_stopped(
    monkeypatch,
):
    over = threading.Event()
    monkeypatch.setattr(connect.ray, "init", lambda **_: over.wait())
    monkeypatch.setattr(connect, "INIT_SECONDS", 0.2)
    no_answer = r"no Ray cluster at 10\.0\.0\.1:1: no answer in 0.2 s"
    with pytest.raises(LabError, match=no_answer), connect.connected("10.0.0.1:1"):
        pass
    monkeypatch.setattr(connect, "INIT_SECONDS", 60)
    began = time.monotonic()
    with (
        pytest.raises(KeyboardInterrupt),
        connect.connected("10.0.0.1:1", lambda: True),
    ):
        pass
    assert time.monotonic() - began < 5
    over.set()


def test_stop_signals_reach_python_though_ray_takes_them_at_both_ends(monkeypatch):
    """Its C++ code does, which Python does not notice."""
    heard = []

    def take(**_):
        ctypes.CDLL(None).signal(int(signal.SIGTERM), 1)  # SIG_IGN

    monkeypatch.setattr(connect.ray, "init", take)
    monkeypatch.setattr(connect.ray, "shutdown", take)
    with signals_handled(lambda number, frame: heard.append(number)):
        with connect.connected("10.0.0.1:1"):
            signal.raise_signal(signal.SIGTERM)
            assert heard == [signal.SIGTERM]
        signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM] * 2


@pytest.mark.slow
def test_a_training_that_waits_for_a_cluster_ends_within_seconds_of_a_signal(
    folder, listener
):
    answer(listener, SETTINGS)
    write_spec(folder, ppo(meta__distributed="all_reduce", meta__max_session=2))
    with started(folder, "train", "--cluster", address(listener)) as running:
        wait_until(lambda: "run folder" in (folder / "out").read_text())
        running.process.terminate()
        began = time.monotonic()
        done = running.end()
    assert time.monotonic() - began < 15, "five seconds on an idle machine"
    assert done.code == 130
    assert "Traceback" not in done.err


@pytest.mark.medium
def test_a_silent_cluster_is_one_line_and_no_folder_is_made(folder, listener):
    answer(listener, b"")
    write_spec(folder, ppo(meta__distributed="all_reduce", meta__max_session=2))
    done = call(command(folder, "train", "--cluster", address(listener)), folder)
    assert done.code == 2
    assert done.err.startswith(
        f"no Ray cluster at {address(listener)}: timed out; start one"
    )
    assert not list((folder / "data").iterdir())
