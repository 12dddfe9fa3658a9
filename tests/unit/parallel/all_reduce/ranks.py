"""Ranks as threads of one process."""

import threading
from unittest.mock import patch

from slm_lab.core.errors import PeerLostError
from slm_lab.parallel.all_reduce import process_groups as shared_peers
from slm_lab.parallel.all_reduce.process_groups import (
    GroupBuffers,
    SharedMemoryGroup,
)

SECONDS = 20.0
"""How long a rank waits at most for the others, and the test for a rank after that."""


def in_ranks(size, act, seconds=SECONDS):
    """What `act(group)` returns in each of `size` threads of one group, by rank.

    Raises the exception of a rank: the cause, rather than the timeout of its peers.
    """
    outcomes = outcomes_of(size, act, seconds)
    errors = [each for each in outcomes if isinstance(each, BaseException)]
    for error in sorted(errors, key=lambda each: isinstance(each, PeerLostError)):
        raise error
    return outcomes


def outcomes_of(size, act, seconds=SECONDS):
    """The same, with the exception of a rank that has raised one in the place of its
    result."""
    place = GroupBuffers.of(size)
    outcomes = [
        TimeoutError(f"rank {rank} has not come to an end") for rank in range(size)
    ]

    def run(rank):
        try:
            outcomes[rank] = act(SharedMemoryGroup(place, rank, seconds))
        except BaseException as error:
            outcomes[rank] = error

    # One thread that spins keeps the interpreter from those that it waits for.
    with patch.object(shared_peers, "EAGER_SECONDS", 0.0):
        threads = [
            threading.Thread(target=run, args=(rank,), daemon=True)
            for rank in range(size)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds + SECONDS)
    return outcomes
