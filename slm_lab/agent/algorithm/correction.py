"""Advantages of a rollout, with corrections for samples of a policy that is older than
the learner's."""

from dataclasses import dataclass, replace
from typing import NamedTuple, final

import torch
from torch import Tensor

from slm_lab.agent.algorithm.loss import explained_variance
from slm_lab.agent.algorithm.report import Report, mean
from slm_lab.agent.algorithm.returns import gae, vtrace
from slm_lab.agent.batch import Rollout
from slm_lab.agent.distribution.family import DistributionFamily
from slm_lab.agent.net.policy_value import PolicyValue
from slm_lab.agent.recurrent_state import unflatten_steps

OF_ESTIMATES = ("explained_variance", "advantage", "value", "batch_reward")
"""The columns of `Estimates.report`."""


class Estimates(NamedTuple):
    """Targets and advantages of a rollout; all (T, N), in units of return."""

    value: Tensor
    """V(s), the baseline of the advantage"""
    returns: Tensor
    """The targets of the critic"""
    advantage: Tensor
    weight: Tensor | None
    """The factor of each step in a policy gradient: ρ; None without a correction"""
    log_prob: Tensor
    """log π(a|s) when the event starts; without a correction, of the policy that
    acted"""

    @classmethod
    def uncorrected(
        cls, rollout: Rollout, returns: Tensor, advantage: Tensor
    ) -> "Estimates":
        """Estimates of a rollout that counts as the current policy's."""
        return cls(
            value=rollout.value,
            returns=returns,
            advantage=advantage,
            weight=None,
            log_prob=rollout.log_prob,
        )

    def report(self, reward: Tensor) -> Report:
        """How well the critic explains the returns, and means over the rollout, with
        its rewards (T, N)."""
        return {
            "explained_variance": explained_variance(self.value, self.returns),
            "advantage": mean(self.advantage),
            "value": mean(self.value),
            "batch_reward": mean(reward),
        }


class Reevaluation(NamedTuple):
    """log π and V of a rollout by the learner's current networks."""

    log_prob: Tensor
    """(T, N) log π(a|s)"""
    value: Tensor
    """(T, N) V(s) in units of return"""
    bootstrap_value: Tensor
    """(K,) V of `bootstrap_obs`"""


@torch.no_grad()
def evaluate_rollout(
    network: PolicyValue,
    family: DistributionFamily,
    rollout: Rollout,
    obs: Tensor,
    action: Tensor,
    chunk_size: int,
) -> Reevaluation:
    """One more pass over a rollout, `chunk_size` rows at a time; the result is on its
    device. `obs` and `action` are the rollout's, (T·N, ...), from `flatten_steps`. The
    pass that computes the loss would not do: there batch normalisation uses the moments
    of the batch. An actor with the same weights acts by the running moments."""
    log_prob = []
    value = []
    chunks = zip(
        torch.split(obs, chunk_size), torch.split(action, chunk_size), strict=True
    )
    for some_obs, some_action in chunks:
        params, raw_value = network.forward(some_obs)
        log_prob.append(family(params).log_prob(some_action))
        value.append(network.transform.decode(raw_value))
    return Reevaluation(
        unflatten_steps(torch.cat(log_prob), rollout.reward, network.recurrent),
        unflatten_steps(torch.cat(value), rollout.reward, network.recurrent),
        network.value(rollout.bootstrap_obs),
    )


@dataclass(frozen=True)
class VTrace:
    """Truncated importance sampling: V-trace, section 4.1 of arXiv:1802.01561."""

    rho_bar: float = 1.0
    """Bounds the weight of a temporal difference: which policy's value is learned."""
    c_bar: float = 1.0
    """Bounds how far back a temporal difference reaches: how fast it is learned."""

    def estimates(
        self,
        rollout: Rollout,
        now: Reevaluation,
        gamma: float,
        trace_lambda: float,
        num_steps: int | None = None,
    ) -> Estimates:
        """`vtrace` with `rollout.log_prob` as ln μ; the rollout's values are not
        used."""
        revalued = replace(rollout, value=now.value)
        traced = vtrace(
            log_ratio=now.log_prob - rollout.log_prob,
            reward=rollout.reward,
            value=now.value,
            next_value=revalued.next_value(now.bootstrap_value),
            terminated=rollout.terminated,
            done=rollout.done,
            gamma=gamma,
            trace_lambda=trace_lambda,
            rho_bar=self.rho_bar,
            c_bar=self.c_bar,
            num_steps=num_steps,
        )
        return Estimates(
            value=now.value,
            returns=traced.returns,
            advantage=traced.advantage,
            weight=traced.rho,
            log_prob=now.log_prob,
        )


@final
@dataclass(frozen=True)
class AdvantageEstimator:
    """Advantages by GAE; with a correction by V-trace, from log π and V of one pass
    over the rollout."""

    network: PolicyValue
    family: DistributionFamily
    correction: VTrace | None

    def estimates(
        self,
        rollout: Rollout,
        obs: Tensor,
        action: Tensor,
        gamma: float,
        gae_lambda: float,
        chunk_size: int,
    ) -> Estimates:
        """Returns and advantages of a rollout, given its flattened observations and
        actions, (T·N, …). A pass takes `chunk_size` rows at a time."""
        if self.correction is not None:
            now = evaluate_rollout(
                network=self.network,
                family=self.family,
                rollout=rollout,
                obs=obs,
                action=action,
                chunk_size=chunk_size,
            )
            return self.correction.estimates(rollout, now, gamma, gae_lambda)
        rollout = self.network.valued(rollout)
        bootstrap_value = self.network.value(rollout.bootstrap_obs)
        advantage = gae(
            reward=rollout.reward,
            value=rollout.value,
            next_value=rollout.next_value(bootstrap_value),
            terminated=rollout.terminated,
            done=rollout.done,
            gamma=gamma,
            gae_lambda=gae_lambda,
        )
        return Estimates.uncorrected(rollout, advantage + rollout.value, advantage)
