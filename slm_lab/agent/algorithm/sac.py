"""Soft actor-critic (arXiv:1812.05905), REDQ (arXiv:2101.05982) and CrossQ
(arXiv:1902.05605) for any kind of action, TQC (arXiv:2005.04269) for continuous
ones."""

from collections.abc import Mapping
from functools import reduce
from typing import final

import torch
from gymnasium import spaces
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.algorithm.algorithm import BuildContext
from slm_lab.agent.algorithm.expectation import (
    EXACT,
    GUMBEL_SOFTMAX,
    SQUASHED,
    Expectation,
)
from slm_lab.agent.algorithm.loss import weighted_mean
from slm_lab.agent.algorithm.replay_actor_critic import (
    ActorCriticParts,
    CriticObjective,
    Prediction,
    ReplayActorCritic,
    UpdateDraws,
    build_actor_critic,
)
from slm_lab.agent.algorithm.temperature import build_temperature
from slm_lab.agent.batch import Transitions
from slm_lab.agent.distribution.family import distribution_family, squashed_family
from slm_lab.agent.from_spec.networks import build_return_distribution
from slm_lab.agent.net.return_distribution import QuantileReturn, truncated
from slm_lab.spec.schema.agent import AgentSpec, net_for_role
from slm_lab.spec.schema.net import ROLES, NetSpec, Role
from slm_lab.spec.schema.replay_actor_critic import EntropyRegularisedSpec, TQCSpec


class SoftLearner(ReplayActorCritic):
    """A learner whose policies are rewarded for their entropy."""

    metric_names = ("policy_loss", "value_loss", "q_value", "alpha", "update_to_data")

    @override
    def take_numbers(self, numbers: Mapping[str, float]) -> None:
        super().take_numbers(numbers)
        if self.temperature is not None and "target_entropy" in numbers:
            self.temperature.aim_at(numbers["target_entropy"])

    @classmethod
    def with_nets(cls, agent: AgentSpec) -> AgentSpec:
        """The agent with the nets to build: by default the nets of its spec."""
        return agent

    @classmethod
    @override
    def build_parts(cls, context: BuildContext) -> ActorCriticParts:
        spec = context.algorithm(EntropyRegularisedSpec)
        if isinstance(context.action_space, spaces.Discrete):
            family = distribution_family(context.action_space, spec.action_pdtype)
            policy = EXACT
            if spec.action_pdtype == "GumbelSoftmax":
                policy = GUMBEL_SOFTMAX
        else:
            family = squashed_family(context.action_space, spec.action_pdtype)
            policy = SQUASHED
        return build_actor_critic(
            context=context,
            agent=cls.with_nets(context.spec),
            family=family,
            policy=policy,
            temperature=build_temperature(context.spec, spec, family),
        )


@final
class SoftActorCritic(SoftLearner):
    """Target networks value the next states."""


@final
class REDQ(SoftLearner):
    """Randomized ensembled double Q-learning. Each update bootstraps from the smallest
    target of a few critics, drawn at random: algorithm 1 of arXiv:2101.05982. The actor
    maximises the mean of all critics."""


@final
class TQC(SoftLearner):
    """Truncated quantile critics, section 3 of arXiv:2005.04269. Each critic predicts
    quantiles of the return. All learn from the quantiles of all targets but the
    largest. The actor maximises the mean of the quantiles of all critics."""

    def __init__(self, spec: TQCSpec, parts: ActorCriticParts) -> None:
        super().__init__(spec, parts)
        returns = build_return_distribution(spec)
        assert isinstance(returns, QuantileReturn)
        self.returns = returns
        self.quantiles_dropped = spec.quantiles_dropped

    @override
    @torch.no_grad()
    def following(self, next_obs: Tensor, draws: UpdateDraws) -> Expectation:
        """The expectation in the next states. Its `value`, (B, M), holds the quantiles
        of the action that are not dropped."""

        def quantiles(next_action: Tensor | None) -> Tensor:
            assert next_action is not None
            of_critics = self.critic.target_distributions(next_obs, next_action)
            return truncated(of_critics, self.quantiles_dropped)

        return self.next_policy.of(
            self.next_params(next_obs), quantiles, draws.next_noise
        )

    @override
    def target(
        self, batch: Transitions, following: Expectation, alpha: float | Tensor
    ) -> Tensor:
        """r + γ^m (z_i − α log π(a'|s')), eq. 11, (B, M)."""
        soft_values = following.value + alpha * following.entropy.unsqueeze(-1)
        return self.returns.target(batch.reward, batch.discount, soft_values)

    @override
    def torch_critic_objective(
        self, batch: Transitions, draws: UpdateDraws, alpha: float | Tensor
    ) -> CriticObjective:
        """The sum of all critics' quantile Huber losses. Q and its target are the means
        of the quantiles."""
        target = self.target(batch, self.following(batch.next_obs, draws), alpha)
        of_critics = self.critic.distributions(batch.obs, batch.action)
        losses = [
            weighted_mean(self.returns.loss(quantiles, target), batch.weight)
            for quantiles in of_critics
        ]
        return CriticObjective(
            loss=reduce(torch.add, losses),
            q=self.returns.mean(of_critics[0].detach()),
            target=target.mean(-1),
        )


@final
class CrossQ(SoftLearner):
    """CrossQ has no target networks. Its batch-renormalised critics see this state and
    the next in one batch. `_with_norm` says where the norm stands."""

    @classmethod
    @override
    def with_nets(cls, agent: AgentSpec) -> AgentSpec:
        actor, critic = (_with_norm(net_for_role(agent, role), role) for role in ROLES)
        return agent.model_copy(update={"net": actor, "critic_net": critic})

    @override
    def predict(
        self, obs: Tensor, action: Tensor, next_obs: Tensor, draws: UpdateDraws
    ) -> Prediction:
        predicted: list[list[Tensor]] = []

        def next_value(next_action: Tensor | None) -> Tensor:
            with torch.enable_grad():
                q, value = self.critic.q_and_next_value(
                    obs, action, next_obs, next_action
                )
            predicted.append(q)
            return value

        with torch.no_grad():
            following = self.policy.of(
                self.actor.policy(next_obs), next_value, draws.next_noise
            )
        return Prediction(predicted[0], following)


def _with_norm(net: NetSpec, role: Role) -> NetSpec:
    """A net with batch renormalisation if its spec sets no normalisation. By default it
    is placed as in the authors' code (github adityab/CrossQ, sbx/sac/policies.py).
    Critics and actor then normalise the input and the output of every activation. With
    `norm_place` "before" the critics alone normalise, before every activation."""
    if net.HAS_ARC:
        return net
    place = net.norm_place or "after"
    wanted = role == "critic" or place == "after"
    norm = net.batch_norm or ("renorm" if wanted else False)
    return net.model_copy(update={"batch_norm": norm, "norm_place": place})
