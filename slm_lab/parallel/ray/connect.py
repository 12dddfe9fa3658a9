"""Connections to a Ray cluster that already runs."""

import logging
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from threading import Thread, current_thread, main_thread

import ray
from ray.exceptions import RayError

from slm_lab.core.errors import LabError, UsageError
from slm_lab.core.process import STOP_SIGNALS
from slm_lab.parallel.wait import wait_until

CONNECT_SECONDS = 10.0
"""How long a cluster may take to answer."""
INIT_SECONDS = 30.0
"""How long Ray may take to connect to a cluster that answers."""
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
"""The first bytes of a client of gRPC, the protocol of Ray: any server answers them."""
HOW_TO_START = (
    "start one (ray start --head), or remove meta.cluster and --cluster to train on "
    "this machine"
)


def check_cluster(address: str) -> None:
    """Raises UsageError if no cluster answers at `address`. A host with a port is
    probed by a socket: Ray would retry for minutes. Only Ray can resolve "auto"; it
    answers at once."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    try:
        if colon and port.isdigit():
            with socket.create_connection((host, int(port)), CONNECT_SECONDS) as stream:
                stream.sendall(GREETING)
                stream.recv(1)
        else:
            with connected(address):
                pass
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"no Ray cluster at {address}: {error}; {HOW_TO_START}"
        ) from error
    except LabError as error:
        raise UsageError(str(error)) from error


@contextmanager
def connected(
    address: str, stopped: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """A connection to a running cluster. Raises LabError if there is none at `address`,
    and KeyboardInterrupt if `stopped` while it connects. The lab neither starts nor
    stops a cluster; it only disconnects."""
    if ray.is_initialized():
        yield
        return
    failures: list[Exception] = []

    def init() -> None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError, RayError) as error:
            failures.append(error)

    # In a thread that may be left behind: no signal reaches Python while Ray waits.
    # Only a main thread would get Ray's handler of SIGTERM, which ends the process at
    # once. Workers put the driver's folder first on their module path; files in it must
    # not replace modules there.
    connecting = Thread(target=init, daemon=True)
    with chdir("/"):
        connecting.start()
        wait_until(
            lambda: stopped() or not connecting.is_alive(), INIT_SECONDS, nap=0.1
        )
    if failures:
        reason = str(failures[0]).splitlines()[0]
        raise LabError(
            f"no Ray cluster at {address}: {reason}; {HOW_TO_START}"
        ) from failures[0]
    if stopped():
        raise KeyboardInterrupt
    if connecting.is_alive():
        raise LabError(f"no Ray cluster at {address}: no answer in {INIT_SECONDS:g} s")
    _take_signals_back()
    try:
        yield
    finally:
        ray.shutdown()
        _take_signals_back()


def _take_signals_back() -> None:
    """Installs Python's handlers again. Ray's C++ code replaces them with its own: at
    SIGTERM it prints a stack and aborts three seconds later. At the end it leaves the
    defaults."""
    if current_thread() is not main_thread():
        return
    for number in STOP_SIGNALS:
        signal.signal(number, signal.getsignal(number))


def size_of(address: str) -> tuple[float, float]:
    """All cores and GPUs of a cluster, free or used. Raises LabError if there is no
    cluster."""
    with connected(address):
        resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
        return float(resources.get("CPU", 0)), float(resources.get("GPU", 0))


def missing_resources(count: int, who: str, needs: Mapping[str, float]) -> str | None:
    """The resources that the whole cluster, free or used, lacks for `count` of `who`;
    None if it has enough."""
    resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
    for name, amount in needs.items():
        if resources.get(name, 0) < amount * count:
            return (
                f"{count} {who} need {amount * count:g} {name} of the Ray cluster, "
                f"which has {resources.get(name, 0):g}; add nodes, or lower "
                "max_session"
            )
    return None


def loss_reason(error: RayError) -> str:
    """The reason to report if a call to an actor fails because the actor is gone."""
    return f"its node or its process was lost: {str(error).strip().splitlines()[0]}"
