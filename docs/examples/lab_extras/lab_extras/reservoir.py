"""A memory in which early steps are as many as late ones: reservoir sampling (Vitter,
1985), as arXiv:1802.10269 keeps experience of earlier tasks."""

from typing import Annotated, ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.batch import Transitions, TransitionSource, VectorStep
from slm_lab.agent.memory.memory import Memory, MemoryLayout
from slm_lab.core.errors import LabError
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Array
from slm_lab.spec.schema.fields import Count
from slm_lab.spec.schema.memory import MemorySpec
from slm_lab.spec.schema.rules import Limit


class ReservoirSpec(MemorySpec):
    """A replay of steps of the whole run, each kept with the same probability."""

    FAMILY = "replay"

    batch_size: Count = Field(description="transitions per batch B")
    max_size: Annotated[Count, Limit(sign=">=", of="batch_size")] = Field(
        description="capacity in transitions"
    )


class Reservoir(SavedFields, Memory[TransitionSource], TransitionSource):
    """Transitions of single steps. Once it is full, the k-th takes the place of a
    random one with probability max_size / k (algorithm R)."""

    Params: ClassVar[type[MemorySpec]] = ReservoirSpec

    saved: ClassVar = {
        "num_stored": "num_stored",
        "num_batches": "num_batches",
        "is_due": "_is_due",
        "arrays": "_arrays",
        "generator": "_generator",
    }

    def __init__(self, spec: ReservoirSpec, layout: MemoryLayout) -> None:
        plan = layout.replay
        assert plan is not None, "an algorithm that replays says how"
        if plan.num_steps > 1 or plan.recurrent is not None:
            raise LabError(
                f"agent.memory.name = {spec.name}: keeps single steps, without n-step "
                "returns and sequences of recurrent nets; use Replay"
            )
        self._plan = plan
        self._normalization = layout.normalization
        self._batch_size = spec.batch_size
        self._max_size = size = spec.max_size
        self._before_training = plan.schedule.before_training(layout.num_envs)
        self._arrays = {
            "obs": np.zeros((size, *layout.obs_shape), layout.obs_dtype),
            "action": np.zeros((size, *layout.action_shape), layout.action_dtype),
            "log_prob": np.zeros(size, np.float32),
            "reward": np.zeros(size, np.float32),
            "terminated": np.zeros(size, np.bool_),
            "next_obs": np.zeros((size, *layout.obs_shape), layout.obs_dtype),
        }
        self._generator = np.random.default_rng(plan.seed)
        self.num_stored = 0
        self.num_batches = 0
        self.ranks_differ = layout.may_be_absent
        self._is_due = False

    @classmethod
    @override
    def build(cls, spec: ReservoirSpec, layout: MemoryLayout) -> Self:
        return cls(spec, layout)

    @override
    def add(self, step: VectorStep) -> None:
        step = step.unnormalized()
        before = self.num_stored
        for n in range(len(step.reward)):
            # a row whose agent did not act is no step
            if step.absent is None or not step.absent[n]:
                self._add_one(step, n)
        self.num_batches = self._plan.schedule.due(before, self.num_stored)
        self._is_due = self.num_batches > 0

    def _add_one(self, step: VectorStep, n: int) -> None:
        """Adds the transition of environment n, or leaves it out."""
        self.num_stored += 1
        place = self.num_stored - 1
        if place >= self._max_size:
            place = int(self._generator.integers(self.num_stored))
        if place >= self._max_size:
            return
        arrays = self._arrays
        arrays["obs"][place] = step.obs[n]
        arrays["action"][place] = step.act.action[n]
        arrays["log_prob"][place] = step.act.log_prob[n]
        arrays["reward"][place] = step.reward[n]
        arrays["terminated"][place] = step.terminated[n]
        arrays["next_obs"][place] = step.next_obs[n]

    @property
    @override
    def num_owed(self) -> int | None:
        return self._plan.schedule.owed(self.num_stored)

    @property
    @override
    def num_trained_on(self) -> int:
        return max(self.num_stored - self._before_training, 0)

    @override
    def ready(self) -> bool:
        return self._is_due

    @override
    def take(self) -> TransitionSource:
        self._is_due = False
        return self

    @override
    def sample(self, frame: int) -> Transitions:
        kept = min(self.num_stored, self._max_size)
        index = self._generator.integers(kept, size=self._batch_size)
        drawn = {name: array[index] for name, array in self._arrays.items()}
        if self._normalization is not None:
            drawn["obs"] = self._normalization.obs(drawn["obs"])
            drawn["next_obs"] = self._normalization.obs(drawn["next_obs"])
            drawn["reward"] = self._normalization.reward(drawn["reward"])
        gamma = self._plan.gamma
        if self._plan.gamma_schedule is not None:
            gamma = self._plan.gamma_schedule.at(frame)
        goes_on = ~drawn.pop("terminated")
        tensors = {name: torch.from_numpy(array) for name, array in drawn.items()}
        return Transitions(
            **tensors,
            discount=torch.from_numpy(gamma * goes_on.astype(np.float32)),
            weight=None,
            index=torch.from_numpy(index),
        )

    @override
    def update_priorities(self, index: Tensor, error: Tensor) -> None:
        """Every transition stays as likely as the others."""

    @override
    def break_off(self, next_obs: Array, raw_next_obs: Array | None = None) -> None:
        """Each transition has the state that it ended in: nothing follows it."""
