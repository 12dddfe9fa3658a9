"""Advantage-weighted regression on the present policy's own rollouts, after
arXiv:1910.00177."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.algorithm.algorithm import AgentParts, BuildContext, Learner
from slm_lab.agent.algorithm.loss import explained_variance, standardize
from slm_lab.agent.algorithm.policy_parts import (
    CriticParts,
    assemble,
    build_with_critic,
)
from slm_lab.agent.algorithm.report import Report, number
from slm_lab.agent.algorithm.returns import gae
from slm_lab.agent.batch import Rollout
from slm_lab.agent.device import moved
from slm_lab.agent.net.value_transform import ValueTransform
from slm_lab.core.types import Column
from slm_lab.spec.schema.algorithm import (
    OF_POLICIES,
    AlgorithmSpec,
    OnPolicyLearningSpec,
)

MAX_WEIGHT = 20.0
"""ω_max: no sample weighs more."""


class AWRSpec(OnPolicyLearningSpec):
    """Advantage-weighted regression (arXiv:1910.00177), on-policy."""

    PDTYPES: ClassVar[frozenset[str] | None] = OF_POLICIES

    lam: float = Field(0.95, ge=0, le=1, description="λ of GAE (arXiv:1506.02438)")
    val_loss_coef: float = Field(1.0, ge=0, description="weight of the value loss")
    temperature: float = Field(
        1.0,
        gt=0,
        description="β, in standard deviations of the advantage; large: all weigh "
        "alike",
    )


def advantage_weight(advantage: Tensor, temperature: float) -> Tensor:
    """ω = min(exp(Â/β), ω_max), algorithm 1 of arXiv:1910.00177. (B,)."""
    return (advantage / temperature).exp().clamp(max=MAX_WEIGHT)


def weighted_regression_loss(log_prob: Tensor, weight: Tensor) -> Tensor:
    """−E[ω log π(a|s)]: what was done is learnt, the better the more. (B,) each."""
    return -(weight * log_prob).mean()


def effective_share(weight: Tensor) -> Tensor:
    """(Σω)² / (B Σω²), a scalar: the share of the samples that carry the update (Kish
    1965)."""
    return weight.sum() ** 2 / (len(weight) * (weight**2).sum())


class AWR(Learner[Rollout]):
    """One gradient step per rollout, as ActorCritic, but for the loss of the policy."""

    Params: ClassVar[type[AlgorithmSpec]] = AWRSpec

    def __init__(self, spec: AWRSpec, parts: CriticParts) -> None:
        super().__init__(parts.network.train_state)
        self.spec = spec
        self.network = parts.network
        self._family = parts.family
        self._value_loss_fn = parts.value_loss_fn

    @classmethod
    def build(cls, context: BuildContext) -> AgentParts:
        """Networks, actor and learner from the spec."""
        spec = context.spec.algorithm
        assert isinstance(spec, AWRSpec)
        parts = build_with_critic(context, ValueTransform(False, False))
        learner = cls(spec, parts)
        return assemble(
            context, parts.network, parts.family, learner, spec.training_frequency
        )

    @property
    @override
    def metric_names(self) -> tuple[str | Column, ...]:
        """Columns that the lab documents, by name, and one that is documented here."""
        share = (
            "share of the samples that carry the update, (Σω)² / (B Σω²); 1 if all "
            "weigh alike"
        )
        return (
            "policy_loss",
            "value_loss",
            "explained_variance",
            Column("effective_share", "1", share),
        )

    @override
    def learn(self, batch: Rollout, frame: int) -> Report:
        """One step on −ω log π(a|s) + c L^VF over the whole rollout."""
        network, device = self.network, self.network.device
        self.train_state.set_frame(frame)
        returns = self._returns(batch)
        advantage = standardize(moved((returns - batch.value).flatten(), device))

        network.train(True)
        params, value = network.forward(moved(batch.obs.flatten(0, 1), device))
        policy = self._family(params)
        log_prob = policy.log_prob(moved(batch.action.flatten(0, 1), device))
        weight = advantage_weight(advantage, self.spec.temperature)
        policy_loss = weighted_regression_loss(log_prob, weight)
        value_loss = self._value_loss_fn(value, moved(returns.flatten(), device)).mean()
        step = network.step(policy_loss, self.spec.val_loss_coef * value_loss)
        network.train(False)
        return {
            **self.stepped(step),
            "policy_loss": number(policy_loss),
            "value_loss": number(value_loss),
            "entropy": number(policy.entropy().mean()),
            "explained_variance": explained_variance(batch.value, returns),
            "effective_share": number(effective_share(weight)),
        }

    @torch.no_grad()
    def _returns(self, rollout: Rollout) -> Tensor:
        """Â + V, (T, N)."""
        bootstrap_value = self.network.value(rollout.bootstrap_obs)
        advantage = gae(
            rollout.reward,
            rollout.value,
            rollout.next_value(bootstrap_value),
            rollout.terminated,
            rollout.done,
            self.spec.gamma,
            self.spec.lam,
        )
        return advantage + rollout.value
