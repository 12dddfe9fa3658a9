"""Batch renormalisation (Ioffe, arXiv:1702.03275)."""

from typing import final

import torch
from torch import Tensor, nn
from typing_extensions import override

MAX_SCALE = 3.0
"""r_max of the paper: how far a batch's deviation may be corrected towards the running one."""
MAX_SHIFT = 5.0
"""d_max: how far its mean, in running deviations."""


@final
class BatchRenorm(nn.Module):
    """Normalises with the batch's moments, corrected towards the running ones.

    x̂ = (x − μ_B)/σ_B · r + d with r = σ_B/σ and d = (μ_B − μ)/σ, both clipped and constant for the
    gradient. During the first `warmup_steps` batches r = 1 and d = 0: plain batch normalisation.
    `momentum` is the weight of a new batch in the running moments. In evaluation mode the running
    moments alone count.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-3,
        momentum: float = 0.01,
        warmup_steps: int = 100_000,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.momentum = momentum
        self.warmup_steps = warmup_steps
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))
        self.register_buffer("num_batches", torch.zeros(()))  # a float, as all that is shared

    @override
    def forward(self, x: Tensor) -> Tensor:
        """(B, num_features, …) to the same; the moments of a feature are over all the rest."""
        if x.dim() == 2:
            return self._normalised(x)
        last = x.movedim(1, -1)  # of an image in channels_last, rows without a copy
        rows = self._normalised(last.reshape(-1, last.shape[-1]))
        return rows.view(last.shape).movedim(-1, 1)

    def _normalised(self, x: Tensor) -> Tensor:
        """(B, num_features) to the same."""
        mean, var, num_batches = (
            self.get_buffer(name) for name in ("running_mean", "running_var", "num_batches")
        )
        if not self.training:
            return self._affine((x - mean) * (var + self.eps).rsqrt())
        batch_var, batch_mean = torch.var_mean(x, 0, correction=0)
        deviation = (batch_var + self.eps).sqrt()
        normal = (x - batch_mean) / deviation
        with torch.no_grad():
            if num_batches.item() >= self.warmup_steps:
                running = (var + self.eps).sqrt()
                scale = (deviation / running).clamp(1 / MAX_SCALE, MAX_SCALE)
                shift = ((batch_mean - mean) / running).clamp(-MAX_SHIFT, MAX_SHIFT)
            else:
                scale, shift = torch.ones_like(mean), torch.zeros_like(mean)
            mean.lerp_(batch_mean, self.momentum)
            var.lerp_(batch_var, self.momentum)
            num_batches += 1
        return self._affine(normal * scale + shift)

    def _affine(self, normal: Tensor) -> Tensor:
        return normal * self.weight + self.bias
