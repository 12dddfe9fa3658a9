"""The devices of networks."""

from typing import Literal

import torch

from slm_lab.core.errors import LabError

NO_GPU = 'torch sees no GPU here; use false or "auto"'


def assign_gpu(session: int) -> None:
    """Maps "cuda" to another GPU in the process of each Session, if there are several. Only for a
    process with a network there: it starts CUDA."""
    count = torch.cuda.device_count()
    if count > 1:
        torch.cuda.set_device(session % count)


def has_gpu() -> bool:
    """Whether torch sees a GPU."""
    return torch.cuda.is_available()


def resolve_device(gpu: bool | Literal["auto"]) -> torch.device:
    """The device for a spec's `gpu`: false, true, or "auto" (a GPU if there is one). Raises
    LabError where a GPU is required and missing."""
    if gpu is False:
        return torch.device("cpu")
    if has_gpu():
        return torch.device("cuda")
    if gpu is True:
        raise LabError(f"agent.net.gpu = true: {NO_GPU}")
    return torch.device("cpu")
