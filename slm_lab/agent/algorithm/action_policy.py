"""How actions are drawn from what a network puts out, and how that changes over the run."""

from typing import Any, final

import gymnasium

from slm_lab.agent.distribution.exploration import (
    ActionSampler,
    ExplorationPolicy,
    exploration_policy,
)
from slm_lab.agent.distribution.family import DistributionFamily
from slm_lab.agent.schedule import Schedule
from slm_lab.core.types import FloatArray
from slm_lab.spec.schema.algorithm import EXPLORING, AlgorithmSpec


@final
class ActionPolicy:
    """A way of acting with the schedule of its exploration variable, where it has one."""

    def __init__(self, way: ExplorationPolicy, exploration: Schedule | None) -> None:
        self._way = way
        self._exploration = exploration

    @classmethod
    def build(
        cls, spec: AlgorithmSpec, family: DistributionFamily, action_space: gymnasium.Space[Any]
    ) -> "ActionPolicy":
        """The one that `action_policy` and `explore_var_spec` describe.

        Raises LabError where it does not fit the action space.
        """
        way = exploration_policy(spec.action_policy, family, action_space)
        if spec.action_policy not in EXPLORING or spec.explore_var_spec is None:
            return cls(way, None)
        return cls(way, Schedule(spec.explore_var_spec))

    def explore_var(self, frame: int) -> float | None:
        """ε or τ at the trial's clock `frame`; None where there is none."""
        return None if self._exploration is None else self._exploration.at(frame)

    def __call__(self, params: FloatArray, explore_var: float | None) -> ActionSampler:
        """What actions are drawn from, given the network's outputs (B, param_dim)."""
        return self._way(params, explore_var or 0.0)
