"""Q(s, ·) for n discrete actions, with a target network that follows it."""

from typing import final

import numpy as np
from torch import Tensor, nn

from slm_lab.agent.net.acting import act_forward
from slm_lab.agent.net.policy_value import Output, StepReport
from slm_lab.agent.net.target import TargetNetwork
from slm_lab.agent.net.train_state import TrainState
from slm_lab.agent.optim.optimizer import Optimizer
from slm_lab.agent.recurrent_state import RecurrentLayout
from slm_lab.core.types import Array


@final
class QNetwork:
    """An action-value function as actor and learner see it."""

    def __init__(
        self,
        net: nn.Module,
        target: nn.Module,
        optimizer: Optimizer,
        target_network: TargetNetwork,
        recurrent: RecurrentLayout | None,
    ) -> None:
        self.recurrent = recurrent
        self._net = net
        self._target = target
        self._optimizer = optimizer
        self.target_network = target_network
        self.units = TrainState({"q": optimizer})
        self.device = optimizer.flat.vector.device

    def q(self, obs: Tensor) -> Tensor:
        """Q of every action, (B, n)."""
        q: Tensor = self._net.forward(obs)[0]
        return q

    def target_q(self, obs: Tensor) -> Tensor:
        """The same by the target network."""
        q: Tensor = self._target.forward(obs)[0]
        return q

    def act(self, obs: Array) -> Output:
        """Q of every action, (N, n), and of the best, (N,)."""
        q, *state = act_forward(self._net, obs, self.device)
        return Output(q, np.maximum.reduce(q, -1), *state)

    def step(self, loss: Tensor) -> StepReport:
        """One gradient step; the target network may follow."""
        report = StepReport(*self._optimizer.step(loss))
        self.target_network.after_step()
        return report

    def train(self, mode: bool) -> None:
        """Sets the mode of the online network; the target stays in the other."""
        self._net.train(mode)
