"""Weights that one process publishes and others read, without a lock.

Two buffers are written in turn. If the writer starts to overwrite a buffer while a
reader copies it, the reader copies again. It never returns a mixture of old and new."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import torch
from torch import Tensor

from slm_lab.agent.optim.flat import FlatParameters, SavedLayout
from slm_lab.core.errors import PeerLostError
from slm_lab.core.state import SavedFields
from slm_lab.core.types import FloatArray

MAX_TRIES = 1000
"""How often a reader retries: far more often than a writer can overtake it."""


class Weights(NamedTuple):
    """A copy of published weights, to send to processes that do not share the
    memory."""

    vector: FloatArray
    """(P,) float32"""
    statistics: FloatArray
    """(S,) float64"""
    version: int


@final
@dataclass(frozen=True)
class WeightStore(SavedFields):
    """A learner's newest weights, with the running statistics of all environments."""

    saved: ClassVar = {
        "vectors": "vectors",
        "statistics": "statistics",
        "versions": "versions",
        "counts": "counts",
    }

    vectors: Tensor
    """(2, P) float32: parameters and running statistics of all networks,
    concatenated"""
    statistics: Tensor
    """(2, S) float64: the environments' statistics"""
    versions: Tensor
    """(2,) int64: policy version in each buffer"""
    counts: Tensor
    """(2,) int64: publications started, and completed; only the publisher writes
    them"""

    @classmethod
    def of(
        cls,
        networks: Mapping[str, FlatParameters],
        num_statistics: int,
        place: Callable[[Tensor], Tensor] = torch.clone,
    ) -> "WeightStore":
        """An empty store for `networks`; `place` moves tensors into shared memory."""
        size = sum(len(vector) for vector in _vectors(networks))
        return cls(
            place(torch.zeros((2, size))),
            place(torch.zeros((2, num_statistics), dtype=torch.float64)),
            place(torch.zeros(2, dtype=torch.int64)),
            place(torch.zeros(2, dtype=torch.int64)),
        )

    @property
    def count(self) -> int:
        """Completed publications."""
        return int(self.counts[1])

    @torch.no_grad()
    def publish(
        self,
        networks: Mapping[str, FlatParameters],
        statistics: FloatArray,
        version: int,
    ) -> None:
        """Publishes weights and statistics (S,); networks may be on any device."""
        with self._writing() as here:
            start = 0
            for vector in _vectors(networks):
                self.vectors[here, start : start + len(vector)].copy_(vector)
                start += len(vector)
            self.statistics[here].copy_(torch.from_numpy(statistics))
            self.versions[here] = version

    def newest(self) -> Weights:
        """A copy of the newest weights; only for the publisher, which is never
        overtaken."""
        here = self.count % 2
        vector = self.vectors[here].numpy()
        statistics = self.statistics[here].numpy()
        return Weights(vector.copy(), statistics.copy(), int(self.versions[here]))

    def relay(self, weights: Weights) -> None:
        """Publishes weights received from another store; their arrays may be
        read-only."""
        with self._writing() as here:
            self.vectors.numpy()[here] = weights.vector
            self.statistics.numpy()[here] = weights.statistics
            self.versions[here] = weights.version

    @contextmanager
    def _writing(self) -> Iterator[int]:
        count = self.count + 1
        self.counts[0] = count
        yield count % 2
        self.counts[1] = count

    @torch.no_grad()
    def take(
        self, networks: Mapping[str, FlatParameters], statistics: FloatArray
    ) -> int:
        """Copies the newest weights into networks and statistics (S,); returns their
        version. Raises PeerLostError if every copy is overtaken by a publication."""
        for _ in range(MAX_TRIES):
            count = self.count
            here = count % 2
            start = 0
            for vector in _vectors(networks):
                vector.copy_(self.vectors[here, start : start + len(vector)])
                start += len(vector)
            statistics[:] = self.statistics[here].numpy()
            version = int(self.versions[here])
            # else this buffer is being overwritten
            if int(self.counts[0]) <= count + 1:
                return version
        raise PeerLostError(
            f"published weights changed {MAX_TRIES} times while they were read"
        )

    @torch.no_grad()
    def rearrange(
        self,
        networks: Mapping[str, FlatParameters],
        layouts: Mapping[str, SavedLayout],
    ) -> None:
        """Puts restored weights into the order of now; `layouts` are the layouts that
        the networks had then."""
        start = 0
        for name, flat in networks.items():
            vectors = self.vectors[:, start : start + len(flat.vector)]
            order = flat.layout.order_of(layouts[name])
            if order is not None:
                vectors.copy_(vectors[:, order.entries])
            start += len(flat.vector) + len(flat.statistics)


def _vectors(networks: Mapping[str, FlatParameters]) -> list[Tensor]:
    return [
        vector
        for flat in networks.values()
        for vector in (flat.vector, flat.statistics)
    ]
