"""The memory of self-imitation: a rollout, beside past episodes with their returns."""

from itertools import pairwise
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent import batch
from slm_lab.agent.memory.memory import AppendLog, Memory, MemoryLayout
from slm_lab.agent.memory.sampler import NOTHING, Sampler
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Array, FloatArray, IntArray, StateDict


@final
class ReturnRing(SavedFields, AppendLog):
    """The newest `size` steps of finished episodes, with the parts of their returns.
    The steps of an episode are consecutive. Without normalisation a step has its
    return, which never changes. With it a step has its raw reward, and `left`, the
    steps of its episode after it. The return is then the sum of rewards, normalised and
    clipped by current statistics."""

    saved: ClassVar = {"count": "count", "last_block": "_last_block"}
    overwritten = np.arange(0)
    """Empty, because new steps get the indices of the steps that they overwrite."""

    def __init__(self, size: int, gamma: float, layout: MemoryLayout) -> None:
        self.size = self.capacity = size
        self.count = 0
        self._gamma = gamma
        self._normalization = layout.normalization
        self._last_block = 0
        self.arrays: dict[str, Array] = {
            "obs": np.zeros((size, *layout.obs_shape), layout.obs_dtype),
            "action": np.zeros((size, *layout.action_shape), layout.action_dtype),
        }
        if self._normalization is None:
            self.arrays["returns"] = np.zeros(size, np.float32)
        else:
            self.arrays["reward"] = np.zeros(size, np.float32)
            self.arrays["left"] = np.zeros(size, np.int64)

    @property
    def num_stored(self) -> int:
        """Steps that can be sampled."""
        return self.count - self.first

    @property
    def num_present(self) -> int:
        """The same as `num_stored`, because episodes have only steps of agents."""
        return self.num_stored

    def is_absent(self, indices: IntArray) -> None:
        """Always None, because all are steps of agents."""

    @property
    def newest(self) -> IntArray:
        """The indices of the episode added last."""
        return np.arange(self.count - self._last_block, self.count) % self.size

    def indices(self, age: IntArray) -> IntArray:
        """The indices of the steps numbered from the oldest, 0, to `num_stored` − 1."""
        return (self.first + age) % self.size

    def add(self, obs: Array, action: Array, reward: FloatArray) -> None:
        """Writes the K steps of an episode over the oldest; of more than fit, the last.
        `reward` (K,) is raw."""
        count = len(reward)
        values: dict[str, Array] = {"obs": obs, "action": action}
        if self._normalization is None:
            values["returns"] = discounted_sums(reward, self._gamma)
        else:
            values["reward"] = reward
            values["left"] = np.arange(count - 1, -1, -1)
        self._last_block = min(count, self.size)
        indices = (
            np.arange(self.count + count - self._last_block, self.count + count)
            % self.size
        )
        for name, array in self.arrays.items():
            array[indices] = values[name][count - self._last_block :]
        self.count += count

    def obs(self, indices: IntArray) -> Array:
        """The observations at `indices` (B,), normalised by current statistics."""
        obs: Array = self.arrays["obs"][indices]
        if self._normalization is not None:
            obs = self._normalization.obs(obs)
        return obs

    def returns(self, indices: IntArray) -> FloatArray:
        """(B,) Σ_k γ^k r_{t+k} over the rest of the episode."""
        arrays = self.arrays
        if self._normalization is None:
            return np.asarray(arrays["returns"][indices])
        steps_left = arrays["left"][indices]
        steps = np.arange(steps_left.max() + 1)
        later = (indices[:, None] + steps) % self.size
        reward = self._normalization.reward(arrays["reward"][later])
        returns = (reward * (steps <= steps_left[:, None])) @ self._gamma**steps
        return np.asarray(returns, np.float32)

    @override
    def content(self, first: int, end: int) -> StateDict:
        indices = np.arange(first, end) % self.size
        return {
            "first": first,
            **{name: array[indices] for name, array in self.arrays.items()},
        }

    @override
    def load_content(self, content: StateDict) -> None:
        end = int(content["first"]) + len(content["obs"])
        first = max(int(content["first"]), self.first)
        if first < end:
            for name, array in self.arrays.items():
                array[np.arange(first, end) % self.size] = content[name][first - end :]


def discounted_sums(reward: FloatArray, gamma: float) -> FloatArray:
    """R_t = r_t + γ R_{t+1} over the rewards (K,) of an episode, R_K = 0; (K,)."""
    returns = np.empty_like(reward)
    following = 0.0
    for t in range(len(returns) - 1, -1, -1):
        following = reward[t] + gamma * following
        returns[t] = following
    return returns


@final
class PastEpisodes(SavedFields, batch.PastReturns):
    """Joins rollouts into episodes, and stores their steps once they have ended. A
    return is the sum of rewards that followed, eq. 4 of arXiv:1806.05635. It must be a
    lower bound of what is possible. So the sum ends where the episode was truncated. A
    value of the final state would be a guess, kept as a fact. And an episode without a
    positive reward is not stored, because costs that end early look too good. Both are
    as in the authors' code. With `use_cer` the last step of the newest episode is part
    of every batch."""

    saved: ClassVar = {"ring": "_ring", "sampler": "_sampler", "running": "_running"}

    def __init__(
        self, ring: ReturnRing, sampler: Sampler, batch_size: int, use_cer: bool
    ) -> None:
        self.log = self._ring = ring
        """The finished steps."""
        self._sampler = sampler
        self._batch_size = batch_size
        self._use_cer = use_cer
        self._running: dict[int, list[dict[str, Array]]] = {}
        """The pieces of the running episode, by column of the rollout."""

    @property
    @override
    def num_stored(self) -> int:
        return self._ring.num_stored

    @override
    def add(self, rollout: batch.Rollout) -> None:
        done = rollout.done.numpy()
        obs = rollout.obs
        reward = rollout.reward
        if isinstance(rollout, batch.RawRollout):
            obs = rollout.raw_obs
            reward = rollout.raw_reward
        fields = {
            "obs": obs.numpy(),
            "action": rollout.action.numpy(),
            "reward": reward.numpy(),
        }
        num_columns = done.shape[1]
        # Where agents were absent a rollout is one column, which begins with the first
        # of them. Episodes of others are not joined to later rollouts over that gap.
        for n in [n for n in self._running if n >= num_columns]:
            del self._running[n]
        for n in range(num_columns):
            ends = np.union1d(np.flatnonzero(done[:, n]) + 1, len(done)).tolist()
            for start, end in pairwise([0, *ends]):
                piece = {
                    name: values[start:end, n].copy() for name, values in fields.items()
                }
                self._running.setdefault(n, []).append(piece)
                if done[end - 1, n]:
                    self._finish(n)

    def _finish(self, n: int) -> None:
        pieces = self._running.pop(n)
        episode = {
            name: np.concatenate([p[name] for p in pieces]) for name in pieces[0]
        }
        if (episode["reward"] > 0).any():
            self._ring.add(**episode)
            self._sampler.added()

    def drop_running(self) -> None:
        """Drops the pieces of episodes that have not ended."""
        self._running.clear()

    @override
    def sample(self, frame: int) -> batch.Transitions:
        # The last step only: a whole episode would leave no room for the past.
        newest = self._ring.newest[-1:] if self._use_cer else NOTHING
        indices, weight = self._sampler.sample(self._batch_size, frame, newest)
        obs = torch.from_numpy(self._ring.obs(indices))
        returns = torch.from_numpy(self._ring.returns(indices))
        return batch.Transitions(
            obs=obs,
            action=torch.from_numpy(self._ring.arrays["action"][indices]),
            log_prob=torch.full_like(returns, torch.nan),
            reward=returns,
            discount=torch.zeros_like(returns),
            next_obs=obs,
            weight=weight,
            index=torch.from_numpy(indices),
        )

    @override
    def update_priorities(self, index: Tensor, error: Tensor) -> None:
        self._sampler.update_priorities(index, error)


@final
class SelfImitationMemory(SavedFields, Memory[batch.ImitationBatch]):
    """An on-policy memory, with the returns of past episodes."""

    saved: ClassVar = {"present": "_on_policy", "past": "_past"}

    def __init__(self, present: Memory[batch.Rollout], past: PastEpisodes) -> None:
        self._on_policy = present
        self._past = past
        self.log = past.log

    @override
    def add(self, step: batch.VectorStep) -> None:
        self._on_policy.add(step)

    @override
    def ready(self) -> bool:
        return self._on_policy.ready()

    @property
    @override
    def num_samples(self) -> int:
        return self._on_policy.num_samples

    @override
    def take(self) -> batch.ImitationBatch:
        """The rollout, and the past that it joins and that is sampled from."""
        return batch.ImitationBatch(self._on_policy.take(), self._past)

    @override
    def break_off(self, next_obs: Array, raw_next_obs: Array | None = None) -> None:
        """The past drops the running episodes. Their last steps, still to be learned
        from, get returns all the same: those depend only on what follows."""
        self._on_policy.break_off(next_obs, raw_next_obs)
        self._past.drop_running()
