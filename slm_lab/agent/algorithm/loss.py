"""Losses and the numbers reported beside them. Pure functions of (B,) tensors."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from slm_lab.agent.algorithm.report import moments, number

ElementwiseLoss = Callable[[Tensor, Tensor], Tensor]
"""(prediction (B,), target (B,)) to losses (B,): a torch loss with reduction "none"."""


@final
class ValueLoss:
    """The loss of value predictions: E[w l(prediction, target)] with l a loss of
    torch.nn. Without weights torch averages inside the loss, which saves one operation
    in the forward pass and one in the backward. Raises what `kind` raises for arguments
    that it does not take."""

    def __init__(
        self, kind: Callable[..., ElementwiseLoss], arguments: Mapping[str, Any]
    ) -> None:
        self.elementwise: ElementwiseLoss = kind(**arguments, reduction="none")
        """The loss l of each sample."""
        self._mean = kind(**arguments, reduction="mean")

    def __call__(
        self, prediction: Tensor, target: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """The scalar; `prediction`, `target` and `weight` are (B,)."""
        if weight is None:
            return self._mean(prediction, target)
        return weighted_mean(self.elementwise(prediction, target), weight)


_SQUARED_ERROR = ValueLoss(nn.MSELoss, {})


def weighted_mean(losses: Tensor, weight: Tensor | None) -> Tensor:
    """E[w l] over losses and weights, both (B,); without weights E[l]."""
    if weight is None:
        return losses.mean()
    return (losses * weight).mean()


def policy_gradient_loss(
    log_prob: Tensor, advantage: Tensor, weight: Tensor | None = None
) -> Tensor:
    """−E[w log π(a|s) Â]: its gradient is the policy gradient, eq. 1 of
    arXiv:1506.02438. All (B,)."""
    return -weighted_mean(log_prob * advantage, weight)


def with_entropy(loss: Tensor, entropy: Tensor, coef: float | Tensor) -> Tensor:
    """L − c S of scalars. At c = 0 it is L, so that the gradient of S takes no time."""
    is_zero = isinstance(coef, float) and coef == 0.0
    if is_zero:
        return loss
    return loss - coef * entropy


MAX_LOG_RATIO = 20.0
"""Bound of |ln π − ln π_old|: far beyond any clip, far below an overflow."""


class Surrogate(NamedTuple):
    """PPO's loss of a policy, and how far the policy is from π_old, from samples of
    π_old."""

    loss: Tensor
    """−L^CLIP, eq. 7 of arXiv:1707.06347"""
    kl: float | Tensor
    """KL(π_old ‖ π) by the non-negative estimator k3 of Schulman, "Approximating KL
    divergence" (2020): the mean of (r − 1) − ln r"""
    clip_fraction: float | Tensor
    """The share of samples whose ratio r lies outside 1 ± ε"""


def clipped_surrogate(
    log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, clip_eps: float | Tensor
) -> Surrogate:
    """The clipped surrogate objective, with r = π_θ / π_θ_old. All tensors are (B,).
    ln r is bounded to ± 20. Beyond e^88 float32 has no ratio, and the gradient of a
    clipped sample would be 0 · ∞."""
    log_ratio = (log_prob - old_log_prob).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = log_ratio.exp()
    range_: tuple[Any, Any] = (1 - clip_eps, 1 + clip_eps)
    gain = ratio * advantage
    clipped_gain = ratio.clamp(*range_) * advantage
    kl, clip_fraction = policy_change(log_ratio.detach(), clip_eps)
    return Surrogate(-torch.min(gain, clipped_gain).mean(), kl, clip_fraction)


def clipped_value_loss(
    value: Tensor,
    old_value: Tensor,
    target: Tensor,
    clip_eps: float | Tensor,
    loss_fn: ValueLoss,
) -> Tensor:
    """The value loss with no gain beyond ε of the old prediction. max(l(V, V^targ),
    l(V_old + clip(V − V_old, −ε, ε), V^targ)), as in the code released with
    arXiv:1707.06347. All tensors (B,)."""
    range_: tuple[Any, Any] = (-clip_eps, clip_eps)
    clipped_value = old_value + (value - old_value).clamp(*range_)
    losses = loss_fn.elementwise(value, target)
    return torch.max(losses, loss_fn.elementwise(clipped_value, target)).mean()


def standardize(advantage: Tensor, among: Tensor | None = None) -> Tensor:
    """(Â − mean) / std, (B,), with mean and std over `among` (A,), which includes them.
    One sample alone has no deviation and stays as it is."""
    among = advantage if among is None else among
    if among.numel() < 2:
        return advantage
    mean, std = moments(among)
    return (advantage - mean) / (std + 1e-8)


def imitation_value_loss(
    value: Tensor, target: Tensor, weight: Tensor | None
) -> Tensor:
    """E[w ½ (R − V)₊²], eq. 3 of arXiv:1806.05635: values only rise. All (B,)."""
    return weighted_mean(0.5 * (target - value).clamp(min=0.0).square(), weight)


def entropy_change(entropy: Tensor, old_log_prob: Tensor) -> Tensor:
    """½ E[(H_π_old(s) − H_π(s))²], the entropy penalty of arXiv:2209.10081. All (B,).
    −log π_old(a|s) of the action taken stands for the old entropy. The gradient is
    linear in the old entropy, so this estimate of it is unbiased."""
    return 0.5 * _SQUARED_ERROR(entropy, -old_log_prob)


def policy_change(
    log_ratio: Tensor, clip_eps: float | Tensor
) -> tuple[float | Tensor, float | Tensor]:
    """`Surrogate.kl` and `clip_fraction` from ln r, (B,)."""
    change = log_ratio.expm1()  # unlike r − 1 exact for a small change
    kl = (change - log_ratio).mean()
    clip_fraction = (change.abs() > clip_eps).float().mean()
    return number(kl), number(clip_fraction)


class TopHalf(NamedTuple):
    """D̃ of arXiv:1909.12238: the larger half of a batch's advantages, tempered by η.
    All are scalars."""

    least: Tensor
    """The least advantage in D̃"""
    size: Tensor
    """|D̃|; more than half where several advantages equal the least"""
    log_sum: Tensor
    """log Σ_D̃ ρ exp(Â/η), with a gradient to η"""


def top_half(advantage: Tensor, log_rho: Tensor, eta: Tensor) -> TopHalf:
    """D̃ among advantages (N,) whose samples count exp(`log_rho`) times, (N,). Of an odd
    number the middle one belongs to it."""
    least = advantage.topk((advantage.numel() + 1) // 2).values[-1]
    is_inside = advantage >= least
    tempered = (advantage / eta + log_rho).masked_fill(~is_inside, -math.inf)
    return TopHalf(least, is_inside.sum(), tempered.logsumexp(0))


def target_weights(
    advantage: Tensor, log_rho: Tensor, eta: Tensor, top: TopHalf
) -> Tensor:
    """ψ = ρ exp(Â/η) / Σ_D̃ ρ exp(Â/η) within D̃ and 0 elsewhere, (B,): the
    E-step of arXiv:1909.12238. They are constants for the policy. `advantage` and
    `log_rho` (B,) are all samples of D̃'s batch, or some."""
    weight = (advantage / eta + log_rho - top.log_sum).detach().exp()
    return torch.where(advantage >= top.least, weight, 0.0)


def temperature_loss(eta: Tensor, bound: float, top: TopHalf) -> Tensor:
    """η ε_η + η log mean_D̃ ρ exp(Â/η), L_η of arXiv:1909.12238. The ψ of its minimum
    are ε_η nats away from equal weights."""
    return eta * (bound + top.log_sum - top.size.log())


def kl_penalty(kl: Tensor, multiplier: Tensor) -> Tensor:
    """Σ_k α_k KL_k, the policy's part of L_α in arXiv:1909.12238, from K mean
    divergences and their multipliers, both (K,)."""
    return (multiplier.detach() * kl).sum()


def multiplier_loss(multiplier: Tensor, kl: Tensor, bounds: Sequence[float]) -> Tensor:
    """Σ_k α_k (ε_k − KL_k), the multipliers' part of L_α in arXiv:1909.12238. α_k
    rises while KL_k is above its bound. `multiplier` and `kl` are (K,)."""
    terms = zip(multiplier, kl.detach(), bounds, strict=True)
    return sum(
        (alpha * (bound - part) for alpha, part, bound in terms), kl.new_zeros(())
    )


def explained_variance(value: Tensor, target: Tensor) -> float:
    """1 − Var(V^targ − V) / Var(V^targ); NaN where the targets do not vary. Both on the
    CPU."""
    _, std = moments(target) if target.numel() > 1 else (0.0, 0.0)
    if std:
        return float(1 - (moments(target - value)[1] / std) ** 2)
    return math.nan
