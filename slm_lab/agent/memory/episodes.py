"""Memories of whole episodes that are used once and forgotten."""

import math

import numpy as np
import torch
from typing_extensions import override

from slm_lab.agent.batch import Act, RawRollout, Rollout
from slm_lab.agent.memory.memory import Memory, MemoryLayout
from slm_lab.core.types import Array, BoolArray, FloatArray, IntArray, StateDict, Unnormalized
from slm_lab.spec.schema.memory import MemorySpec, OnPolicyCrossEntropySpec

Episode = dict[str, Array]
"""The steps of one episode by field, (T, ...) each; `next_obs` is the last one only, (1, ...)."""

STEP_FIELDS = ("obs", "action", "log_prob", "value", "reward", "terminated", "truncated", "version")
RAW_FIELDS = ("raw_obs", "raw_reward")
"""Those besides where the past is kept, see `MemoryLayout.rollouts_keep_raw`."""


class OnPolicyReplay(Memory[Rollout]):
    """Whole episodes, until `horizon` of them are finished, from any number of environments.

    The batch is one column (T, 1): the finished episodes one after the other. Each ends in a step
    that is terminated or truncated, so nothing reaches from one into the next. Episodes that still
    run are kept for a later batch; to drop them would favour short ones.

    With `best_fraction` below one it is the cross-entropy method's memory: only that share of the
    episodes is learned from, those of the highest return (as the learner sees rewards).
    """

    def __init__(self, layout: MemoryLayout, best_fraction: float = 1.0) -> None:
        self._wanted = layout.horizon
        self._fields = STEP_FIELDS + (RAW_FIELDS if layout.rollouts_keep_raw else ())
        self._best_fraction = best_fraction
        self._steps: list[dict[str, Array]] = []
        """Vector steps (N, ...) that some running episode still needs, oldest first."""
        self._begins = [0] * layout.num_envs
        """Where in `_steps` each environment's running episode begins."""
        self._finished: list[Episode] = []

    @classmethod
    @override
    def build(cls, spec: MemorySpec, layout: MemoryLayout) -> "OnPolicyReplay":
        """OnPolicyCrossEntropy keeps the share of the episodes that its spec says, others all."""
        if isinstance(spec, OnPolicyCrossEntropySpec):
            return cls(layout, spec.cross_entropy)
        return cls(layout)

    @override
    def add(
        self,
        obs: Array,
        act: Act,
        reward: FloatArray,
        terminated: BoolArray,
        truncated: BoolArray,
        next_obs: Array,
        raw: Unnormalized | None = None,
    ) -> None:
        """Appends a step to every running episode, and finishes those that end with it."""
        version = np.full(len(reward), act.version)
        values: tuple[Array, ...]
        values = (obs, act.action, act.log_prob, act.value, reward, terminated, truncated, version)
        if self._fields != STEP_FIELDS and raw is not None:
            values += (raw.obs, raw.reward)
        self._steps.append(
            {name: value.copy() for name, value in zip(self._fields, values, strict=True)}
        )
        done = terminated | truncated
        if done.any():
            self._finish(np.flatnonzero(done), next_obs)

    @override
    def break_off(self, next_obs: Array, raw_next_obs: Array | None = None) -> None:
        """Finishes every running episode as truncated after its last step."""
        running = [n for n, begin in enumerate(self._begins) if begin < len(self._steps)]
        if running:
            self._steps[-1]["truncated"][running] = True
            self._finish(np.array(running), next_obs)

    def _finish(self, environments: IntArray, next_obs: Array) -> None:
        """Takes the running episodes of these environments, which end with the last step."""
        for n in environments:
            steps = self._steps[self._begins[n] :]
            episode = {name: np.stack([step[name][n] for step in steps]) for name in self._fields}
            episode["next_obs"] = next_obs[n : n + 1].copy()
            self._finished.append(episode)
            self._begins[n] = len(self._steps)
        self._forget(min(self._begins))

    @override
    def ready(self) -> bool:
        """Whether enough episodes are finished."""
        return len(self._finished) >= self._wanted

    @property
    @override
    def num_samples(self) -> int:
        """The steps of the episodes that are learned from."""
        return sum(len(episode["reward"]) for episode in self._best(self._finished))

    @override
    def take(self) -> Rollout:
        """The finished episodes, or the best of them, as one column; they are forgotten."""
        episodes, self._finished = self._best(self._finished), []
        columns = {
            name: torch.from_numpy(np.concatenate([e[name] for e in episodes])).unsqueeze(1)
            for name in self._fields
        }
        ends = np.cumsum([len(e["reward"]) for e in episodes]) - 1
        # Where an episode was terminated the value of its last state is masked by the learner.
        kind = Rollout if self._fields == STEP_FIELDS else RawRollout
        return kind(
            **columns,
            bootstrap_obs=torch.from_numpy(np.concatenate([e["next_obs"] for e in episodes])),
            bootstrap_t=torch.from_numpy(ends),
            bootstrap_n=torch.zeros(len(ends), dtype=torch.int64),
        )

    def _best(self, episodes: list[Episode]) -> list[Episode]:
        if self._best_fraction == 1.0:
            return episodes
        kept = math.ceil(self._best_fraction * len(episodes))
        return sorted(episodes, key=lambda e: -float(e["reward"].sum()))[:kept]

    def _forget(self, count: int) -> None:
        """Drops the oldest vector steps, which no running episode needs any more."""
        del self._steps[:count]
        self._begins = [begin - count for begin in self._begins]

    @override
    def state_dict(self) -> StateDict:
        """Finished and running episodes."""
        return {
            "steps": list(self._steps),
            "begins": list(self._begins),
            "finished": list(self._finished),
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        """Restores them."""
        self._steps = list(state["steps"])
        self._begins = list(state["begins"])
        self._finished = list(state["finished"])
