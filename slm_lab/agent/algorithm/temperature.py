"""The weight α of the entropy in soft actor-critic: tuned, or on a schedule."""

import math
from collections.abc import Callable
from typing import final

import numpy as np
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.algorithm.dual import LogNumbers, build_dual_optimizer
from slm_lab.agent.algorithm.report import mean, number
from slm_lab.agent.distribution.family import DistributionFamily
from slm_lab.agent.optim.optimizer import Loss, Optimizer
from slm_lab.core.errors import LabError
from slm_lab.core.schedule import Schedule
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.replay_actor_critic import EntropyRegularisedSpec

DISCRETE_ENTROPY_SHARE = 0.98
"""H̄ for discrete actions as a share of the largest entropy, ln n
(arXiv:1910.07207)."""


class Temperature:
    """α on a schedule of the spec: constant, or annealed."""

    optimizer: Optimizer | None = None
    """The optimizer of ln α; None if α is not tuned."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def scheduled(self, frame: int) -> float:
        """α by the schedule at the trial's clock `frame`; of a tuned α zero."""
        return self._schedule.at(frame)

    def alpha(self, scheduled: float | Tensor) -> float | Tensor:
        """The α to use, given the α of the schedule."""
        return scheduled

    def update(self, entropy: Tensor, shares: Tensor | None = None) -> None:
        """Updates a tuned α from the policy's entropies (B,). In a state with fewer
        allowed actions its target is a share (B,) of the target entropy."""

    def aim_at(self, target_entropy: float) -> None:
        """Tunes α towards another entropy from now on."""


@final
class TunedTemperature(Temperature):
    """α rises while the entropy is below its target and falls while it is above.
    `update` takes one gradient step on ln α (H − H̄). This is eq. 18 of
    arXiv:1812.05905 with ln α for α, as in its authors' code. Its optimizer keeps ln α
    between two bounds."""

    def __init__(
        self, log_alpha: LogNumbers, optimizer: Optimizer, target_entropy: float
    ) -> None:
        self.log_alpha = log_alpha.value
        self.loss: Callable[[nn.Parameter, float | Tensor], Loss] = _loss
        self.optimizer: Optimizer = optimizer
        self.aim_at(target_entropy)

    @override
    def scheduled(self, frame: int) -> float:
        return 0.0

    @override
    def alpha(self, scheduled: float | Tensor) -> float | Tensor:
        log_alpha = number(self.log_alpha)
        if isinstance(log_alpha, Tensor):
            return log_alpha.exp()
        return math.exp(log_alpha)

    @override
    def aim_at(self, target_entropy: float) -> None:
        # α stays where entropies equal it
        self._target_entropy = float(np.float32(target_entropy))

    @override
    def update(self, entropy: Tensor, shares: Tensor | None = None) -> None:
        target: float | Tensor = self._target_entropy
        if shares is not None:
            target = target * mean(shares)
        surplus = mean(entropy) - target
        self.optimizer.step(self.loss(self.log_alpha, surplus))


def _loss(log_alpha: Tensor, surplus: float | Tensor) -> Tensor:
    """ln α (H − H̄) by autograd."""
    return log_alpha * surplus


def build_temperature(
    agent: AgentSpec, spec: EntropyRegularisedSpec, family: DistributionFamily
) -> Temperature:
    """The temperature of the spec. Raises LabError for a target entropy that no policy
    reaches."""
    if spec.fixed_alpha is not None:
        return Temperature(spec.fixed_alpha.build())
    log_alpha = LogNumbers(min(0.0, spec.log_alpha_max))
    bounds = spec.log_alpha_min, spec.log_alpha_max
    # the authors' code has torch's defaults, too
    optimizer = build_dual_optimizer(agent, log_alpha, spec.alpha_lr, bounds)
    return TunedTemperature(log_alpha, optimizer, _target_entropy(spec, family))


def _target_entropy(spec: EntropyRegularisedSpec, family: DistributionFamily) -> float:
    """−A for A continuous components (arXiv:1812.05905, appendix D), a share of ln n
    otherwise. Raises LabError for one that not even uniform actions reach, A ln 2 in
    [−1, 1]^A or ln n."""
    if family.action_shape:
        default = -float(family.action_shape[0])
        greatest = family.action_shape[0] * math.log(2)
    else:
        greatest = math.log(family.param_dim)
        default = DISCRETE_ENTROPY_SHARE * greatest
    if spec.target_entropy == "auto":
        return default
    highest = spec.greatest("target_entropy")
    if highest >= greatest:
        raise LabError(
            f"agent.algorithm.target_entropy = {highest}: must be < "
            f"{greatest:.3f}, the entropy of actions that are all alike likely, or α "
            "rises without end"
        )
    return spec.target_entropy
