"""Environments whose dynamics torch computes, all copies at once, on any device."""

import sys
from typing import Any, NamedTuple, final

import gymnasium
import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.core.state import HasState
from slm_lab.core.types import Array, StateDict
from slm_lab.env.simulators.classic_control import Dynamics
from slm_lab.env.vector.raw import RawEnvs, RawStep, check_actions


class TensorStep(NamedTuple):
    """One step of N copies, on their device."""

    obs: Tensor
    """(N, D) float32; after the end of an episode, the first of the next one"""
    next_obs: Tensor
    """(N, D) float32, the observations that the step ended in"""
    reward: Tensor
    """(N,) float64"""
    terminated: Tensor
    """(N,) bool"""
    truncated: Tensor
    """(N,) bool"""


@final
class BatchedEnvs(HasState):
    """N copies on one device. Every step draws N first states and takes those that it
    needs. So all shapes are constant, and the host waits for nothing."""

    def __init__(
        self,
        dynamics: Dynamics,
        num_envs: int,
        seed: int,
        max_episode_steps: int | None,
        device: str,
    ) -> None:
        def column(values: Any) -> Tensor:
            return torch.tensor(values, dtype=torch.float64, device=device)[:, None]

        self.num_envs = num_envs
        self.device = torch.device(device)
        self._dynamics = dynamics
        self._limit = sys.maxsize
        if max_episode_steps is not None:
            self._limit = max_episode_steps
        self._generator = torch.Generator(device).manual_seed(seed)
        self._low = column(dynamics.first_low)
        self._width = column(dynamics.first_high) - self._low
        self._state = self._low.repeat(1, num_envs)
        self._elapsed = torch.zeros(num_envs, dtype=torch.int64, device=device)

    def reset(self) -> Tensor:
        """Starts new episodes everywhere; returns the observations (N, D)."""
        self._state = self._first_states()
        self._elapsed.zero_()
        return self._dynamics.observe(self._state)

    def step(self, action: Tensor) -> TensorStep:
        """One action of each copy, (N,) int64 or (N, A) float32."""
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


@final
class TorchEnvs(RawEnvs):
    """`BatchedEnvs` as arrays. On a CPU these share the memory of the tensors."""

    def __init__(
        self,
        envs: BatchedEnvs,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
    ) -> None:
        self.num_envs = envs.num_envs
        self.observation_space = observation_space
        self.action_space = action_space
        self.exact_state = True
        self.envs = envs

    @override
    def reset(self) -> Array:
        return _array(self.envs.reset())

    @override
    def step(self, action: Array) -> RawStep:
        # Dynamics would compute on with an action that does not exist.
        check_actions("torch", action, self.action_space)
        device = self.envs.device
        step = self.envs.step(torch.from_numpy(action).to(device))
        obs = _array(step.obs)
        reward = _array(step.reward)
        terminated = _array(step.terminated)
        truncated = _array(step.truncated)
        done = terminated | truncated
        if not np.count_nonzero(done):
            return RawStep(obs, reward, terminated, truncated)
        done_index = done.nonzero()[0]
        return RawStep(
            obs=obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            done_index=done_index,
            final_obs=_array(step.next_obs)[done_index],
        )

    @override
    def state_dict(self) -> StateDict:
        return self.envs.state_dict()

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.envs.load_state_dict(state)

    @override
    def close(self) -> None: ...


def _array(tensor: Tensor) -> Array:
    return tensor.cpu().numpy()
