"""SARSA: Rummery & Niranjan, "On-line Q-learning using connectionist systems"
(1994)."""

from dataclasses import replace
from typing import ClassVar, final

import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.algorithm.algorithm import AgentParts, BuildContext, Learner
from slm_lab.agent.algorithm.policy_actor import ScheduledExploration
from slm_lab.agent.algorithm.policy_parts import QObjective, QParts, assemble, build_q
from slm_lab.agent.algorithm.report import Report
from slm_lab.agent.algorithm.returns import n_step_returns
from slm_lab.agent.batch import Rollout
from slm_lab.agent.device import moved
from slm_lab.agent.distribution.exploration import Generators
from slm_lab.spec.schema.q_learning import SARSASpec


@final
class SARSA(Learner[Rollout]):
    """One gradient step per rollout on the error between Q(s, a) and r + γ Q(s', a').
    a' is the action that was taken next. After the rollout or a truncated episode none
    was taken: a' is sampled as the actor would. With `num_step_returns` n the target is
    the n-step return of SARSA (Sutton & Barto, equation 7.4): n rewards and γⁿ Q. Where
    episode or rollout end sooner, it has fewer rewards."""

    metric_names = ("q_value",)

    own_fields: ClassVar = {"generators": "_generators"}
    reads_spec = True

    def __init__(
        self,
        spec: SARSASpec,
        parts: QParts,
        action_policy: ScheduledExploration,
        generators: Generators,
    ) -> None:
        super().__init__(parts.network.train_state)
        self.spec: SARSASpec = spec
        self.network = parts.network
        self.value_loss_fn = parts.value_loss_fn
        self.objective: QObjective = parts.torch_objective
        self._action_policy = action_policy
        self._generators = generators

    @classmethod
    def build(cls, context: BuildContext) -> AgentParts:
        """Network, actor and learner from the spec."""
        spec = context.algorithm(SARSASpec)
        parts = build_q(context)
        learner = cls(
            spec,
            parts,
            ScheduledExploration.build(
                spec, parts.family, context.action_space, context.has_mask
            ),
            Generators(context.seeds.sampling),
        )
        return assemble(
            context=context,
            network=parts.network,
            family=parts.family,
            learner=learner,
            horizon=spec.training_frequency,
        )

    @override
    def learn(self, batch: Rollout, frame: int) -> Report:
        """One step on l(Q(s, a), target) over the whole rollout."""
        network = self.network
        device = network.device
        self.train_state.set_frame(frame)
        with torch.no_grad():
            bootstrap_value = self._bootstrap_value(
                moved(batch.bootstrap_obs, device), frame
            )

        def target_of(q: Tensor) -> Tensor:
            return moved(self._target(batch, q.cpu(), bootstrap_value), device)

        network.train(True)
        obs = moved(batch.obs.flatten(0, 1), device)
        action = moved(batch.action.flatten(0, 1), device)
        prediction = self.objective(obs, action, target_of, None)
        step = network.step(prediction.loss)
        network.train(False)
        return {**self.stepped(step), "q_value": prediction.mean_q}

    def _bootstrap_value(self, obs: Tensor, frame: int) -> Tensor:
        """Q(s', a') with a' sampled as the actor would, (K,)."""
        q = self.network.q(obs).cpu()
        explore_var = self._action_policy.explore_var(frame)
        action, _ = self._action_policy.draw(q.numpy(), explore_var, self._generators)
        return q.gather(-1, torch.from_numpy(action).unsqueeze(-1)).squeeze(-1)

    def _target(self, rollout: Rollout, q: Tensor, bootstrap_value: Tensor) -> Tensor:
        """n-step targets, (T·N,), from Q(s, a) of every step, (T·N,)."""
        taken = replace(rollout, value=q.view_as(rollout.reward))
        next_value = taken.next_value(bootstrap_value)
        returns = n_step_returns(
            reward=rollout.reward,
            next_value=next_value,
            terminated=rollout.terminated,
            done=rollout.done,
            gamma=self.spec.gamma,
            num_steps=self.spec.num_step_returns,
        )
        return returns.flatten()
