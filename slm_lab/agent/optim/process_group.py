"""Ranks that train one agent in step, as one of them sees the others."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.core.types import Array, FloatArray


class ProcessGroup(ABC):
    """W ranks with different data. All of them make the same calls in the same order. A
    call returns the same on all of them, to the last bit. It waits for the other ranks
    for a bounded time, and raises PeerLostError if one does not arrive."""

    rank: int
    """The rank of this process, from 0 to W − 1."""
    size: int
    """W, the number of ranks."""
    seconds: float = 0.0
    """Time spent so far on exchanges and on waiting for the others."""

    @abstractmethod
    def all_gather_bytes(self, content: bytes) -> list[bytes]:
        """The contents of all ranks, by rank; of any length."""

    @abstractmethod
    def all_reduce_(self, vector: Tensor) -> None:
        """Replaces a float32 vector (P,) on the CPU by the sum over all."""

    def barrier(self) -> None:
        """Waits until all ranks have come here. It takes no virtual time."""
        self.all_gather_bytes(b"")

    def take_back(self) -> None:
        """Makes the last exchange, and the wait for it, take no virtual time: its only
        reason is a checkpoint. In real time nothing happens."""

    def all_gather_arrays(self, arrays: Sequence[Array]) -> list[list[Array]]:
        """The arrays of every rank, by rank; their number, types and shapes may differ.
        Nothing is unpickled: whoever reaches the port of a group could send code.
        Raises ValueError at an array of Python objects."""
        return [
            _unpacked(content) for content in self.all_gather_bytes(_packed(arrays))
        ]

    def all_gather(self, numbers: FloatArray) -> FloatArray:
        """float64 numbers (K,) of every rank, (W, K); K is the same for all."""
        contents = self.all_gather_bytes(
            np.ascontiguousarray(numbers, np.float64).tobytes()
        )
        return np.stack([np.frombuffer(content, np.float64) for content in contents])

    def all_gather_samples(self, samples: Tensor) -> Tensor:
        """The samples of all ranks, float32 (B, ...), one after the other by rank. B
        may differ."""
        parts = self.all_gather_arrays([samples.detach().cpu().numpy()])
        return torch.cat([torch.from_numpy(part) for (part,) in parts]).to(
            samples.device
        )

    def all_true(self, condition: bool) -> bool:
        """Whether the condition holds on every rank."""
        return bool(self.all_gather(np.array([condition], np.float64)).all())


def _packed(arrays: Sequence[Array]) -> bytes:
    """A line of JSON with types and shapes, then the values."""
    if any(array.dtype.hasobject for array in arrays):
        raise ValueError("an array of Python objects cannot be sent to other ranks")
    head = json.dumps([(array.dtype.str, array.shape) for array in arrays])
    return b"".join([head.encode(), b"\n", *(array.tobytes() for array in arrays)])


def _unpacked(content: bytes) -> list[Array]:
    head, _, values = content.partition(b"\n")
    arrays = list[Array]()
    start = 0
    for name, shape in json.loads(head):
        dtype = np.dtype(name)
        stop = start + dtype.itemsize * math.prod(shape)
        # bytearray makes a copy that is aligned and, unlike bytes, may be written to.
        arrays.append(
            np.frombuffer(bytearray(values[start:stop]), dtype).reshape(shape)
        )
        start = stop
    return arrays


@final
class SoloGroup(ProcessGroup):
    """A group of one."""

    rank = 0
    size = 1

    @override
    def all_gather_bytes(self, content: bytes) -> list[bytes]:
        return [content]

    @override
    def all_reduce_(self, vector: Tensor) -> None:
        pass

    @override
    def all_gather_samples(self, samples: Tensor) -> Tensor:
        return samples
