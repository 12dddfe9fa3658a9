"""Peers in processes of one machine, who meet in shared memory.

On one machine this beats a network library: what all_reduce of gloo takes a millisecond for
is two copies and a wait here (docs/performance.md has the figures).
"""

import os
import time
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from slm_lab.agent.optim.peers import Peers
from slm_lab.agent.optim.shared_memory import into_shared_memory
from slm_lab.core.errors import PeerLostError

SLOT_BYTES = 1 << 20
"""Room for what one of them gives at once; more than that goes in pieces."""
HEAD_BYTES = 8
"""At the beginning of a slot: the length of what is given, all pieces together."""
EAGER_SECONDS = 0.002
"""How long a waiting rank keeps its core, ready to go on at once."""
NAP_SECONDS = 0.0002
"""How long it sleeps between two looks afterwards."""


@dataclass(frozen=True)
class MeetingPlace:
    """The memory in which W ranks meet."""

    arrivals: Tensor
    """(W,) int64: how often each has come; each writes its own only"""
    slots: Tensor
    """(2, W, HEAD_BYTES + SLOT_BYTES) uint8: of even and of odd meetings.

    Who has come to a meeting has read everything of the one before, so that its slot of that one
    may be written over at the next: one wait per meeting is enough."""

    @classmethod
    def of(cls, size: int) -> "MeetingPlace":
        """For W = `size` ranks. Raises LabError where shared memory has no room for it."""
        slots = torch.zeros((2, size, HEAD_BYTES + SLOT_BYTES), dtype=torch.uint8)
        return cls(
            into_shared_memory(torch.zeros(size, dtype=torch.int64)), into_shared_memory(slots)
        )


@final
class SharedMemoryPeers(Peers):
    """One of those who meet at a place; `seconds` bound every wait.

    Waiting goes from spinning over yielding the core to short sleeps: ranks that outnumber the
    cores must let each other run.
    """

    def __init__(self, place: MeetingPlace, rank: int, seconds: float) -> None:
        self.rank = rank
        self.size = len(place.arrivals)
        self._arrivals = place.arrivals.numpy()
        self._slots = place.slots.numpy()
        self._floats = place.slots[:, :, HEAD_BYTES:].view(torch.float32)
        self._seconds = seconds
        self._meetings = int(self._arrivals[rank])

    def all_of(self, content: bytes) -> list[bytes]:
        """See `Peers`; in as many meetings as the longest content needs."""
        began = time.perf_counter()
        own = np.frombuffer(content, np.uint8)
        parts: list[list[bytes]] = [[] for _ in range(self.size)]
        longest, first = 1, 0
        while first < longest:
            slots = self._slots[self._meetings % 2]
            piece = own[first : first + SLOT_BYTES]
            slots[self.rank, :HEAD_BYTES].view(np.int64)[0] = len(own)
            slots[self.rank, HEAD_BYTES : HEAD_BYTES + len(piece)] = piece
            self._meet()
            lengths = slots[:, :HEAD_BYTES].copy().view(np.int64)[:, 0]
            for rank, length in enumerate(lengths.tolist()):
                left = max(0, min(length - first, SLOT_BYTES))
                parts[rank].append(slots[rank, HEAD_BYTES : HEAD_BYTES + left].tobytes())
            longest, first = int(lengths.max()), first + SLOT_BYTES
        self.seconds += time.perf_counter() - began
        return [b"".join(each) for each in parts]

    def sum_(self, vector: Tensor) -> None:
        """See `Peers`; each adds up all slots, in the order of the ranks."""
        began = time.perf_counter()
        for piece in torch.split(vector, SLOT_BYTES // 4):
            slots = self._floats[self._meetings % 2, :, : len(piece)]
            slots[self.rank].copy_(piece)
            self._meet()
            piece.copy_(slots[0])
            for rank in range(1, self.size):
                piece.add_(slots[rank])
        self.seconds += time.perf_counter() - began

    def _meet(self) -> None:
        """Waits until all have come as often as this one."""
        self._meetings += 1
        self._arrivals[self.rank] = self._meetings
        if self._arrivals.min() >= self._meetings:
            return
        began = time.perf_counter()
        waited = 0.0
        while self._arrivals.min() < self._meetings:
            waited = time.perf_counter() - began
            if waited > self._seconds:
                raise PeerLostError(self._missing())
            if waited > EAGER_SECONDS:
                time.sleep(NAP_SECONDS)
            else:
                os.sched_yield()

    def _missing(self) -> str:
        late = np.flatnonzero(self._arrivals < self._meetings).tolist()
        who = f"rank {late[0]}" if len(late) == 1 else f"ranks {', '.join(map(str, late))}"
        return f"rank {self.rank} waited {self._seconds:g} s for {who}, in vain"
