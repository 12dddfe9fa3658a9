"""Q-learning with replay: algorithms that differ in the value of the next state."""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple, TypeAlias, final

import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.algorithm.algorithm import (
    AgentParts,
    BuildContext,
    Learner,
    seeded_generator,
    train_on_replay,
)
from slm_lab.agent.algorithm.policy_parts import (
    QObjective,
    QParts,
    QPrediction,
    ReturnParts,
    assemble,
    build_q,
    build_replay_config,
)
from slm_lab.agent.algorithm.report import GradientStep, Report, Update, number
from slm_lab.agent.batch import Transitions, TransitionSource
from slm_lab.agent.device import moved
from slm_lab.agent.net.q_network import value_of
from slm_lab.agent.net.return_distribution import outputs_of
from slm_lab.spec.schema.q_learning import (
    DistributionalSpec,
    DQNBaseSpec,
    MunchausenDQNSpec,
)


class QDraws(NamedTuple):
    """The random numbers of a gradient step."""

    noise: Tensor | None = None
    """(1, …) noise of the noisy layers, for Q(s, a)"""
    next_noise: Tensor | None = None
    """(1, …) noise of the online network in the next states"""
    target_noise: Tensor | None = None
    """(1, …) noise of the target network"""
    levels: Tensor | None = None
    """(B, N) the probabilities τ of the quantiles that learn"""
    next_levels: Tensor | None = None
    """(B, N') the levels of the target's quantiles"""


ReturnObjective: TypeAlias = Callable[[Transitions, Tensor, QDraws], QPrediction]
"""Takes a batch, the target distributions (B, K), and the random numbers of a step."""


class QLearner(Learner[TransitionSource]):
    """Steps on the error between Q(s, a) and r + γ^m V(s'). The algorithms differ in
    V. Noisy layers have new noise in every step: appendix C of arXiv:1706.10295."""

    metric_names = ("q_value", "update_to_data")
    own_fields: ClassVar = {"generator": "_drawing_generator"}
    own_optional: ClassVar = ("generator",)
    reads_spec = True

    def __init__(
        self, spec: DQNBaseSpec, parts: QParts, generator: torch.Generator
    ) -> None:
        network = parts.network
        super().__init__(
            network.train_state, {"target_network": network.target_network}
        )
        self.spec: DQNBaseSpec = spec
        self.network = network
        self.generator = generator
        self.draws_numbers = bool(network.noise)
        """Whether a step needs random numbers."""
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
            learner=cls(spec, parts, seeded_generator(context.seeds.sampling)),
            replay=config,
        )

    @abstractmethod
    def next_value(self, next_obs: Tensor, draws: QDraws) -> Tensor:
        """V(s') of the next states, (B,), or outputs for its distribution, (B, K)."""

    def target(self, batch: Transitions, draws: QDraws) -> Tensor:
        """r + γ^m V(s'), (B,), or its distribution, (B, K)."""
        return batch.reward + batch.discount * self.next_value(batch.next_obs, draws)

    def predict(self, batch: Transitions, target: Tensor, draws: QDraws) -> QPrediction:
        """The loss of Q(s, a) against its target."""
        return self.objective(batch.obs, batch.action, lambda _: target, batch.weight)

    def draw(self, size: int) -> QDraws:
        """The random numbers of a step on a batch of this size."""
        if not self.network.noise:
            return QDraws()
        noise = self.network.noise.draw(3, self.generator)
        now, following, of_target = torch.split(moved(noise, self.network.device), 1)
        return QDraws(noise=now, next_noise=following, target_noise=of_target)

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
        draws = self.draw(len(batch.action))
        update = self.step(batch.to(self.network.device), draws)
        self.opt_step += 1
        return update

    def _step(self, batch: Transitions, draws: QDraws) -> Update:
        """One step on w l(Q(s, a), r + γ^m V(s')), eq. 2 of arXiv:1312.5602 for n
        steps."""
        network = self.network
        with (
            torch.no_grad(),
            network.noise.applied(draws.next_noise),
            network.target_noise.applied(draws.target_noise),
        ):
            target = self.target(batch, draws)
        network.train(True)
        with network.noise.applied(draws.noise):
            prediction = self.predict(batch, target, draws)
        step = network.step(prediction.loss)
        network.train(False)
        report = {
            "loss": step.loss,
            "grad_norm": step.grad_norm,
            "q_value": prediction.mean_q,
        }
        return Update(report, prediction.error)

    @property
    def _drawing_generator(self) -> torch.Generator | None:
        """The generator that steps draw from; None if they draw no numbers."""
        if self.draws_numbers:
            return self.generator
        return None


@final
class VanillaDQN(QLearner):
    """Q-learning with replay, without a target network (arXiv:1312.5602)."""

    @override
    def next_value(self, next_obs: Tensor, draws: QDraws) -> Tensor:
        """max_a Q(s', a)."""
        return self.network.q(next_obs).amax(-1)


@final
class DQN(QLearner):
    """Q-learning with a target network: Mnih et al., "Human-level control" (2015)."""

    @override
    def next_value(self, next_obs: Tensor, draws: QDraws) -> Tensor:
        """max_a Q̂(s', a)."""
        return self.network.target_q(next_obs).amax(-1)


@final
class DoubleDQN(QLearner):
    """The online network chooses, the target network values: arXiv:1509.06461."""

    @override
    def next_value(self, next_obs: Tensor, draws: QDraws) -> Tensor:
        """Q̂(s', argmax_a Q(s', a))."""
        best = self.network.q(next_obs).argmax(-1, keepdim=True)
        return self.network.target_q(next_obs).gather(-1, best).squeeze(-1)


@final
class MunchausenDQN(QLearner):
    """DQN that rewards what its policy is sure of, π = softmax(Q̂ / τ):
    arXiv:2007.14430."""

    def __init__(
        self, spec: MunchausenDQNSpec, parts: QParts, generator: torch.Generator
    ) -> None:
        super().__init__(spec, parts, generator)
        self._alpha = spec.munchausen_alpha
        self._tau = spec.munchausen_tau
        self._lowest = spec.munchausen_clip

    @override
    def next_value(self, next_obs: Tensor, draws: QDraws) -> Tensor:
        """Σ_a π(a|s') (Q̂(s', a) − τ log π(a|s')) = τ log Σ_a e^(Q̂(s', a) / τ)."""
        q = self.network.target_q(next_obs)
        return self._tau * (q / self._tau).logsumexp(-1)

    @override
    def target(self, batch: Transitions, draws: QDraws) -> Tensor:
        """r + α [τ log π(a|s)] + γ V(s'), eq. 1 and section 3.1, with the brackets for
        bounds l_0 and 0."""
        q = self.network.target_q(batch.obs)
        log_policy = value_of((q / self._tau).log_softmax(-1), batch.action)
        bonus = self._alpha * (self._tau * log_policy).clamp(self._lowest, 0.0)
        return super().target(batch, draws) + bonus


@final
class DistributionalDQN(QLearner):
    """Q-learning on the distribution of the return: C51 (arXiv:1707.06887), QR-DQN
    (arXiv:1710.10044) and IQN (arXiv:1806.06923). The best action is the one with the
    greatest mean. Its distribution is the target network's; with `double` the online
    network chooses."""

    def __init__(
        self, spec: DistributionalSpec, parts: QParts, generator: torch.Generator
    ) -> None:
        super().__init__(spec, parts, generator)
        assert isinstance(parts, ReturnParts)
        self.returns = parts.returns
        self.return_objective: ReturnObjective = self.torch_objective
        self.is_double = spec.double
        self.num_levels = spec.num_levels
        self.draws_numbers |= spec.num_levels is not None

    @override
    def draw(self, size: int) -> QDraws:
        draws = super().draw(size)
        if self.num_levels is None:
            return draws
        device = self.network.device
        levels, next_levels = (
            moved(torch.rand(size, count, generator=self.generator), device)
            for count in self.num_levels
        )
        return draws._replace(levels=levels, next_levels=next_levels)

    @override
    def next_value(self, next_obs: Tensor, draws: QDraws) -> Tensor:
        outputs = self.network.target_distributions(next_obs, draws.next_levels)
        if self.is_double:
            q = self.network.q(next_obs)
        elif draws.next_levels is not None:
            q = self.network.target_q(next_obs)
        else:
            # the same Q̂, without another pass
            q = self.network.masked(self.returns.mean(outputs), next_obs)
        return outputs_of(outputs, q.argmax(-1))

    @override
    def target(self, batch: Transitions, draws: QDraws) -> Tensor:
        outputs = self.next_value(batch.next_obs, draws)
        return self.returns.target(batch.reward, batch.discount, outputs)

    @override
    def predict(self, batch: Transitions, target: Tensor, draws: QDraws) -> QPrediction:
        return self.return_objective(batch, target, draws)

    def torch_objective(
        self, batch: Transitions, target: Tensor, draws: QDraws
    ) -> QPrediction:
        """The loss of the distribution of Q(s, a) by autograd."""
        of_all = self.network.distributions(batch.obs, draws.levels)
        outputs = outputs_of(of_all, batch.action)
        q = self.returns.mean(outputs.detach())
        losses = self.returns.loss(outputs, target, draws.levels)
        error = losses.detach()
        if batch.weight is not None:
            losses = losses * batch.weight
        return QPrediction(losses.mean(), q, number(q.mean()), error)
