"""The passes and objectives of the lab's learners by NumPy, with gradients written out.

Autograd records the many small operations of a loss, which takes longer than to compute
them."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial, reduce
from typing import NamedTuple, TypeAlias, final

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.algorithm.loss import ValueLoss
from slm_lab.agent.algorithm.policy_parts import QPrediction, TargetOf
from slm_lab.agent.algorithm.policy_pass import (
    PenalisedLikelihood,
    PolicyChange,
    PolicyPass,
)
from slm_lab.agent.algorithm.q_learning import QDraws
from slm_lab.agent.algorithm.replay_actor_critic import (
    ActorObjective,
    CriticObjective,
    ReplayActorCritic,
    UpdateDraws,
)
from slm_lab.agent.batch import Transitions
from slm_lab.agent.fast import losses
from slm_lab.agent.fast.distributions import ArrayFamily, ArraySampler
from slm_lab.agent.fast.losses import Elementwise, Term
from slm_lab.agent.fast.networks import TracedNet, add_gradient
from slm_lab.agent.net.return_distribution import QuantileReturn
from slm_lab.agent.optim.optimizer import Loss
from slm_lab.core.types import FloatArray

ONE = np.float32(1.0)
"""The gradient of a loss by itself."""


class WrittenLoss(NamedTuple):
    """A scalar with a gradient that is written out."""

    value: np.float32
    gradient: Callable[[], object]
    """Adds the gradient to the gradients of the parameters."""

    def item(self) -> float:
        """The value."""
        return float(self.value)

    def backward(self) -> None:
        """Adds the gradient to the gradients of the parameters."""
        self.gradient()


@final
class ArrayPass(PolicyPass):
    """A pass by arrays, of one net with two heads or of two nets."""

    def __init__(
        self,
        nets: Sequence[TracedNet],
        kind: ArrayFamily,
        value_loss: Elementwise | None,
        obs: Tensor,
        action: Tensor,
    ) -> None:
        self._traces = [net.trace(obs.numpy()) for net in nets]
        self._policy = kind(self._traces[0].outputs[0], action)
        self._value = self._traces[-1].outputs[-1][:, 0]
        self._elementwise = value_loss
        self._penalty: Callable[[], FloatArray] | None = None
        """The gradient of a divergence's penalty to the policy's outputs."""

    @property
    @override
    def entropy(self) -> float | Tensor:
        return float(self._entropy)

    @cached_property
    def _entropy(self) -> np.float32:
        entropies = self._policy.entropy
        entropy: np.float32 = np.add.reduce(entropies) / len(entropies)
        return entropy

    @property
    @override
    def value(self) -> Tensor:
        return torch.from_numpy(self._value)

    @override
    def clipped_surrogate(
        self, old_log_prob: Tensor, advantage: Tensor, clip_eps: float | Tensor
    ) -> PolicyChange:
        clip = float(clip_eps)
        self._policy_term, log_ratio = losses.clipped_surrogate(
            self._policy.log_prob, old_log_prob.numpy(), advantage.numpy(), clip
        )
        kl, clip_fraction = losses.policy_change(log_ratio, clip)
        return PolicyChange(float(self._policy_term.value), kl, clip_fraction)

    @override
    def policy_gradient(
        self, advantage: Tensor, weight: Tensor | None = None
    ) -> float | Tensor:
        self._policy_term = losses.policy_gradient(
            self._policy.log_prob, advantage, weight
        )
        return float(self._policy_term.value)

    @override
    def penalised_likelihood(
        self, weight: Tensor, old_params: Tensor, multiplier: Tensor
    ) -> PenalisedLikelihood:
        coefs = multiplier.detach().numpy()
        divergence = self._policy.divergence_from(old_params.numpy())
        term = losses.policy_gradient(self._policy.log_prob, weight, None)
        value = term.value + np.add.reduce(coefs * divergence.mean)
        self._policy_term = term._replace(value=value)
        self._penalty = partial(divergence.gradient, coefs)
        return PenalisedLikelihood(float(value), torch.from_numpy(divergence.mean))

    @override
    def value_loss(self, target: Tensor) -> float | Tensor:
        assert self._elementwise is not None
        return self._critic(losses.value_loss(self._elementwise, self._value, target))

    @override
    def clipped_value_loss(
        self, old_value: Tensor, target: Tensor, clip_eps: float | Tensor
    ) -> float | Tensor:
        assert self._elementwise is not None
        term = losses.clipped_value_loss(
            elementwise_loss=self._elementwise,
            value=self._value,
            old_value=old_value,
            target=target,
            clip_eps=float(clip_eps),
        )
        return self._critic(term)

    @override
    def imitation_value_loss(
        self, target: Tensor, weight: Tensor | None
    ) -> float | Tensor:
        return self._critic(losses.imitation_value_loss(self._value, target, weight))

    def _critic(self, term: Term) -> float | Tensor:
        self._value_term = term
        return float(term.value)

    @override
    def losses(
        self,
        policy_coef: float,
        value_coef: float = 0.0,
        entropy_coef: float | Tensor = 0.0,
    ) -> tuple[Loss, ...]:
        policy = self._traces[0]
        critic = self._traces[-1]
        entropy_coef = float(entropy_coef)
        policy_loss = self._policy_term.value * policy_coef
        if entropy_coef != 0.0:
            policy_loss = policy_loss - self._entropy * entropy_coef

        def of_params() -> FloatArray:
            grad = self._policy.log_prob_gradient(
                self._policy_term.backward(ONE * policy_coef)
            )
            if self._penalty is not None:
                grad = grad + self._penalty() * (ONE * policy_coef)
            if entropy_coef == 0.0:
                return grad
            of_entropy = -ONE * entropy_coef / len(self._policy.entropy)
            return grad + self._policy.entropy_gradient(of_entropy)

        def of_value() -> FloatArray:
            return self._value_term.backward(ONE * value_coef)[:, None]

        if len(policy.outputs) == 2:
            total = policy_loss + self._value_term.value * value_coef
            return (
                WrittenLoss(total, lambda: policy.backward(of_params(), of_value())),
            )
        actor_loss = WrittenLoss(policy_loss, lambda: policy.backward(of_params()))
        if critic is policy:
            return (actor_loss,)
        value_loss = self._value_term.value * value_coef
        return actor_loss, WrittenLoss(value_loss, lambda: critic.backward(of_value()))


@final
class WrittenQ:
    """`QParts.torch_objective`."""

    def __init__(self, net: TracedNet, value_loss: Elementwise) -> None:
        self._net = net
        self._elementwise = value_loss

    def __call__(
        self, obs: Tensor, action: Tensor, target_of: TargetOf, weight: Tensor | None
    ) -> QPrediction:
        """The loss of Q(s, a)."""
        trace = self._net.trace(obs.numpy())
        (q_of_all,) = trace.outputs
        taken = (np.arange(len(action)), action.numpy())
        q = q_of_all[taken]
        q_tensor = torch.from_numpy(q)
        target = target_of(q_tensor)
        term = losses.value_loss(self._elementwise, q, target, weight)

        def backward() -> None:
            grad = np.zeros_like(q_of_all)
            grad[taken] = term.backward(ONE)
            trace.backward(grad)

        mean_q = float(np.add.reduce(q) / len(q))
        loss = WrittenLoss(term.value, backward)
        return QPrediction(loss, q_tensor, mean_q, target - q_tensor)


@final
class WrittenQuantiles:
    """`DistributionalDQN.torch_objective` of quantiles at fixed levels. `net` puts out
    the quantiles of all actions."""

    def __init__(self, net: TracedNet, returns: QuantileReturn) -> None:
        self._net = net
        self._levels = returns.levels(torch.device("cpu")).numpy()
        self._kappa = returns.kappa

    def __call__(
        self, batch: Transitions, target: Tensor, draws: QDraws
    ) -> QPrediction:
        """The loss of the quantiles of Q(s, a)."""
        trace = self._net.trace(batch.obs.numpy())
        (outputs,) = trace.outputs
        size = len(outputs)
        of_all = outputs.reshape(size, -1, len(self._levels))
        taken = (np.arange(size), batch.action.numpy())
        quantiles = of_all[taken]
        errors, slope = losses.quantile_loss(
            quantiles, self._levels, target.numpy(), self._kappa
        )
        term = losses.weighted_mean(errors, slope, batch.weight)

        def backward() -> None:
            grad = np.zeros_like(of_all)
            grad[taken] = term.backward(ONE)
            trace.backward(grad.reshape(outputs.shape))

        q = np.add.reduce(quantiles, -1) / len(self._levels)
        return QPrediction(
            loss=WrittenLoss(term.value, backward),
            q=torch.from_numpy(q),
            mean_q=float(np.add.reduce(q) / size),
            error=torch.from_numpy(errors),
        )


CriticLoss: TypeAlias = Callable[[FloatArray, Tensor, Tensor | None], Term]
"""Takes a critic's outputs (B, K), the target and weights (B,); returns the loss, with
its derivative by the outputs."""


def loss_of_values(value_loss: ValueLoss) -> CriticLoss | None:
    """The loss of critics with one output, against targets (B,); None if it is not
    written out."""
    elementwise = losses.elementwise(value_loss)
    if elementwise is None:
        return None

    def loss(outputs: FloatArray, target: Tensor, weight: Tensor | None) -> Term:
        term = losses.value_loss(elementwise, outputs[:, 0], target, weight)
        return Term(term.value, lambda grad: term.backward(grad)[:, None])

    return loss


def loss_of_quantiles(returns: QuantileReturn) -> CriticLoss:
    """The quantile Huber loss of critics with K outputs, against targets (B, M)."""
    levels = returns.levels(torch.device("cpu")).numpy()

    def loss(outputs: FloatArray, target: Tensor, weight: Tensor | None) -> Term:
        of_samples, slope = losses.quantile_loss(
            outputs, levels, target.numpy(), returns.kappa
        )
        return losses.weighted_mean(of_samples, slope, weight)

    return loss


@final
class WrittenCritics:
    """`torch_critic_objective` of a learner with continuous actions."""

    def __init__(
        self,
        learner: ReplayActorCritic,
        nets: Sequence[TracedNet],
        loss_of_critic: CriticLoss,
    ) -> None:
        self._learner = learner
        self._nets = nets
        self._loss_of_critic = loss_of_critic

    def __call__(
        self, batch: Transitions, draws: UpdateDraws, alpha: float | Tensor
    ) -> CriticObjective:
        """The sum of all critics' losses."""
        following = self._learner.following(batch.next_obs, draws)
        target = self._learner.target(batch, following, alpha)
        both = torch.cat([batch.obs, batch.action], -1).numpy()
        traces = [net.trace(both) for net in self._nets]
        outputs = [trace.outputs[0] for trace in traces]
        terms = [
            self._loss_of_critic(of_critic, target, batch.weight)
            for of_critic in outputs
        ]

        def backward() -> None:
            for trace, term in zip(traces, terms, strict=True):
                trace.backward(term.backward(ONE))

        total = reduce(np.add, [term.value for term in terms])
        return CriticObjective(
            loss=WrittenLoss(total, backward),
            q=torch.from_numpy(_mean(outputs[0])),
            target=target if target.ndim == 1 else target.mean(-1),
        )


@final
class WrittenActor:
    """`ReplayActorCritic.torch_actor_objective` of continuous actions, for one
    reparametrised action."""

    def __init__(
        self,
        learner: ReplayActorCritic,
        actor: TracedNet,
        critics: Sequence[TracedNet],
        sample: ArraySampler,
    ) -> None:
        self._learner = learner
        self._actor = actor
        self._climbed = learner.critic.climbed
        self._critics = critics[:1] if self._climbed == "first" else critics
        self._sample = sample

    def __call__(
        self, batch: Transitions, noise: Tensor, alpha: float | Tensor
    ) -> ActorObjective:
        """−(Q + α H(s)); Q is the critics' smallest, mean or first value."""
        obs = batch.obs.numpy()
        actor = self._actor.trace(obs)
        sample = self._sample(actor.outputs[0], noise)
        both = np.hstack([obs, sample.action])
        critics = [
            net.trace(both, learns=False, passes_on=True) for net in self._critics
        ]
        values = np.stack([_mean(critic.outputs[0]) for critic in critics])
        if self._climbed == "mean":
            climbed = np.add.reduce(values) / len(values)
            shares = np.full_like(values, ONE / len(values))
        else:
            climbed = values.min(0)
            numbers = np.arange(len(values))[:, None]
            shares = values.argmin(0) == numbers
        entropy = -sample.log_prob
        size = len(entropy)
        gain = climbed + alpha * entropy
        value = -(np.add.reduce(gain) / size)
        coef = self._learner.spec.entropy_penalty
        penalty = None
        if coef > 0:
            penalty = losses.entropy_change(entropy, batch.log_prob)
        if penalty is not None:
            value = value + coef * penalty.value

        def backward() -> None:
            of_gain = np.full(size, -ONE / size, np.float32)
            of_critics = [
                critic.backward(_gradient_of_mean(of_gain * share, critic.outputs[0]))
                for critic, share in zip(critics, shares, strict=True)
            ]
            of_both = reduce(np.add, of_critics)
            of_entropy = of_gain * alpha
            if penalty is not None:
                of_entropy = of_entropy + penalty.backward(ONE * coef)
            of_action = of_both[:, obs.shape[1] :]
            actor.backward(sample.backward(of_action, -of_entropy))

        return ActorObjective(WrittenLoss(value, backward), torch.from_numpy(entropy))


def _mean(outputs: FloatArray) -> FloatArray:
    """The mean over the last axis, (B, K) to (B,)."""
    if outputs.shape[-1] == 1:
        return outputs[:, 0]
    mean: FloatArray = np.add.reduce(outputs, -1) / outputs.shape[-1]
    return mean


def _gradient_of_mean(grad: FloatArray, outputs: FloatArray) -> FloatArray:
    """The gradient by outputs (B, K) from the one by their mean, (B,)."""
    count = outputs.shape[-1]
    if count == 1:
        return grad[:, None]
    return np.repeat((grad / count)[:, None], count, -1)


def written_temperature(
    log_alpha: nn.Parameter, surplus: float | Tensor
) -> WrittenLoss:
    """ln α (H − H̄)."""
    grad = ONE * float(surplus)
    return WrittenLoss(
        np.float32(log_alpha.item()) * float(surplus),
        lambda: add_gradient(log_alpha, np.asarray(grad)),
    )
