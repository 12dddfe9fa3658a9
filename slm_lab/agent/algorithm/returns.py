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
