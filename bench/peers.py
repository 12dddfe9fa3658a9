"""What it costs two ranks to sum a gradient: in shared memory, and over gloo on the
same machine.

python -m bench.peers [--ranks 2] [--repeats 5]

Each rank is a separate process that does nothing else. So the exchange is measured, and
not the wait for a peer that still computes.
"""

import argparse
import socket
import statistics
import time
from multiprocessing.connection import Connection

import torch

from slm_lab.agent.optim.process_group import ProcessGroup
from slm_lab.parallel.all_reduce.process_groups import (
    GlooGroup,
    GroupBuffers,
    SharedMemoryGroup,
)
from slm_lab.parallel.fork_server import CONTEXT

LENGTHS = (9_000, 140_000, 1_700_000)
"""Parameters of [64, 64], of [256, 256] twice with an actor, and of a convolutional
net."""
SUMS = 200
SECONDS = 60.0


def rank_main(
    place: GroupBuffers,
    port: int,
    rank: int,
    ranks: int,
    repeats: int,
    queue: Connection,
) -> None:
    """One rank: sends the microseconds per sum, by kind and length."""
    torch.set_num_threads(1)
    kinds: dict[str, ProcessGroup] = {
        "shared memory": SharedMemoryGroup(place, rank, SECONDS),
        "gloo": GlooGroup("127.0.0.1", port, rank, ranks, SECONDS),
    }
    times: dict[tuple[str, int], list[float]] = {
        (k, n): [] for k in kinds for n in LENGTHS
    }
    for _ in range(repeats):
        for (kind, length), seen in times.items():
            vector = torch.zeros(length)
            kinds[kind].all_gather_bytes(b"")
            began = time.perf_counter()
            for _ in range(SUMS):
                kinds[kind].all_reduce_(vector)
            seen.append((time.perf_counter() - began) / SUMS * 1e6)
    queue.send({key: statistics.median(seen) for key, seen in times.items()})


def main() -> None:
    """Measures, and prints medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = GroupBuffers.of(arguments.ranks)
    ours, theirs = CONTEXT.Pipe(duplex=False)
    processes = [
        CONTEXT.Process(
            target=rank_main,
            args=(place, port, rank, arguments.ranks, arguments.repeats, theirs),
        )
        for rank in range(arguments.ranks)
    ]
    for process in processes:
        process.start()
    medians = ours.recv()
    for process in processes:
        process.join()
    print(f"one sum over {arguments.ranks} ranks, medians of {arguments.repeats}:")
    for (kind, length), microseconds in medians.items():
        print(f"  {kind:13} {length:9,} numbers {microseconds:9.1f} µs")


if __name__ == "__main__":
    main()
