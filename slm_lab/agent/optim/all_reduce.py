"""Synchronous data parallel training: every step is one on the samples of all ranks."""

from typing import final

import numpy as np
import torch
from torch import Tensor

from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.peers import Peers
from slm_lab.agent.optim.sync import GradientSync


@final
class AllReduceSync(GradientSync):
    """Averages gradients before they are clipped: one sum over the flat vector per step.

    `share` is the part that this rank's samples are of those of all: with it the average is the
    gradient of the loss over all of them, however they are spread. It holds for the next training
    event; in those of which nothing is said all ranks have as many.
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._even_share = 1 / peers.size
        self._share = self.share = self._even_share

    def begin(self) -> None:
        """The share that was said holds from here on."""
        self._share, self.share = self.share, self._even_share

    def before_step(self, flat: FlatParameters) -> None:
        """The gradient becomes that of all; so every rank clips, and steps, alike."""
        grad = flat.grad.mul_(self._share)
        if grad.is_cpu:
            self._peers.sum_(grad)
        else:
            summed = grad.cpu()
            self._peers.sum_(summed)
            grad.copy_(summed)

    def stepped(self, flat: FlatParameters) -> tuple[Tensor, Tensor]:
        """The network's own: all ranks have the same."""
        return flat.vector, flat.grad

    def after_step(self, flat: FlatParameters) -> None:
        """Statistics become those of all before a target network follows them."""
        average_statistics(flat, self._peers)


def average_statistics(flat: FlatParameters, peers: Peers) -> None:
    """Makes the running statistics of a network the same on all ranks.

    Averages that decay (of batch normalisation) are linear in what they have seen, so that their
    mean is the average of the means. Running moments are made from the samples of all anyway.
    """
    if flat.statistics.numel() == sum(place.stop - place.start for place in flat.moments):
        return
    own = flat.statistics.cpu().numpy().astype(np.float64)
    mean = peers.exchanged(own).mean(0)
    for place in flat.moments:
        mean[place] = own[place]
    flat.statistics.copy_(torch.from_numpy(mean))


def broadcast(tensors: list[Tensor], peers: Peers) -> None:
    """Gives every rank the values of the first."""
    for tensor in tensors:
        if not tensor.numel():
            continue
        content = tensor.detach().cpu().contiguous().numpy().tobytes()
        first = bytearray(peers.all_of(content)[0])
        tensor.copy_(torch.frombuffer(first, dtype=tensor.dtype).view(tensor.shape))
