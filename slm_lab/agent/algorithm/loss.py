"""Losses and the numbers reported beside them. Pure functions of (B,) tensors.

What a loss differentiates may be a node in place of a tensor. The gradients of nodes
are in `loss_nodes`; the formulas here are the reference."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn

from slm_lab.agent.algorithm import loss_nodes
from slm_lab.agent.algorithm.report import number
from slm_lab.agent.autodiff import Differentiable, Node
from slm_lab.agent.optim.rule import Number
from slm_lab.core.types import FloatArray

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
        self.each: ElementwiseLoss = kind(**arguments, reduction="none")
        """l"""
        self._mean = kind(**arguments, reduction="mean")
        written_out = loss_nodes.ELEMENTWISE.get(getattr(kind, "__name__", ""))
        self.node: loss_nodes.Elementwise | None = written_out and partial(
            written_out, **arguments
        )
        """l with its derivative, for nodes; None where it is not written out."""

    def __call__(
        self, prediction: Differentiable, target: Tensor, weight: Tensor | None = None
    ) -> Differentiable:
        """The scalar; `prediction`, `target` and `weight` are (B,)."""
        if isinstance(prediction, Node):
            assert self.node is not None
            return loss_nodes.value_loss_node(self.node, prediction, target, weight)
        if weight is None:
            return self._mean(prediction, target)
        return weighted_mean(self.each(prediction, target), weight)


_SQUARED_ERROR = ValueLoss(nn.MSELoss, {})


def weighted_mean(losses: Differentiable, weight: Tensor | None) -> Differentiable:
    """E[w l] over losses and weights, both (B,); without weights E[l]."""
    return losses.mean() if weight is None else (losses * weight).mean()


def policy_gradient_loss(log_prob: Differentiable, advantage: Tensor) -> Differentiable:
    """−E[log π(a|s) Â]: its gradient is the policy gradient, eq. 1 of arXiv:1506.02438.
    (B,)."""
    return -(log_prob * advantage).mean()


def with_entropy(
    loss: Differentiable, entropy: Differentiable, coef: Number
) -> Differentiable:
    """L − c S of scalars. At c = 0 it is L, so that the gradient of S takes no time."""
    is_zero = isinstance(coef, float) and coef == 0.0
    return loss if is_zero else loss - coef * entropy


class Surrogate(NamedTuple):
    """PPO's loss of a policy, and how far the policy is from π_old, from samples of
    π_old."""

    loss: Differentiable
    """−L^CLIP, eq. 7 of arXiv:1707.06347"""
    kl: Number
    """KL(π_old ‖ π) by the non-negative estimator k3 of Schulman, "Approximating KL
    divergence" (2020): the mean of (r − 1) − ln r"""
    clip_fraction: Number
    """The share of samples whose ratio r lies outside 1 ± ε"""


def clipped_surrogate(
    log_prob: Differentiable, old_log_prob: Tensor, advantage: Tensor, clip_eps: Number
) -> Surrogate:
    """With r = π_θ / π_θ_old; all tensors (B,). ln r is bounded to ± 20. Beyond e^88
    float32 has no ratio, and the gradient of a clipped sample would be 0 · ∞."""
    if isinstance(log_prob, Node):
        objective, log_ratios = loss_nodes.clipped_surrogate_node(
            log_prob, old_log_prob.numpy(), advantage.numpy(), float(clip_eps)
        )
        return Surrogate(objective, *policy_change(log_ratios, clip_eps))
    bound = loss_nodes.MAX_LOG_RATIO
    log_ratio = (log_prob - old_log_prob).clamp(-bound, bound)
    ratio = log_ratio.exp()
    range_: tuple[Any, Any] = (1 - clip_eps, 1 + clip_eps)
    gain, clipped_gain = ratio * advantage, ratio.clamp(*range_) * advantage
    change = policy_change(log_ratio.detach(), clip_eps)
    return Surrogate(-torch.min(gain, clipped_gain).mean(), *change)


def clipped_value_loss(
    value: Differentiable,
    old_value: Tensor,
    target: Tensor,
    clip_eps: Number,
    loss_fn: ValueLoss,
) -> Differentiable:
    """The value loss with no gain beyond ε of the old prediction. max(l(V, V^targ),
    l(V_old + clip(V − V_old, −ε, ε), V^targ)), as in the code released with
    arXiv:1707.06347. All tensors (B,)."""
    if isinstance(value, Node):
        node, clip = loss_fn.node, float(clip_eps)
        assert node is not None
        return loss_nodes.clipped_value_node(node, value, old_value, target, clip)
    range_: tuple[Any, Any] = (-clip_eps, clip_eps)
    clipped_value = old_value + (value - old_value).clamp(*range_)
    return torch.max(
        loss_fn.each(value, target), loss_fn.each(clipped_value, target)
    ).mean()


def standardize(advantage: Tensor, among: Tensor | None = None) -> Tensor:
    """(Â − mean) / std, (B,), with mean and std over `among` (A,), which includes them.
    One sample alone has no deviation and stays as it is."""
    among = advantage if among is None else among
    if among.numel() < 2:
        return advantage
    if not among.is_cpu or among.dtype != torch.float32 or advantage.requires_grad:
        std, mean = torch.std_mean(among)
        return (advantage - mean) / (std + 1e-8)
    center, scale = _mean_and_std(among)
    return torch.from_numpy(
        (advantage.numpy() - np.float32(center)) / np.float32(scale + 1e-8)
    )


def _mean_and_std(values: Tensor) -> tuple[float, float]:
    """Of at least two values on the CPU. A fifth of the time that torch takes."""
    of_all = values.numpy().ravel().astype(np.float64)
    mean = np.add.reduce(of_all) / of_all.size
    of_all -= mean
    return mean, math.sqrt(np.dot(of_all, of_all) / (of_all.size - 1))


def imitation_policy_loss(
    log_prob: Differentiable, advantage: Tensor, weight: Tensor | None
) -> Differentiable:
    """−E[w log π(a|s) (R − V)₊], eq. 2 of arXiv:1806.05635. All (B,), `advantage` = R −
    V."""
    return -weighted_mean(log_prob * advantage.clamp(min=0.0), weight)


def imitation_value_loss(
    value: Differentiable, target: Tensor, weight: Tensor | None
) -> Differentiable:
    """E[w ½ (R − V)₊²], eq. 3 of arXiv:1806.05635: values only rise. All (B,)."""
    if isinstance(value, Node):
        return loss_nodes.imitation_value_node(value, target, weight)
    return weighted_mean(0.5 * (target - value).clamp(min=0.0).square(), weight)


def entropy_change(entropy: Differentiable, old_log_prob: Tensor) -> Differentiable:
    """½ E[(H_π_old(s) − H_π(s))²], the entropy penalty of arXiv:2209.10081. All (B,).
    −log π_old(a|s) of the action taken stands for the old entropy: in the gradient,
    which is linear in it, an unbiased estimate."""
    return 0.5 * _SQUARED_ERROR(entropy, -old_log_prob)


def policy_change(
    log_ratio: Tensor | FloatArray, clip_eps: Number
) -> tuple[Number, Number]:
    """`Surrogate.kl` and `clip_fraction` from ln r, (B,)."""
    if isinstance(log_ratio, Tensor):
        change = log_ratio.expm1()  # unlike r − 1 exact for a small change
        return number((change - log_ratio).mean()), number(
            (change.abs() > clip_eps).float().mean()
        )
    changes, size = np.expm1(log_ratio), len(log_ratio)
    kl = float(np.add.reduce(changes - log_ratio)) / size
    return kl, np.count_nonzero(np.abs(changes) > clip_eps) / size


def explained_variance(value: Tensor, target: Tensor) -> float:
    """1 − Var(V^targ − V) / Var(V^targ); NaN where the targets do not vary. Both on the
    CPU."""
    _, std = _mean_and_std(target) if target.numel() > 1 else (0.0, 0.0)
    return 1 - (_mean_and_std(target - value)[1] / std) ** 2 if std else math.nan
