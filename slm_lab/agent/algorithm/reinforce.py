"""REINFORCE: Williams, "Simple statistical gradient-following algorithms" (1992)."""

from functools import partial

import torch
from typing_extensions import override

from slm_lab.agent.algorithm.algorithm import (
    AgentParts,
    BuildContext,
    Learner,
    seeded_generator,
)
from slm_lab.agent.algorithm.policy_parts import assemble
from slm_lab.agent.algorithm.policy_pass import Evaluate, TorchPass
from slm_lab.agent.algorithm.report import Report
from slm_lab.agent.algorithm.returns import discounted_returns
from slm_lab.agent.batch import Rollout
from slm_lab.agent.device import moved
from slm_lab.agent.distribution.family import DistributionFamily, distribution_family
from slm_lab.agent.from_spec.networks import build_policy_only
from slm_lab.agent.net.policy_value import PolicyOnly
from slm_lab.agent.recurrent_state import flatten_obs, flatten_steps
from slm_lab.spec.schema.policy_gradient import ReinforceSpec


class Reinforce(Learner[Rollout]):
    """One gradient step per batch of episodes, on the returns that followed each
    action."""

    metric_names = ("policy_loss", "entropy_coef")
    reads_spec = True

    def __init__(
        self, spec: ReinforceSpec, network: PolicyOnly, family: DistributionFamily
    ) -> None:
        super().__init__(network.train_state)
        self.spec: ReinforceSpec = spec
        self.network = network
        self.family = family
        self.evaluate: Evaluate = partial(TorchPass, network, family, None)
        self._entropy_coef = spec.entropy_coef_spec.build()

    @classmethod
    def build(cls, context: BuildContext) -> AgentParts:
        """Network, actor and learner from the spec."""
        spec = context.algorithm(ReinforceSpec)
        family = distribution_family(context.action_space, spec.action_pdtype)
        generator = seeded_generator(context.seeds.init)
        network = build_policy_only(context.spec, family, context.layout, generator)
        learner = cls(spec, network, family)
        return assemble(
            context=context,
            network=network,
            family=family,
            learner=learner,
            horizon=spec.training_frequency,
        )

    @override
    def learn(self, batch: Rollout, frame: int) -> Report:
        """One step on −log π(a|s) G − c S over the whole batch."""
        network = self.network
        device = network.device
        recurrent = network.recurrent
        self.train_state.set_frame(frame)
        entropy_coef = self._entropy_coef.at(frame)
        with torch.no_grad():
            returns = discounted_returns(batch.reward, batch.done, self.spec.gamma)
            returns = flatten_steps(returns, recurrent)
            if self.spec.center_return:
                of_all = self.train_state.group.all_gather_samples(returns)
                returns = returns - of_all.mean()

        network.train(True)
        obs = moved(flatten_obs(batch.obs, recurrent), device)
        action = moved(flatten_steps(batch.action, recurrent), device)
        batch_pass = self.evaluate(obs, action)
        policy_loss = batch_pass.policy_gradient(moved(returns, device))
        losses = batch_pass.losses(
            self.spec.policy_loss_coef, entropy_coef=entropy_coef
        )
        step = network.minimise(*losses)
        network.train(False)
        return {
            **self.stepped(step),
            "policy_loss": policy_loss,
            "entropy": batch_pass.entropy,
            "entropy_coef": entropy_coef,
        }
