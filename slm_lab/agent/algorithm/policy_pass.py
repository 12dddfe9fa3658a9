"""One pass of a policy and its critic over a batch, and the terms of their losses."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, TypeAlias, final

from torch import Tensor
from typing_extensions import override

from slm_lab.agent.algorithm import loss
from slm_lab.agent.algorithm.report import number
from slm_lab.agent.distribution.family import DistributionFamily
from slm_lab.agent.net.policy_value import ActingNetwork
from slm_lab.agent.optim.optimizer import Loss


class PolicyChange(NamedTuple):
    """The clipped surrogate loss, and how far the policy is from π_old."""

    policy_loss: float | Tensor
    approx_kl: float | Tensor
    clip_fraction: float | Tensor


class PenalisedLikelihood(NamedTuple):
    """The likelihood loss with its penalty, and the mean divergences from π_old."""

    policy_loss: float | Tensor
    kl: Tensor
    """(K,) in nats, without a gradient"""


class PolicyPass(ABC):
    """One pass of π(a|s), and of V(s) if there is a critic, over a batch. A learner
    asks for one term of the policy and one of the critic, of which it gets the values.
    `losses` then adds them up."""

    @property
    @abstractmethod
    def entropy(self) -> float | Tensor:
        """The mean entropy of the policy, in nats."""

    @property
    @abstractmethod
    def value(self) -> Tensor:
        """(B,) the critic's output, without a gradient."""

    @abstractmethod
    def clipped_surrogate(
        self, old_log_prob: Tensor, advantage: Tensor, clip_eps: float | Tensor
    ) -> PolicyChange:
        """`loss.clipped_surrogate` as the policy's term."""

    @abstractmethod
    def policy_gradient(
        self, advantage: Tensor, weight: Tensor | None = None
    ) -> float | Tensor:
        """`loss.policy_gradient_loss` as the policy's term."""

    @abstractmethod
    def penalised_likelihood(
        self, weight: Tensor, old_params: Tensor, multiplier: Tensor
    ) -> PenalisedLikelihood:
        """−E[w log π(a|s)] and `loss.kl_penalty` as the policy's term. `old_params` (B,
        param_dim) are the network's outputs that made π_old; `weight` is (B,),
        `multiplier` (K,)."""

    @abstractmethod
    def value_loss(self, target: Tensor) -> float | Tensor:
        """The value loss of the spec as the critic's term."""

    @abstractmethod
    def clipped_value_loss(
        self, old_value: Tensor, target: Tensor, clip_eps: float | Tensor
    ) -> float | Tensor:
        """`loss.clipped_value_loss` as the critic's term."""

    @abstractmethod
    def imitation_value_loss(
        self, target: Tensor, weight: Tensor | None
    ) -> float | Tensor:
        """`loss.imitation_value_loss` as the critic's term."""

    @abstractmethod
    def losses(
        self,
        policy_coef: float,
        value_coef: float = 0.0,
        entropy_coef: float | Tensor = 0.0,
    ) -> tuple[Loss, ...]:
        """c_π L^π − c_S S, and with a critic c_V L^V: their sum for one net, each alone
        for two."""


Evaluate: TypeAlias = Callable[[Tensor, Tensor], PolicyPass]
"""Maps observations and actions, both (B, …), to a pass over them."""


@final
class TorchPass(PolicyPass):
    """A pass that autograd differentiates."""

    def __init__(
        self,
        network: ActingNetwork,
        family: DistributionFamily,
        value_loss_fn: loss.ValueLoss | None,
        obs: Tensor,
        action: Tensor,
    ) -> None:
        self._network = network
        self._value_loss_fn = value_loss_fn
        params, *self._values = network.forward(obs)
        self._family = family
        self._distribution = family(params)
        self._log_prob = self._distribution.log_prob(action)
        self._entropy = self._distribution.entropy().mean()
        self._critic_terms: list[Tensor] = []

    @property
    @override
    def entropy(self) -> float | Tensor:
        return number(self._entropy)

    @property
    @override
    def value(self) -> Tensor:
        return self._values[0].detach()

    @override
    def clipped_surrogate(
        self, old_log_prob: Tensor, advantage: Tensor, clip_eps: float | Tensor
    ) -> PolicyChange:
        surrogate = loss.clipped_surrogate(
            self._log_prob, old_log_prob, advantage, clip_eps
        )
        value = self._policy(surrogate.loss)
        return PolicyChange(value, surrogate.kl, surrogate.clip_fraction)

    @override
    def policy_gradient(
        self, advantage: Tensor, weight: Tensor | None = None
    ) -> float | Tensor:
        return self._policy(
            loss.policy_gradient_loss(self._log_prob, advantage, weight)
        )

    @override
    def penalised_likelihood(
        self, weight: Tensor, old_params: Tensor, multiplier: Tensor
    ) -> PenalisedLikelihood:
        kl = self._distribution.kl_from(self._family(old_params)).mean(0)
        likelihood_loss = loss.policy_gradient_loss(self._log_prob, weight)
        value = self._policy(likelihood_loss + loss.kl_penalty(kl, multiplier))
        return PenalisedLikelihood(value, kl.detach())

    def _policy(self, term: Tensor) -> float | Tensor:
        self._policy_term = term
        return number(term)

    @override
    def value_loss(self, target: Tensor) -> float | Tensor:
        assert self._value_loss_fn is not None
        return self._critic(self._value_loss_fn(self._values[0], target))

    @override
    def clipped_value_loss(
        self, old_value: Tensor, target: Tensor, clip_eps: float | Tensor
    ) -> float | Tensor:
        assert self._value_loss_fn is not None
        term = loss.clipped_value_loss(
            value=self._values[0],
            old_value=old_value,
            target=target,
            clip_eps=clip_eps,
            loss_fn=self._value_loss_fn,
        )
        return self._critic(term)

    @override
    def imitation_value_loss(
        self, target: Tensor, weight: Tensor | None
    ) -> float | Tensor:
        return self._critic(loss.imitation_value_loss(self._values[0], target, weight))

    def _critic(self, term: Tensor) -> float | Tensor:
        self._critic_terms = [term]
        return number(term)

    @override
    def losses(
        self,
        policy_coef: float,
        value_coef: float = 0.0,
        entropy_coef: float | Tensor = 0.0,
    ) -> tuple[Loss, ...]:
        policy_loss = loss.with_entropy(
            policy_coef * self._policy_term, self._entropy, entropy_coef
        )
        critic_losses = (value_coef * term for term in self._critic_terms)
        return self._network.losses(policy_loss, *critic_losses)
