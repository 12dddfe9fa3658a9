"""The units in which a critic predicts: returns as they are, compressed, or
standardised."""

import torch
from torch import Tensor, nn

from slm_lab.agent.optim.flat import MOMENTS_WINDOW
from slm_lab.agent.optim.process_group import ProcessGroup


def symlog(x: Tensor) -> Tensor:
    """sign(x) ln(|x| + 1), eq. 9 of arXiv:2301.04104."""
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    """sign(x) (exp|x| − 1), the inverse of symlog."""
    return x.sign() * x.abs().expm1()


class ValueTransform(nn.Module):
    """Converts between returns and the critic's output: symlog first, then
    standardisation. The running mean and variance of the targets are buffers of the
    network, which are saved, shared and merged. They cover all targets up to a million.
    Then older targets fade, by a factor of e per further million."""

    def __init__(self, use_symlog: bool, normalize: bool) -> None:
        super().__init__()
        self._symlog = use_symlog
        self._normalize = normalize
        if normalize:
            self.register_buffer("count", torch.zeros(()))
            self.register_buffer("mean", torch.zeros(()))
            self.register_buffer("m2", torch.zeros(()))

    @torch.no_grad()
    def update(self, returns: Tensor, group: ProcessGroup) -> None:
        """Adds the returns of all peers to the running moments (Chan, Golub & LeVeque,
        1983). It computes in float64, as small batches move moments over many samples
        by little."""
        if not self._normalize:
            return
        returns = group.all_gather_samples(returns.flatten())
        x = (symlog(returns) if self._symlog else returns).double()
        count, mean, m2 = (moment.double() for moment in self._moments())
        # as `faded`, and a GPU is not waited for
        decay = (MOMENTS_WINDOW / count).clamp(max=1.0)
        count = decay * count
        m2 = decay * m2
        batch_count = x.numel()
        batch_mean = x.mean()
        total = count + batch_count
        delta = batch_mean - mean
        m2 += (
            x - batch_mean
        ).square().sum() + delta * delta * count * batch_count / total
        mean += delta * batch_count / total
        for moment, value in zip(self._moments(), (total, mean, m2), strict=True):
            moment.copy_(value)

    def encode(self, returns: Tensor) -> Tensor:
        """Returns to targets of the critic's output; any shape."""
        x = returns
        if self._symlog:
            x = symlog(returns)
        if self._normalize:
            _, mean, _ = self._moments()
            x = (x - mean) / self._std()
        return x

    def decode(self, output: Tensor) -> Tensor:
        """The critic's output to returns; any shape. Normalised ones are on the net's
        device."""
        x = output
        if self._normalize:
            _, mean, _ = self._moments()
            x = x.to(mean.device) * self._std() + mean
        if self._symlog:
            return symexp(x)
        return x

    def _moments(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.get_buffer("count"), self.get_buffer("mean"), self.get_buffer("m2")

    def _std(self) -> Tensor:
        count, _, m2 = self._moments()
        return torch.where(count < 2, torch.ones_like(m2), (m2 / count + 1e-8).sqrt())
