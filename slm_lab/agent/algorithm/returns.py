"""Returns and advantages. Pure functions of (T, N) tensors."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
    gae_lambda: float,
) -> Tensor:
    """Generalised advantage estimates, eq. 16 of arXiv:1506.02438.

        δ_t = r_t + γ (1 − terminated_t) V(s'_t) − V(s_t)
        Â_t = δ_t + γλ (1 − done_t) Â_{t+1},   Â_T = 0

    Every tensor is (T, N) on the CPU. `next_value` is V of the state that a step ended
    in, not of the state after a reset. Where `terminated` it may be anything, NaN
    included. `terminated` and `done` are bool; done = terminated | truncated."""
    delta = reward + gamma * next_value.masked_fill(terminated, 0.0) - value
    decay = (gamma * gae_lambda) * (~done).to(delta.dtype)
    return _discounted_sum(delta, decay)


def _discounted_sum(delta: Tensor, decay: Tensor) -> Tensor:
    """Σ_t = δ_t + decay_t Σ_{t+1}, Σ_T = 0; all (T, N)."""
    total = delta.clone()
    # five times as fast as tensors
    rows = list(total.numpy())
    factors = list(decay.numpy())
    for t in reversed(range(len(rows) - 1)):
        rows[t] += factors[t] * rows[t + 1]
    return total


class VTraceEstimates(NamedTuple):
    """The result of V-trace; all (T, N)."""

    returns: Tensor
    """v: the targets of the critic"""
    advantage: Tensor
    """Â, not weighted by ρ"""
    rho: Tensor
    """ρ: the factor of each step in a policy gradient"""


def vtrace(
    log_ratio: Tensor,
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
    trace_lambda: float,
    rho_bar: float,
    c_bar: float,
    num_steps: int | None = None,
) -> VTraceEstimates:
    """V-trace, eq. 1 of arXiv:1802.01561, by the recursion of its remark 1 with λ of
    its remark 2.

        ρ_t = min(ρ̄, π/μ),  c_t = λ min(c̄, π/μ)
        δ_t = ρ_t (r_t + γ (1 − terminated_t) V(s'_t) − V(s_t))
        v_t = V(s_t) + e_t,  e_t = δ_t + γ c_t (1 − done_t) e_{t+1},  e_T = 0
        Â_t = r_t + γ (1 − terminated_t) v'_t − V(s_t)
        v'_t = V(s'_t) + λ (1 − done_t) e_{t+1}

    With λ = 1, as published, v'_t is v_{t+1}. Where an episode was truncated, and at
    the end of the rollout, v'_t is V(s'_t). A smaller λ draws v'_t towards V, as it
    does v_t. So Â_t equals the advantage by `gae` where π = μ. The gradient of section
    4.2 is the gradient of ρ_t log π(a_t|s_t) Â_t.

    `log_ratio` is ln π/μ: π is learned, μ acted. Other tensors and masks are as in
    `gae`. The sum of v_t has at most `num_steps` terms, the sum of v'_t one less. None
    sums to the end of the rollout, as published. Where π = μ and the bounds are >= 1,
    v_t is the λ-return. With λ = 1 it is the return of `n_step_returns`, and Â_t is
    v_t − V(s_t)."""
    ratio = log_ratio.exp()
    rho = ratio.clamp(max=rho_bar)
    error = reward + gamma * next_value.masked_fill(terminated, 0.0) - value
    delta = rho * error
    decay = (gamma * trace_lambda) * ratio.clamp(max=c_bar).masked_fill(done, 0.0)
    if num_steps is None:
        following = _next_step(_discounted_sum(delta, decay))
    else:
        following = torch.zeros_like(delta)
        for _ in range(min(num_steps, len(delta)) - 1):
            following = _next_step(delta + decay * following)
    advantage = error + gamma * trace_lambda * following.masked_fill(done, 0.0)
    return VTraceEstimates(value + delta + decay * following, advantage, rho)


def _next_step(steps: Tensor) -> Tensor:
    """The values one step later, zero after the last; (T, N)."""
    return torch.cat([steps[1:], torch.zeros_like(steps[:1])])


def n_step_returns(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
    num_steps: int,
) -> Tensor:
    """Returns over `num_steps` rewards and a bootstrap, as in algorithm S3 of
    arXiv:1602.01783.

        R_t^(1) = r_t + γ (1 − terminated_t) V(s'_t)
        R_t^(n) = r_t + γ R_{t+1}^(n−1),  or R_t^(1) where done_t or t is the last

    Fewer rewards are summed where an episode or the rollout ends. Tensors and masks as
    in `gae`."""
    returns = reward + gamma * next_value.masked_fill(terminated, 0.0)
    rewards = reward.numpy()[:-1]
    cut = done.numpy()[:-1]
    one_step = returns.numpy()[:-1].copy()
    longer = returns.numpy()[:-1]
    following = returns.numpy()[1:]
    for _ in range(min(num_steps, len(reward)) - 1):
        longer[...] = np.where(cut, one_step, rewards + gamma * following)
    return returns


def q_lambda_returns(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
    trace_lambda: float,
) -> Tensor:
    """λ-returns of the greatest action value, section 3.4 of arXiv:2407.04811.

        V(s) = max_a Q(s, a)
        G_t = r_t + γ (1 − terminated_t) [λ G_{t+1} + (1 − λ) V(s'_t)]

    Where done_t or t is the last, G_{t+1} is V(s'_t). An action that explored is not
    corrected for (Peng's Q(λ)). Tensors and masks as in `gae`."""
    discounted = gamma * next_value.masked_fill(terminated, 0.0)
    continues = (~done).to(reward.dtype)
    continues[-1] = 0.0
    one_step = reward + (1 - trace_lambda * continues) * discounted
    return _discounted_sum(one_step, (gamma * trace_lambda) * continues)


def discounted_returns(reward: Tensor, done: Tensor, gamma: float) -> Tensor:
    """G_t = r_t + γ (1 − done_t) G_{t+1}: the return within the episode, (T, N).
    Nothing is bootstrapped: a truncated episode counts up to its end."""
    zero = torch.zeros_like(reward)
    return gae(
        reward=reward,
        value=zero,
        next_value=zero,
        terminated=done,
        done=done,
        gamma=gamma,
        gae_lambda=1.0,
    )
