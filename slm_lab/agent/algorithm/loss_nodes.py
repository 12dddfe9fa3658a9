"""The losses of `loss.py` for nodes: each with its gradient written out."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from torch import Tensor

from slm_lab.agent.autodiff import Node
from slm_lab.core.types import FloatArray

MAX_LOG_RATIO = 20.0
"""Bound of |ln π − ln π_old|: far beyond any clip, far below an overflow."""


def clipped_surrogate_node(
    log_prob: Node, old_log_prob: FloatArray, advantage: FloatArray, clip_eps: float
) -> tuple[Node, FloatArray]:
    """The loss of `clipped_surrogate`, and bounded ln r. A sample has a gradient where
    the unclipped term is the smaller one: −r Â / B."""
    log_ratio = log_prob.array - old_log_prob
    # np.clip takes twice as long
    bounded = log_ratio.clip(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = np.exp(bounded)
    gain = ratio * advantage
    clipped_gain = ratio.clip(1 - clip_eps, 1 + clip_eps) * advantage
    size = len(gain)

    def vjp(grad: FloatArray) -> tuple[FloatArray]:
        counts = (gain <= clipped_gain) & (log_ratio == bounded)
        return (gain * counts * (-grad / size),)

    mean = np.add.reduce(np.minimum(gain, clipped_gain)) / size
    return Node(-mean, (log_prob,), vjp), bounded


Elementwise: TypeAlias = Callable[..., tuple[FloatArray, FloatArray]]
"""(prediction (B,), target (B,), arguments of the loss) to losses (B,) and their
derivatives by the prediction (B,)."""


def _squared_error(
    prediction: FloatArray, target: FloatArray
) -> tuple[FloatArray, FloatArray]:
    error = prediction - target
    return error * error, 2 * error


def _smooth_l1(
    prediction: FloatArray, target: FloatArray, beta: float = 1.0
) -> tuple[FloatArray, FloatArray]:
    """½ e² / β where |e| < β, else |e| − ½ β."""
    error = prediction - target
    slope = (error / beta).clip(-1.0, 1.0) if beta > 0 else np.sign(error)
    return slope * (error - 0.5 * beta * slope), slope


ELEMENTWISE: Mapping[str, Elementwise] = {
    "MSELoss": _squared_error,
    "SmoothL1Loss": _smooth_l1,
}
"""Losses of torch.nn that are written out, by name."""


def value_loss_node(
    each: Elementwise, prediction: Node, target: Tensor, weight: Tensor | None
) -> Node:
    """E[w l(prediction, target)]."""
    losses, slope = each(prediction.array, target.numpy())
    if weight is not None:
        losses, slope = losses * weight.numpy(), slope * weight.numpy()
    size = len(losses)
    mean = np.add.reduce(losses) / size
    return Node(mean, (prediction,), lambda grad: (slope * (grad / size),))


def clipped_value_node(
    each: Elementwise, value: Node, old_value: Tensor, target: Tensor, clip_eps: float
) -> Node:
    """`clipped_value_loss`. Where the clipped value counts and is at the clip, no
    gradient."""
    old = old_value.numpy()
    change = value.array - old
    losses, slope = each(value.array, target.numpy())
    clipped_losses, _ = each(old + np.clip(change, -clip_eps, clip_eps), target.numpy())
    counts = (losses >= clipped_losses) | (np.abs(change) <= clip_eps)
    size = len(losses)
    mean = np.add.reduce(np.maximum(losses, clipped_losses)) / size
    return Node(mean, (value,), lambda grad: (slope * counts * (grad / size),))


def imitation_value_node(value: Node, target: Tensor, weight: Tensor | None) -> Node:
    """`imitation_value_loss`."""
    gain = np.maximum(target.numpy() - value.array, 0)
    weighted = gain if weight is None else gain * weight.numpy()
    size = len(gain)
    mean = np.add.reduce(0.5 * weighted * gain) / size
    return Node(mean, (value,), lambda grad: (weighted * (-grad / size),))
