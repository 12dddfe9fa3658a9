"""Advantage learning: DQN whose targets widen the gap between the best action and the
others (arXiv:1512.04860)."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.algorithm.q_learning import QDraws, QLearner
from slm_lab.agent.batch import Transitions
from slm_lab.agent.net.q_network import value_of
from slm_lab.spec.schema.algorithm import AlgorithmSpec
from slm_lab.spec.schema.q_learning import DQNBaseSpec
from slm_lab.spec.schema.schedule import MAY_CHANGE


class AdvantageLearningSpec(DQNBaseSpec):
    """DQN with a penalty on actions that are not the best (arXiv:1512.04860)."""

    # Keys and nets of every Q-learner that this one does not take.
    LEARNS_SEQUENCES: ClassVar[bool] = False
    num_step_returns: Literal[1] = Field(
        1, description="not for AdvantageLearning: it knows the gap of one step"
    )

    alpha: Annotated[float, MAY_CHANGE] = Field(
        0.9, ge=0, lt=1, description="α: the share of the gap that is taken off; 0: DQN"
    )


def advantage_learning_target(
    backup: Tensor, q: Tensor, action: Tensor, alpha: float
) -> Tensor:
    """T_AL Q(s, a) = T Q(s, a) − α (max_b Q(s, b) − Q(s, a)), arXiv:1512.04860.

    `backup` is T Q(s, a) = r + γ max_b Q(s', b), (B,); `q` are the values of all
    actions in s, (B, n); `action` are those that were taken, (B,). Returns (B,).
    """
    gap = q.amax(-1) - value_of(q, action)
    return backup - alpha * gap


class AdvantageLearning(QLearner):
    """DQN, but for the target. All values in it are the target network's."""

    Params: ClassVar[type[AlgorithmSpec]] = AdvantageLearningSpec
    spec: AdvantageLearningSpec

    @override
    def next_value(self, next_obs: Tensor, draws: QDraws) -> Tensor:
        """max_b Q(s', b)."""
        return self.network.target_q(next_obs).amax(-1)

    @override
    def target(self, batch: Transitions, draws: QDraws) -> Tensor:
        backup = super().target(batch, draws)
        q = self.network.target_q(batch.obs)
        return advantage_learning_target(backup, q, batch.action, self.spec.alpha)
