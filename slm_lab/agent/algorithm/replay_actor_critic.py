"""Actors and critics that learn from replay: the part that soft actor-critic and TD3
have in common."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import ClassVar, NamedTuple

import torch
from gymnasium import spaces
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.algorithm.algorithm import (
    AgentParts,
    BuildContext,
    Learner,
    seeded_generator,
    train_on_replay,
)
from slm_lab.agent.algorithm.expectation import Expectation, PolicyExpectation
from slm_lab.agent.algorithm.loss import ValueLoss, entropy_change
from slm_lab.agent.algorithm.policy_parts import (
    assemble,
    build_loss,
    build_replay_config,
)
from slm_lab.agent.algorithm.report import GradientStep, Report, Update, mean
from slm_lab.agent.algorithm.temperature import Temperature
from slm_lab.agent.batch import Transitions, TransitionSource
from slm_lab.agent.device import moved
from slm_lab.agent.distribution.exploration import exploration_policy
from slm_lab.agent.distribution.family import DistributionFamily
from slm_lab.agent.from_spec.networks import build_critics, build_policy_only
from slm_lab.agent.net.policy_value import PolicyOnly
from slm_lab.agent.net.q_network import Critics
from slm_lab.agent.net.target_network import TargetNetwork
from slm_lab.agent.optim.optimizer import Loss, TrainState
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.replay_actor_critic import ReplayActorCriticSpec


@dataclass(frozen=True)
class ActorCriticParts:
    """An actor, its critics, and the expectation over the policy."""

    actor: PolicyOnly
    critic: Critics
    family: DistributionFamily
    num_actions: int
    """Discrete actions, or components of a continuous one."""
    policy: PolicyExpectation
    """The expectation under the actor, over its actions in a state."""
    next_policy: PolicyExpectation
    """The expectation under the policy that values the next states."""
    value_loss_fn: ValueLoss
    generator: torch.Generator
    temperature: Temperature | None = None
    """The weight of the entropy; None for a policy without entropy."""
    actor_target: TargetNetwork | None = None
    """The second actor, which acts in the next states; None: the actor does."""

    def train_state(self) -> TrainState:
        """Actor, critics and, if tuned, temperature."""
        optimizers = {
            **self.actor.train_state.optimizers,
            "critic": self.critic.optimizer,
        }
        if self.temperature is not None and self.temperature.optimizer is not None:
            optimizers["alpha"] = self.temperature.optimizer
        return TrainState(optimizers)

    @property
    def target_networks(self) -> dict[str, TargetNetwork]:
        """The target networks of critics and actor, as far as there are any."""
        networks = self.critic.target_networks
        if self.actor_target is not None:
            networks["actor_target"] = self.actor_target
        return networks


class UpdateDraws(NamedTuple):
    """The random numbers of one update, which are drawn before it."""

    next_noise: Tensor
    """Noise for the policy in the next states."""
    noise: Tensor | None
    """Noise for the policy in this batch's states; None: the actor does not learn in
    this update."""
    subset: Tensor | None
    """The numbers (M,) of the critics whose smallest target is bootstrapped from; None:
    of all."""
    masks: Tensor | None = None
    """(B, …) masks of the critics' dropout, for the actions taken; None: no dropout"""
    next_masks: Tensor | None = None
    """(B, …) masks of the target networks' dropout, in the next states"""
    actor_masks: Tensor | None = None
    """(B, …) masks of the critics' dropout, for the actor's actions"""

    def on(self, device: torch.device) -> "UpdateDraws":
        """These numbers on a device."""
        return UpdateDraws._make(
            None if numbers is None else moved(numbers, device) for numbers in self
        )


class CriticObjective(NamedTuple):
    """The loss of a critic step, and the numbers that it rests on. Both numbers are
    (B,) without a gradient, in the critics' own units."""

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

    q: list[Tensor]
    """(B,) of each critic: Q of the actions taken, in its own units, with gradients."""
    following: Expectation
    """The expectation over the actions in the next states, without gradients."""


class ReplayActorCritic(Learner[TransitionSource]):
    """Critics learn r + γ^m (E[Q(s', a')] + α H(s')); the actor maximises E[Q(s, a)] +
    α H(s). The algorithms differ in the expectation, and in how a batch is
    predicted."""

    own_fields: ClassVar = {"generator": "generator"}
    reads_spec = True

    def __init__(self, spec: ReplayActorCriticSpec, parts: ActorCriticParts) -> None:
        super().__init__(parts.train_state(), parts.target_networks)
        self.spec: ReplayActorCriticSpec = spec
        self.actor = parts.actor
        self.critic = parts.critic
        self.temperature = parts.temperature
        self.policy = parts.policy
        self.next_policy = parts.next_policy
        self.num_actions = parts.num_actions
        self.generator = parts.generator
        self.value_loss_fn = parts.value_loss_fn
        self.critic_objective: Callable[
            [Transitions, UpdateDraws, float | Tensor], CriticObjective
        ] = self.torch_critic_objective
        """Takes a batch, the draws of the update, and α."""
        self.actor_objective: Callable[
            [Transitions, Tensor, float | Tensor], ActorObjective
        ] = self.torch_actor_objective
        """Takes a batch, noise for its states, and α."""
        self.step: GradientStep = self._step

    @classmethod
    def build(cls, context: BuildContext) -> AgentParts:
        """Networks, actor and learner from the spec."""
        spec = context.algorithm(ReplayActorCriticSpec)
        parts = cls.build_parts(context)
        warmup = None
        if spec.random_warmup and spec.training_start_step > 0:
            warmup = exploration_policy("random", parts.family, context.action_space)
        return assemble(
            context=context,
            network=parts.actor,
            family=parts.family,
            learner=cls(spec, parts),
            replay=build_replay_config(context, spec, spec.num_step_returns),
            warmup=warmup,
        )

    @classmethod
    @abstractmethod
    def build_parts(cls, context: BuildContext) -> ActorCriticParts:
        """All parts. Raises LabError for actions that it cannot learn."""

    def predict(
        self, obs: Tensor, action: Tensor, next_obs: Tensor, draws: UpdateDraws
    ) -> Prediction:
        """The critics' predictions for B transitions. The target networks value the
        next states."""
        following = self.following(next_obs, draws)
        return Prediction(self.critic.q_values(obs, action), following)

    @torch.no_grad()
    def following(self, next_obs: Tensor, draws: UpdateDraws) -> Expectation:
        """The target networks' expectation over the actions in the next states."""
        return self.next_policy.of(
            self.next_params(next_obs),
            lambda next_action: self.critic.target(next_obs, next_action, draws.subset),
            draws.next_noise,
        )

    def next_params(self, next_obs: Tensor) -> Tensor:
        """The parameters (B, param_dim) of the policy in the next states."""
        return self.actor.policy(next_obs)

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
        draws = self.draw(len(batch.obs))
        scheduled_alpha = 0.0
        if self.temperature is not None:
            scheduled_alpha = self.temperature.scheduled(frame)
        update = self.step(batch.to(device), draws.on(device), scheduled_alpha)
        self.opt_step += 1
        return update

    def draw(self, size: int) -> UpdateDraws:
        """The random numbers of the next update on a batch of this size."""
        shape = (size, self.num_actions)
        actor_learns = (self.opt_step + 1) % self.spec.policy_delay == 0
        next_noise = self.next_policy.draw(shape, self.generator)
        noise = None
        if actor_learns:
            noise = self.policy.draw(shape, self.generator)
        subset = self.critic.draw_subset(self.generator)
        next_masks = self.critic.draw_masks(size, self.generator)
        masks = self.critic.draw_masks(size, self.generator)
        actor_masks = None
        if actor_learns:
            actor_masks = self.critic.draw_masks(size, self.generator)
        return UpdateDraws(
            next_noise=next_noise,
            noise=noise,
            subset=subset,
            masks=masks,
            next_masks=next_masks,
            actor_masks=actor_masks,
        )

    def _step(
        self, batch: Transitions, draws: UpdateDraws, scheduled_alpha: float | Tensor
    ) -> Update:
        """Updates the critics; updates actor and temperature too if noise is drawn for
        them."""
        alpha: float | Tensor = 0.0
        if self.temperature is not None:
            alpha = self.temperature.alpha(scheduled_alpha)
        self.critic.train(True)
        with (
            self.critic.masks.applied(draws.masks),
            self.critic.target_masks.applied(draws.next_masks),
        ):
            objective = self.critic_objective(batch, draws, alpha)
        step = self.critic.optimizer.step(objective.loss)
        self.critic.train(False)
        report: dict[str, float | Tensor] = {
            "loss": step.loss,
            "value_loss": step.loss,
            "grad_norm": step.grad_norm,
            "q_value": mean(self.critic.transform.decode(objective.q)),
        }
        if self.temperature is not None:
            report["alpha"] = alpha
        error = objective.target - objective.q
        if draws.noise is not None:
            with self.critic.masks.applied(draws.actor_masks):
                report |= self._update_actor(batch, draws.noise, alpha)
        if draws.noise is not None or not self.spec.DELAYS_TARGETS:
            for network in self.target_networks.values():
                network.after_step()
        return Update(report, error)

    def torch_critic_objective(
        self, batch: Transitions, draws: UpdateDraws, alpha: float | Tensor
    ) -> CriticObjective:
        """The sum of all critics' losses by autograd."""
        q, following = self.predict(batch.obs, batch.action, batch.next_obs, draws)
        target = self.target(batch, following, alpha)
        losses = [self.value_loss_fn(values, target, batch.weight) for values in q]
        return CriticObjective(reduce(torch.add, losses), q[0].detach(), target)

    def target(
        self, batch: Transitions, following: Expectation, alpha: float | Tensor
    ) -> Tensor:
        """r + γ^m (E[Q(s', a')] + α H(s')) in the critics' own units, (B,)."""
        soft_value = following.value.detach() + alpha * following.entropy.detach()
        returns = batch.reward + batch.discount * soft_value
        return self.critic.transform.encode(returns)

    def _update_actor(
        self, batch: Transitions, noise: Tensor, alpha: float | Tensor
    ) -> dict[str, float | Tensor]:
        """One step of the actor, whose gradient needs none of the critics' weights, and
        one of the temperature."""
        self.actor.train(True)
        with self.critic.frozen():
            objective = self.actor_objective(batch, noise, alpha)
            step = self.actor.minimise(objective.loss)
        self.actor.train(False)
        if self.temperature is None:
            return {"policy_loss": step.loss}
        self.temperature.update(objective.entropy, self._entropy_shares(batch.obs))
        return {"policy_loss": step.loss, "entropy": mean(objective.entropy)}

    def _entropy_shares(self, obs: Tensor) -> Tensor | None:
        """The share of the target entropy in each state, (B,); None without a mask."""
        if self.actor.mask is None:
            return None
        return self.actor.mask.greatest_entropy(obs)

    def torch_actor_objective(
        self, batch: Transitions, noise: Tensor, alpha: float | Tensor
    ) -> ActorObjective:
        """−(E[Q(s, a)] + α H(s)) by autograd."""
        value, entropy = self.policy.of(
            self.actor.policy(batch.obs),
            lambda action: self.critic.actor_value(batch.obs, action),
            noise,
        )
        loss = -(value + alpha * entropy).mean()
        if self.spec.entropy_penalty > 0:
            penalty = entropy_change(entropy, batch.log_prob)
            loss = loss + self.spec.entropy_penalty * penalty
        return ActorObjective(loss, entropy.detach())


def build_actor_critic(
    context: BuildContext,
    agent: AgentSpec,
    family: DistributionFamily,
    policy: PolicyExpectation,
    next_policy: PolicyExpectation | None = None,
    temperature: Temperature | None = None,
) -> ActorCriticParts:
    """All parts of an algorithm with these policies. `agent` holds the nets to
    build."""
    spec = context.algorithm(ReplayActorCriticSpec)
    discrete = isinstance(context.action_space, spaces.Discrete)
    num_actions = family.param_dim
    if not discrete:
        num_actions = family.action_shape[0]
    generator = seeded_generator(context.seeds.init)
    actor = build_policy_only(agent, family, context.layout, generator)
    critic = build_critics(
        agent=agent,
        algorithm=spec,
        layout=context.layout,
        num_actions=num_actions,
        discrete=discrete,
        generator=generator,
    )
    return ActorCriticParts(
        actor=actor,
        critic=critic,
        family=family,
        num_actions=num_actions,
        policy=policy,
        next_policy=next_policy or policy,
        value_loss_fn=build_loss(agent, "critic"),
        generator=seeded_generator(context.seeds.sampling),
        temperature=temperature,
    )
