"""The memory of whole episodes that are used once."""

import math
from typing import ClassVar

import numpy as np
import torch
from typing_extensions import override

from slm_lab.agent.batch import RawRollout, Rollout, VectorStep
from slm_lab.agent.memory.memory import Memory, MemoryLayout
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Array, IntArray

Episode = dict[str, Array]
"""The steps of one episode by field, (T, ...) each; `next_obs` is the last one only,
(1, ...)."""


class OnPolicyReplay(SavedFields, Memory[Rollout]):
    """Whole episodes, until `horizon` of them are finished, from any number of
    environments.

    The batch is one column (T, 1): the finished episodes in sequence. Each ends in a
    step that is terminated or truncated, so no return crosses into the next. Running
    episodes are kept for a later batch; to drop them would favour short ones.

    With `best_fraction` below one it is the memory of the cross-entropy method. The
    batch then has only that share of the episodes, of the highest return as the learner
    sees rewards."""

    saved: ClassVar = {"steps": "_steps", "begins": "_starts", "finished": "_finished"}

    def __init__(self, layout: MemoryLayout, best_fraction: float = 1.0) -> None:
        self._wanted = layout.horizon
        self._keeps_raw = layout.rollouts_keep_raw
        self._best_fraction = best_fraction
        self._steps: list[dict[str, Array]] = []
        """Vector steps (N, ...) of running episodes, oldest first."""
        self._starts = [0] * layout.num_envs
        """The step in `_steps` at which each environment's running episode starts."""
        self._finished: list[Episode] = []

    @override
    def add(self, step: VectorStep) -> None:
        fields = step.fields(self._keeps_raw)
        fields["version"] = np.full(len(step.reward), step.act.version)
        self._steps.append({name: np.array(value) for name, value in fields.items()})
        done = step.done
        if step.absent is not None:
            done &= ~step.absent
            for n in np.flatnonzero(step.absent):
                self._starts[n] = len(self._steps)
        if done.any():
            self._finish(np.flatnonzero(done), step.next_obs)

    @override
    def break_off(self, next_obs: Array, raw_next_obs: Array | None = None) -> None:
        running = [
            n for n, start in enumerate(self._starts) if start < len(self._steps)
        ]
        if running:
            self._steps[-1]["truncated"][running] = True
            self._finish(np.array(running), next_obs)

    def _finish(self, environments: IntArray, next_obs: Array) -> None:
        """Closes the running episodes of these environments, which end with the last
        step."""
        for n in environments:
            steps = self._steps[self._starts[n] :]
            episode = {
                name: np.stack([step[name][n] for step in steps]) for name in steps[0]
            }
            episode["next_obs"] = next_obs[n : n + 1].copy()
            self._finished.append(episode)
            self._starts[n] = len(self._steps)
        self._forget(min(self._starts))

    @override
    def ready(self) -> bool:
        return len(self._finished) >= self._wanted

    @property
    @override
    def num_samples(self) -> int:
        return sum(len(episode["reward"]) for episode in self._best(self._finished))

    @override
    def take(self) -> Rollout:
        """The finished episodes, or the best of them, as one column."""
        episodes = self._best(self._finished)
        self._finished = []
        columns = {
            name: torch.from_numpy(
                np.concatenate([e[name] for e in episodes])
            ).unsqueeze(1)
            for name in episodes[0]
            if name != "next_obs"
        }
        ends = np.cumsum([len(e["reward"]) for e in episodes]) - 1
        # The learner masks the value of a terminated episode's last state.
        kind = RawRollout if self._keeps_raw else Rollout
        return kind(
            **columns,
            bootstrap_obs=torch.from_numpy(
                np.concatenate([e["next_obs"] for e in episodes])
            ),
            bootstrap_t=torch.from_numpy(ends),
            bootstrap_n=torch.zeros(len(ends), dtype=torch.int64),
        )

    def _best(self, episodes: list[Episode]) -> list[Episode]:
        if self._best_fraction == 1.0:
            return episodes
        num_best = math.ceil(self._best_fraction * len(episodes))
        return sorted(episodes, key=lambda e: -float(e["reward"].sum()))[:num_best]

    def _forget(self, count: int) -> None:
        """Drops the oldest vector steps, which no running episode needs."""
        del self._steps[:count]
        self._starts = [start - count for start in self._starts]
