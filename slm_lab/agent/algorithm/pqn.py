"""Parallel Q-learning, arXiv:2407.04811."""

from dataclasses import replace
from typing import ClassVar, NamedTuple, final

import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.algorithm.algorithm import (
    AgentParts,
    BuildContext,
    Learner,
    seeded_generator,
    train_on_minibatches,
)
from slm_lab.agent.algorithm.minibatches import shuffled_minibatches
from slm_lab.agent.algorithm.policy_parts import QObjective, QParts, assemble, build_q
from slm_lab.agent.algorithm.report import GradientStep, Report, Update
from slm_lab.agent.algorithm.returns import q_lambda_returns
from slm_lab.agent.batch import Rollout
from slm_lab.agent.device import moved
from slm_lab.agent.recurrent_state import flatten_obs, flatten_steps, unflatten_steps
from slm_lab.spec.schema.q_learning import PQNSpec


class QSamples(NamedTuple):
    """A rollout with its time and environment axes flattened into one, B = T·N."""

    obs: Tensor
    action: Tensor
    target: Tensor
    """The λ-return of each step."""


@final
class PQN(Learner[Rollout]):
    """Q-learning on the rollouts of many environments, without a replay memory and
    without a target network. Targets are the λ-returns of Q at the start of a training
    event. They stay the same for all its epochs of minibatches. Normalised layers keep
    Q from diverging."""

    metric_names = ("q_value",)

    own_fields: ClassVar = {"generator": "_generator"}
    reads_spec = True

    def __init__(
        self, spec: PQNSpec, parts: QParts, generator: torch.Generator
    ) -> None:
        super().__init__(parts.network.train_state)
        self.spec: PQNSpec = spec
        self.network = parts.network
        self.value_loss_fn = parts.value_loss_fn
        self.objective: QObjective = parts.torch_objective
        self.step: GradientStep = self._step
        self._generator = generator

    @classmethod
    def build(cls, context: BuildContext) -> AgentParts:
        """Network, actor and learner from the spec."""
        spec = context.algorithm(PQNSpec)
        parts = build_q(context)
        learner = cls(spec, parts, seeded_generator(context.seeds.sampling))
        return assemble(
            context=context,
            network=parts.network,
            family=parts.family,
            learner=learner,
            horizon=spec.time_horizon,
        )

    @override
    def learn(self, batch: Rollout, frame: int) -> Report:
        """`training_epoch` passes over the rollout in shuffled minibatches."""
        self.train_state.set_frame(frame)
        samples = self._prepare(batch)
        minibatches = shuffled_minibatches(
            samples=samples,
            obs=samples.obs,
            spec=self.spec,
            recurrent=self.network.recurrent,
            generator=self._generator,
            group=self.train_state.group,
        )
        return train_on_minibatches(self, self.network, map(self.step, minibatches))

    @torch.no_grad()
    def _prepare(self, rollout: Rollout) -> QSamples:
        """The flattened rollout with its targets."""
        network = self.network
        device = network.device
        recurrent = network.recurrent
        obs = moved(flatten_obs(rollout.obs, recurrent), device)
        value = unflatten_steps(network.greatest_q(obs), rollout.reward, recurrent)
        bootstrap_value = network.greatest_q(moved(rollout.bootstrap_obs, device)).cpu()
        next_value = replace(rollout, value=value).next_value(bootstrap_value)
        target = q_lambda_returns(
            reward=rollout.reward,
            next_value=next_value,
            terminated=rollout.terminated,
            done=rollout.done,
            gamma=self.spec.gamma,
            trace_lambda=self.spec.lam,
        )
        return QSamples(
            obs=obs,
            action=moved(flatten_steps(rollout.action, recurrent), device),
            target=moved(flatten_steps(target, recurrent), device),
        )

    def _step(self, batch: QSamples) -> Update:
        """One gradient step on l(Q(s, a), G), algorithm 1 of the paper."""
        prediction = self.objective(
            batch.obs, batch.action, lambda _: batch.target, None
        )
        step = self.network.step(prediction.loss)
        report = {
            "loss": step.loss,
            "grad_norm": step.grad_norm,
            "q_value": prediction.mean_q,
        }
        return Update(report)
