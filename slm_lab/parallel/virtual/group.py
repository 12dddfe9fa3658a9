"""Ranks in virtual time: an exchange ends when the last has come."""

from typing import final

import numpy as np
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.optim.process_group import ProcessGroup
from slm_lab.parallel.virtual.pace import VirtualPace
from slm_lab.session.pace import EXCHANGE, NANO

CLOCK_BYTES = 8


@final
class VirtualGroup(ProcessGroup):
    """Makes the exchanges of `group`, and adds the clocks of the ranks to them. So the
    numbers equal the numbers in real time, bit for bit."""

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
