"""Environments whose dynamics torch computes, all copies at once, on any device."""

import sys
from collections.abc import Callable
from typing import Any, final

import gymnasium
import torch
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec
from torch import Tensor
from typing_extensions import override

from slm_lab.core.registry import load_target
from slm_lab.core.types import StateDict
from slm_lab.env.failure import close_all
from slm_lab.env.interface import Env
from slm_lab.env.lookup import step_limit
from slm_lab.env.simulators.batched import dynamics_of
from slm_lab.env.simulators.classic_control import Dynamics
from slm_lab.env.vector.raw import env_seeds
from slm_lab.env.vector.tensor_envs import TensorEnvs, TensorStep
from slm_lab.spec.schema.env import EnvSpec


@final
class BatchedEnvs(TensorEnvs):
    """N copies on one device. Every step draws N first states and takes those that it
    needs. So all shapes are constant, and the host waits for nothing."""

    def __init__(
        self,
        dynamics: Dynamics,
        num_envs: int,
        seed: int,
        max_episode_steps: int | None,
        device: str,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
    ) -> None:
        def column(values: Any) -> Tensor:
            return torch.tensor(values, dtype=torch.float64, device=device)[:, None]

        self.num_envs = num_envs
        self.device = torch.device(device)
        self.observation_space = observation_space
        self.action_space = action_space
        self.exact_state = True
        self._dynamics = dynamics
        self._limit = sys.maxsize
        if max_episode_steps is not None:
            self._limit = max_episode_steps
        self._generator = seeded_generator(device, seed)
        self._low = column(dynamics.first_low)
        self._width = column(dynamics.first_high) - self._low
        self._state = self._low.repeat(1, num_envs)
        self._elapsed = torch.zeros(num_envs, dtype=torch.int64, device=device)

    @override
    def reset(self) -> Tensor:
        self._state = self._first_states()
        self._elapsed.zero_()
        return self._dynamics.observe(self._state)

    @override
    def step(self, action: Tensor) -> TensorStep:
        motion = self._dynamics.step(self._state, action)
        self._elapsed += 1
        truncated = self._elapsed >= self._limit
        done = motion.terminated | truncated
        self._state = torch.where(done, self._first_states(), motion.state)
        self._elapsed.masked_fill_(done, 0)
        return TensorStep(
            obs=self._dynamics.observe(self._state),
            next_obs=self._dynamics.observe(motion.state),
            reward=motion.reward,
            terminated=motion.terminated,
            truncated=truncated,
        )

    def _first_states(self) -> Tensor:
        """(S, N), each new."""
        unit = torch.rand(
            (len(self._low), self.num_envs),
            generator=self._generator,
            dtype=torch.float64,
            device=self.device,
        )
        return self._low + self._width * unit

    @override
    def state_dict(self) -> StateDict:
        return {
            "device": self.device.type,
            "generator": self._generator.get_state(),
            "state": self._state.cpu().clone(),
            "elapsed": self._elapsed.cpu().clone(),
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        if state["device"] == self.device.type:
            self._generator.set_state(state["generator"])
        # else the numbers of its own generator continue: the other has another kind
        self._state = state["state"].to(self.device, copy=True)
        self._elapsed.copy_(state["elapsed"])


def seeded_generator(device: str, seed: int) -> torch.Generator:
    """A generator on `device` with this seed."""
    return torch.Generator(device).manual_seed(seed)


def make_batched(
    spec: EnvSpec,
    entry: GymnasiumSpec,
    make_one: Callable[[], Env],
    seed: int,
    device: str,
) -> TensorEnvs:
    """The environments of `spec`, which has no `batch_problems`, with the spaces of
    `make_one`."""
    single = make_one()
    close_all([single.close], spec.name)
    target = dynamics_of(entry)
    assert target is not None
    kind = load_target(target)
    arguments = {**entry.kwargs, **spec.arguments}
    arguments.pop("render_mode", None)
    return BatchedEnvs(
        dynamics=kind(**arguments),
        num_envs=spec.num_envs,
        seed=env_seeds(seed, 1)[0],
        max_episode_steps=step_limit(spec, entry),
        device=device,
        observation_space=single.observation_space,
        action_space=single.action_space,
    )
