"""Ranks that exchange over gloo."""

import socket
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from slm_lab.core.errors import PeerLostError
from slm_lab.parallel.all_reduce.process_groups import GlooGroup

HOST = "127.0.0.1"


def free_port():
    with socket.create_server((HOST, 0)) as free:
        return free.getsockname()[1]


def addresses():
    """Where this process listens."""
    connections = psutil.Process().net_connections("tcp")
    return {c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN}


def test_ranks_listen_only_at_their_own_address_and_reach_each_other():
    """Not at every address of the machine, as the store of torch does by default."""
    before = addresses()
    port = free_port()
    with ThreadPoolExecutor(2) as threads:
        group = list(
            threads.map(
                lambda rank: GlooGroup(
                    host=HOST, port=port, rank=rank, size=2, seconds=30
                ),
                range(2),
            )
        )
        assert addresses() - before <= {HOST}
        assert HOST in addresses()
        received = list(
            threads.map(
                lambda each: each.all_gather_bytes(f"rank {each.rank}".encode()), group
            )
        )
    assert received == [[b"rank 0", b"rank 1"]] * 2


def test_an_address_that_is_taken_is_reported_as_such():
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PeerLostError, match=r"rank 0 lost its peers: .*in use"):
            GlooGroup(host=HOST, port=port, rank=0, size=1, seconds=5)
