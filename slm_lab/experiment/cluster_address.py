"""Whether there is a Ray cluster where a spec says; without Ray, and before a run has a folder."""

import socket

from slm_lab.core.errors import UsageError

CONNECT_SECONDS = 10.0
"""How long a cluster may take to answer."""
HOW_TO_START = (
    "start one (ray start --head), or remove meta.cluster and --cluster to train on this machine"
)


def check_cluster(address: str | None) -> None:
    """Raises UsageError where nobody listens at host:port; Ray itself would ask again for minutes.

    Where "auto" leads to is known to Ray alone.
    """
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"there is no Ray cluster at {address}: {error}; {HOW_TO_START}"
        ) from error
