"""Twin delayed deep deterministic policy gradient, TD3 (arXiv:1802.09477). With one
critic, no delay and no smoothing it is DDPG (arXiv:1509.02971)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import final

from torch import Tensor
from typing_extensions import override

from slm_lab.agent.algorithm.algorithm import BuildContext
from slm_lab.agent.algorithm.expectation import DETERMINISTIC, smoothed
from slm_lab.agent.algorithm.replay_actor_critic import (
    ActorCriticParts,
    ReplayActorCritic,
    build_actor_critic,
)
from slm_lab.agent.distribution.family import deterministic_family
from slm_lab.agent.from_spec.networks import build_policy_target
from slm_lab.spec.schema.replay_actor_critic import TD3Spec


@final
class TD3(ReplayActorCritic):
    """A deterministic actor climbs Q_1. Critics bootstrap from the smallest target Q of
    the target actor's action with clipped noise. Actor and targets follow once in
    `policy_delay` steps of the critics."""

    metric_names = ("policy_loss", "value_loss", "q_value", "update_to_data")
    spec: TD3Spec

    def __init__(self, spec: TD3Spec, parts: ActorCriticParts) -> None:
        super().__init__(spec, parts)
        assert parts.actor_target is not None
        self.actor_target = parts.actor_target.target.module

    @classmethod
    @override
    def build_parts(cls, context: BuildContext) -> ActorCriticParts:
        spec = context.algorithm(TD3Spec)
        family = deterministic_family(context.action_space)
        parts = build_actor_critic(
            context=context,
            agent=context.spec,
            family=family,
            policy=DETERMINISTIC,
            next_policy=smoothed(spec.target_noise, spec.target_noise_clip),
        )
        target = build_policy_target(context.spec, parts.actor, family, context.layout)
        return replace(parts, actor_target=target)

    @override
    def take_numbers(self, numbers: Mapping[str, float]) -> None:
        super().take_numbers(numbers)
        spec = self.spec
        self.next_policy = smoothed(spec.target_noise, spec.target_noise_clip)

    @override
    def next_params(self, next_obs: Tensor) -> Tensor:
        params: Tensor = self.actor_target(next_obs)[0]
        return params
