"""Unrolls: the steps that an actor sends to a learner, in arrays that both can
access."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self, final

import numpy as np
import torch
from numpy.typing import DTypeLike
from typing_extensions import override

from slm_lab.agent.batch import BOOTSTRAP, Act, Rollout, VectorStep
from slm_lab.agent.memory.memory import Memory, MemoryLayout
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Array, BoolArray, FloatArray, IntArray, StateDict
from slm_lab.env.vector_env import FinishedEpisodes
from slm_lab.parallel.shared_memory import aligned_record


@dataclass(frozen=True)
class UnrollLayout:
    """The sizes of an unroll of T steps of K environments."""

    steps: MemoryLayout
    """`horizon` is T."""
    num_statistics: int
    """S: the number of running statistics of the environments."""
    num_info: int = 0
    """I: the number of `env.info_keys`."""

    @cached_property
    def record(self) -> np.dtype[np.void]:
        """The arrays of an unroll in its bytes."""
        steps = self.steps
        lead = (self.steps.horizon, self.steps.num_envs)
        arrays: dict[str, tuple[DTypeLike, tuple[int, ...]]] = {
            "obs": (steps.obs_dtype, (lead[0] + 1, lead[1], *steps.obs_shape)),
            "end_obs": (steps.obs_dtype, (*lead, *steps.obs_shape)),
            "action": (steps.action_dtype, (*lead, *steps.action_shape)),
            "log_prob": (np.float32, lead),
            "value": (np.float32, lead),
            "reward": (np.float32, lead),
            "terminated": (np.bool_, lead),
            "truncated": (np.bool_, lead),
            "absent": (np.bool_, lead),
            "version": (np.int64, lead[:1]),
            "episode_return": (np.float64, lead),
            "episode_length": (np.int64, lead),
            "info": (np.float64, (*lead, self.num_info)),
            "statistics": (np.float64, (2, self.num_statistics)),
            "head": (np.float64, (len(HEAD),)),
        }
        return aligned_record(arrays)


HEAD = ("begins", "explore_var", "handed_at")
"""Numbers that describe a whole unroll."""


@final
@dataclass(frozen=True)
class Unroll:
    """T consecutive steps of K environments under one policy, as views into
    preallocated bytes."""

    obs: Array
    """(T + 1, K, *obs_shape); the last is `next_obs` of the last step, never of a
    reset"""
    end_obs: Array
    """(T, K, *obs_shape) `next_obs` of steps that ended an episode; else undefined"""
    action: Array
    """(T, K, *action_shape)"""
    log_prob: FloatArray
    """(T, K) under the policy that acted"""
    value: FloatArray
    """(T, K) estimates of the policy that acted"""
    reward: FloatArray
    """(T, K)"""
    terminated: BoolArray
    """(T, K)"""
    truncated: BoolArray
    """(T, K)"""
    absent: BoolArray
    """(T, K) see `VectorStep.absent`"""
    version: IntArray
    """(T,) int64, `Act.version` of each step"""
    episode_return: FloatArray
    """(T, K) float64: returns of the episodes that ended in a step"""
    episode_length: IntArray
    """(T, K) int64: their lengths; 0: none ended"""
    info: FloatArray
    """(T, K, I) float64: their `FinishedEpisodes.info`"""
    statistics: FloatArray
    """(2, S) float64: the environments' running statistics before and after the
    unroll"""
    head: FloatArray
    """(H,) float64: see `HEAD`"""

    @classmethod
    def within(cls, content: Array, layout: UnrollLayout) -> Self:
        """An unroll of views into `content`, the bytes of a record, which may be
        shared."""
        (record,) = content.view(layout.record)
        return cls(*record)

    @classmethod
    def allocate(cls, layout: UnrollLayout) -> Self:
        """An unroll in private memory."""
        return cls.within(np.zeros(layout.record.itemsize, np.uint8), layout)

    @classmethod
    def restored(cls, arrays: Mapping[str, Array]) -> Self:
        """An unroll of a checkpoint; in older ones it has no `info` and no
        `absent`."""
        shape = arrays["reward"].shape
        added = {"info": np.empty((*shape, 0)), "absent": np.zeros(shape, np.bool_)}
        return cls(**{**added, **arrays})

    def saved(self) -> dict[str, Array]:
        """Copies of the arrays by name."""
        return {name: array.copy() for name, array in vars(self).items()}

    @property
    def num_steps(self) -> int:
        """The number of its steps, T."""
        return len(self.reward)

    @property
    def num_frames(self) -> int:
        """The steps of agents in it."""
        return self.absent.size - int(np.count_nonzero(self.absent))

    @property
    def begins(self) -> bool:
        """Whether its first step does not continue the previous unroll."""
        return bool(self.head[0])

    @property
    def explore_var(self) -> float | None:
        """The exploration variable of its last act."""
        if math.isnan(self.head[1]):
            return None
        return float(self.head[1])

    @property
    def handed_at(self) -> float:
        """The time at which it was handed over, s, by `time.perf_counter` of its
        machine."""
        return float(self.head[2])

    def step(self, t: int) -> VectorStep:
        """Step t, for `Memory.add`."""
        act = Act(self.action[t], self.log_prob[t], self.value[t], int(self.version[t]))
        terminated = self.terminated[t]
        truncated = self.truncated[t]
        next_obs = self.obs[t + 1]
        ended = terminated | truncated
        if t + 1 < self.num_steps and ended.any():
            next_obs = next_obs.copy()
            next_obs[ended] = self.end_obs[t][ended]
        return VectorStep(
            obs=self.obs[t],
            act=act,
            reward=self.reward[t],
            terminated=terminated,
            truncated=truncated,
            next_obs=next_obs,
            absent=self.absent[t] if self.absent[t].any() else None,
        )


@final
class UnrollWriter(SavedFields, Memory[Unroll]):
    """The memory of an actor, which is never sampled. It writes steps into unrolls of
    `horizon` steps, by default the layout's. For a replay learner it writes
    unnormalised observations and rewards. Between two unrolls it has no state."""

    def __init__(self, layout: MemoryLayout, horizon: int | None = None) -> None:
        horizon = horizon or layout.horizon
        self.layout = replace(
            layout, horizon=horizon, replay=None, normalization=None, scratch=None
        )
        self._writes_raw = layout.replay is not None
        self._t = self._horizon = horizon

    def begin(self, unroll: Unroll, statistics: FloatArray, begins: bool) -> None:
        """Directs the next T steps into `unroll`; `begins`: see `Unroll.begins`."""
        self._unroll = unroll
        self._t = 0
        unroll.episode_length[:] = 0
        unroll.statistics[0] = statistics
        unroll.head[:] = (begins, math.nan, math.nan)

    def end(
        self, statistics: FloatArray, explore_var: float | None, now: float
    ) -> None:
        """Completes the full unroll, at the time `now`."""
        unroll = self._unroll
        unroll.statistics[1] = statistics
        unroll.head[1:] = (math.nan if explore_var is None else explore_var, now)

    @override
    def add(self, step: VectorStep) -> None:
        if self._writes_raw:
            step = step.unnormalized()
        t = self._t
        unroll = self._unroll
        for name, value in step.fields(raw=False).items():
            getattr(unroll, name)[t] = value
        unroll.absent[t] = False if step.absent is None else step.absent
        if t + 1 == self._horizon:
            unroll.obs[t + 1] = step.next_obs
        else:
            ended = step.done
            if ended.any():
                unroll.end_obs[t][ended] = step.next_obs[ended]
        self._t = t + 1

    def note(self, finished: FinishedEpisodes) -> None:
        """Records the episodes that ended in the newest step."""
        unroll = self._unroll
        index = (self._t - 1, finished.env_index)
        unroll.episode_return[index] = finished.episode_return
        unroll.episode_length[index] = finished.episode_length
        unroll.info[index] = finished.info

    @override
    def ready(self) -> bool:
        return self._t == self._horizon

    @override
    def take(self) -> Unroll:
        return self._unroll

    @override
    def break_off(self, next_obs: Array, raw_next_obs: Array | None = None) -> None:
        pass  # an incomplete unroll is dropped


@final
class UnrollMemory(Memory[Rollout]):
    """The memory of a learner with actors: `wanted` unrolls make one rollout. Unrolls
    are used once, concatenated along the environment axis. A single unroll is used in
    place, without a copy."""

    def __init__(self, wanted: int, packed: bool = False) -> None:
        """`packed` rows of recurrent nets hold their state."""
        self._wanted = wanted
        self._packed = packed
        self._unrolls: list[Unroll] = []

    def put(self, unroll: Unroll) -> None:
        """Adds an unroll, which must not change until the rollout has been learned
        from."""
        self._unrolls.append(unroll)

    def detach(self) -> None:
        """Copies the pending unrolls, whose slots may be overwritten afterwards."""
        self._unrolls = [Unroll(**unroll.saved()) for unroll in self._unrolls]

    @override
    def add(self, step: VectorStep) -> None:
        """Raises TypeError: steps arrive in unrolls, see `put`."""
        raise TypeError("a learner with actors takes whole unrolls")

    @override
    def ready(self) -> bool:
        return len(self._unrolls) == self._wanted

    @override
    def take(self) -> Rollout:
        unrolls = self._unrolls
        self._unrolls = []
        rollout = as_rollout(unrolls)
        absent = np.concatenate([unroll.absent for unroll in unrolls], 1)
        if absent.any():
            return rollout.without(torch.from_numpy(absent), self._packed)
        return rollout

    @override
    def break_off(self, next_obs: Array, raw_next_obs: Array | None = None) -> None:
        """Drops the pending unrolls: their continuation is unknown."""
        self._unrolls = []

    @override
    def state_dict(self) -> StateDict:
        return {"unrolls": [unroll.saved() for unroll in self._unrolls]}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._unrolls = [Unroll.restored(arrays) for arrays in state["unrolls"]]


def as_rollout(unrolls: Sequence[Unroll]) -> Rollout:
    """Joins unrolls of K environments each into one rollout of all N environments."""
    parts = [vars(_one_rollout(unroll, part)) for part, unroll in enumerate(unrolls)]
    if len(parts) == 1:
        return Rollout(**parts[0])
    return Rollout(
        **{
            name: torch.cat(
                [part[name] for part in parts], 0 if name in BOOTSTRAP else 1
            )
            for name in parts[0]
        }
    )


def _one_rollout(unroll: Unroll, part: int) -> Rollout:
    """The rollout of one unroll; the environments of `part` are numbered after earlier
    parts'."""
    last = unroll.num_steps - 1
    num_envs = unroll.reward.shape[1]
    cut_t, cut_n = np.nonzero(unroll.truncated[:last])
    end_obs = np.concatenate([unroll.end_obs[cut_t, cut_n], unroll.obs[last + 1]])
    bootstrap_n = np.concatenate([cut_n, np.arange(num_envs)]) + part * num_envs
    return Rollout(
        obs=torch.from_numpy(unroll.obs[: last + 1]),
        action=torch.from_numpy(unroll.action),
        log_prob=torch.from_numpy(unroll.log_prob),
        value=torch.from_numpy(unroll.value),
        reward=torch.from_numpy(unroll.reward),
        terminated=torch.from_numpy(unroll.terminated),
        truncated=torch.from_numpy(unroll.truncated),
        version=torch.from_numpy(unroll.version).unsqueeze(1).expand(-1, num_envs),
        bootstrap_obs=torch.from_numpy(end_obs),
        bootstrap_t=torch.from_numpy(np.concatenate([cut_t, np.full(num_envs, last)])),
        bootstrap_n=torch.from_numpy(bootstrap_n),
    )


def packed(unroll: Unroll) -> dict[str, Array]:
    """The arrays to send; of `end_obs` only the rows (F, *obs_shape) of ended
    episodes."""
    arrays = vars(unroll)
    return {**arrays, "end_obs": unroll.end_obs[_ended_within(arrays)]}


def unpacked(arrays: Mapping[str, Array]) -> Unroll:
    """The inverse of `packed`, in new memory: received arrays may be read-only."""
    copies = {name: array.copy() for name, array in arrays.items()}
    end_obs = np.empty_like(copies["obs"][1:])
    end_obs[_ended_within(copies)] = copies["end_obs"]
    return Unroll(**{**copies, "end_obs": end_obs})


def _ended_within(arrays: Mapping[str, Array]) -> BoolArray:
    """(T, K): where an episode ended before the last step, whose `next_obs` is in
    `obs`."""
    ended: BoolArray = arrays["terminated"] | arrays["truncated"]
    ended[-1] = False
    return ended
