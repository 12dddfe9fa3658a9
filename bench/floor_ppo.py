"""PPO written out for vectors and images by hand: the speed without a library.

Nothing is configurable, nothing is logged or saved. Tuned the usual ways: fused Adam on
one vector of all weights, no number read in an update. Images are in channels_last. On
a GPU products are in TF32.
"""

import time
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor, nn

from bench.cases import AtariPPOCase, MujocoPPOCase, PPOCase


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers with tanh between them."""
    layers = [
        layer for i, o in pairwise(widths) for layer in (nn.Linear(i, o), nn.Tanh())
    ]
    return nn.Sequential(*layers[:-1])


class Bytes(nn.Module):
    """Bytes to numbers between 0 and 1."""

    def forward(self, images: Tensor) -> Tensor:
        """(B, 4, 84, 84) of bytes to floats."""
        return images.float().div_(255).contiguous(memory_format=torch.channels_last)


class Networks(nn.Module):
    """Policy and value: two perceptrons, or one convolutional body."""

    def __init__(self, case: PPOCase, obs_dim: int, out: int, continuous: bool) -> None:
        super().__init__()
        self.continuous = continuous
        self.log_std = nn.Parameter(torch.zeros(out))
        self.body: nn.Module = nn.Identity()
        if isinstance(case, AtariPPOCase):
            convs = (
                nn.Conv2d(4, 32, 8, 4),
                nn.Conv2d(32, 64, 4, 2),
                nn.Conv2d(64, 64, 3, 1),
            )
            layers = [layer for conv in convs for layer in (conv, nn.ReLU())]
            dense = nn.Flatten(), nn.Linear(3136, 512), nn.ReLU()
            self.body = nn.Sequential(Bytes(), *layers, *dense)
            self.actor, self.critic = mlp(512, out), mlp(512, 1)
        else:
            self.actor, self.critic = (mlp(obs_dim, *case.hidden, n) for n in (out, 1))

    def forward(self, obs: Tensor) -> tuple[torch.distributions.Distribution, Tensor]:
        """The distribution of actions, and V."""
        x = self.body(obs)
        params = self.actor(x)
        if self.continuous:
            each = torch.distributions.Normal(
                params, self.log_std.exp(), validate_args=False
            )
            return torch.distributions.Independent(
                each, 1, validate_args=False
            ), self.critic(x)
        return torch.distributions.Categorical(
            logits=params, validate_args=False
        ), self.critic(x)


def sample(policy: Any) -> Tensor:
    """Actions. Those of `torch.distributions` wait for a GPU."""
    if isinstance(policy, torch.distributions.Independent):
        mean, std = policy.base_dist.loc, policy.base_dist.scale
        return mean + std * torch.randn_like(mean)
    gumbel = -torch.empty_like(policy.logits).exponential_().log()
    return (policy.logits + gumbel).argmax(-1)


class Moments:
    """Running mean and variance of observations."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean, self.var, self.count = np.zeros(shape), np.ones(shape), 1e-4

    def normalized(self, obs: Any) -> Any:
        """Adds a batch (N, ...) and normalizes it."""
        mean, var, count = obs.mean(0), obs.var(0), len(obs)
        delta, total = mean - self.mean, self.count + count
        self.var = (
            self.var * self.count + var * count + delta**2 * self.count * count / total
        )
        self.mean, self.var, self.count = (
            self.mean + delta * count / total,
            self.var / total,
            total,
        )
        return (
            ((obs - self.mean) / np.sqrt(self.var + 1e-8))
            .clip(-10, 10)
            .astype(np.float32)
        )


def vector_env(case: PPOCase) -> Any:
    """The environments: the authors' vector version of a game, else one after
    another."""
    if isinstance(case, AtariPPOCase):
        import ale_py

        gymnasium.register_envs(ale_py)
        mode = {"autoreset_mode": AutoresetMode.SAME_STEP, "num_threads": 1}
        return gymnasium.make_vec(case.env, case.num_envs, **mode)
    mode = {"autoreset_mode": AutoresetMode.SAME_STEP}
    return gymnasium.make_vec(case.env, case.num_envs, "sync", vector_kwargs=mode)


def advantages(
    reward: Any, value: Any, done: Any, last_value: Any, gamma: float, lam: float
) -> Any:
    """GAE, (T, N); `value` (T, N), `last_value` (N,)."""
    result, running = np.empty_like(value), np.zeros_like(last_value)
    for t in reversed(range(len(reward))):
        next_value = last_value if t == len(reward) - 1 else value[t + 1]
        continues = 1.0 - done[t]
        delta = reward[t] + gamma * continues * next_value - value[t]
        running = delta + gamma * lam * continues * running
        result[t] = running
    return result


def update(
    nets: Networks, adam: Any, weights: list[Tensor], case: PPOCase, data: Any
) -> None:
    """All epochs of a rollout."""
    obs, action, old_log_prob, advantage, target = data
    size = len(obs)
    for _ in range(case.epochs):
        for index in torch.randperm(size, device=obs.device).split(case.minibatch):
            policy, value = nets(obs[index])
            gain = advantage[index]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            ratio = (policy.log_prob(action[index]) - old_log_prob[index]).exp()
            clipped = ratio.clamp(1 - case.clip_eps, 1 + case.clip_eps)
            loss = -torch.min(ratio * gain, clipped * gain).mean()
            loss = (
                loss
                + case.value_coef * (value.squeeze(-1) - target[index]).square().mean()
            )
            if case.entropy_coef:
                loss = loss - case.entropy_coef * policy.entropy().mean()
            adam.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, case.max_grad_norm)
            adam.step()


def ppo_speed(case: PPOCase) -> float:
    """Frames per second of the whole loop: acting, stepping, storing, updating."""
    torch.manual_seed(0)
    env, device = vector_env(case), torch.device(case.device)
    space = env.single_action_space
    continuous = isinstance(space, gymnasium.spaces.Box)
    shape = env.single_observation_space.shape
    nets = Networks(
        case, shape[0], space.shape[0] if continuous else int(space.n), continuous
    )
    nets = nets.to(device)
    weights = list(nets.parameters())
    adam = torch.optim.Adam(weights, lr=case.lr, eps=1e-5, fused=True)
    moments = Moments(shape) if isinstance(case, MujocoPPOCase) else None

    def seen(raw: Any) -> Tensor:
        return torch.from_numpy(raw if moments is None else moments.normalized(raw)).to(
            device
        )

    began, frames = time.perf_counter(), 0
    obs = seen(env.reset(seed=0)[0])
    while frames < case.frames:
        steps: list[tuple[Any, ...]] = []
        for _ in range(case.horizon):
            with torch.no_grad():
                policy, value = nets(obs)
                action = sample(policy)
                log_prob = policy.log_prob(action)
            played = action.cpu().numpy()
            if continuous:
                played = played.clip(space.low, space.high)
            raw, reward, terminated, truncated, _ = env.step(played)
            done = (terminated | truncated).astype(np.float32)
            steps.append(
                (obs, action, log_prob, value[:, 0], reward.astype(np.float32), done)
            )
            obs = seen(raw)
        frames += case.horizon * case.num_envs
        columns = list(zip(*steps, strict=True))
        tensors = [torch.stack(column).flatten(0, 1) for column in columns[:3]]
        value = torch.stack(columns[3]).cpu().numpy()
        with torch.no_grad():
            last = nets(obs)[1][:, 0].cpu().numpy()
        gae = advantages(
            np.stack(columns[4]), value, np.stack(columns[5]), last, case.gamma, 0.95
        )
        both = [
            torch.from_numpy(each.reshape(-1)).to(device) for each in (gae, gae + value)
        ]
        update(nets, adam, weights, case, (*tensors, *both))
    if device.type == "cuda":
        torch.cuda.synchronize()
    return frames / (time.perf_counter() - began)
