"""Proximal policy optimisation, arXiv:1707.06347."""

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.algorithm import loss
from slm_lab.agent.algorithm.algorithm import (
    AgentParts,
    BuildContext,
    Learner,
    seeded_generator,
    train_on_minibatches,
)
from slm_lab.agent.algorithm.correction import (
    OF_ESTIMATES,
    AdvantageEstimator,
    Estimates,
    VTrace,
)
from slm_lab.agent.algorithm.minibatches import shuffled_minibatches
from slm_lab.agent.algorithm.policy_parts import (
    CriticParts,
    assemble,
    build_with_critic,
)
from slm_lab.agent.algorithm.policy_pass import Evaluate, PolicyPass
from slm_lab.agent.algorithm.report import GradientStep, Report, Update
from slm_lab.agent.batch import Rollout
from slm_lab.agent.device import moved
from slm_lab.agent.net.value_transform import ValueTransform
from slm_lab.agent.optim.process_group import SoloGroup
from slm_lab.agent.recurrent_state import flatten_obs, flatten_steps
from slm_lab.core.state import SavedFields
from slm_lab.spec.schema.policy_gradient import PPOSpec


class ReturnRange(SavedFields):
    """S: a moving average of the span between the 5th and 95th percentile of returns.
    Advantages are divided by max(1, S), eqs. 11 and 12 of arXiv:2301.04104. So large
    returns are scaled down, and small ones are not scaled up."""

    saved: ClassVar = {"span": "_span", "weight": "_weight"}

    DECAY = 0.99  # per training event

    def __init__(self) -> None:
        self._span = torch.zeros(())
        self._weight = torch.zeros(())

    @torch.no_grad()
    def update(self, returns: Tensor) -> Tensor:
        """Adds returns of any shape; returns the divisor max(1, S), a scalar."""
        low, high = torch.quantile(returns.flatten(), torch.tensor([0.05, 0.95]))
        self._span.lerp_(high - low, 1 - self.DECAY)
        self._weight.lerp_(torch.ones(()), 1 - self.DECAY)
        return (self._span / self._weight).clamp(min=1.0)


KL_TOLERANCE = 1.5
"""A training event ends before the first step on a minibatch whose KL exceeds this
times `target_kl`, as in Stable-Baselines3."""


class Samples(NamedTuple):
    """A rollout with its time and environment axes flattened into one, B = T·N."""

    obs: Tensor
    action: Tensor
    log_prob: Tensor
    """log π_old: the denominator of the clipped ratio."""
    advantage: Tensor
    raw_target: Tensor
    """The target of the critic's output."""
    weight: Tensor | None
    """π_old over the policy that acted, bounded; None where they are the same."""
    old_raw_value: Tensor | None
    """The critic's output before the first update; None if it does not bound values."""


def moved_against_noise(
    action: Tensor, alpha: float, generator: torch.Generator
) -> Tensor:
    """a − z for actions (B, A), with z uniform in [−α, α]. Algorithm 1 of
    arXiv:2212.07536 adds z to the mean of a normal policy. This is the same:
    π(a; μ + z, σ) = π(a − z; μ, σ). `generator` is on the CPU."""
    unit = torch.rand(action.shape, generator=generator)
    noise = alpha * (2 * unit - 1)
    return action - moved(noise, action.device)


class PPO(Learner[Rollout]):
    """Clipped surrogate, value and entropy loss over several epochs of minibatches.
    With a correction, V-trace (arXiv:1802.01561) computes returns and advantages. It
    uses log π and V of one pass over the rollout before the first epoch. The policy of
    that pass is π_old. ρ weighs the samples of the older policy that acted (the
    decoupled objective of arXiv:2110.00641). A ratio to the older policy would reach
    the clip before the first step."""

    metric_names = (
        "policy_loss",
        "value_loss",
        "approx_kl",
        "clip_fraction",
        *OF_ESTIMATES,
        "clip_eps",
        "entropy_coef",
    )
    """Means over the minibatches of a training event, or over its rollout."""

    own_fields: ClassVar = {"generator": "_generator", "return_range": "_return_range"}
    reads_spec = True

    def __init__(
        self,
        spec: PPOSpec,
        parts: CriticParts,
        return_range: ReturnRange | None,
        generator: torch.Generator,
        correction: VTrace | None = None,
    ) -> None:
        super().__init__(parts.network.train_state)
        self.spec: PPOSpec = spec
        self.network = parts.network
        self.network.defer_values()
        self.family = parts.family
        self._return_range = return_range
        self._clip_eps = spec.clip_eps_spec.build()
        self._entropy_coef = spec.entropy_coef_spec.build()
        self._generator = generator
        self._estimator = AdvantageEstimator(self.network, self.family, correction)
        self.value_loss_fn = parts.value_loss_fn
        self.evaluate: Evaluate = parts.evaluate
        self.step: GradientStep = self._step

    @classmethod
    def build(cls, context: BuildContext) -> AgentParts:
        """Networks, actor and learner from the spec."""
        spec = context.algorithm(PPOSpec)
        transform = ValueTransform(spec.symlog, spec.normalize_v_targets)
        parts = build_with_critic(context, transform)
        has_range = spec.normalize_advantages == "percentile"
        learner = cls(
            spec=spec,
            parts=parts,
            return_range=ReturnRange() if has_range else None,
            generator=seeded_generator(context.seeds.sampling),
            correction=context.correction,
        )
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
        clip_eps = self._clip_eps.at(frame)
        entropy_coef = self._entropy_coef.at(frame)
        samples, of_rollout = self._prepare(batch)
        updates = (
            self.step(minibatch, clip_eps, entropy_coef)
            for minibatch in self._minibatches(samples)
        )
        return {
            **train_on_minibatches(self, self.network, updates),
            **of_rollout,
            "clip_eps": clip_eps,
            "entropy_coef": entropy_coef,
        }

    def _minibatches(self, samples: Samples) -> Iterator[Samples]:
        """Every sample once per epoch. With `rpo_alpha` the mean of the policy gets
        fresh noise for every minibatch."""
        spec = self.spec
        minibatches = shuffled_minibatches(
            samples=samples,
            obs=samples.obs,
            spec=spec,
            recurrent=self.network.recurrent,
            generator=self._generator,
            group=self.train_state.group,
        )
        for batch in minibatches:
            action = batch.action
            if spec.rpo_alpha > 0:
                action = moved_against_noise(action, spec.rpo_alpha, self._generator)
            yield batch._replace(action=action)

    @torch.no_grad()
    def _prepare(self, rollout: Rollout) -> tuple[Samples, Report]:
        """Advantages and value targets, flattened; and numbers of the rollout."""
        device = self.network.device
        recurrent = self.network.recurrent
        group = self.train_state.group

        def flat(steps: Tensor) -> Tensor:
            return moved(flatten_steps(steps, recurrent), device)

        obs = moved(flatten_obs(rollout.obs, recurrent), device)
        action = flat(rollout.action)
        estimates = self._estimates(rollout, obs, action)
        value, returns, advantage, weight, log_prob = estimates
        if self._return_range is not None:
            of_all = group.all_gather_samples(returns.flatten())
            advantage = advantage / self._return_range.update(of_all)
        transform = self.network.transform
        # Before the update of the units: values are clipped against the critic's own
        # output.
        old_raw_value = None
        if self.spec.clip_vloss:
            old_raw_value = transform.encode(flat(value))
        target = flat(returns)
        transform.update(target, group)
        samples = Samples(
            obs=obs,
            action=action,
            log_prob=flat(log_prob),
            advantage=flat(advantage),
            raw_target=transform.encode(target),
            weight=None if weight is None else flat(weight),
            old_raw_value=old_raw_value,
        )
        return samples, estimates.report(rollout.reward)

    def _estimates(self, rollout: Rollout, obs: Tensor, action: Tensor) -> Estimates:
        """Returns and advantages of a rollout, given its flattened observations and
        actions."""
        return self._estimator.estimates(
            rollout=rollout,
            obs=obs,
            action=action,
            gamma=self.spec.gamma,
            gae_lambda=self.spec.lam,
            chunk_size=self.spec.minibatch_size,
        )

    def _step(
        self, batch: Samples, clip_eps: float | Tensor, entropy_coef: float | Tensor
    ) -> Update:
        """One gradient step on L^CLIP + c₁ L^VF − c₂ S, eq. 9 of the paper. It takes no
        step where the policy is too far from π_old already."""
        advantage = batch.advantage
        if self.spec.normalize_advantages == "standardize":
            of_all = self.train_state.group.all_gather_samples(advantage)
            advantage = loss.standardize(advantage, of_all)
        if batch.weight is not None:
            advantage = batch.weight * advantage

        batch_pass = self.evaluate(batch.obs, batch.action)
        change = batch_pass.clipped_surrogate(batch.log_prob, advantage, clip_eps)
        value_loss = self._value_loss(batch_pass, batch, clip_eps)
        report: dict[str, float | Tensor] = {
            "policy_loss": change.policy_loss,
            "value_loss": value_loss,
            "entropy": batch_pass.entropy,
            "approx_kl": change.approx_kl,
            "clip_fraction": change.clip_fraction,
        }
        is_too_far = self._exceeds_target_kl(change.approx_kl)
        if is_too_far is True:
            return Update(report, was_left_out=True)
        skip = None
        if isinstance(is_too_far, Tensor):
            skip = is_too_far
        losses = batch_pass.losses(1.0, self.spec.val_loss_coef, entropy_coef)
        step = self.network.minimise(*losses, skip=skip)
        report |= {"loss": step.loss, "grad_norm": step.grad_norm}
        return Update(report, was_left_out=is_too_far)

    def _value_loss(
        self, batch_pass: PolicyPass, batch: Samples, clip_eps: float | Tensor
    ) -> float | Tensor:
        if batch.old_raw_value is None:
            return batch_pass.value_loss(batch.raw_target)
        return batch_pass.clipped_value_loss(
            batch.old_raw_value, batch.raw_target, clip_eps
        )

    def _exceeds_target_kl(self, approx_kl: float | Tensor) -> bool | Tensor:
        """Whether the policy has changed too much; all ranks agree. On a GPU without
        ranks the answer is a scalar there, which is not waited for."""
        target = self.spec.target_kl
        if target is None:
            return False
        group = self.train_state.group
        limit = KL_TOLERANCE * target
        if isinstance(approx_kl, Tensor) and isinstance(group, SoloGroup):
            return approx_kl > limit
        return bool(group.all_gather(np.array([float(approx_kl)])).mean() > limit)
