"""Collectives of ranks: over shared memory on one machine, by gloo on a cluster, in
virtual time too.

Shared memory beats a network library: two copies and a wait replace gloo's millisecond,
see docs/performance.md."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from torch.distributed import ProcessGroupGloo, TCPStore  # type: ignore[attr-defined]
from typing_extensions import override

from slm_lab.agent.optim.process_group import ProcessGroup
from slm_lab.core.errors import PeerLostError
from slm_lab.parallel.shared_memory import into_shared_memory
from slm_lab.parallel.virtual.pace import VirtualPace
from slm_lab.parallel.wait import wait_until
from slm_lab.session.pace import EXCHANGE, NANO

SLOT_BYTES = 1 << 20
"""Bytes of one rank's contribution per exchange; longer content goes in pieces."""
HEAD_BYTES = 8
"""Start of a slot: the length of the whole content, over all pieces."""
EAGER_SECONDS = 0.002
"""How long a waiting rank spins, yielding its core, before it sleeps."""
POLL_SECONDS = 0.0002
CLOCK_BYTES = 8
"""Bytes of a rank's clock in virtual time."""


@dataclass(frozen=True)
class GroupBuffers:
    """The shared memory of W ranks."""

    arrivals: Tensor
    """(W,) int64: exchanges each rank has entered; each writes only its own"""
    slots: Tensor
    """(2, W, HEAD_BYTES + SLOT_BYTES) uint8: for even and for odd exchanges.

    A rank that enters an exchange has read all of the previous one. So the next one may
    overwrite those slots: one wait per exchange is enough."""

    @classmethod
    def of(cls, size: int) -> "GroupBuffers":
        """Buffers for W = `size` ranks. Raises LabError if shared memory has no
        room."""
        slots = torch.zeros((2, size, HEAD_BYTES + SLOT_BYTES), dtype=torch.uint8)
        arrivals = torch.zeros(size, dtype=torch.int64)
        return cls(into_shared_memory(arrivals), into_shared_memory(slots))


@final
class SharedMemoryGroup(ProcessGroup):
    """A rank in the shared `buffers`; `seconds` bounds every wait. A waiting rank first
    yields its core in a loop, then sleeps briefly. So ranks that outnumber the cores
    let each other run."""

    def __init__(self, buffers: GroupBuffers, rank: int, seconds: float) -> None:
        self.rank = rank
        self.size = len(buffers.arrivals)
        self._arrivals = buffers.arrivals.numpy()
        self._slots = buffers.slots.numpy()
        self._floats = buffers.slots[:, :, HEAD_BYTES:].view(torch.float32)
        self._seconds = seconds
        self._exchanges = int(self._arrivals[rank])

    @override
    def all_gather_bytes(self, content: bytes) -> list[bytes]:
        """Takes as many exchanges as the longest content needs."""
        began = time.perf_counter()
        payload = np.frombuffer(content, np.uint8)
        parts: list[list[bytes]] = [[] for _ in range(self.size)]
        longest = 1
        first = 0
        while first < longest:
            slots = self._slots[self._exchanges % 2]
            piece = payload[first : first + SLOT_BYTES]
            slots[self.rank, :HEAD_BYTES].view(np.int64)[0] = len(payload)
            slots[self.rank, HEAD_BYTES : HEAD_BYTES + len(piece)] = piece
            self._wait_for_all()
            lengths = slots[:, :HEAD_BYTES].copy().view(np.int64)[:, 0]
            for rank, length in enumerate(lengths.tolist()):
                count = max(0, min(length - first, SLOT_BYTES))
                parts[rank].append(
                    slots[rank, HEAD_BYTES : HEAD_BYTES + count].tobytes()
                )
            longest = int(lengths.max())
            first = first + SLOT_BYTES
        self.seconds += time.perf_counter() - began
        return [b"".join(chunks) for chunks in parts]

    @override
    def all_reduce_(self, vector: Tensor) -> None:
        """Each rank sums all slots, in the order of the ranks."""
        began = time.perf_counter()
        for piece in torch.split(vector, SLOT_BYTES // 4):
            slots = self._floats[self._exchanges % 2, :, : len(piece)]
            slots[self.rank].copy_(piece)
            self._wait_for_all()
            piece.copy_(slots[0])
            for rank in range(1, self.size):
                piece.add_(slots[rank])
        self.seconds += time.perf_counter() - began

    def _wait_for_all(self) -> None:
        self._exchanges += 1
        self._arrivals[self.rank] = self._exchanges

        def have_arrived() -> bool:
            return bool(self._arrivals.min() >= self._exchanges)

        if wait_until(have_arrived, self._seconds, POLL_SECONDS, EAGER_SECONDS):
            return
        late = ", ".join(map(str, np.flatnonzero(self._arrivals < self._exchanges)))
        what = f"rank {late}" if late.isdecimal() else f"ranks {late}"
        raise PeerLostError(
            f"{what} did not arrive within {self._seconds:g} s (rank {self.rank} "
            "waited)"
        )


def exchange_seconds(num_ranks: int, num_floats: int, repeats: int) -> list[float]:
    """The seconds that a rank takes for each of `repeats` sums of (`num_floats`,) over
    `num_ranks` ranks. It waits for no other rank. Raises LabError without room in
    shared memory."""
    buffers = GroupBuffers.of(num_ranks)
    group = SharedMemoryGroup(buffers, 0, seconds=0.0)
    buffers.arrivals[1:] = np.iinfo(np.int64).max
    vector = torch.zeros(num_floats)
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        group.all_reduce_(vector)
        seconds.append(time.perf_counter() - began)
    return seconds


@final
class GlooGroup(ProcessGroup):
    """A gloo process group with its store at `host`:`port`, the only address rank 0
    listens at. `own_ip` is the address at which the peers reach this rank. `seconds`
    bounds every wait, including the wait for the peers to connect. A peer's death
    breaks its connections and is noticed at once. Raises PeerLostError for either."""

    def __init__(
        self,
        host: str,
        port: int,
        rank: int,
        size: int,
        seconds: float,
        own_ip: str = "127.0.0.1",
    ) -> None:
        self.rank = rank
        self.size = size
        limit = timedelta(seconds=seconds)
        with self._timed():
            # By default the store would listen at every address of the machine.
            listening = None
            if rank == 0:
                family = socket.AF_INET
                if ":" in host:
                    family = socket.AF_INET6
                server = socket.create_server((host, port), family=family, backlog=size)
                listening = server.detach()
            store = TCPStore(
                host,
                port,
                size,
                rank == 0,
                timeout=limit,
                master_listen_fd=listening,
                use_libuv=False,  # torch 2.4 would crash on a given socket
            )
            options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
            options._timeout = limit
            # Else gloo uses whatever interface the host name resolves to.
            options._devices = [ProcessGroupGloo.create_device(hostname=own_ip)]
            self._group: Any = ProcessGroupGloo(store, rank, size, options)

    @override
    def all_gather_bytes(self, content: bytes) -> list[bytes]:
        """Exchanges the lengths, then the contents, padded to the longest."""
        with self._timed():
            own_length = torch.tensor([len(content)])
            lengths = [torch.zeros_like(own_length) for _ in range(self.size)]
            self._group.allgather([lengths], [own_length]).wait()
            counts = [int(length) for length in lengths]
            padded = torch.zeros(max(1, *counts), dtype=torch.uint8)
            if content:
                padded[: len(content)] = torch.frombuffer(
                    bytearray(content), dtype=torch.uint8
                )
            contents = [torch.empty_like(padded) for _ in range(self.size)]
            self._group.allgather([contents], [padded]).wait()
        return [
            buffer[:count].numpy().tobytes()
            for buffer, count in zip(contents, counts, strict=True)
        ]

    @override
    def all_reduce_(self, vector: Tensor) -> None:
        with self._timed():
            self._group.allreduce([vector]).wait()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Counts the time of an exchange; converts its errors to PeerLostError."""
        began = time.perf_counter()
        try:
            yield
        except (RuntimeError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise PeerLostError(f"rank {self.rank} lost its peers: {reason}") from error
        self.seconds += time.perf_counter() - began


@final
class VirtualGroup(ProcessGroup):
    """The exchanges of `group` in virtual time: one ends when the last rank has come.
    The clocks of the ranks are added to them. So the numbers equal the numbers in real
    time, bit for bit."""

    def __init__(self, group: ProcessGroup, pace: VirtualPace) -> None:
        self._group = group
        self._pace = pace
        self.rank = group.rank
        self.size = group.size

    @override
    def all_gather_bytes(self, content: bytes) -> list[bytes]:
        contents = self._group.all_gather_bytes(self._own_clock() + content)
        self._meet([_clock_of(message) for message in contents])
        return [message[CLOCK_BYTES:] for message in contents]

    @override
    def all_reduce_(self, vector: Tensor) -> None:
        self._group.all_reduce_(vector)
        messages = self._group.all_gather_bytes(self._own_clock())
        self._meet([_clock_of(message) for message in messages], len(vector))

    @override
    def barrier(self) -> None:
        self._group.barrier()

    @override
    def take_back(self) -> None:
        self.seconds -= self._pace.take_back_meeting() / NANO

    def _own_clock(self) -> bytes:
        return self._pace.clock()[:1].astype(np.int64).tobytes()

    def _meet(self, clocks: list[int], numbers: int = 0) -> None:
        self.seconds += self._pace.meet(clocks, EXCHANGE, numbers) / NANO


def _clock_of(message: bytes) -> int:
    return int(np.frombuffer(message[:CLOCK_BYTES], np.int64)[0])
