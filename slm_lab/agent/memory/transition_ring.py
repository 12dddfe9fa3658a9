"""A ring of vector steps from which transitions are read back."""

from typing import NamedTuple, final

import numpy as np

from slm_lab.agent.batch import Act
from slm_lab.agent.memory.memory import MemoryLayout
from slm_lab.core.types import Array, BoolArray, FloatArray, IntArray, StateDict


class Gathered(NamedTuple):
    """B transitions, see `Transitions`."""

    obs: Array
    action: Array
    reward: FloatArray
    discount: FloatArray
    next_obs: Array


@final
class TransitionRing:
    """The newest `num_rows` vector steps of N environments, in arrays that are allocated once.

    A place (row, environment) is one number, row · N + environment. What follows a step is the
    observation in the next row, except where an episode ended there: those last observations lie
    apart. One row more than is kept takes the observations that the newest step led to.
    """

    def __init__(self, layout: MemoryLayout, num_rows: int, gamma: float, num_steps: int) -> None:
        self.num_rows = num_rows
        self.num_envs = layout.num_envs
        self.count = 0
        """Vector steps added so far."""
        self._gamma = gamma
        self._num_steps = num_steps
        self.size = (num_rows + 1) * layout.num_envs
        """Places, those of the row that is written next included."""
        self._obs = np.zeros((self.size, *layout.obs_shape), layout.obs_dtype)
        self._action = np.zeros((self.size, *layout.action_shape), layout.action_dtype)
        self._reward = np.zeros(self.size, np.float32)
        self._terminated = np.zeros(self.size, np.bool_)
        self._done = np.zeros(self.size, np.bool_)
        self._arrays: dict[str, Array] = {
            "obs": self._obs,
            "action": self._action,
            "reward": self._reward,
            "terminated": self._terminated,
            "done": self._done,
        }
        self._last_obs: dict[int, Array] = {}
        """What an episode ended in, by the place of its last step."""

    @property
    def num_stored(self) -> int:
        """Transitions that can be read back."""
        return min(self.count, self.num_rows) * self.num_envs

    @property
    def newest(self) -> IntArray:
        """(N,) the places of the newest step."""
        return self._row(self.count - 1) * self.num_envs + np.arange(self.num_envs)

    @property
    def forgotten(self) -> IntArray:
        """(N,) the places that are written next."""
        return self._row(self.count) * self.num_envs + np.arange(self.num_envs)

    def place(self, age: IntArray) -> IntArray:
        """The places of the transitions numbered (B,) from the oldest, 0, to `num_stored` − 1."""
        oldest = self._row(max(self.count - self.num_rows, 0)) * self.num_envs
        return (oldest + age) % self.size

    def add(
        self,
        obs: Array,
        act: Act,
        reward: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
        next_obs: Array,
    ) -> None:
        """Writes one step over the oldest."""
        here, following = self._places(self.count), self._places(self.count + 1)
        self._obs[here] = obs
        self._obs[following] = next_obs
        self._action[here] = act.action
        self._reward[here] = reward
        self._terminated[here] = terminated
        np.logical_or(terminated, truncated, out=self._done[here])
        if self._last_obs:
            for place in range(following.start, following.stop):
                self._last_obs.pop(place, None)
        self.count += 1
        self._keep_last_obs(self._done[here], next_obs)

    def break_off(self, next_obs: Array) -> None:
        """Ends the episodes that run on after the newest step, as truncated."""
        if self.count:
            here = self._places(self.count - 1)
            running = ~self._done[here]
            self._done[here] = True
            self._keep_last_obs(running, next_obs)

    def _keep_last_obs(self, ended: BoolArray, next_obs: Array) -> None:
        first = self._places(self.count - 1).start
        for env in np.flatnonzero(ended):
            self._last_obs[first + int(env)] = next_obs[env].copy()

    def gather(self, places: IntArray) -> Gathered:
        """The transitions at `places` (B,), each over up to n steps.

        Fewer where the episode ends, or where nothing newer is known yet.
        """
        reward = self._reward[places]
        steps: IntArray = np.ones(len(places), np.int64)
        last = places
        if self._num_steps > 1:
            reward, steps, last = self._accumulate(places)
        discount = (self._gamma**steps * ~self._terminated[last]).astype(np.float32)
        next_obs = self._obs[(last + self.num_envs) % self.size]
        for index in np.flatnonzero(self._done[last]):
            next_obs[index] = self._last_obs[int(last[index])]
        return Gathered(self._obs[places], self._action[places], reward, discount, next_obs)

    def _accumulate(self, places: IntArray) -> tuple[FloatArray, IntArray, IntArray]:
        """Σ γ^i r over the steps that follow, how many they are, and the place of the last."""
        reward = self._reward[places].copy()
        steps = np.ones(len(places), np.int64)
        last = places.copy()
        newest_row = self._row(self.count - 1)
        for step in range(1, self._num_steps):
            goes_on = ~self._done[last] & (last // self.num_envs != newest_row)
            last = np.where(goes_on, (last + self.num_envs) % self.size, last)
            # Where it does not go on the steps behind did not either, so the power is right.
            reward += goes_on * np.float32(self._gamma**step) * self._reward[last]
            steps += goes_on
        return reward, steps, last

    def content(self, since: int) -> StateDict:
        """The steps numbered from `since` on that are still kept."""
        first = max(since, self.count - self.num_rows, 0)
        places = np.concatenate([np.arange(0), *map(self._numbers, range(first, self.count))])
        ended = places[self._done[places]]
        return {
            "first": first,
            **{name: array[places] for name, array in self._arrays.items()},
            "last_obs": [self._last_obs[int(place)].copy() for place in ended],
        }

    def load_content(self, content: StateDict) -> None:
        """Puts steps back where they were, those that have been written over since excepted.

        `load_state_dict` comes first, and segments in their order: a later one may hold the last
        step of an earlier one anew.
        """
        first = int(content["first"])
        end = first + len(content["reward"]) // self.num_envs
        kept = max(first, self.count - self.num_rows)
        skipped = (kept - first) * self.num_envs
        places = np.concatenate([np.arange(0), *map(self._numbers, range(kept, end))])
        for name, array in self._arrays.items():
            array[places] = content[name][skipped:]
        ended = np.flatnonzero(content["done"])
        for index, last_obs in zip(ended, content["last_obs"], strict=True):
            if index >= skipped:
                self._last_obs[int(places[index - skipped])] = np.asarray(last_obs)

    def state_dict(self) -> StateDict:
        """How much has been added, and the observations that the newest step led to."""
        return {"count": self.count, "next_obs": self._obs[self._places(self.count)].copy()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores both; `load_content` the rest."""
        self.count = int(state["count"])
        self._obs[self._places(self.count)] = state["next_obs"]

    def _row(self, step: int) -> int:
        return step % (self.num_rows + 1)

    def _places(self, step: int) -> slice:
        first = self._row(step) * self.num_envs
        return slice(first, first + self.num_envs)

    def _numbers(self, step: int) -> IntArray:
        """(N,) the places of a step."""
        where = self._places(step)
        return np.arange(where.start, where.stop)
