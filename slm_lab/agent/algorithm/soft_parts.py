"""The parts of soft actor-critic and its relatives."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from gymnasium import spaces

from slm_lab.agent.algorithm.algorithm import BuildContext, seeded_generator
from slm_lab.agent.algorithm.loss import ValueLoss
from slm_lab.agent.algorithm.policy_parts import build_loss
from slm_lab.agent.algorithm.soft_policy import (
    EXACT,
    GUMBEL_SOFTMAX,
    SQUASHED,
    SoftPolicy,
)
from slm_lab.agent.algorithm.temperature import LogAlpha, Temperature, TunedTemperature
from slm_lab.agent.device import resolve_device
from slm_lab.agent.distribution.family import (
    DistributionFamily,
    distribution_family,
    squashed_family,
)
from slm_lab.agent.net.build import build_policy_only, build_twin_q
from slm_lab.agent.net.policy_value import PolicyOnly
from slm_lab.agent.net.q_network import TwinQ
from slm_lab.agent.optim.build import build_optimizer
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.optimizer import TrainState
from slm_lab.agent.schedule import Schedule
from slm_lab.core.errors import LabError
from slm_lab.spec.role import net_for_role
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.algorithm import EntropyRegularisedSpec
from slm_lab.spec.schema.optim import OptimSpec
from slm_lab.spec.schema.torch_table import entries

DISCRETE_ENTROPY_SHARE = 0.98
"""H̄ for discrete actions as a share of the largest entropy, ln n
(arXiv:1910.07207)."""


@dataclass(frozen=True)
class SoftParts:
    """An actor, two critics, the temperature, and the expectation over the policy."""

    actor: PolicyOnly
    critic: TwinQ
    family: DistributionFamily
    num_actions: int
    """Discrete actions, or components of a continuous one."""
    policy: SoftPolicy
    temperature: Temperature
    value_loss_fn: ValueLoss
    generator: torch.Generator

    @cached_property
    def train_state(self) -> TrainState:
        """Actor, critics and, if tuned, temperature."""
        optimizers = {
            **self.actor.train_state.optimizers,
            "critic": self.critic.optimizer,
        }
        if self.temperature.optimizer is not None:
            optimizers["alpha"] = self.temperature.optimizer
        return TrainState(optimizers)


def build_soft(context: BuildContext, agent: AgentSpec) -> SoftParts:
    """All parts. `agent` holds the nets to build. Raises LabError for actions that are
    neither discrete nor bounded."""
    spec = context.algorithm(EntropyRegularisedSpec)
    discrete = isinstance(context.action_space, spaces.Discrete)
    policy = SQUASHED
    if discrete:
        policy = GUMBEL_SOFTMAX if spec.action_pdtype == "GumbelSoftmax" else EXACT
    make_family = distribution_family if discrete else squashed_family
    family = make_family(context.action_space, spec.action_pdtype)
    num_actions = family.param_dim if discrete else family.action_shape[0]
    generator = seeded_generator(context.seeds.init)
    actor = build_policy_only(agent, family, context.obs_shape, generator)
    critic = build_twin_q(
        spec=agent,
        algorithm=spec,
        obs_shape=context.obs_shape,
        num_actions=num_actions,
        discrete=discrete,
        generator=generator,
    )
    return SoftParts(
        actor=actor,
        critic=critic,
        family=family,
        num_actions=num_actions,
        policy=policy,
        temperature=_temperature(context, spec, family),
        value_loss_fn=build_loss(agent, "critic"),
        generator=seeded_generator(context.seeds.sampling),
    )


def _temperature(
    context: BuildContext, spec: EntropyRegularisedSpec, family: DistributionFamily
) -> Temperature:
    if spec.fixed_alpha is not None:
        return Temperature(Schedule(spec.fixed_alpha))
    net_spec = net_for_role(context.spec, "actor")
    actors = net_spec.optim_spec
    # Class, learning rate and schedule are the actor's; all other arguments have
    # torch's defaults, as in the authors' code. So a β₁ that is meant for a network is
    # not that of one number.
    args = {"lr": actors.args["lr"] if spec.alpha_lr is None else spec.alpha_lr}
    if "weight_decay" in entries("optimizers")[actors.name].arguments:
        args["weight_decay"] = 0.0  # decay would pull α towards 1, away from its target
    optim_spec = OptimSpec.model_validate({"name": actors.name, **args})
    own = net_spec.model_copy(update={"optim_spec": optim_spec, "clip_grad_val": None})
    log_alpha = LogAlpha(min(0.0, spec.log_alpha_max)).to(resolve_device(net_spec.gpu))
    bounds = spec.log_alpha_min, spec.log_alpha_max
    optimizer = build_optimizer(own, FlatParameters(log_alpha), bounds)
    return TunedTemperature(log_alpha, optimizer, _target_entropy(spec, family))


def _target_entropy(spec: EntropyRegularisedSpec, family: DistributionFamily) -> float:
    """−A for A continuous components (arXiv:1812.05905, appendix D), a share of ln n
    otherwise. Raises LabError for one that not even uniform actions reach, A ln 2 in
    [−1, 1]^A or ln n."""
    if family.action_shape:
        default = -float(family.action_shape[0])
        greatest = family.action_shape[0] * math.log(2)
    else:
        greatest = math.log(family.param_dim)
        default = DISCRETE_ENTROPY_SHARE * greatest
    if spec.target_entropy == "auto":
        return default
    if spec.target_entropy >= greatest:
        raise LabError(
            f"agent.algorithm.target_entropy = {spec.target_entropy}: must be < "
            f"{greatest:.3f}, the entropy of actions that are all alike likely, or α "
            "rises without end"
        )
    return spec.target_entropy
