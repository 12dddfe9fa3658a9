"""Returns and advantages. Pure functions of (T, N) tensors."""

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

    Every tensor is (T, N). `next_value` is V of the state the step ended in, never of the state
    after a reset; where `terminated` it may be anything, NaN included. `terminated` and `done`
    are bool; done = terminated | truncated.
    """
    delta = reward + gamma * next_value.masked_fill(terminated, 0.0) - value
    decay = (gamma * gae_lambda) * (~done).to(delta.dtype)
    advantage = torch.empty_like(delta)
    following = torch.zeros_like(delta[0])
    rows = zip(delta.unbind(), decay.unbind(), advantage.unbind(), strict=True)
    for delta_t, decay_t, advantage_t in reversed(list(rows)):
        following = torch.addcmul(delta_t, decay_t, following, out=advantage_t)
    return advantage


def n_step_returns(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
    num_steps: int,
) -> Tensor:
    """Returns over `num_steps` rewards and a bootstrap, as in algorithm S3 of arXiv:1602.01783.

        R_t^(1) = r_t + γ (1 − terminated_t) V(s'_t)
        R_t^(n) = r_t + γ R_{t+1}^(n−1),  or R_t^(1) where done_t or t is the last

    Fewer rewards are summed where an episode or the rollout ends. Tensors and masks as in `gae`.
    """
    one_step = reward + gamma * next_value.masked_fill(terminated, 0.0)
    returns = one_step
    cut = done[:-1]
    for _ in range(min(num_steps, len(reward)) - 1):
        longer = torch.where(cut, one_step[:-1], reward[:-1] + gamma * returns[1:])
        returns = torch.cat([longer, one_step[-1:]])
    return returns


def discounted_returns(reward: Tensor, done: Tensor, gamma: float) -> Tensor:
    """G_t = r_t + γ (1 − done_t) G_{t+1}: what followed within the episode, (T, N).

    Nothing is bootstrapped: a truncated episode counts as far as it went.
    """
    zero = torch.zeros_like(reward)
    return gae(reward, zero, zero, done, done, gamma, 1.0)
