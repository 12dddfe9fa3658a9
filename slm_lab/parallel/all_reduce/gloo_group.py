"""Ranks on any machines that reach each other, over torch.distributed's gloo."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, final

import torch
from torch import Tensor
from torch.distributed import ProcessGroupGloo, TCPStore  # type: ignore[attr-defined]
from typing_extensions import override

from slm_lab.agent.optim.process_group import ProcessGroup
from slm_lab.core.errors import PeerLostError


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
                host, port, size, rank == 0, timeout=limit, master_listen_fd=listening
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
            own = torch.tensor([len(content)])
            lengths = [torch.zeros_like(own) for _ in range(self.size)]
            self._group.allgather([lengths], [own]).wait()
            counts = [int(length) for length in lengths]
            padded = torch.zeros(max(1, *counts), dtype=torch.uint8)
            if content:
                padded[: len(content)] = torch.frombuffer(
                    bytearray(content), dtype=torch.uint8
                )
            contents = [torch.empty_like(padded) for _ in range(self.size)]
            self._group.allgather([contents], [padded]).wait()
        return [
            one[:count].numpy().tobytes()
            for one, count in zip(contents, counts, strict=True)
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
