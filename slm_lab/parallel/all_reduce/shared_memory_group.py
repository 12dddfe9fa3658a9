"""Collectives over shared memory, for ranks on one machine.

This beats a network library: two copies and a wait replace gloo's millisecond, see
docs/performance.md."""

import time
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.optim.process_group import ProcessGroup
from slm_lab.core.errors import PeerLostError
from slm_lab.parallel.shared_memory import into_shared_memory
from slm_lab.parallel.wait import wait_until

SLOT_BYTES = 1 << 20
"""Bytes of one rank's contribution per exchange; longer content goes in pieces."""
HEAD_BYTES = 8
"""Start of a slot: the length of the whole content, over all pieces."""
EAGER_SECONDS = 0.002
"""How long a waiting rank spins, yielding its core, before it sleeps."""
POLL_SECONDS = 0.0002


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
        own = np.frombuffer(content, np.uint8)
        parts: list[list[bytes]] = [[] for _ in range(self.size)]
        longest = 1
        first = 0
        while first < longest:
            slots = self._slots[self._exchanges % 2]
            piece = own[first : first + SLOT_BYTES]
            slots[self.rank, :HEAD_BYTES].view(np.int64)[0] = len(own)
            slots[self.rank, HEAD_BYTES : HEAD_BYTES + len(piece)] = piece
            self._wait_for_all()
            lengths = slots[:, :HEAD_BYTES].copy().view(np.int64)[:, 0]
            for rank, length in enumerate(lengths.tolist()):
                left = max(0, min(length - first, SLOT_BYTES))
                parts[rank].append(
                    slots[rank, HEAD_BYTES : HEAD_BYTES + left].tobytes()
                )
            longest = int(lengths.max())
            first = first + SLOT_BYTES
        self.seconds += time.perf_counter() - began
        return [b"".join(each) for each in parts]

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
