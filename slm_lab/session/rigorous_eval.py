"""Evaluation beside the training: `meta.rigorous_eval` environments that only evaluate."""

from collections.abc import Callable
from typing import final

from slm_lab.core.types import StateDict
from slm_lab.env.vector_env import FinishedEpisodes
from slm_lab.metrics.evaluation import EvaluationTracker
from slm_lab.session.evaluator import Evaluator
from slm_lab.session.play_episodes import join_episodes
from slm_lab.spec.schema.spec import Spec


@final
class RigorousEval:
    """Plays one greedy episode in each of `num_envs` environments whenever `tracker` is due.

    It shares only a snapshot with the training: no generator, weights or statistics. So evaluation
    does not affect training.
    """

    def __init__(self, spec: Spec, num_envs: int, seed: int) -> None:
        self.tracker = EvaluationTracker(spec.meta.eval_frequency, spec.env.max_frame)
        self._evaluator = Evaluator(spec, num_envs, seed)
        self._before = self._evaluator.state_dict()

    def play(self, snapshot: StateDict, stop: Callable[[], bool]) -> FinishedEpisodes | None:
        """The episodes of the agent in `snapshot`. Raises LabError if one does not end.

        Returns None if `stop` became true before all ended; the evaluation is then rolled back.
        """
        self._before = self._evaluator.state_dict()
        self._evaluator.load_snapshot(snapshot)
        parts = list(self._evaluator.finished_episodes(1, stop))
        if sum(len(part.env_index) for part in parts) < self._evaluator.env.num_envs:
            self.take_back()
            return None
        return join_episodes(parts)

    def take_back(self) -> None:
        """Rolls back the last evaluation."""
        self._evaluator.load_state_dict(self._before)

    def state_dict(self) -> StateDict:
        """State that later evaluations depend on."""
        return {"evaluator": self._evaluator.state_dict(), "tracker": self.tracker.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores `state`."""
        self._evaluator.load_state_dict(state["evaluator"])
        self.tracker.load_state_dict(state["tracker"])

    def close(self) -> None:
        """Frees the environments."""
        self._evaluator.close()
