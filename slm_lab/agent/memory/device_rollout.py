"""The memory of one rollout whose steps are on the device of the networks."""

from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.batch import Rollout, VectorStep
from slm_lab.agent.device import moved
from slm_lab.agent.memory.memory import Memory, MemoryLayout
from slm_lab.core.types import StateDict

NUMBERS = ("log_prob", "value", "reward", "terminated", "truncated")
"""What is a number for each step and environment."""


@final
class DeviceRollout(Memory[Rollout]):
    """A rollout of `horizon` steps of tensors. Observations and actions stay on their
    device. The numbers, from which returns are computed, are copied to the host once
    for a rollout. The state has the form of an `OnPolicyBatchReplay`'s."""

    def __init__(self, layout: MemoryLayout) -> None:
        lead = (layout.horizon, layout.num_envs)

        def zeros(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Tensor:
            # the type of torch with the name of NumPy's
            empty = torch.from_numpy(np.empty(0, dtype))
            return torch.zeros(shape, dtype=empty.dtype, device=layout.device)

        self._horizon = layout.horizon
        self._num_envs = layout.num_envs
        self._obs = zeros((*lead, *layout.obs_shape), layout.obs_dtype)
        self._next_obs = torch.zeros_like(self._obs)
        self._action = zeros((*lead, *layout.action_shape), layout.action_dtype)
        self._numbers = zeros((len(NUMBERS), *lead), np.dtype(np.float32))
        self._version = np.zeros(layout.horizon, np.int64)
        self._t = 0

    @override
    def add(self, step: VectorStep) -> None:
        t = self._t
        act: Any = step.act
        self._obs[t] = _tensor(step.obs)
        self._next_obs[t] = _tensor(step.next_obs)
        self._action[t] = act.action
        numbers: list[Any] = [
            act.log_prob,
            act.value,
            step.reward,
            step.terminated,
            step.truncated,
        ]
        for row, number in zip(self._numbers, numbers, strict=True):
            row[t] = number
        self._version[t] = act.version
        self._t = t + 1

    @override
    def break_off(self, next_obs: Any, raw_next_obs: Any = None) -> None:
        t = self._t - 1
        if t < 0:
            return
        *_, terminated, truncated = self._numbers[:, t].bool()
        running = ~(terminated | truncated)
        self._numbers[-1, t] = torch.maximum(self._numbers[-1, t], running.float())
        self._next_obs[t][running] = _tensor(next_obs).to(running.device)[running]

    @override
    def ready(self) -> bool:
        return self._t == self._horizon

    @override
    def take(self) -> Rollout:
        rollout = self._rollout(self._horizon)
        self._t = 0
        return rollout

    def _rollout(self, length: int) -> Rollout:
        """The first steps. After the last one the memory keeps the state of every
        environment if the rollout is full."""
        log_prob, value, reward, terminated, truncated = self._numbers[:, :length].cpu()
        cut = truncated.bool()
        if length == self._horizon:
            cut[-1] = True
        bootstrap_t, bootstrap_n = cut.nonzero(as_tuple=True)
        index = moved(bootstrap_t * self._num_envs + bootstrap_n, self._obs.device)
        version = torch.from_numpy(self._version[:length].copy())
        return Rollout(
            obs=self._obs[:length],
            action=self._action[:length],
            log_prob=log_prob,
            value=value,
            reward=reward,
            terminated=terminated.bool(),
            truncated=truncated.bool(),
            bootstrap_obs=self._next_obs.flatten(0, 1).index_select(0, index),
            bootstrap_t=bootstrap_t,
            bootstrap_n=bootstrap_n,
            version=version[:, None].expand(-1, self._num_envs),
        )

    @override
    def state_dict(self) -> StateDict:
        rollout = self._rollout(self._t)
        tensors = {**vars(rollout)}
        cut_obs = tensors.pop("bootstrap_obs").cpu().numpy()
        places = zip(
            tensors.pop("bootstrap_t").tolist(),
            tensors.pop("bootstrap_n").tolist(),
            strict=True,
        )
        return {
            "t": self._t,
            "arrays": {name: t.cpu().numpy().copy() for name, t in tensors.items()},
            "cut_obs": list(cut_obs),
            "cut_places": [list(place) for place in places],
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        t = int(state["t"])
        arrays = state["arrays"]
        self._t = t
        self._obs[:t] = _tensor(arrays["obs"])
        self._action[:t] = _tensor(arrays["action"])
        self._version[:t] = arrays["version"][:, 0]
        for row, name in zip(self._numbers, NUMBERS, strict=True):
            row[:t] = _tensor(arrays[name])
        for (step, n), obs in zip(state["cut_places"], state["cut_obs"], strict=True):
            self._next_obs[step, n] = _tensor(obs)


def _tensor(values: Any) -> Tensor:
    return torch.as_tensor(values)
