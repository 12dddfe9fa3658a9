"""Synchronous data-parallel training: every gradient step uses the samples of all
ranks."""

from typing import final

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.optimizer import GradientSync
from slm_lab.agent.optim.process_group import ProcessGroup
from slm_lab.session.pace import GRADIENT, STEP, Pace, network_kind


@final
class AllReduceSync(GradientSync):
    """Averages gradients before they are clipped: one all-reduce of the flat vector per
    step. `share` is this rank's share of all ranks' samples in the next training event.
    The average weighted by it is the gradient of the loss over all samples, however
    they are distributed. The default is an equal share for every rank."""

    def __init__(
        self, group: ProcessGroup, network: str = "net", pace: Pace | None = None
    ) -> None:
        self._group = group
        self._pace = pace or Pace()
        self._gradient = network_kind(GRADIENT, network)
        self._step = network_kind(STEP, network)
        self._even_share = 1 / group.size
        self._share = self.share = self._even_share

    @override
    def begin(self) -> None:
        self._share = self.share
        self.share = self._even_share

    @override
    def before_step(self, flat: FlatParameters) -> None:
        self._pace.passed(self._gradient)
        grad = flat.grad.mul_(self._share)
        if grad.is_cpu:
            self._group.all_reduce_(grad)
        else:
            summed = grad.cpu()
            self._group.all_reduce_(summed)
            grad.copy_(summed)
        self._pace.begin()

    @override
    def after_step(self, flat: FlatParameters) -> None:
        """Averages statistics over ranks before a target network copies them."""
        self._pace.passed(self._step)
        average_statistics(flat, self._group)
        self._pace.begin()


def average_statistics(flat: FlatParameters, group: ProcessGroup) -> None:
    """Makes a network's running statistics equal on all ranks. Decaying averages (of
    batch norm) are linear in the samples, so their mean is exact. Running moments
    already cover all ranks."""
    if flat.statistics.numel() == sum(
        place.stop - place.start for place in flat.moments
    ):
        return
    statistics = flat.statistics.cpu().numpy().astype(np.float64)
    mean = group.all_gather(statistics).mean(0)
    for place in flat.moments:
        mean[place] = statistics[place]
    flat.statistics.copy_(torch.from_numpy(mean))


def broadcast(tensors: list[Tensor], group: ProcessGroup) -> None:
    """Copies the first rank's values to every rank."""
    arrays = (
        [tensor.detach().cpu().numpy() for tensor in tensors] if group.rank == 0 else []
    )
    for tensor, first in zip(tensors, group.all_gather_arrays(arrays)[0], strict=True):
        tensor.copy_(torch.from_numpy(first))
