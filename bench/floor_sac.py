"""SAC written out for one environment by hand: the speed without a library.

Nothing is configurable, nothing is logged or saved. Tuned the usual ways: fused Adam,
and one call for all targets. The loss of the actor has no weight gradients of the
critics. No graph is built without need.
"""

import math
import time
from itertools import pairwise

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, softplus

from bench.cases import SACCase


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers with relu between them."""
    layers = [
        layer for i, o in pairwise(widths) for layer in (nn.Linear(i, o), nn.ReLU())
    ]
    return nn.Sequential(*layers[:-1])


def draw(actor: nn.Sequential, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """An action before tanh, its noise and ln σ."""
    mean, log_std = actor(obs).chunk(2, -1)
    log_std = log_std.clamp(-20, 2)
    noise = torch.randn_like(mean)
    return mean + noise * log_std.exp(), noise, log_std


def sample(actor: nn.Sequential, obs: Tensor) -> tuple[Tensor, Tensor]:
    """A tanh-squashed action and its log-probability."""
    raw, noise, log_std = draw(actor, obs)
    normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
    return raw.tanh(), (normal - 2 * (math.log(2) - raw - softplus(-2 * raw))).sum(-1)


class SAC:
    """Networks, optimizers and one update."""

    def __init__(self, case: SACCase, obs_dim: int, act_dim: int) -> None:
        hidden = case.hidden
        self.case = case
        to = case.device
        self.actor = mlp(obs_dim, *hidden, 2 * act_dim).to(to)
        pairs = [
            [mlp(obs_dim + act_dim, *hidden, 1).to(to) for _ in range(2)]
            for _ in range(2)
        ]
        self.critics, self.targets = pairs
        self.critic_weights = [p for q in self.critics for p in q.parameters()]
        self.target_weights = [p for q in self.targets for p in q.parameters()]
        torch._foreach_copy_([p.data for p in self.target_weights], self.critic_weights)
        self.log_alpha = torch.zeros((), requires_grad=True, device=to)
        self.target_entropy = -float(act_dim)
        self.actor_adam = torch.optim.Adam(
            self.actor.parameters(), lr=case.lr, fused=True
        )
        self.critic_adam = torch.optim.Adam(self.critic_weights, lr=case.lr, fused=True)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], lr=case.lr, fused=True)

    def update(
        self,
        obs: Tensor,
        action: Tensor,
        reward: Tensor,
        discount: Tensor,
        next_obs: Tensor,
    ) -> None:
        """One step of critics, actor and temperature; the targets follow."""
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            next_action, log_prob = sample(self.actor, next_obs)
            after = torch.cat([next_obs, next_action], -1)
            first, second = (q(after).squeeze(-1) for q in self.targets)
            target = reward + discount * (torch.min(first, second) - alpha * log_prob)
        here = torch.cat([obs, action], -1)
        loss = sum(mse_loss(q(here).squeeze(-1), target) for q in self.critics)
        self.critic_adam.zero_grad()
        loss.backward()  # type: ignore[union-attr]
        self.critic_adam.step()
        for weight in self.critic_weights:
            weight.requires_grad_(False)
        action, log_prob = sample(self.actor, obs)
        own = torch.cat([obs, action], -1)
        first, second = (q(own).squeeze(-1) for q in self.critics)
        self.actor_adam.zero_grad()
        (alpha * log_prob - torch.min(first, second)).mean().backward()
        self.actor_adam.step()
        for weight in self.critic_weights:
            weight.requires_grad_(True)
        self.alpha_adam.zero_grad()
        (-self.log_alpha * (log_prob.detach().mean() + self.target_entropy)).backward()
        self.alpha_adam.step()
        with torch.no_grad():
            torch._foreach_lerp_(
                self.target_weights, self.critic_weights, self.case.tau
            )


def sac_speed(case: SACCase) -> float:
    """Frames per second of the whole loop: acting, stepping, storing, sampling,
    updating."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    env = gymnasium.make(case.env)
    assert isinstance(env.action_space, gymnasium.spaces.Box)
    assert env.observation_space.shape is not None
    obs_dim, act_dim = env.observation_space.shape[0], env.action_space.shape[0]
    middle = (env.action_space.high + env.action_space.low) / 2
    half = (env.action_space.high - env.action_space.low) / 2
    sac = SAC(case, obs_dim, act_dim)
    widths = [obs_dim, act_dim, 1, 1, obs_dim]
    replay = np.zeros((case.buffer, sum(widths)), np.float32)
    began = time.perf_counter()
    obs, _ = env.reset(seed=0)
    for frame in range(case.frames):
        with torch.no_grad():
            seen = torch.as_tensor(obs, dtype=torch.float32, device=case.device)
            action = draw(sac.actor, seen)[0].tanh().cpu().numpy()
        next_obs, reward, terminated, truncated, _ = env.step(middle + half * action)
        discount = case.gamma * (1 - terminated)
        row = (obs, action, (reward, discount), next_obs)
        np.concatenate(row, out=replay[frame % case.buffer], casting="unsafe")
        obs = env.reset()[0] if terminated or truncated else next_obs
        if frame + 1 >= case.start:
            index = rng.integers(0, min(frame + 1, case.buffer), case.batch)
            rows = torch.from_numpy(replay[index])
            if case.device == "cuda":
                rows = rows.pin_memory().to(case.device, non_blocking=True)
            seen, action, reward, discount, next_seen = rows.split(widths, -1)
            sac.update(seen, action, reward[:, 0], discount[:, 0], next_seen)
    if case.device == "cuda":
        torch.cuda.synchronize()
    return case.frames / (time.perf_counter() - began)
