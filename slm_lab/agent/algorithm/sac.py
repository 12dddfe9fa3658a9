"""Soft actor-critic (arXiv:1812.05905) and CrossQ (arXiv:1902.05605), for any kind of
action."""

from abc import abstractmethod
from functools import partial
from typing import NamedTuple, final

import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.algorithm.algorithm import AgentParts, BuildContext, Learner
from slm_lab.agent.algorithm.graphed_step import Update, graphed
from slm_lab.agent.algorithm.loss import entropy_change
from slm_lab.agent.algorithm.policy_parts import assemble, build_replay_config
from slm_lab.agent.algorithm.replay_loop import train_on_replay
from slm_lab.agent.algorithm.report import Report, mean
from slm_lab.agent.algorithm.soft_parts import SoftParts, build_soft
from slm_lab.agent.algorithm.soft_policy import Expectation
from slm_lab.agent.autodiff import Differentiable
from slm_lab.agent.batch import Transitions, TransitionSource
from slm_lab.agent.device import moved
from slm_lab.agent.distribution.exploration import exploration_policy
from slm_lab.agent.optim.rule import Number
from slm_lab.core.types import StateDict
from slm_lab.spec.role import net_for_role
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.algorithm import EntropyRegularisedSpec
from slm_lab.spec.schema.net import ROLES, NetSpec, Role, TorchArcNetSpec


class Prediction(NamedTuple):
    """The critics' predictions for a batch."""

    q: tuple[Differentiable, Differentiable]
    """(B,) each: Q_1, Q_2 of the actions taken, in the critics' own units, with
    gradients."""
    following: Expectation
    """Over the actions in the next states, without gradients."""


class SoftLearner(Learner[TransitionSource]):
    """Critics learn r + γ (E[Q(s', a')] + α H(s')); the actor maximises E[Q(s, a)] + α
    H(s). The algorithms differ in how a batch is predicted."""

    metric_names = ("policy_loss", "value_loss", "q_value", "alpha", "update_to_data")

    def __init__(self, spec: EntropyRegularisedSpec, parts: SoftParts) -> None:
        super().__init__(parts.train_state, parts.critic.target_network)
        self.spec = spec
        self.actor = parts.actor
        self.critic = parts.critic
        self.temperature = parts.temperature
        self.policy = parts.policy
        self.num_actions = parts.num_actions
        self.generator = parts.generator
        self._value_loss_fn = parts.value_loss_fn
        self._graphed_step = graphed(self._step, self.train_state)

    @classmethod
    def build(cls, context: BuildContext) -> AgentParts:
        """Networks, actor and learner from the spec."""
        spec = context.spec.algorithm
        assert isinstance(spec, EntropyRegularisedSpec)
        parts = build_soft(context, cls.with_nets(context.spec))
        config = build_replay_config(context, spec)
        warmup = None
        if spec.random_warmup and spec.training_start_step > 0:
            warmup = exploration_policy("random", parts.family, context.action_space)
        learner = cls(spec, parts)
        return assemble(
            context, parts.actor, parts.family, learner, replay=config, warmup=warmup
        )

    @classmethod
    def with_nets(cls, agent: AgentSpec) -> AgentSpec:
        """The agent with the nets to build: by default those of its spec."""
        return agent

    @abstractmethod
    def predict(
        self, obs: Tensor, action: Tensor, next_obs: Tensor, noise: Tensor
    ) -> Prediction:
        """The critics' predictions for B transitions, by noise for the next states."""

    @override
    def learn(self, batch: TransitionSource, frame: int) -> Report:
        update = partial(self._update, frame=frame)
        return train_on_replay(self, batch, frame, self.spec.training_iter, update)

    def _update(self, batch: Transitions, frame: int) -> Update:
        """A step of the critics, and every `policy_delay` times one of actor and
        temperature."""
        device, shape = self.critic.device, (len(batch.obs), self.num_actions)
        trains_actor = (self.opt_step + 1) % self.spec.policy_delay == 0
        noise = (
            self.policy.draw(shape, self.generator) for _ in range(1 + trains_actor)
        )
        update = self._graphed_step(
            batch.to(device),
            tuple(moved(each, device) for each in noise),
            self.temperature.scheduled(frame),
        )
        self.opt_step += 1
        return update

    def _step(
        self, batch: Transitions, noise: tuple[Tensor, ...], scheduled_alpha: Number
    ) -> Update:
        """A step of the critics, and with a second noise one of actor and
        temperature."""
        alpha = self.temperature.alpha(scheduled_alpha)
        self.critic.train(True)
        q, following = self.predict(batch.obs, batch.action, batch.next_obs, noise[0])
        soft_value = following.value.detach() + alpha * following.entropy.detach()
        raw_target = self.critic.transform.encode(
            batch.reward + batch.discount * soft_value
        )
        first, second = (
            self._value_loss_fn(each, raw_target, batch.weight) for each in q
        )
        step = self.critic.step(first + second)
        self.critic.train(False)
        with torch.no_grad():
            report: dict[str, Number] = {
                "loss": step.loss,
                "value_loss": step.loss,
                "grad_norm": step.grad_norm,
                "q_value": mean(self.critic.transform.decode(q[0].detach())),
                "alpha": alpha,
            }
            error = raw_target - q[0].detach()
        if len(noise) > 1:
            report |= self._update_actor(batch.obs, batch.log_prob, noise[1], alpha)
        return Update(report, error)

    def _update_actor(
        self, obs: Tensor, old_log_prob: Tensor, noise: Tensor, alpha: Number
    ) -> dict[str, Number]:
        """One step on −(E[Q(s, a)] + α H(s)), whose gradient needs none of the critics'
        weights."""
        self.actor.train(True)
        with self.critic.frozen():
            value, entropy = self.policy.expectation(
                self.actor.differentiable(obs),
                lambda action: self.critic.actor_value(obs, action),
                noise,
            )
            loss = -(value + alpha * entropy).mean()
            if self.spec.entropy_penalty_coef > 0:
                loss = loss + self.spec.entropy_penalty_coef * entropy_change(
                    entropy, old_log_prob
                )
            step = self.actor.step(loss)
        self.actor.train(False)
        self.temperature.update(entropy.detach())
        return {"policy_loss": step.loss, "entropy": mean(entropy.detach())}

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
        with torch.no_grad():
            following = self.policy.expectation(
                self.actor.policy(next_obs),
                lambda next_action: self.critic.target(next_obs, next_action),
                noise,
            )
        return Prediction(self.critic.q_values(obs, action), following)


@final
class CrossQ(SoftLearner):
    """No target networks: batch-renormalised critics see this state and the next in one
    batch. Where the norm stands: see `_with_norm`."""

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
    if isinstance(net, TorchArcNetSpec):
        return net
    place = net.norm_place or "after"
    wanted = role == "critic" or place == "after"
    norm = net.batch_norm or ("renorm" if wanted else False)
    return net.model_copy(update={"batch_norm": norm, "norm_place": place})
