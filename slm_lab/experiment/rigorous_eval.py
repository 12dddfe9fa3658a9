"""Evaluation beside the training: `meta.rigorous_eval` environments that only evaluate."""

from collections.abc import Callable
from typing import final

from slm_lab.core.types import StateDict
from slm_lab.env.step import FinishedEpisodes
from slm_lab.experiment.episodes import join_episodes
from slm_lab.experiment.evaluate import Evaluator
from slm_lab.metrics.evaluation import EvaluationTracker
from slm_lab.spec.schema.spec import Spec


@final
class RigorousEval:
    """Plays one greedy episode in each of `num_envs` environments when `tracker` says it is time.

    It shares nothing with the training but the snapshot that it is handed: no generator, no
    weights, no statistics. So the training goes on as if there had been no evaluation.
    """

    def __init__(self, spec: Spec, num_envs: int, seed: int) -> None:
        self.tracker = EvaluationTracker(spec.meta.eval_frequency, spec.env.max_frame)
        self._evaluator = Evaluator(spec, num_envs, seed)
        self._before = self._evaluator.state_dict()

    def play(self, snapshot: StateDict, stop: Callable[[], bool]) -> FinishedEpisodes | None:
        """The episodes of the agent in `snapshot`. Raises LabError where one does not end.

        None where `stop` came before all had ended: then it is as if none had been begun.
        """
        self._before = self._evaluator.state_dict()
        self._evaluator.load_snapshot(snapshot)
        parts = list(self._evaluator.finished_episodes(1, stop))
        if sum(len(part.env_index) for part in parts) < self._evaluator.env.num_envs:
            self.take_back()
            return None
        return join_episodes(parts)

    def take_back(self) -> None:
        """As if the last evaluation had not been begun."""
        self._evaluator.load_state_dict(self._before)

    def state_dict(self) -> StateDict:
        """What later evaluations depend on."""
        return {"evaluator": self._evaluator.state_dict(), "tracker": self.tracker.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        """Goes on from `state`."""
        self._evaluator.load_state_dict(state["evaluator"])
        self.tracker.load_state_dict(state["tracker"])

    def close(self) -> None:
        """Frees the environments."""
        self._evaluator.close()
