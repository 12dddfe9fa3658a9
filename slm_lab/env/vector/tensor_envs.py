"""N environments whose observations, actions and rewards are tensors on one device."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple, final

import gymnasium
import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.core.state import HasState, SavedFields
from slm_lab.core.types import Array
from slm_lab.env.vector.raw import RawEnvs, RawStep, check_actions


class TensorStep(NamedTuple):
    """One step of N environments, all tensors on their device."""

    obs: Tensor
    """(N, ...) new; after the end of an episode, the first observation of the next
    one"""
    next_obs: Tensor
    """(N, ...) new, the observations that the step ended in"""
    reward: Tensor
    """(N,) float64"""
    terminated: Tensor
    """(N,) bool"""
    truncated: Tensor
    """(N,) bool"""


class TensorEnvs(HasState):
    """N environments of one kind on one device, with their original spaces and units.
    An ended episode is reset in the same step."""

    num_envs: int
    device: torch.device
    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    exact_state: bool
    """Whether a restored state continues the saved episodes, bit for bit."""

    @abstractmethod
    def reset(self) -> Tensor:
        """Starts new episodes everywhere; returns the observations (N, ...)."""

    @abstractmethod
    def step(self, action: Tensor) -> TensorStep:
        """One action per environment, in the environment's own units."""

    def close(self) -> None:
        """Frees all resources."""


@final
class ArraysOfTensors(SavedFields, RawEnvs):
    """Tensor environments as arrays on the host. Of a CPU's tensors these share the
    memory."""

    merged: ClassVar = ("envs",)

    def __init__(self, envs: TensorEnvs) -> None:
        self.num_envs = envs.num_envs
        self.observation_space = envs.observation_space
        self.action_space = envs.action_space
        self.exact_state = envs.exact_state
        self.envs = envs

    @override
    def reset(self) -> Array:
        return _array(self.envs.reset())

    @override
    def step(self, action: Array) -> RawStep:
        # Dynamics would compute on with an action that does not exist.
        check_actions(type(self.envs).__name__, action, self.action_space)
        device = self.envs.device
        step = self.envs.step(torch.from_numpy(action).to(device))
        obs = _array(step.obs)
        reward = _array(step.reward)
        terminated = _array(step.terminated)
        truncated = _array(step.truncated)
        done = terminated | truncated
        raw = RawStep(obs, reward, terminated, truncated)
        if not np.count_nonzero(done):
            return raw
        done_index = done.nonzero()[0]
        return raw._replace(
            done_index=done_index,
            final_obs=_array(step.next_obs)[done_index],
        )

    @override
    def close(self) -> None:
        self.envs.close()


def _array(tensor: Tensor) -> Array:
    return tensor.cpu().numpy()
