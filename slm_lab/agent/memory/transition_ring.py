"""A ring of vector steps from which transitions are read back."""

from typing import ClassVar, NamedTuple, final

import numpy as np
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.batch import VectorStep
from slm_lab.agent.memory.memory import AppendLog, MemoryLayout
from slm_lab.agent.memory.observation_ring import (
    Allocate,
    Observations,
    allocate_in_memory,
)
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Array, BoolArray, FloatArray, IntArray, StateDict


class TransitionArrays(NamedTuple):
    """B transitions, as in `Transitions`."""

    obs: Array | Tensor
    action: Array
    log_prob: FloatArray
    reward: FloatArray
    discount: FloatArray
    next_obs: Array | Tensor


@final
class Pieces(SavedFields):
    """Knows where the unrolls of several actors continue in one ring, which holds them
    one after another. Rows are rows of the ring; a step number counts all steps that
    were added."""

    saved: ClassVar = {"ends": "_ends"}

    def __init__(self, num_rows: int, num_envs: int) -> None:
        self.cut = np.zeros(num_rows * num_envs, np.bool_)
        """Whether an unroll ended while its episode went on, by index."""
        self._num_rows = num_rows
        self._num_envs = num_envs
        self._adjacent = np.arange(1, num_rows + 1) % num_rows
        self._following = self._adjacent.copy()
        """The row of the next step, by row; −1 if that is not known."""
        self._source = np.full(num_rows, -1)
        """The number of the step that a row continues, by row; −1: the step before it,
        or none."""
        self._ends: dict[int, int] = {}
        """The number of each actor's newest step."""
        self._continued = -1
        """The number of the step that the next one continues."""

    def begin(self, actor: int) -> None:
        """Lets the next step continue the newest of this actor."""
        self._continued = self._ends.get(actor, -1)

    def add(self, step: int) -> None:
        """Notes that a step is written."""
        row = step % self._num_rows
        self.cut[self._indices(row)] = False
        self._following[row] = self._adjacent[row]
        self._link(self._continued, step)
        self._continued = -1

    def end(self, actor: int, step: int, running: BoolArray) -> None:
        """Notes that an unroll ends with this step, and which episodes go on (N,)."""
        row = step % self._num_rows
        self.cut[self._indices(row)] = running
        self._following[row] = -1
        self._ends[actor] = step

    def next_rows(self, rows: IntArray) -> IntArray:
        """(B,) the row of the step that follows each of `rows`; −1 where it is not
        known."""
        return self._following.take(rows)

    def content(self, first: int, end: int, indices: IntArray) -> StateDict:
        """The arrays of the steps numbered `first` to `end` − 1, at these indices."""
        source = self._source[np.arange(first, end) % self._num_rows]
        return {"cut": self.cut[indices], "source": source}

    def load_content(
        self, content: StateDict, first: int, end: int, indices: IntArray
    ) -> None:
        """Restores the `content`. Of more steps than indices the last are taken."""
        self.cut[indices] = content["cut"][-len(indices) :]
        sources = content["source"][first - end :].tolist()
        for step, source in zip(range(first, end), sources, strict=True):
            row = step % self._num_rows
            ends = self.cut[self._indices(row)].any()
            self._following[row] = -1 if ends else self._adjacent[row]
            self._link(source, step)

    def _indices(self, row: int) -> slice:
        return slice(row * self._num_envs, (row + 1) * self._num_envs)

    def _link(self, source: int, step: int) -> None:
        row = step % self._num_rows
        self._source[row] = source
        if source > step - self._num_rows:  # not overwritten yet
            self._following[source % self._num_rows] = row


@final
class TransitionRing(SavedFields, AppendLog):
    """The newest vector steps of N environments, in arrays that are allocated once.
    Transitions are read from the newest `num_rows` steps. Older steps are kept as far
    as stacked frames reach back. One more row holds the state after the newest step.
    The index of (row, environment) is row · N + environment."""

    saved: ClassVar = {"count": "count", "pieces": "_pieces"}
    optional: ClassVar = ("pieces",)

    def __init__(
        self,
        layout: MemoryLayout,
        num_rows: int,
        gamma: float,
        num_steps: int,
        allocate: Allocate = allocate_in_memory,
        on_device: bool = False,
    ) -> None:
        self.num_rows = num_rows
        self.num_envs = layout.num_envs
        self.count = 0
        self.capacity = num_rows + layout.frame_stack - 1
        self._ring_rows = self.capacity + 1
        self.size = self._ring_rows * self.num_envs
        """The number of indices, the N of the row that is written next included."""
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
        self._absent: BoolArray | None = None
        """(size,) the indices that are no step of an agent; None: there are none."""
        if layout.may_be_absent:
            self._absent = allocate((self.size,), np.dtype(np.bool_))
            self._arrays["absent"] = self._absent
        self._normalization = layout.normalization
        recurrent = None
        if layout.replay is not None:
            recurrent = layout.replay.recurrent
        self._obs_size = (
            None
            if recurrent is None
            else layout.obs_shape[0] - recurrent.extra_columns(layout.obs_dtype)
        )
        """The width of the observation in a packed row; None if rows are not packed."""
        self._num_steps = num_steps
        self._gamma = gamma
        self._powers = self._powers_of(gamma)
        """γ^m"""
        self._pieces: Pieces | None = None
        self._envs = np.arange(self.num_envs)
        self._all_begin = np.ones(self.num_envs, np.bool_)

    def discount_by(self, gamma: float) -> None:
        """Reads n-step returns with this γ from now on."""
        if gamma != self._gamma:
            self._gamma = gamma
            self._powers = self._powers_of(gamma)

    def _powers_of(self, gamma: float) -> FloatArray:
        """γ^m for m from 0 to n."""
        powers: FloatArray = gamma ** np.arange(self._num_steps + 1)
        return powers.astype(np.float32)

    @property
    def num_stored(self) -> int:
        """Transitions that can be read."""
        return min(self.count, self.num_rows) * self.num_envs

    @property
    def num_present(self) -> int:
        """Transitions that can be read and are steps of agents."""
        if self._absent is None:
            return self.num_stored
        indices = self.indices(np.arange(self.num_stored))
        return self.num_stored - int(np.count_nonzero(self._absent[indices]))

    def is_absent(self, indices: IntArray) -> BoolArray | None:
        """(B,) whether there is no step of an agent at these indices; None: all are
        steps."""
        if self._absent is None:
            return None
        return self._absent.take(indices)

    @property
    def newest(self) -> IntArray:
        """(K,) the indices of the newest step, without absent agents."""
        indices = self._newest
        if self._absent is None:
            return indices
        return indices[~self._absent[indices]]

    @property
    def _newest(self) -> IntArray:
        """(N,) the indices of the newest step."""
        return self._first_index(self.count - 1) + self._envs

    @property
    def overwritten(self) -> IntArray:
        """(N,) the indices that could be read before the newest step, and no longer."""
        return self._first_index(self.count - 1 - self.num_rows) + self._envs

    @property
    def starts(self) -> BoolArray:
        """(N,) whether the next step starts an episode, or follows a break."""
        if self.count:
            return self._done[self._row(self.count - 1)]
        return self._all_begin

    def indices(self, age: IntArray) -> IntArray:
        """The indices of the transitions of `age` (B,): 0 is the oldest, `num_stored` −
        1 the newest."""
        oldest = self._first_index(max(self.count - self.num_rows, 0))
        return (oldest + age) % self.size

    def add(self, step: VectorStep) -> None:
        """Writes one step over the oldest."""
        here = self._row(self.count)
        following = self._row(self.count + 1)
        self._obs.write(here, following, self.starts, step)
        self._action[here] = step.act.action
        self._log_prob[here] = step.act.log_prob
        self._reward[here] = step.reward
        self._terminated[here] = step.terminated
        if self._pieces is not None:
            self._pieces.add(self.count)
        if self._absent is not None:
            self._absent[here] = False if step.absent is None else step.absent
        done = self._done[here] = step.done
        self.count += 1
        if np.count_nonzero(done):
            self._keep_final(done, step.next_obs)

    def join_pieces(self) -> None:
        """Lets unrolls of several actors alternate, with `begin_piece` and `end_piece`
        around each. n-step sums continue in the actor's next unroll; sequences of
        recurrent nets end with theirs."""
        if self._num_steps > 1 and self._obs_size is None:
            self._pieces = Pieces(self._ring_rows, self.num_envs)

    def begin_piece(self, actor: int) -> None:
        """Lets the next step continue the newest of this actor."""
        if self._pieces is not None:
            self._pieces.begin(actor)

    def end_piece(self, actor: int, next_obs: Array) -> None:
        """Does what `break_off` does, where an unroll of this actor ends with the
        newest step."""
        running = self._break_off(next_obs)
        if self._pieces is not None:
            self._pieces.end(actor, self.count - 1, running)

    def break_off(self, next_obs: Array) -> None:
        """Truncates the episodes that run on after the newest step."""
        if self.count:
            self._break_off(next_obs)

    def _break_off(self, next_obs: Array) -> BoolArray:
        """Truncates them, and returns which (N,)."""
        here = self._row(self.count - 1)
        running = ~self._done[here]
        self._done[here] = True
        self._keep_final(running, next_obs)
        return running

    def _keep_final(self, ended: BoolArray, next_obs: Array) -> None:
        self._obs.keep_final(self._newest[ended], next_obs[ended])

    def gather(self, indices: IntArray) -> TransitionArrays:
        """The transitions at `indices` (B,), each over up to n steps, normalised. They
        have fewer steps where the episode ends, or at the newest step of an actor."""
        reward = self._reward_at(indices)
        last: IntArray = indices
        steps: IntArray = np.ones(1, np.int64)
        if self._num_steps > 1:
            reward, steps, last = self._accumulate(indices, reward)
        ended = self._done.take(last)
        obs, next_obs = self._normalized(
            self._obs.at(indices), self._obs.after(last, ended)
        )
        return TransitionArrays(
            obs=obs,
            action=self._action.take(indices, axis=0),
            log_prob=self._log_prob.take(indices),
            reward=reward,
            discount=self._powers.take(steps) * ~self._terminated.take(last),
            next_obs=next_obs,
        )

    def _normalized(self, *pair: Array | Tensor) -> tuple[Array | Tensor, ...]:
        """Observations (B, *obs_shape), or packed rows, as networks take them; in one
        go."""
        obs, next_obs = pair
        if (
            self._normalization is None
            or isinstance(obs, Tensor)
            or isinstance(next_obs, Tensor)
        ):
            return pair
        both = np.concatenate([obs, next_obs])
        size = self._obs_size
        if size is None:
            both = self._normalization.obs(both)
        else:
            both[:, :size] = self._normalization.obs(both[:, :size])
        return both[: len(obs)], both[len(obs) :]

    def _reward_at(self, indices: IntArray) -> FloatArray:
        reward: FloatArray = self._reward.take(indices)
        if self._normalization is not None:
            reward = self._normalization.reward(reward)
        return reward

    def _accumulate(
        self, indices: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, IntArray, IntArray]:
        """Σ γ^i r over the following steps, their number, and the index of the last."""
        steps: IntArray = np.ones(len(indices), np.int64)
        last = indices
        newest_row = self._first_index(self.count - 1) // self.num_envs
        pieces = self._pieces
        for step in range(1, self._num_steps):
            row = last // self.num_envs
            continues = ~self._done.take(last) & (row != newest_row)
            following = (last + self.num_envs) % self.size
            if pieces is not None:
                next_row = pieces.next_rows(row)
                continues |= pieces.cut.take(last) & (next_row >= 0)
                following = next_row * self.num_envs + last % self.num_envs
            last = np.where(continues, following, last)
            # A sequence that continues here has continued at every step, so the power
            # is right.
            reward += continues * self._powers[step] * self._reward_at(last)
            steps += continues
        return reward, steps, last

    @override
    def content(self, first: int, end: int) -> StateDict:
        indices = self._indices_of_steps(first, end)
        arrays = {name: array[indices] for name, array in self._arrays.items()}
        obs = self._obs.content(indices, self._done[indices])
        content = {"first": first, "steps": end - first, "arrays": arrays, "obs": obs}
        if self._pieces is not None:
            content["pieces"] = self._pieces.content(first, end, indices)
        return content

    @override
    def load_content(self, content: StateDict) -> None:
        """Restores the steps that `content` gave. Call `load_state_dict` first."""
        first = max(int(content["first"]), self.first)
        end = int(content["first"]) + int(content["steps"])
        if first >= end:
            return
        indices = self._indices_of_steps(first, end)
        skipped = (first - int(content["first"])) * self.num_envs
        for name, array in self._arrays.items():
            array[indices] = content["arrays"][name][skipped:]
        self._obs.load_content(indices, self._done[indices], content["obs"], skipped)
        if self._pieces is not None and "pieces" in content:
            self._pieces.load_content(content["pieces"], first, end, indices)

    @override
    def state_dict(self) -> StateDict:
        newest = self._obs.newest(self._row(self.count))
        return {**super().state_dict(), "newest": newest}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        """Drops all steps; `load_content` restores them."""
        super().load_state_dict(state)
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
