"""V-MPO: maximum a posteriori policy optimisation on rollouts of the current policy,
arXiv:1909.12238."""

import logging
import math
from typing import ClassVar, NamedTuple, final

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
    VTrace,
)
from slm_lab.agent.algorithm.dual import LogNumbers, build_dual_optimizer
from slm_lab.agent.algorithm.minibatches import shuffled_minibatches
from slm_lab.agent.algorithm.policy_parts import (
    CriticParts,
    assemble,
    build_with_critic,
)
from slm_lab.agent.algorithm.policy_pass import Evaluate
from slm_lab.agent.algorithm.report import GradientStep, Report, Update, number
from slm_lab.agent.batch import Rollout
from slm_lab.agent.device import moved
from slm_lab.agent.net.value_transform import ValueTransform
from slm_lab.agent.optim.optimizer import Optimizer, TrainState
from slm_lab.agent.recurrent_state import flatten_obs, flatten_steps
from slm_lab.spec.schema.policy_gradient import VMPOSpec

logger = logging.getLogger(__name__)

DUAL_RANGE = (math.log(1e-8), math.log(1e8))
"""Bounds of ln η and ln α; the paper has the lower one."""
OF_BOUNDS = (("kl", "kl_alpha"), ("kl_cov", "kl_cov_alpha"))
"""The columns of each bounded divergence and of its multiplier."""


class PolicySamples(NamedTuple):
    """A rollout with its time and environment axes flattened into one, B = T·N."""

    obs: Tensor
    action: Tensor
    old_params: Tensor
    """(B, param_dim) the outputs that made π_old"""
    advantage: Tensor
    log_rho: Tensor
    """ln ρ: how much a sample of an older policy counts; 0 where it counts in full"""
    raw_target: Tensor
    """The target of the critic's output."""


@final
class VMPO(Learner[Rollout]):
    """The policy is fitted to the better half of its own actions, weighted by their
    advantages. A bound on KL(π_old ‖ π) limits its change. π_old is the policy at the
    start of a training event, which the paper calls the target network. The temperature
    η of the weights, and a multiplier α for each bound, are trained beside it."""

    own_fields: ClassVar = {"generator": "_generator"}
    reads_spec = True

    def __init__(
        self,
        spec: VMPOSpec,
        parts: CriticParts,
        duals: LogNumbers,
        dual_optimizer: Optimizer,
        generator: torch.Generator,
        correction: VTrace | None = None,
    ) -> None:
        optimizers = {**parts.network.train_state.optimizers, "duals": dual_optimizer}
        super().__init__(TrainState(optimizers))
        self.spec: VMPOSpec = spec
        self.network = parts.network
        self.network.defer_values()
        self.family = parts.family
        self.value_loss_fn = parts.value_loss_fn
        self.evaluate: Evaluate = parts.evaluate
        self.step: GradientStep = self._step
        self._duals = duals
        self._dual_optimizer = dual_optimizer
        self._generator = generator
        self._estimator = AdvantageEstimator(self.network, self.family, correction)
        self._columns = OF_BOUNDS[: self.family.num_bounds]

    @classmethod
    def build(cls, context: BuildContext) -> AgentParts:
        """Networks, dual variables, actor and learner from the spec."""
        spec = context.algorithm(VMPOSpec)
        transform = ValueTransform(False, spec.normalize_v_targets)
        parts = build_with_critic(context, transform)
        num_bounds = parts.family.num_bounds
        if num_bounds == 1 and any(spec.changed("eps_alpha_cov")):
            logger.warning(
                "agent.algorithm.eps_alpha_cov = %g changes nothing: the action "
                "distribution has no covariance",
                spec.eps_alpha_cov,
            )
        start = [spec.eta_init, *[spec.alpha_init] * num_bounds]
        duals = LogNumbers([math.log(value) for value in start])
        learner = cls(
            spec=spec,
            parts=parts,
            duals=duals,
            dual_optimizer=build_dual_optimizer(
                context.spec, duals, spec.dual_lr, DUAL_RANGE
            ),
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

    @property
    @override
    def metric_names(self) -> tuple[str, ...]:
        of_bounds = (name for names in self._columns for name in names)
        return ("policy_loss", "value_loss", *OF_ESTIMATES, "eta", *of_bounds)

    @override
    def learn(self, batch: Rollout, frame: int) -> Report:
        """`training_epoch` passes over the rollout in shuffled minibatches."""
        self.train_state.set_frame(frame)
        samples, of_rollout = self._prepare(batch)
        minibatches = shuffled_minibatches(
            samples=samples,
            obs=samples.obs,
            spec=self.spec,
            recurrent=self.network.recurrent,
            generator=self._generator,
            group=self.train_state.group,
        )
        report = train_on_minibatches(self, self.network, map(self.step, minibatches))
        return {**report, **of_rollout}

    @torch.no_grad()
    def _prepare(self, rollout: Rollout) -> tuple[PolicySamples, Report]:
        """π_old, advantages and value targets, flattened; and numbers of the
        rollout."""
        network = self.network
        recurrent = network.recurrent
        size = self.spec.minibatch_size

        def flat(steps: Tensor) -> Tensor:
            return moved(flatten_steps(steps, recurrent), network.device)

        obs = moved(flatten_obs(rollout.obs, recurrent), network.device)
        action = flat(rollout.action)
        estimates = self._estimator.estimates(
            rollout=rollout,
            obs=obs,
            action=action,
            gamma=self.spec.gamma,
            gae_lambda=self.spec.lam,
            chunk_size=size,
        )
        rho = estimates.weight
        if rho is None:
            rho = torch.ones_like(estimates.advantage)
        target = flat(estimates.returns)
        network.transform.update(target, self.train_state.group)
        samples = PolicySamples(
            obs=obs,
            action=action,
            old_params=torch.cat(
                [network.policy(part) for part in torch.split(obs, size)]
            ),
            advantage=flat(estimates.advantage),
            log_rho=flat(rho).log(),
            raw_target=network.transform.encode(target),
        )
        return samples, estimates.report(rollout.reward)

    def _step(self, batch: PolicySamples) -> Update:
        """One gradient step of networks and dual variables on L_π + L_η + L_α + L_V of
        the paper. With ranks, D̃ is the better half of all their samples."""
        spec = self.spec
        eta, *alphas = self._duals.value.exp()
        alpha = torch.stack(alphas)
        of_all = self.train_state.group.all_gather_samples(
            torch.stack([batch.advantage, batch.log_rho], -1)
        )
        top = loss.top_half(of_all[:, 0], of_all[:, 1], eta)
        psi = loss.target_weights(batch.advantage, batch.log_rho, eta, top)
        batch_pass = self.evaluate(batch.obs, batch.action)
        # the mean over all samples is a sum over D̃
        policy_loss, kl = batch_pass.penalised_likelihood(
            weight=len(of_all) * psi,
            old_params=batch.old_params,
            multiplier=alpha,
        )
        value_loss = batch_pass.value_loss(batch.raw_target)
        dual_loss = loss.temperature_loss(eta, spec.eps_eta, top)
        dual_loss = dual_loss + loss.multiplier_loss(alpha, kl, self._bounds)
        step = self.network.minimise(*batch_pass.losses(1.0, spec.val_loss_coef))
        self._dual_optimizer.step(dual_loss)
        report: dict[str, float | Tensor] = {
            "loss": step.loss,
            "grad_norm": step.grad_norm,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": batch_pass.entropy,
            "eta": number(eta),
        }
        bounded = zip(self._columns, kl, alpha, strict=True)
        for (kl_name, alpha_name), divergence, multiplier in bounded:
            report[kl_name] = number(divergence)
            report[alpha_name] = number(multiplier)
        return Update(report)

    @property
    def _bounds(self) -> tuple[float, ...]:
        """ε of each bounded divergence."""
        bounds = (self.spec.eps_alpha, self.spec.eps_alpha_cov)
        return bounds[: len(self._columns)]
