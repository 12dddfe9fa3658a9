"""Where a network lives."""

from typing import Literal

import torch

from slm_lab.core.errors import LabError

NO_GPU = 'torch sees no GPU here; use false or "auto"'


def take_turns(session: int) -> None:
    """Has "cuda" mean another GPU in the process of each Session, where there are several.

    For a process that has a network there: it starts CUDA.
    """
    count = torch.cuda.device_count()
    if count > 1:
        torch.cuda.set_device(session % count)


def sees_gpu() -> bool:
    """Whether there is one."""
    return torch.cuda.is_available()


def resolve_device(gpu: bool | Literal["auto"]) -> torch.device:
    """The device for a spec's `gpu`: false, true, or "auto" (a GPU where there is one).

    Raises LabError where a GPU is required and missing.
    """
    if gpu is False:
        return torch.device("cpu")
    if sees_gpu():
        return torch.device("cuda")
    if gpu is True:
        raise LabError(f"agent.net.gpu = true: {NO_GPU}")
    return torch.device("cpu")
