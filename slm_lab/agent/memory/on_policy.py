"""The memory of one rollout."""

from typing import ClassVar

import numpy as np
import torch
from typing_extensions import override

from slm_lab.agent.batch import RawRollout, Rollout, VectorStep
from slm_lab.agent.memory.memory import Memory, MemoryLayout
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Array, BoolArray, IntArray, StateDict


class OnPolicyBatchReplay(SavedFields, Memory[Rollout]):
    """A rollout of `horizon` steps of every environment, in arrays that are allocated
    once. A next observation is kept only if it is not the following row. This is so
    where an episode was truncated, and after the last step. A rollout in which agents
    were absent is one column without their steps, see `Rollout.without`."""

    saved: ClassVar = {"t": "_t", "cut_obs": "_cut_obs", "cut_places": "_cut_places"}

    def __init__(self, layout: MemoryLayout) -> None:
        self._horizon = layout.horizon
        lead = (layout.horizon, layout.num_envs)
        self._arrays = {
            "obs": np.zeros((*lead, *layout.obs_shape), layout.obs_dtype),
            "action": np.zeros((*lead, *layout.action_shape), layout.action_dtype),
            "log_prob": np.zeros(lead, np.float32),
            "value": np.zeros(lead, np.float32),
            "reward": np.zeros(lead, np.float32),
            "terminated": np.zeros(lead, np.bool_),
            "truncated": np.zeros(lead, np.bool_),
            "version": np.zeros(lead, np.int64),
        }
        self._absent: BoolArray | None = None
        if layout.may_be_absent:
            self._absent = np.zeros(lead, np.bool_)
        self._is_packed = layout.is_packed
        self._keeps_raw = layout.rollouts_keep_raw
        if self._keeps_raw:
            self._arrays["raw_obs"] = np.zeros_like(self._arrays["obs"])
            self._arrays["raw_reward"] = np.zeros_like(self._arrays["reward"])
        self._tensors = {name: torch.from_numpy(a) for name, a in self._arrays.items()}
        self._cut_obs: list[Array] = []
        self._cut_places: list[list[int]] = []
        """The step and the environment of each state in `_cut_obs`."""
        self._t = 0

    @override
    def add(self, step: VectorStep) -> None:
        t = self._t
        for name, value in step.fields(self._keeps_raw).items():
            self._arrays[name][t] = value
        if self._absent is not None:
            self._absent[t] = False if step.absent is None else step.absent
        last = t + 1 == self._horizon
        truncated = step.truncated
        if last or np.count_nonzero(truncated):
            cut = np.arange(len(truncated)) if last else np.flatnonzero(truncated)
            self._cut(t, cut, step.next_obs)
        self._t = t + 1

    @override
    def break_off(self, next_obs: Array, raw_next_obs: Array | None = None) -> None:
        t = self._t - 1
        if t < 0:
            return
        arrays = self._arrays
        running = ~(arrays["terminated"][t] | arrays["truncated"][t])
        arrays["truncated"][t] |= running
        # else the last state of every environment is kept already
        if t + 1 < self._horizon:
            self._cut(t, np.flatnonzero(running), next_obs)

    def _cut(self, t: int, environments: IntArray, next_obs: Array) -> None:
        for n in environments:
            self._cut_obs.append(next_obs[n].copy())
            self._cut_places.append([t, int(n)])

    @override
    def ready(self) -> bool:
        return self._t == self._horizon

    @property
    @override
    def num_samples(self) -> int:
        if self._absent is None:
            return 1
        return self._absent.size - int(np.count_nonzero(self._absent))

    @override
    def take(self) -> Rollout:
        places = torch.tensor(self._cut_places, dtype=torch.int64)
        kind = RawRollout if self._keeps_raw else Rollout
        rollout = kind(
            **self._tensors,
            bootstrap_obs=torch.from_numpy(np.stack(self._cut_obs)),
            bootstrap_t=places[:, 0],
            bootstrap_n=places[:, 1],
        )
        self._t = 0
        self._cut_obs = []
        self._cut_places = []
        if self._absent is not None and self._absent.any():
            return rollout.without(torch.from_numpy(self._absent), self._is_packed)
        return rollout

    @override
    def state_dict(self) -> StateDict:
        absent = {}
        if self._absent is not None:
            absent["absent"] = self._absent[: self._t].copy()
        return {
            **super().state_dict(),
            **absent,
            "arrays": {
                name: array[: self._t].copy() for name, array in self._arrays.items()
            },
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        for name, array in self._arrays.items():
            array[: self._t] = state["arrays"][name]
        if self._absent is not None:
            self._absent[: self._t] = state["absent"]
