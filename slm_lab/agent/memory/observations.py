"""The observations of a ring of steps: each stored once, stacks of frames as single frames.

A place (row, environment) of the ring is one number, row · N + environment; the step after the one
at a place lies N places on, around the end. What an episode ended in would lie where the next one
begins, so it is kept apart.
"""

from abc import ABC, abstractmethod
from typing import final

import numpy as np
from typing_extensions import override

from slm_lab.agent.memory.memory import MemoryLayout
from slm_lab.agent.memory.storage import Allocate
from slm_lab.core.types import Array, BoolArray, IntArray, StateDict


class Observations(ABC):
    """What was observed at each place of a ring, and after it."""

    history: int
    """How many steps before one its observation reaches back."""

    @abstractmethod
    def write(
        self, here: slice, following: slice, begun: BoolArray, obs: Array, next_obs: Array
    ) -> None:
        """A step (N, …) at the places `here` and what it led to at those after it.

        `begun` (N,): whose episode begins here. What was at `following` before is forgotten.
        """

    @abstractmethod
    def keep_last(self, places: IntArray, last_obs: Array) -> None:
        """What the episodes that end with the steps at `places` (K,) ended in, (K, *obs_shape)."""

    @abstractmethod
    def at(self, places: IntArray) -> Array:
        """The observations at `places` (B,), (B, *obs_shape)."""

    @abstractmethod
    def after(self, places: IntArray, ended: BoolArray) -> Array:
        """What the steps at `places` (B,) led to; `ended` (B,): the episode ended there."""

    @abstractmethod
    def newest(self, following: slice) -> StateDict:
        """A copy of what the newest step led to, at the places after it."""

    @abstractmethod
    def load_newest(self, following: slice, newest: StateDict) -> None:
        """Forgets what is kept apart, and puts back what the newest step led to."""

    @abstractmethod
    def content(self, places: IntArray, done: BoolArray) -> StateDict:
        """A copy of all that `places` (K,) hold; `done` (K,): where episodes ended."""

    @abstractmethod
    def load_content(
        self, places: IntArray, done: BoolArray, content: StateDict, first: int
    ) -> None:
        """Puts `content` back but for its `first` places; `places` and `done` are those behind."""


class SparseRows:
    """Arrays of one shape at a few places."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> None:
        self._nothing = np.zeros((0, *shape), dtype)
        self._arrays: dict[int, Array] = {}

    def __len__(self) -> int:
        return len(self._arrays)

    def put(self, places: IntArray, arrays: Array) -> None:
        """Copies one array to each place."""
        for place, array in zip(places.tolist(), arrays, strict=True):
            self._arrays[place] = array.copy()

    def get(self, place: int) -> Array:
        """The array at a place."""
        return self._arrays[place]

    def stacked(self, places: IntArray) -> Array:
        """(K, …), a copy."""
        found = [self._arrays[place] for place in places.tolist()]
        return np.stack(found) if found else self._nothing.copy()

    def forget(self, places: slice) -> None:
        """Drops what is there at these places."""
        if self._arrays:
            for place in range(places.start, places.stop):
                self._arrays.pop(place, None)

    def clear(self) -> None:
        """Drops everything."""
        self._arrays.clear()


@final
class DenseObservations(Observations):
    """Observations that have nothing in common with each other."""

    history = 0

    def __init__(self, layout: MemoryLayout, num_places: int, allocate: Allocate) -> None:
        self._num_envs = layout.num_envs
        self._obs = allocate((num_places, *layout.obs_shape), layout.obs_dtype)
        self._last = SparseRows(layout.obs_shape, layout.obs_dtype)

    @override
    def write(
        self, here: slice, following: slice, begun: BoolArray, obs: Array, next_obs: Array
    ) -> None:
        self._obs[here] = obs
        self._obs[following] = next_obs
        self._last.forget(following)

    @override
    def keep_last(self, places: IntArray, last_obs: Array) -> None:
        self._last.put(places, last_obs)

    @override
    def at(self, places: IntArray) -> Array:
        return self._obs.take(places, axis=0)

    @override
    def after(self, places: IntArray, ended: BoolArray) -> Array:
        next_obs = self._obs.take(places + self._num_envs, axis=0, mode="wrap")
        for index in np.flatnonzero(ended).tolist():
            next_obs[index] = self._last.get(int(places[index]))
        return next_obs

    @override
    def newest(self, following: slice) -> StateDict:
        return {"obs": self._obs[following].copy()}

    @override
    def load_newest(self, following: slice, newest: StateDict) -> None:
        self._last.clear()
        self._obs[following] = newest["obs"]

    @override
    def content(self, places: IntArray, done: BoolArray) -> StateDict:
        return {"obs": self._obs[places], "last_obs": self._last.stacked(places[done])}

    @override
    def load_content(
        self, places: IntArray, done: BoolArray, content: StateDict, first: int
    ) -> None:
        self._obs[places] = content["obs"][first:]
        ended = places[done]
        self._last.put(ended, content["last_obs"][len(content["last_obs"]) - len(ended) :])


@final
class FrameStacks(Observations):
    """The last L frames in equal parts of the first axis, the newest last, of which only the newest
    is stored: (L, …) or, where frames have channels, (L·C, …).

    What the first stack of an episode holds besides is kept apart, whatever it is filled with.
    """

    def __init__(self, layout: MemoryLayout, num_places: int, allocate: Allocate) -> None:
        length, (leading, *rest) = layout.frame_stack, layout.obs_shape
        assert leading % length == 0, "a stack leads with its frames"
        self._obs_shape = layout.obs_shape
        self._stack_shape = (length, leading // length, *rest)
        self.history = layout.frame_stack - 1
        self._num_envs = layout.num_envs
        self._num_places = num_places
        shape, dtype = self._stack_shape[1:], layout.obs_dtype
        self._frames = allocate((num_places, *shape), dtype)
        self._depth = allocate((num_places,), np.dtype(np.int8))
        """How many of the frames before it belong to the same episode, L − 1 at most."""
        self._before = SparseRows((self.history, *shape), dtype)
        """The frames before the first of an episode, as its first stack has them."""
        self._last = SparseRows(shape, dtype)
        self._back = np.arange(self.history, -1, -1)
        """How many steps ago each frame of a stack was seen."""

    @override
    def write(
        self, here: slice, following: slice, begun: BoolArray, obs: Array, next_obs: Array
    ) -> None:
        self._last.forget(following)
        self._before.forget(following)
        stacks = self._split(obs)
        if np.count_nonzero(begun):
            first = np.flatnonzero(begun)
            first = first[~self._continues(first + here.start, stacks[first])]
            self._depth[first + here.start] = 0
            self._before.put(first + here.start, stacks[first, :-1])
        self._frames[here] = stacks[:, -1]
        self._frames[following] = self._split(next_obs)[:, -1]
        self._depth[following] = np.minimum(self._depth[here] + 1, self.history)

    def _continues(self, places: IntArray, stacks: Array) -> BoolArray:
        """(K,) whether the `stacks` (K, L, …) that begin an episode at `places` lie there already.

        So it is where an episode ended for the learner only, as with a lost life in a game.
        """
        continues = self._depth[places] > 0
        known = places[continues]
        same = self._stacks(known, self._depth[known]) == stacks[continues]
        continues[continues] = same.all(axis=tuple(range(1, same.ndim)))
        return continues

    @override
    def keep_last(self, places: IntArray, last_obs: Array) -> None:
        self._last.put(places, self._split(last_obs)[:, -1])

    @override
    def at(self, places: IntArray) -> Array:
        return self._joined(self._stacks(places, self._depth[places]))

    @override
    def after(self, places: IntArray, ended: BoolArray) -> Array:
        depth = np.minimum(self._depth[places] + 1, self.history)
        stacks = self._stacks(places + self._num_envs, depth)
        for index in np.flatnonzero(ended).tolist():
            stacks[index, -1] = self._last.get(int(places[index]))
        return self._joined(stacks)

    def _split(self, obs: Array) -> Array:
        """Observations (B, *obs_shape) as (B, L, *frame)."""
        return obs.reshape(len(obs), *self._stack_shape)

    def _joined(self, stacks: Array) -> Array:
        return stacks.reshape(len(stacks), *self._obs_shape)

    def _stacks(self, places: IntArray, depth: IntArray) -> Array:
        """The stacks at `places` (B,), of whose frames the last 1 + `depth` (B,) are stored."""
        back = np.minimum(self._back, depth[:, None])
        stacks: Array = self._frames.take(
            places[:, None] - back * self._num_envs, axis=0, mode="wrap"
        )
        for index in np.flatnonzero(depth < self.history).tolist():
            known = int(depth[index])
            begin = (int(places[index]) - known * self._num_envs) % self._num_places
            stacks[index, : self.history - known] = self._before.get(begin)[known:]
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
    def content(self, places: IntArray, done: BoolArray) -> StateDict:
        depth = self._depth[places]
        return {
            "frames": self._frames[places],
            "depth": depth,
            "before": self._before.stacked(places[depth == 0]),
            "last_frames": self._last.stacked(places[done]),
        }

    @override
    def load_content(
        self, places: IntArray, done: BoolArray, content: StateDict, first: int
    ) -> None:
        self._frames[places] = content["frames"][first:]
        depth = content["depth"][first:]
        self._depth[places] = depth
        begun, ended = places[depth == 0], places[done]
        self._before.put(begun, content["before"][len(content["before"]) - len(begun) :])
        self._last.put(ended, content["last_frames"][len(content["last_frames"]) - len(ended) :])
