"""Q-learning with replay: algorithms that differ in the value of the next state."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.algorithm.algorithm import (
    AgentParts,
    BuildContext,
    Learner,
    train_on_replay,
)
from slm_lab.agent.algorithm.policy_parts import (
    QObjective,
    QParts,
    ReturnParts,
    assemble,
    build_q,
    build_replay_config,
)
from slm_lab.agent.algorithm.report import GradientStep, Report, Update
from slm_lab.agent.batch import Transitions, TransitionSource
from slm_lab.agent.net.return_distribution import outputs_of
from slm_lab.spec.schema.q_learning import DistributionalSpec, DQNBaseSpec


class QLearner(Learner[TransitionSource]):
    """Steps on the error between Q(s, a) and r + γ^m V(s'). The algorithms differ in
    V."""

    metric_names = ("q_value", "update_to_data")

    def __init__(self, spec: DQNBaseSpec, parts: QParts) -> None:
        network = parts.network
        super().__init__(
            network.train_state, {"target_network": network.target_network}
        )
        self.spec = spec
        self.network = network
        self.value_loss_fn = parts.value_loss_fn
        self.objective: QObjective = parts.torch_objective
        self.step: GradientStep = self._step

    @classmethod
    def build(cls, context: BuildContext) -> AgentParts:
        """Network, actor and learner from the spec."""
        spec = context.algorithm(DQNBaseSpec)
        parts = build_q(context)
        config = build_replay_config(
            context, spec, spec.num_step_returns, parts.network.recurrent
        )
        return assemble(
            context=context,
            network=parts.network,
            family=parts.family,
            learner=cls(spec, parts),
            replay=config,
        )

    @abstractmethod
    def next_value(self, next_obs: Tensor) -> Tensor:
        """V(s') of the next states, (B,), or outputs for its distribution, (B, K)."""

    def target(self, batch: Transitions) -> Tensor:
        """r + γ^m V(s'), (B,), or its distribution, (B, K)."""
        return batch.reward + batch.discount * self.next_value(batch.next_obs)

    @override
    def take_numbers(self, numbers: Mapping[str, float]) -> None:
        self.spec = self.spec.with_numbers(numbers)

    @override
    def learn(self, batch: TransitionSource, frame: int) -> Report:
        return train_on_replay(
            learner=self,
            source=batch,
            frame=frame,
            steps_per_batch=self.spec.training_iter,
            update=self._update,
        )

    def _update(self, batch: Transitions) -> Update:
        update = self.step(batch.to(self.network.device))
        self.opt_step += 1
        return update

    def _step(self, batch: Transitions) -> Update:
        """One step on w l(Q(s, a), r + γ^m V(s')), eq. 2 of arXiv:1312.5602 for n
        steps."""
        network = self.network
        with torch.no_grad():
            target = self.target(batch)
        network.train(True)
        prediction = self.objective(
            batch.obs, batch.action, lambda _: target, batch.weight
        )
        step = network.step(prediction.loss)
        network.train(False)
        report = {
            "loss": step.loss,
            "grad_norm": step.grad_norm,
            "q_value": prediction.mean_q,
        }
        return Update(report, prediction.error)


@final
class VanillaDQN(QLearner):
    """Q-learning with replay, without a target network (arXiv:1312.5602)."""

    @override
    def next_value(self, next_obs: Tensor) -> Tensor:
        """max_a Q(s', a)."""
        return self.network.q(next_obs).amax(-1)


@final
class DQN(QLearner):
    """Q-learning with a target network: Mnih et al., "Human-level control" (2015)."""

    @override
    def next_value(self, next_obs: Tensor) -> Tensor:
        """max_a Q̂(s', a)."""
        return self.network.target_q(next_obs).amax(-1)


@final
class DoubleDQN(QLearner):
    """The online network chooses, the target network values: arXiv:1509.06461."""

    @override
    def next_value(self, next_obs: Tensor) -> Tensor:
        """Q̂(s', argmax_a Q(s', a))."""
        best = self.network.q(next_obs).argmax(-1, keepdim=True)
        return self.network.target_q(next_obs).gather(-1, best).squeeze(-1)


@final
class DistributionalDQN(QLearner):
    """Q-learning on the distribution of the return: C51 (arXiv:1707.06887) and QR-DQN
    (arXiv:1710.10044). The best action is that of the greatest mean. Its distribution
    is the target network's; with `double` the online network chooses."""

    def __init__(self, spec: DistributionalSpec, parts: QParts) -> None:
        super().__init__(spec, parts)
        assert isinstance(parts, ReturnParts)
        self.returns = parts.returns
        self.is_double = spec.double

    @override
    def next_value(self, next_obs: Tensor) -> Tensor:
        outputs = self.network.target_distributions(next_obs)
        q = self.returns.mean(outputs)
        if self.is_double:
            q = self.network.q(next_obs)
        return outputs_of(outputs, q.argmax(-1))

    @override
    def target(self, batch: Transitions) -> Tensor:
        outputs = self.next_value(batch.next_obs)
        return self.returns.target(batch.reward, batch.discount, outputs)
