"""Frames of a replay memory on the device of the networks, which then copies no
batches."""

from typing import final

import numpy as np
import torch
from torch import Tensor

from slm_lab.agent.device import moved
from slm_lab.core.errors import LabError
from slm_lab.core.types import Array, IntArray


@final
class DeviceRows:
    """Rows on a device, in place of an array of rows. They are written and saved as
    arrays, and sampled as tensors there. Raises LabError if the device has no memory
    for them."""

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[np.generic],
        device: torch.device | None,
    ) -> None:
        numbers = torch.from_numpy(np.zeros(0, dtype))
        try:
            self._rows = numbers.new_zeros(shape, device=device)
        except RuntimeError as error:
            size = numbers.itemsize * np.prod(shape, dtype=float) / 1e6
            raise LabError(
                f'agent.memory.storage = "device": {device or "cpu"} has no memory for '
                f'{size:,.1f} MB; lower agent.memory.max_size, or use "memory"'
            ) from error

    def __setitem__(self, where: slice | IntArray, rows: Array) -> None:
        place = where if isinstance(where, slice) else torch.from_numpy(where)
        self._rows[place] = moved(torch.from_numpy(rows), self._rows.device)

    def __getitem__(self, where: slice | IntArray) -> Array:
        rows = self._rows[
            where if isinstance(where, slice) else torch.from_numpy(where)
        ]
        array: Array = rows.cpu().numpy()
        return array

    def take(self, indices: IntArray) -> Tensor:
        """The rows at `indices`, of any shape and counted from either end, modulo their
        number."""
        place = torch.from_numpy(indices % len(self._rows))
        return self._rows[moved(place, self._rows.device)]


def put(stacks: Array | Tensor, place: tuple[int | slice, ...], frames: Array) -> None:
    """Copies frames into an array, or into a tensor on a device."""
    if isinstance(stacks, Tensor):
        stacks[place] = moved(torch.from_numpy(frames), stacks.device)
    else:
        stacks[place] = frames
