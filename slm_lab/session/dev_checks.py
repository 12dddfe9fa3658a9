"""Checks of the dev mode during training: invariants too expensive to check in every
run."""

import torch

from slm_lab.agent.agent import Agent
from slm_lab.core.errors import LabError


class AgentChecks:
    """Checks one agent: views stay views, learning changes weights, weights stay
    finite."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._initial = {n: f.vector.clone() for n, f in agent.learner.flats.items()}

    def after_learning(self) -> None:
        """Raises LabError if a training event broke the flat vectors or made them
        non-finite."""
        for name, flat in self._agent.learner.flats.items():
            try:
                flat.check()
            except RuntimeError as error:
                raise LabError(f"dev check of {name}: {error}") from error
            if not torch.isfinite(flat.vector).all():
                raise LabError(f"dev check of {name}: a weight is not finite")

    def at_end(self) -> None:
        """Raises LabError if training left a network unchanged."""
        if self._agent.memory is None:
            return
        if self._agent.learner.opt_step == 0:
            raise LabError(
                "dev check: no training event happened in the whole run; "
                "env.max_frame is too short for the frames that one event takes"
            )
        for name, flat in self._agent.learner.flats.items():
            if torch.equal(flat.vector, self._initial[name]):
                raise LabError(f"dev check of {name}: learning changed no weight")
