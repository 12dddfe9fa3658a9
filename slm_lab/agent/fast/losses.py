"""The losses of `algorithm.loss` by NumPy, each with its gradient written out."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from torch import Tensor, nn

from slm_lab.agent.algorithm.loss import MAX_LOG_RATIO, ValueLoss
from slm_lab.core.types import FloatArray


class Term(NamedTuple):
    """A term of a loss."""

    value: np.float32
    backward: Callable[[np.float32], FloatArray]
    """Maps the gradient of the term to the gradient of the prediction, (B,) or (B,
    K)."""


def clipped_surrogate(
    log_prob: FloatArray,
    old_log_prob: FloatArray,
    advantage: FloatArray,
    clip_eps: float,
) -> tuple[Term, FloatArray]:
    """`loss.clipped_surrogate`, and bounded ln r. A sample has a gradient where the
    unclipped term is the smaller one: −r Â / B."""
    log_ratio = log_prob - old_log_prob
    # np.clip takes twice as long
    bounded = log_ratio.clip(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = np.exp(bounded)
    gain = ratio * advantage
    clipped_gain = ratio.clip(1 - clip_eps, 1 + clip_eps) * advantage
    size = len(gain)

    def backward(grad: np.float32) -> FloatArray:
        counts = (gain <= clipped_gain) & (log_ratio == bounded)
        return gain * counts * (-grad / size)

    mean = np.add.reduce(np.minimum(gain, clipped_gain)) / size
    return Term(-mean, backward), bounded


def policy_change(log_ratio: FloatArray, clip_eps: float) -> tuple[float, float]:
    """`loss.policy_change`."""
    change = np.expm1(log_ratio)
    size = len(log_ratio)
    kl = float(np.add.reduce(change - log_ratio)) / size
    return kl, np.count_nonzero(np.abs(change) > clip_eps) / size


def policy_gradient(
    log_prob: FloatArray, advantage: Tensor, weight: Tensor | None = None
) -> Term:
    """`loss.policy_gradient_loss`."""
    gain = log_prob * advantage.numpy()
    if weight is not None:
        gain *= weight.numpy()
    size = len(gain)

    def backward(grad: np.float32) -> FloatArray:
        of_gain = np.full(size, -grad / size, np.float32)
        if weight is not None:
            of_gain *= weight.numpy()
        return of_gain * advantage.numpy()

    return Term(-(np.add.reduce(gain) / size), backward)


Elementwise: TypeAlias = Callable[..., tuple[FloatArray, FloatArray]]
"""(prediction (B,), target (B,)) to losses (B,) and their derivatives by the
prediction (B,)."""


def _squared_error(
    prediction: FloatArray, target: FloatArray
) -> tuple[FloatArray, FloatArray]:
    error = prediction - target
    return error * error, 2 * error


def _smooth_l1(
    prediction: FloatArray, target: FloatArray, beta: float
) -> tuple[FloatArray, FloatArray]:
    """½ e² / β where |e| < β, else |e| − ½ β."""
    error = prediction - target
    slope = (error / beta).clip(-1.0, 1.0) if beta > 0 else np.sign(error)
    return slope * (error - 0.5 * beta * slope), slope


def elementwise(loss: ValueLoss) -> Elementwise | None:
    """The written-out loss of each sample; None for a loss of torch that is not written
    out."""
    if type(loss.elementwise) is nn.MSELoss:
        return _squared_error
    if type(loss.elementwise) is nn.SmoothL1Loss:
        return partial(_smooth_l1, beta=loss.elementwise.beta)
    return None


def value_loss(
    elementwise_loss: Elementwise,
    prediction: FloatArray,
    target: Tensor,
    weight: Tensor | None = None,
) -> Term:
    """E[w l(prediction, target)]."""
    losses, slope = elementwise_loss(prediction, target.numpy())
    if weight is not None:
        losses = losses * weight.numpy()
        slope = slope * weight.numpy()
    size = len(losses)
    mean = np.add.reduce(losses) / size
    return Term(mean, lambda grad: slope * (grad / size))


def quantile_loss(
    quantiles: FloatArray, levels: FloatArray, target: FloatArray, kappa: float
) -> tuple[FloatArray, FloatArray]:
    """`return_distribution.quantile_loss` of quantiles (B, K) at levels τ (K,) against
    samples (B, M). Returns losses (B,), and their derivatives by the quantiles, (B, K).

    For an error e = θ_i − T_j the weight |τ_i − [e > 0]| is τ_i + (1 − 2 τ_i) [e > 0].
    So all errors are summed, and once more those above 0. Errors are (M, B, K), because
    NumPy sums fastest over the first axis."""
    # the errors would take the layout of a transposed view
    samples = np.ascontiguousarray(target.T)
    error = quantiles - samples[:, :, None]
    slope = np.sign(error)
    if kappa > 0:
        slope = (error / kappa).clip(-1.0, 1.0)
    slope_above = np.maximum(slope, 0)
    size = error - 0.5 * kappa * slope  # L_κ(e) / κ = size × slope

    def weighted_mean(of_all: FloatArray, of_above: FloatArray) -> FloatArray:
        total = levels * np.add.reduce(of_all, 0)
        total += (1 - 2 * levels) * np.add.reduce(of_above, 0)
        return total / len(error)

    losses = weighted_mean(slope * size, slope_above * size)
    return np.add.reduce(losses, -1), weighted_mean(slope, slope_above)


def weighted_mean(
    of_samples: FloatArray, slope: FloatArray, weight: Tensor | None
) -> Term:
    """E[w l] from losses (B,) and their derivatives by outputs (B, K); the derivative
    by these."""
    size = len(of_samples)
    if weight is not None:
        weights = weight.numpy()
        of_samples = of_samples * weights
        slope = slope * weights[:, None]
    mean = np.add.reduce(of_samples) / size
    return Term(mean, lambda grad: slope * (grad / size))


def clipped_value_loss(
    elementwise_loss: Elementwise,
    value: FloatArray,
    old_value: Tensor,
    target: Tensor,
    clip_eps: float,
) -> Term:
    """`loss.clipped_value_loss`. Where the clipped value counts and is at the clip, no
    gradient."""
    old = old_value.numpy()
    change = value - old
    losses, slope = elementwise_loss(value, target.numpy())
    clipped_losses, _ = elementwise_loss(
        old + np.clip(change, -clip_eps, clip_eps), target.numpy()
    )
    counts = (losses >= clipped_losses) | (np.abs(change) <= clip_eps)
    size = len(losses)
    mean = np.add.reduce(np.maximum(losses, clipped_losses)) / size
    return Term(mean, lambda grad: slope * counts * (grad / size))


def imitation_value_loss(
    value: FloatArray, target: Tensor, weight: Tensor | None
) -> Term:
    """`loss.imitation_value_loss`."""
    gain = np.maximum(target.numpy() - value, 0)
    weighted = gain
    if weight is not None:
        weighted = gain * weight.numpy()
    size = len(gain)
    mean = np.add.reduce(0.5 * weighted * gain) / size
    return Term(mean, lambda grad: weighted * (-grad / size))


def entropy_change(entropy: FloatArray, old_log_prob: Tensor) -> Term:
    """`loss.entropy_change`."""
    squared = value_loss(_squared_error, entropy, -old_log_prob)
    return Term(squared.value * 0.5, lambda grad: squared.backward(grad * 0.5))
