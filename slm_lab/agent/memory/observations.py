"""The observations of a ring of steps: each stored once, stacks of frames as single frames.

The index of (row, environment) in the ring is row · N + environment; that of the environment's next
step is N larger, modulo the size. The final observation of an episode would overwrite the first of
the next, so it is kept apart.
"""

from abc import ABC, abstractmethod
from typing import final

import numpy as np
from typing_extensions import override

from slm_lab.agent.memory.memory import MemoryLayout
from slm_lab.agent.memory.storage import Allocate
from slm_lab.core.types import Array, BoolArray, IntArray, StateDict


class Observations(ABC):
    """The observations at each index of a ring, and after it."""

    history: int
    """Steps that an observation reaches back."""

    @abstractmethod
    def write(
        self, here: slice, following: slice, started: BoolArray, obs: Array, next_obs: Array
    ) -> None:
        """Stores a step (N, …) at the indices `here`, and the state after it at `following`.

        `started` (N,): environments whose episode starts here. What was at `following` is dropped.
        """

    @abstractmethod
    def keep_final(self, indices: IntArray, last_obs: Array) -> None:
        """Keeps the final observations (K, *obs_shape) of episodes that end at `indices` (K,)."""

    @abstractmethod
    def at(self, indices: IntArray) -> Array:
        """The observations at `indices` (B,), (B, *obs_shape)."""

    @abstractmethod
    def after(self, indices: IntArray, ended: BoolArray) -> Array:
        """The states after the steps at `indices` (B,); `ended` (B,): the episode ended there."""

    @abstractmethod
    def newest(self, following: slice) -> StateDict:
        """A copy of the state after the newest step, at the indices `following`."""

    @abstractmethod
    def load_newest(self, following: slice, newest: StateDict) -> None:
        """Drops what is kept apart, and restores the state after the newest step."""

    @abstractmethod
    def content(self, indices: IntArray, done: BoolArray) -> StateDict:
        """A copy of all that `indices` (K,) hold; `done` (K,): where episodes ended."""

    @abstractmethod
    def load_content(
        self, indices: IntArray, done: BoolArray, content: StateDict, first: int
    ) -> None:
        """Restores `content` without its `first` entries; `indices` and `done` are of the rest."""


class SparseRows:
    """Arrays of one shape at a few indices."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> None:
        self._nothing = np.zeros((0, *shape), dtype)
        self._arrays: dict[int, Array] = {}

    def __len__(self) -> int:
        return len(self._arrays)

    def put(self, indices: IntArray, arrays: Array) -> None:
        """Copies one array to each index."""
        for index, array in zip(indices.tolist(), arrays, strict=True):
            self._arrays[index] = array.copy()

    def get(self, index: int) -> Array:
        """The array at an index."""
        return self._arrays[index]

    def stacked(self, indices: IntArray) -> Array:
        """(K, …), a copy."""
        found = [self._arrays[index] for index in indices.tolist()]
        return np.stack(found) if found else self._nothing.copy()

    def forget(self, indices: slice) -> None:
        """Drops the arrays at these indices."""
        if self._arrays:
            for index in range(indices.start, indices.stop):
                self._arrays.pop(index, None)

    def clear(self) -> None:
        """Drops everything."""
        self._arrays.clear()


@final
class DenseObservations(Observations):
    """Observations that share no frames."""

    history = 0

    def __init__(self, layout: MemoryLayout, num_slots: int, allocate: Allocate) -> None:
        self._num_envs = layout.num_envs
        self._obs = allocate((num_slots, *layout.obs_shape), layout.obs_dtype)
        self._last = SparseRows(layout.obs_shape, layout.obs_dtype)

    @override
    def write(
        self, here: slice, following: slice, started: BoolArray, obs: Array, next_obs: Array
    ) -> None:
        self._obs[here] = obs
        self._obs[following] = next_obs
        self._last.forget(following)

    @override
    def keep_final(self, indices: IntArray, last_obs: Array) -> None:
        self._last.put(indices, last_obs)

    @override
    def at(self, indices: IntArray) -> Array:
        return self._obs.take(indices, axis=0)

    @override
    def after(self, indices: IntArray, ended: BoolArray) -> Array:
        next_obs = self._obs.take(indices + self._num_envs, axis=0, mode="wrap")
        for index in np.flatnonzero(ended).tolist():
            next_obs[index] = self._last.get(int(indices[index]))
        return next_obs

    @override
    def newest(self, following: slice) -> StateDict:
        return {"obs": self._obs[following].copy()}

    @override
    def load_newest(self, following: slice, newest: StateDict) -> None:
        self._last.clear()
        self._obs[following] = newest["obs"]

    @override
    def content(self, indices: IntArray, done: BoolArray) -> StateDict:
        return {"obs": self._obs[indices], "last_obs": self._last.stacked(indices[done])}

    @override
    def load_content(
        self, indices: IntArray, done: BoolArray, content: StateDict, first: int
    ) -> None:
        self._obs[indices] = content["obs"][first:]
        ended = indices[done]
        self._last.put(ended, content["last_obs"][len(content["last_obs"]) - len(ended) :])


@final
class FrameStacks(Observations):
    """Stacks of the last L frames, of which only the newest frame is stored.

    The frames are equal parts of the first axis, the newest last: (L, …) or, where frames have
    channels, (L·C, …). The other frames of the first stack of an episode are kept apart, whatever
    they are.
    """

    def __init__(self, layout: MemoryLayout, num_slots: int, allocate: Allocate) -> None:
        length, (leading, *rest) = layout.frame_stack, layout.obs_shape
        assert leading % length == 0, "a stack leads with its frames"
        self._obs_shape = layout.obs_shape
        self._stack_shape = (length, leading // length, *rest)
        self.history = layout.frame_stack - 1
        self._num_envs = layout.num_envs
        self._num_slots = num_slots
        shape, dtype = self._stack_shape[1:], layout.obs_dtype
        self._frames = allocate((num_slots, *shape), dtype)
        self._depth = allocate((num_slots,), np.dtype(np.int8))
        """Frames before it that belong to the same episode, L − 1 at most."""
        self._before = SparseRows((self.history, *shape), dtype)
        """The frames before the first of an episode, as in its first stack."""
        self._last = SparseRows(shape, dtype)
        self._back = np.arange(self.history, -1, -1)
        """The age of each frame of a stack in steps."""

    @override
    def write(
        self, here: slice, following: slice, started: BoolArray, obs: Array, next_obs: Array
    ) -> None:
        self._last.forget(following)
        self._before.forget(following)
        stacks = self._split(obs)
        if np.count_nonzero(started):
            first = np.flatnonzero(started)
            first = first[~self._continues(first + here.start, stacks[first])]
            self._depth[first + here.start] = 0
            self._before.put(first + here.start, stacks[first, :-1])
        self._frames[here] = stacks[:, -1]
        self._frames[following] = self._split(next_obs)[:, -1]
        self._depth[following] = np.minimum(self._depth[here] + 1, self.history)

    def _continues(self, indices: IntArray, stacks: Array) -> BoolArray:
        """(K,) whether the `stacks` (K, L, …) that start an episode at `indices` are stored
        already. That is so where an episode ended for the learner only, as with a lost life in a
        game."""
        continues = self._depth[indices] > 0
        known = indices[continues]
        same = self._stacks(known, self._depth[known]) == stacks[continues]
        continues[continues] = same.all(axis=tuple(range(1, same.ndim)))
        return continues

    @override
    def keep_final(self, indices: IntArray, last_obs: Array) -> None:
        self._last.put(indices, self._split(last_obs)[:, -1])

    @override
    def at(self, indices: IntArray) -> Array:
        return self._joined(self._stacks(indices, self._depth[indices]))

    @override
    def after(self, indices: IntArray, ended: BoolArray) -> Array:
        depth = np.minimum(self._depth[indices] + 1, self.history)
        stacks = self._stacks(indices + self._num_envs, depth)
        for index in np.flatnonzero(ended).tolist():
            stacks[index, -1] = self._last.get(int(indices[index]))
        return self._joined(stacks)

    def _split(self, obs: Array) -> Array:
        """Observations (B, *obs_shape) as (B, L, *frame)."""
        return obs.reshape(len(obs), *self._stack_shape)

    def _joined(self, stacks: Array) -> Array:
        return stacks.reshape(len(stacks), *self._obs_shape)

    def _stacks(self, indices: IntArray, depth: IntArray) -> Array:
        """The stacks at `indices` (B,), of whose frames the last 1 + `depth` (B,) are stored."""
        back = np.minimum(self._back, depth[:, None])
        stacks: Array = self._frames.take(
            indices[:, None] - back * self._num_envs, axis=0, mode="wrap"
        )
        for index in np.flatnonzero(depth < self.history).tolist():
            known = int(depth[index])
            start = (int(indices[index]) - known * self._num_envs) % self._num_slots
            stacks[index, : self.history - known] = self._before.get(start)[known:]
        return stacks

    @override
    def newest(self, following: slice) -> StateDict:
        return {"frames": self._frames[following].copy(), "depth": self._depth[following].copy()}

    @override
    def load_newest(self, following: slice, newest: StateDict) -> None:
        self._last.clear()
        self._before.clear()
        self._frames[following] = newest["frames"]
        self._depth[following] = newest["depth"]

    @override
    def content(self, indices: IntArray, done: BoolArray) -> StateDict:
        depth = self._depth[indices]
        return {
            "frames": self._frames[indices],
            "depth": depth,
            "before": self._before.stacked(indices[depth == 0]),
            "last_frames": self._last.stacked(indices[done]),
        }

    @override
    def load_content(
        self, indices: IntArray, done: BoolArray, content: StateDict, first: int
    ) -> None:
        self._frames[indices] = content["frames"][first:]
        depth = content["depth"][first:]
        self._depth[indices] = depth
        started, ended = indices[depth == 0], indices[done]
        self._before.put(started, content["before"][len(content["before"]) - len(started) :])
        self._last.put(ended, content["last_frames"][len(content["last_frames"]) - len(ended) :])
