"""The devices of networks, and copies between them and the host."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from slm_lab.core.errors import LabError
from slm_lab.core.types import FloatArray

NO_GPU = 'torch sees no GPU here; use false or "auto"'


def assign_gpu(session: int) -> None:
    """Maps "cuda" to another GPU in the process of each Session, if there are several.
    Only for a process with a network there: it starts CUDA."""
    count = torch.cuda.device_count()
    if count > 1:
        torch.cuda.set_device(session % count)


def has_gpu() -> bool:
    """Whether torch sees a GPU."""
    return torch.cuda.is_available()


def resolve_device(gpu: bool | Literal["auto"]) -> torch.device:
    """The device for a spec's `gpu`: false, true, or "auto" (a GPU if there is one).
    Raises LabError where a GPU is required and missing."""
    if gpu is False:
        return torch.device("cpu")
    if has_gpu():
        return torch.device("cuda")
    if gpu is True:
        raise LabError(f"agent.net.gpu = true: {NO_GPU}")
    return torch.device("cpu")


def new_stream(device: torch.device, priority: int = 0) -> torch.cuda.Stream | None:
    """A separate stream for work on a GPU; None for another device."""
    if device.type != "cuda":
        return None
    return torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]


@contextmanager
def separate_stream(stream: torch.cuda.Stream | None) -> Iterator[None]:
    """Runs work on a GPU beside the work of other threads, after all that the current
    stream has so far. Later work on the current stream waits for it."""
    if stream is None:
        yield
        return
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(stream.device).wait_stream(stream)


def device_generator(device: torch.device, seed: int) -> torch.Generator:
    """A generator on `device` with this seed."""
    return torch.Generator(device).manual_seed(seed)


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on `device`. A GPU copies it from pinned memory while the host
    computes."""
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def host_arrays(tensors: Sequence[Tensor]) -> tuple[FloatArray, ...]:
    """Tensors (B, …) as arrays; from a GPU by one copy of all, for which the host
    waits."""
    if all(tensor.is_cpu for tensor in tensors):
        return tuple(tensor.numpy() for tensor in tensors)
    ends = np.cumsum([tensor.shape[-1] for tensor in tensors])
    return tuple(np.split(torch.cat(tuple(tensors), -1).cpu().numpy(), ends[:-1], -1))
