"""Soft actor-critic (arXiv:1812.05905) and CrossQ (arXiv:1902.05605), for any kind of
action."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias, final

import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn.functional import one_hot
from typing_extensions import override

from slm_lab.agent.algorithm.algorithm import (
    AgentParts,
    BuildContext,
    Learner,
    seeded_generator,
    train_on_replay,
)
from slm_lab.agent.algorithm.loss import ValueLoss, entropy_change
from slm_lab.agent.algorithm.policy_parts import (
    assemble,
    build_loss,
    build_replay_config,
)
from slm_lab.agent.algorithm.report import GradientStep, Report, Update, mean
from slm_lab.agent.algorithm.temperature import Temperature, build_temperature
from slm_lab.agent.batch import Transitions, TransitionSource
from slm_lab.agent.device import moved
from slm_lab.agent.distribution.distributions import TanhNormal
from slm_lab.agent.distribution.exploration import exploration_policy
from slm_lab.agent.distribution.family import (
    DistributionFamily,
    distribution_family,
    squashed_family,
)
from slm_lab.agent.from_spec.networks import build_policy_only, build_twin_q
from slm_lab.agent.net.policy_value import PolicyOnly
from slm_lab.agent.net.q_network import TwinQ
from slm_lab.agent.optim.optimizer import Loss, TrainState
from slm_lab.agent.optim.rule import Number
from slm_lab.core.types import StateDict
from slm_lab.spec.schema.agent import AgentSpec, net_for_role
from slm_lab.spec.schema.algorithm import EntropyRegularisedSpec
from slm_lab.spec.schema.net import ROLES, NetSpec, Role

ActionValue: TypeAlias = Callable[[Tensor | None], Tensor]
"""Maps actions (B, A) to their values (B,); for discrete actions None to all values (B,
n)."""


class Expectation(NamedTuple):
    """Expectations over the actions of a policy in each state."""

    value: Tensor
    """(B,) E[Q(s, a)]"""
    entropy: Tensor
    """(B,) E[−log π(a|s)]"""


def squashed(params: Tensor, q: ActionValue, noise: Tensor) -> Expectation:
    """Estimates it by one reparametrised action, tanh(μ + σε): eqs. 11 and 20 of
    arXiv:1812.05905. The noise is standard normal."""
    action, log_prob = TanhNormal(*params.chunk(2, -1)).with_log_prob(noise)
    return Expectation(q(action), -log_prob)


def exact(params: Tensor, q: ActionValue, noise: Tensor) -> Expectation:
    """Σ_a π(a|s) Q(s, a) over n actions: eqs. 10 and 12 of arXiv:1910.07207."""
    log_p = params.log_softmax(-1)
    p = log_p.exp()
    return Expectation((p * q(None)).sum(-1), -(p * log_p).sum(-1))


def gumbel_softmax(params: Tensor, q: ActionValue, noise: Tensor) -> Expectation:
    """Estimates it by one action with the gradient of a softmax: straight-through,
    arXiv:1611.01144. The noise is exponential; −log of it is Gumbel."""
    log_p = params.log_softmax(-1)
    relaxed = (log_p - noise.log()).softmax(-1)
    hard = one_hot(relaxed.argmax(-1), log_p.shape[-1]).to(relaxed.dtype)
    action = hard - relaxed.detach() + relaxed
    return Expectation((action * q(None)).sum(-1), -(action * log_p).sum(-1))


class SoftPolicy(NamedTuple):
    """A way to take the expectation, and the noise that it needs."""

    expectation: Callable[[Tensor, ActionValue, Tensor], Expectation]
    """Maps parameters (B, param_dim), an action-value function and the noise of `draw`
    to its expectation, with gradients to the parameters."""
    draw: Callable[[tuple[int, int], torch.Generator], Tensor]
    """Noise of this shape, on the CPU; empty where the expectation is exact."""


SQUASHED = SoftPolicy(
    squashed, lambda shape, generator: torch.randn(shape, generator=generator)
)
EXACT = SoftPolicy(exact, lambda shape, generator: torch.empty(0))
GUMBEL_SOFTMAX = SoftPolicy(
    gumbel_softmax,
    lambda shape, generator: torch.empty(shape).exponential_(generator=generator),
)


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
        policy = EXACT
        if spec.action_pdtype == "GumbelSoftmax":
            policy = GUMBEL_SOFTMAX
    make_family = distribution_family if discrete else squashed_family
    family = make_family(context.action_space, spec.action_pdtype)
    num_actions = family.param_dim
    if not discrete:
        num_actions = family.action_shape[0]
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
        temperature=build_temperature(context.spec, spec, family),
        value_loss_fn=build_loss(agent, "critic"),
        generator=seeded_generator(context.seeds.sampling),
    )


class CriticObjective(NamedTuple):
    """The loss of a critic step, and the numbers that it rests on: both (B,) without a
    gradient, in the critics' own units."""

    loss: Loss
    q: Tensor
    """Q_1 of the actions taken"""
    target: Tensor


class ActorObjective(NamedTuple):
    """The loss of an actor step, and its entropies (B,) without a gradient."""

    loss: Loss
    entropy: Tensor


class Prediction(NamedTuple):
    """The critics' predictions for a batch."""

    q: tuple[Tensor, Tensor]
    """(B,) each: Q_1, Q_2 of the actions taken, in the critics' own units, with
    gradients."""
    following: Expectation
    """The expectation over the actions in the next states, without gradients."""


class SoftLearner(Learner[TransitionSource]):
    """Critics learn r + γ (E[Q(s', a')] + α H(s')); the actor maximises E[Q(s, a)] + α
    H(s). The algorithms differ in how a batch is predicted."""

    metric_names = ("policy_loss", "value_loss", "q_value", "alpha", "update_to_data")

    def __init__(self, spec: EntropyRegularisedSpec, parts: SoftParts) -> None:
        super().__init__(parts.train_state(), parts.critic.target_networks)
        self.spec = spec
        self.actor = parts.actor
        self.critic = parts.critic
        self.temperature = parts.temperature
        self.policy = parts.policy
        self.num_actions = parts.num_actions
        self.generator = parts.generator
        self.value_loss_fn = parts.value_loss_fn
        self.critic_objective: Callable[
            [Transitions, Tensor, Number], CriticObjective
        ] = self.torch_critic_objective
        """Takes a batch, noise for the next states, and α."""
        self.actor_objective: Callable[
            [Transitions, Tensor, Number], ActorObjective
        ] = self.torch_actor_objective
        """Takes a batch, noise for its states, and α."""
        self.step: GradientStep = self._step

    @classmethod
    def build(cls, context: BuildContext) -> AgentParts:
        """Networks, actor and learner from the spec."""
        spec = context.algorithm(EntropyRegularisedSpec)
        parts = build_soft(context, cls.with_nets(context.spec))
        config = build_replay_config(context, spec)
        warmup = None
        if spec.random_warmup and spec.training_start_step > 0:
            warmup = exploration_policy("random", parts.family, context.action_space)
        learner = cls(spec, parts)
        return assemble(
            context=context,
            network=parts.actor,
            family=parts.family,
            learner=learner,
            replay=config,
            warmup=warmup,
        )

    @classmethod
    def with_nets(cls, agent: AgentSpec) -> AgentSpec:
        """The agent with the nets to build: by default the nets of its spec."""
        return agent

    @abstractmethod
    def predict(
        self, obs: Tensor, action: Tensor, next_obs: Tensor, noise: Tensor
    ) -> Prediction:
        """The critics' predictions for B transitions, by noise for the next states."""

    @override
    def learn(self, batch: TransitionSource, frame: int) -> Report:
        return train_on_replay(
            learner=self,
            source=batch,
            frame=frame,
            steps_per_batch=self.spec.training_iter,
            update=partial(self._update, frame=frame),
        )

    def _update(self, batch: Transitions, frame: int) -> Update:
        """Updates the critics, and every `policy_delay` times actor and temperature
        too."""
        device = self.critic.device
        shape = (len(batch.obs), self.num_actions)
        trains_actor = (self.opt_step + 1) % self.spec.policy_delay == 0
        noise = (
            self.policy.draw(shape, self.generator) for _ in range(1 + trains_actor)
        )
        update = self.step(
            batch.to(device),
            tuple(moved(tensor, device) for tensor in noise),
            self.temperature.scheduled(frame),
        )
        self.opt_step += 1
        return update

    def _step(
        self, batch: Transitions, noise: tuple[Tensor, ...], scheduled_alpha: Number
    ) -> Update:
        """Updates the critics; updates actor and temperature too if `noise` has two
        entries."""
        alpha = self.temperature.alpha(scheduled_alpha)
        self.critic.train(True)
        objective = self.critic_objective(batch, noise[0], alpha)
        step = self.critic.step(objective.loss)
        self.critic.train(False)
        report: dict[str, Number] = {
            "loss": step.loss,
            "value_loss": step.loss,
            "grad_norm": step.grad_norm,
            "q_value": mean(self.critic.transform.decode(objective.q)),
            "alpha": alpha,
        }
        error = objective.target - objective.q
        if len(noise) > 1:
            report |= self._update_actor(batch, noise[1], alpha)
        return Update(report, error)

    def torch_critic_objective(
        self, batch: Transitions, noise: Tensor, alpha: Number
    ) -> CriticObjective:
        """The sum of both critics' losses by autograd."""
        (first, second), following = self.predict(
            batch.obs, batch.action, batch.next_obs, noise
        )
        target = self.target(batch, following, alpha)
        loss = self.value_loss_fn(first, target, batch.weight) + self.value_loss_fn(
            second, target, batch.weight
        )
        return CriticObjective(loss, first.detach(), target)

    def target(
        self, batch: Transitions, following: Expectation, alpha: Number
    ) -> Tensor:
        """r + γ (E[Q(s', a')] + α H(s')) in the critics' own units, (B,)."""
        soft_value = following.value.detach() + alpha * following.entropy.detach()
        returns = batch.reward + batch.discount * soft_value
        return self.critic.transform.encode(returns)

    def _update_actor(
        self, batch: Transitions, noise: Tensor, alpha: Number
    ) -> dict[str, Number]:
        """One step of the actor, whose gradient needs none of the critics' weights, and
        one of the temperature."""
        self.actor.train(True)
        with self.critic.frozen():
            objective = self.actor_objective(batch, noise, alpha)
            step = self.actor.minimise(objective.loss)
        self.actor.train(False)
        self.temperature.update(objective.entropy)
        return {"policy_loss": step.loss, "entropy": mean(objective.entropy)}

    def torch_actor_objective(
        self, batch: Transitions, noise: Tensor, alpha: Number
    ) -> ActorObjective:
        """−(E[Q(s, a)] + α H(s)) by autograd."""
        value, entropy = self.policy.expectation(
            self.actor.policy(batch.obs),
            lambda action: self.critic.actor_value(batch.obs, action),
            noise,
        )
        loss = -(value + alpha * entropy).mean()
        if self.spec.entropy_penalty_coef > 0:
            penalty = entropy_change(entropy, batch.log_prob)
            loss = loss + self.spec.entropy_penalty_coef * penalty
        return ActorObjective(loss, entropy.detach())

    @override
    def own_state(self) -> StateDict:
        return {"generator": self.generator.get_state()}

    @override
    def load_own_state(self, state: StateDict) -> None:
        self.generator.set_state(state["generator"])


@final
class SoftActorCritic(SoftLearner):
    """Target networks value the next states."""

    @override
    def predict(
        self, obs: Tensor, action: Tensor, next_obs: Tensor, noise: Tensor
    ) -> Prediction:
        following = self.following(next_obs, noise)
        return Prediction(self.critic.q_values(obs, action), following)

    @torch.no_grad()
    def following(self, next_obs: Tensor, noise: Tensor) -> Expectation:
        """The target networks' expectation over the actions in the next states."""
        return self.policy.expectation(
            self.actor.policy(next_obs),
            lambda next_action: self.critic.target(next_obs, next_action),
            noise,
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
        self, obs: Tensor, action: Tensor, next_obs: Tensor, noise: Tensor
    ) -> Prediction:
        predicted: list[tuple[Tensor, Tensor]] = []

        def next_value(next_action: Tensor | None) -> Tensor:
            with torch.enable_grad():
                q, value = self.critic.q_and_next_value(
                    obs, action, next_obs, next_action
                )
            predicted.append(q)
            return value

        with torch.no_grad():
            following = self.policy.expectation(
                self.actor.policy(next_obs), next_value, noise
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
