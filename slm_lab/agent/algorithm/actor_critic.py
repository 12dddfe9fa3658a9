"""Advantage actor-critic: A2C, and A3C where Sessions share their weights
(arXiv:1602.01783)."""

import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.algorithm.algorithm import AgentParts, BuildContext, Learner
from slm_lab.agent.algorithm.correction import (
    OF_ESTIMATES,
    Estimates,
    VTrace,
    evaluate_rollout,
)
from slm_lab.agent.algorithm.policy_parts import (
    CriticParts,
    assemble,
    build_with_critic,
)
from slm_lab.agent.algorithm.policy_pass import Evaluate
from slm_lab.agent.algorithm.report import Report
from slm_lab.agent.algorithm.returns import gae, n_step_returns
from slm_lab.agent.batch import Rollout
from slm_lab.agent.device import moved
from slm_lab.agent.net.value_transform import ValueTransform
from slm_lab.agent.recurrent_state import flatten_obs, flatten_steps
from slm_lab.spec.schema.policy_gradient import ActorCriticSpec


class ActorCritic(Learner[Rollout]):
    """One gradient step per rollout, on advantages by GAE, n-step or plain returns.

    Advantages are not standardised, as in the paper. Standardising scales vanishing
    advantages up to unit size, which destroys solved policies: on CartPole the policies
    of half the seeds.

    With a correction, V-trace computes returns and advantages, as in IMPALA
    (arXiv:1802.01561). Its λ is `lam`, else 1. `num_step_returns` bounds its sum, else
    the rollout does."""

    metric_names = ("policy_loss", "value_loss", *OF_ESTIMATES, "entropy_coef")
    reads_spec = True

    def __init__(
        self,
        spec: ActorCriticSpec,
        parts: CriticParts,
        correction: VTrace | None = None,
    ) -> None:
        super().__init__(parts.network.train_state)
        self.spec: ActorCriticSpec = spec
        self.network = parts.network
        self.network.defer_values()
        self.family = parts.family
        self._correction = correction
        self.value_loss_fn = parts.value_loss_fn
        self.evaluate: Evaluate = parts.evaluate
        self._entropy_coef = spec.entropy_coef_spec.build()

    @classmethod
    def build(cls, context: BuildContext) -> AgentParts:
        """Networks, actor and learner from the spec."""
        spec = context.algorithm(ActorCriticSpec)
        transform = ValueTransform(False, spec.normalize_v_targets)
        parts = build_with_critic(context, transform)
        learner = cls(spec, parts, context.correction)
        return assemble(
            context=context,
            network=parts.network,
            family=parts.family,
            learner=learner,
            horizon=spec.training_frequency,
        )

    @override
    def learn(self, batch: Rollout, frame: int) -> Report:
        """One step on −log π(a|s) Â + c₁ L^VF − c₂ S over the whole rollout."""
        network = self.network
        device = network.device
        recurrent = network.recurrent
        self.train_state.set_frame(frame)
        entropy_coef = self._entropy_coef.at(frame)
        obs = moved(flatten_obs(batch.obs, recurrent), device)
        action = moved(flatten_steps(batch.action, recurrent), device)
        with torch.no_grad():
            estimates = self._estimates(batch, obs, action)
            returns = estimates.returns
            advantage = estimates.advantage
            if estimates.weight is not None:
                advantage = estimates.weight * advantage
            advantage = moved(flatten_steps(advantage, recurrent), device)
            network.transform.update(moved(returns, device), self.train_state.group)
            raw_target = network.transform.encode(
                moved(flatten_steps(returns, recurrent), device)
            )

        network.train(True)
        batch_pass = self.evaluate(obs, action)
        policy_loss = batch_pass.policy_gradient(advantage)
        value_loss = batch_pass.value_loss(raw_target)
        losses = batch_pass.losses(
            self.spec.policy_loss_coef, self.spec.val_loss_coef, entropy_coef
        )
        step = network.minimise(*losses)
        network.train(False)
        return {
            **self.stepped(step),
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": batch_pass.entropy,
            **estimates.report(batch.reward),
            "entropy_coef": entropy_coef,
        }

    def _estimates(self, rollout: Rollout, obs: Tensor, action: Tensor) -> Estimates:
        """Returns and advantages of a rollout, given its flattened observations and
        actions."""
        spec = self.spec
        if self._correction is None:
            rollout = self.network.valued(rollout)
            returns = self._returns(rollout)
            return Estimates.uncorrected(rollout, returns, returns - rollout.value)
        now = evaluate_rollout(
            network=self.network,
            family=self.family,
            rollout=rollout,
            obs=obs,
            action=action,
            chunk_size=len(obs),
        )
        return self._correction.estimates(
            rollout=rollout,
            now=now,
            gamma=spec.gamma,
            trace_lambda=1.0 if spec.lam is None else spec.lam,
            num_steps=spec.num_step_returns,
        )

    def _returns(self, rollout: Rollout) -> Tensor:
        """(T, N) targets of the critic, by λ, by n steps, or to the end of the
        rollout."""
        spec = self.spec
        next_value = rollout.next_value(self.network.value(rollout.bootstrap_obs))
        if spec.lam is not None:
            advantage = gae(
                reward=rollout.reward,
                value=rollout.value,
                next_value=next_value,
                terminated=rollout.terminated,
                done=rollout.done,
                gamma=spec.gamma,
                gae_lambda=spec.lam,
            )
            return rollout.value + advantage
        return n_step_returns(
            reward=rollout.reward,
            next_value=next_value,
            terminated=rollout.terminated,
            done=rollout.done,
            gamma=spec.gamma,
            num_steps=spec.num_step_returns or len(rollout.reward),
        )
