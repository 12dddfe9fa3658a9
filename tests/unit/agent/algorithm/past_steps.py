"""Rollouts with random endings, whose returns are known."""

import numpy as np
import torch

from slm_lab.agent.batch import Rollout


def stream(seed, steps, num_envs):
    """Steps (steps, N) with random endings; an observation encodes its step and
    environment."""
    rng = np.random.default_rng(seed)
    terminated = rng.random((steps, num_envs)) < 0.1
    truncated = ~terminated & (rng.random((steps, num_envs)) < 0.1)
    reward = rng.normal(size=(steps, num_envs)).astype(np.float32)
    obs = (np.arange(steps)[:, None] * 10 + np.arange(num_envs)).astype(np.float32)[
        ..., None
    ]
    return obs, reward, terminated, truncated


def rollout(obs, reward, terminated, truncated):
    """One rollout."""
    cut = truncated.copy()
    cut[-1] |= ~terminated[-1]
    t, n = np.nonzero(cut)
    tensors = [torch.from_numpy(x) for x in (reward, terminated, truncated)]
    none = torch.zeros(reward.shape)
    return Rollout(
        torch.from_numpy(obs),
        torch.zeros(reward.shape, dtype=torch.int64),
        none,
        none,
        *tensors,
        torch.zeros(len(t), 1),
        torch.from_numpy(t),
        torch.from_numpy(n),
        torch.zeros(reward.shape, dtype=torch.int64),
    )
