"""Soft actor-critic (arXiv:1812.05905), REDQ (arXiv:2101.05982) and CrossQ
(arXiv:1902.05605), for any kind of action."""

from collections.abc import Mapping
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
)
from slm_lab.agent.algorithm.replay_actor_critic import (
    ActorCriticParts,
    Prediction,
    ReplayActorCritic,
    UpdateDraws,
    build_actor_critic,
)
from slm_lab.agent.algorithm.temperature import build_temperature
from slm_lab.agent.distribution.family import distribution_family, squashed_family
from slm_lab.spec.schema.agent import AgentSpec, net_for_role
from slm_lab.spec.schema.net import ROLES, NetSpec, Role
from slm_lab.spec.schema.replay_actor_critic import EntropyRegularisedSpec


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
    """A net with batch renormalisation if its spec sets no normalisation. By default as
    in the authors' code (github adityab/CrossQ, sbx/sac/policies.py): in critics and
    actor, of the input and after every activation. With `norm_place` "before" in the
    critics alone, before every activation."""
    if net.HAS_ARC:
        return net
    place = net.norm_place or "after"
    wanted = role == "critic" or place == "after"
    norm = net.batch_norm or ("renorm" if wanted else False)
    return net.model_copy(update={"batch_norm": norm, "norm_place": place})
