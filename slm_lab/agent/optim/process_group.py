"""Ranks that train one agent in step, as one of them sees the others."""

from abc import ABC, abstractmethod
from typing import final

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.core.types import FloatArray


class ProcessGroup(ABC):
    """W ranks with different data. All of them make the same calls in the same order. A call
    returns the same on all of them, to the last bit. It waits for the other ranks for a bounded
    time, and raises PeerLostError if one does not arrive."""

    rank: int
    """Of this process, from 0 to W − 1."""
    size: int
    """W."""
    seconds: float = 0.0
    """Time spent so far on exchanges and on waiting for the others."""

    @abstractmethod
    def all_gather_bytes(self, content: bytes) -> list[bytes]:
        """The contents of all ranks, by rank; of any length."""

    @abstractmethod
    def all_reduce_(self, vector: Tensor) -> None:
        """Replaces a float32 vector (P,) on the CPU by the sum over all."""

    def all_gather(self, numbers: FloatArray) -> FloatArray:
        """float64 numbers (K,) of every rank, (W, K); K is the same for all."""
        contents = self.all_gather_bytes(np.ascontiguousarray(numbers, np.float64).tobytes())
        return np.stack([np.frombuffer(content, np.float64) for content in contents])

    def all_gather_samples(self, samples: Tensor) -> Tensor:
        """The samples of all ranks, float32 (B, ...), one after the other by rank. B may differ."""
        own = samples.detach().cpu().contiguous()
        contents = self.all_gather_bytes(own.numpy().tobytes())
        parts = [torch.frombuffer(bytearray(c), dtype=own.dtype) for c in contents if c]
        return torch.cat(parts).view(-1, *own.shape[1:]).to(samples.device) if parts else samples

    def all_true(self, condition: bool) -> bool:
        """Whether the condition holds on every rank."""
        return bool(self.all_gather(np.array([float(condition)])).all())


@final
class SoloGroup(ProcessGroup):
    """A group of one."""

    rank, size = 0, 1

    @override
    def all_gather_bytes(self, content: bytes) -> list[bytes]:
        return [content]

    @override
    def all_reduce_(self, vector: Tensor) -> None:
        """The vector stays as it is."""

    @override
    def all_gather_samples(self, samples: Tensor) -> Tensor:
        return samples
