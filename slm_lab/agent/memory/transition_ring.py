"""A ring of vector steps from which transitions are read back."""

from typing import NamedTuple, final

import numpy as np
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.batch import VectorStep
from slm_lab.agent.memory.memory import AppendLog, MemoryLayout
from slm_lab.agent.memory.observation_ring import Observations
from slm_lab.agent.memory.storage import Allocate, in_memory
from slm_lab.core.types import Array, BoolArray, FloatArray, IntArray, StateDict


class Gathered(NamedTuple):
    """B transitions, as in `Transitions`."""

    obs: Array | Tensor
    action: Array
    log_prob: FloatArray
    reward: FloatArray
    discount: FloatArray
    next_obs: Array | Tensor


@final
class TransitionRing(AppendLog):
    """The newest vector steps of N environments, in arrays that are allocated once. Transitions are
    read from the newest `num_rows` steps. Older steps are kept as far as stacked frames reach back.
    One more row holds the state after the newest step. The index of (row, environment) is row · N +
    environment."""

    def __init__(
        self,
        layout: MemoryLayout,
        num_rows: int,
        gamma: float,
        num_steps: int,
        allocate: Allocate = in_memory,
        on_device: bool = False,
    ) -> None:
        self.num_rows = num_rows
        self.num_envs = layout.num_envs
        self.count = 0
        self.capacity = num_rows + layout.frame_stack - 1
        self._ring_rows = self.capacity + 1
        self.size = self._ring_rows * self.num_envs
        """Indices, including those of the row that is written next."""
        self._obs = Observations(layout, self.size, allocate, on_device)
        self._action = allocate((self.size, *layout.action_shape), layout.action_dtype)
        self._log_prob = allocate((self.size,), np.dtype(np.float32))
        self._reward = allocate((self.size,), np.dtype(np.float32))
        self._terminated = allocate((self.size,), np.dtype(np.bool_))
        self._done = allocate((self.size,), np.dtype(np.bool_))
        self._arrays: dict[str, Array] = {
            "action": self._action,
            "log_prob": self._log_prob,
            "reward": self._reward,
            "terminated": self._terminated,
            "done": self._done,
        }
        self._normalization = layout.normalization
        recurrent = None if layout.replay is None else layout.replay.recurrent
        self._obs_size = None if recurrent is None else layout.obs_shape[0] - recurrent.extra_size
        """The width of the observation in a packed row; None if rows are not packed."""
        self._num_steps = num_steps
        self._powers = (gamma ** np.arange(num_steps + 1)).astype(np.float32)
        """γ^m"""
        self._envs = np.arange(self.num_envs)
        self._all_begin = np.ones(self.num_envs, np.bool_)

    @property
    def num_stored(self) -> int:
        """Transitions that can be read."""
        return min(self.count, self.num_rows) * self.num_envs

    @property
    def newest(self) -> IntArray:
        """(N,) the indices of the newest step."""
        return self._first_index(self.count - 1) + self._envs

    @property
    def overwritten(self) -> IntArray:
        """(N,) the indices that could be read before the newest step, and no longer."""
        return self._first_index(self.count - 1 - self.num_rows) + self._envs

    @property
    def starts(self) -> BoolArray:
        """(N,) whether the next step starts an episode, or follows a break."""
        return self._done[self._row(self.count - 1)] if self.count else self._all_begin

    def indices(self, age: IntArray) -> IntArray:
        """The indices of the transitions of `age` (B,): 0 is the oldest, `num_stored` − 1 the
        newest."""
        oldest = self._first_index(max(self.count - self.num_rows, 0))
        return (oldest + age) % self.size

    def add(self, step: VectorStep) -> None:
        """Writes one step over the oldest."""
        here, following = self._row(self.count), self._row(self.count + 1)
        self._obs.write(here, following, self.starts, step.obs, step.next_obs)
        self._action[here] = step.act.action
        self._log_prob[here] = step.act.log_prob
        self._reward[here] = step.reward
        self._terminated[here] = step.terminated
        done = self._done[here] = step.done
        self.count += 1
        if np.count_nonzero(done):
            self._keep_final(done, step.next_obs)

    def break_off(self, next_obs: Array) -> None:
        """Truncates the episodes that run on after the newest step."""
        if self.count:
            here = self._row(self.count - 1)
            running = ~self._done[here]
            self._done[here] = True
            self._keep_final(running, next_obs)

    def _keep_final(self, ended: BoolArray, next_obs: Array) -> None:
        self._obs.keep_final(self.newest[ended], next_obs[ended])

    def gather(self, indices: IntArray) -> Gathered:
        """The transitions at `indices` (B,), each over up to n steps, normalised. They have fewer
        steps where the episode ends, or at the newest step."""
        reward = self._reward_at(indices)
        last: IntArray = indices
        steps: IntArray = np.ones(1, np.int64)
        if self._num_steps > 1:
            reward, steps, last = self._accumulate(indices, reward)
        ended = self._done.take(last)
        obs, next_obs = self._normalized(self._obs.at(indices), self._obs.after(last, ended))
        return Gathered(
            obs,
            self._action.take(indices, axis=0),
            self._log_prob.take(indices),
            reward,
            self._powers.take(steps) * ~self._terminated.take(last),
            next_obs,
        )

    def _normalized(self, *pair: Array | Tensor) -> tuple[Array | Tensor, ...]:
        """Observations (B, *obs_shape), or packed rows, as networks take them; in one go."""
        obs, next_obs = pair
        if self._normalization is None or isinstance(obs, Tensor) or isinstance(next_obs, Tensor):
            return pair
        both, size = np.concatenate([obs, next_obs]), self._obs_size
        if size is None:
            both = self._normalization.obs(both)
        else:
            both[:, :size] = self._normalization.obs(both[:, :size])
        return both[: len(obs)], both[len(obs) :]

    def _reward_at(self, indices: IntArray) -> FloatArray:
        reward: FloatArray = self._reward.take(indices)
        return reward if self._normalization is None else self._normalization.reward(reward)

    def _accumulate(
        self, indices: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, IntArray, IntArray]:
        """Σ γ^i r over the following steps, their number, and the index of the last."""
        steps: IntArray = np.ones(len(indices), np.int64)
        last = indices
        newest_row = self._first_index(self.count - 1) // self.num_envs
        for step in range(1, self._num_steps):
            continues = ~self._done.take(last) & (last // self.num_envs != newest_row)
            last = np.where(continues, (last + self.num_envs) % self.size, last)
            # A sequence that continues here has continued at every step, so the power is right.
            reward += continues * self._powers[step] * self._reward_at(last)
            steps += continues
        return reward, steps, last

    @override
    def content(self, first: int, end: int) -> StateDict:
        indices = self._indices_of_steps(first, end)
        arrays = {name: array[indices] for name, array in self._arrays.items()}
        obs = self._obs.content(indices, self._done[indices])
        return {"first": first, "steps": end - first, "arrays": arrays, "obs": obs}

    @override
    def load_content(self, content: StateDict) -> None:
        """Call `load_state_dict` first."""
        first = max(int(content["first"]), self.first)
        end = int(content["first"]) + int(content["steps"])
        if first >= end:
            return
        indices = self._indices_of_steps(first, end)
        skipped = (first - int(content["first"])) * self.num_envs
        for name, array in self._arrays.items():
            array[indices] = content["arrays"][name][skipped:]
        self._obs.load_content(indices, self._done[indices], content["obs"], skipped)

    def state_dict(self) -> StateDict:
        """The number of steps added, and the state after the newest."""
        return {"count": self.count, "newest": self._obs.newest(self._row(self.count))}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores both and drops all steps; `load_content` restores them."""
        self.count = int(state["count"])
        self._obs.load_newest(self._row(self.count), state["newest"])

    def _first_index(self, step: int) -> int:
        return step % self._ring_rows * self.num_envs

    def _row(self, step: int) -> slice:
        first = self._first_index(step)
        return slice(first, first + self.num_envs)

    def _indices_of_steps(self, first: int, end: int) -> IntArray:
        """The indices of the steps numbered `first` to `end` − 1, in order."""
        rows = np.arange(first, end) % self._ring_rows
        return (rows[:, None] * self.num_envs + self._envs).ravel()
