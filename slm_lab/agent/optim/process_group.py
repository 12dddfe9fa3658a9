"""Those who train one agent together in step with each other, as one of them sees the others."""

from abc import ABC, abstractmethod
from typing import final

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.core.types import FloatArray


class ProcessGroup(ABC):
    """W ranks, each with data of its own. All of them make the same calls in the same order.

    What comes out of a call is the same for all of them, to the last bit. A call waits for the
    others, for a bounded time: it raises PeerLostError where one of them does not come.
    """

    rank: int
    """From 0 to W − 1; this one's."""
    size: int
    """W."""
    seconds: float = 0.0
    """Spent so far on exchanging, and on waiting for the others."""

    @abstractmethod
    def all_gather_bytes(self, content: bytes) -> list[bytes]:
        """What each of them has given, by rank; of any length."""

    @abstractmethod
    def all_reduce_(self, vector: Tensor) -> None:
        """Replaces a float32 vector (P,) on the CPU by the sum over all."""

    def all_gather(self, numbers: FloatArray) -> FloatArray:
        """float64 numbers (K,) of each of them, (W, K); K is the same for all."""
        contents = self.all_gather_bytes(np.ascontiguousarray(numbers, np.float64).tobytes())
        return np.stack([np.frombuffer(content, np.float64) for content in contents])

    def all_gather_samples(self, samples: Tensor) -> Tensor:
        """The samples of all, float32 (B, ...), one after the other in the order of the ranks.

        B may differ.
        """
        own = samples.detach().cpu().contiguous()
        contents = self.all_gather_bytes(own.numpy().tobytes())
        parts = [torch.frombuffer(bytearray(c), dtype=own.dtype) for c in contents if c]
        return torch.cat(parts).view(-1, *own.shape[1:]).to(samples.device) if parts else samples

    def all_true(self, what: bool) -> bool:
        """Whether it is so for each of them."""
        return bool(self.all_gather(np.array([float(what)])).all())


@final
class SoloGroup(ProcessGroup):
    """Nobody else."""

    rank, size = 0, 1

    @override
    def all_gather_bytes(self, content: bytes) -> list[bytes]:
        """Its own."""
        return [content]

    @override
    def all_reduce_(self, vector: Tensor) -> None:
        """The vector as it is."""

    @override
    def all_gather_samples(self, samples: Tensor) -> Tensor:
        """The samples themselves."""
        return samples

    @override
    def all_true(self, what: bool) -> bool:
        return what
