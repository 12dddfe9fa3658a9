"""Exploration: the distributions that actors really draw from, by `action_policy`.

An actor draws in every vector step from a few numbers, where torch takes three times as
long as NumPy. So choices among n actions and normal variables are drawn by NumPy.
Learning, which needs gradients, has `distributions`. The recorded log-probability is by
the exploring policy."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias, final

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from slm_lab.agent.distribution.distributions import (
    HALF_LOG_2PI,
    LOG_STD_RANGE,
    MASKED_LOGIT,
    Categorical,
    DiagonalNormal,
    Distribution,
    TanhPoint,
)
from slm_lab.agent.distribution.family import DistributionFamily, FamilyPart
from slm_lab.core.actions import MixedActions
from slm_lab.core.errors import LabError
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Array, FloatArray, IntArray


@final
class Generators(SavedFields):
    """A NumPy and a torch generator of one seed."""

    saved: ClassVar = {"array": "array", "tensor": "tensor"}

    def __init__(self, seed: int) -> None:
        self.array = np.random.default_rng(seed)
        self.tensor = torch.Generator().manual_seed(seed)


ExplorationPolicy: TypeAlias = Callable[
    [FloatArray, float, Generators], tuple[Array, FloatArray]
]
"""Draws actions (B, *action_shape) by the generators, from distribution parameters (B,
param_dim) and the exploration variable. Returns their log-probabilities (B,) too."""

ALLOWED = MASKED_LOGIT / 2
"""Logits and Q-values of allowed actions are greater than this."""

MIN_TEMPERATURE = 1e-6
"""The lowest temperature: at zero, where a schedule may end, Boltzmann is greedy."""


def boltzmann(
    logits: FloatArray, temperature: float, generators: Generators
) -> tuple[IntArray, FloatArray]:
    """p ∝ e^(l/τ) of logits (B, n): each action with a probability proportional to
    p^(1/τ); for Q-values q, to e^(q/τ)."""
    log_p = logits.T.copy()  # (n, B): NumPy reduces rows far faster
    log_p -= np.maximum.reduce(log_p, 0)
    if temperature != 1.0:
        log_p /= max(temperature, MIN_TEMPERATURE)
    cumulative = np.add.accumulate(np.exp(log_p), 0)
    u = generators.array.random(len(logits), np.float32)
    total = cumulative[-1]
    # The number of sums that u passes: never all, and never an action whose p is zero.
    action = np.add.reduce(cumulative <= u * total, 0)
    return action, log_p[action, np.arange(len(action))] - np.log(total)


def epsilon_greedy(
    logits: FloatArray, epsilon: float, generators: Generators
) -> tuple[IntArray, FloatArray]:
    """The action with the largest of n logits (B, n); with probability ε any of the n.
    One number u per row: explores if u < ε, and u / ε chooses the action then."""
    greedy = logits.argmax(-1)
    n = logits.shape[-1]
    u = generators.array.random(len(greedy))
    p_greedy = 1 - epsilon + epsilon / n
    explores = u < epsilon
    if not np.count_nonzero(explores):
        log_prob = np.empty(len(greedy), np.float32)
        log_prob.fill(math.log(p_greedy))  # np.full takes a microsecond more
        return greedy, log_prob
    action = np.where(explores, (u / epsilon * n).astype(np.int64), greedy)
    p = np.where(action == greedy, p_greedy, epsilon / n)
    return action, np.log(p, dtype=np.float32)


def masked_epsilon_greedy(
    logits: FloatArray, epsilon: float, generators: Generators
) -> tuple[IntArray, FloatArray]:
    """`epsilon_greedy` among the logits (B, n) of actions that are allowed. It draws
    the same numbers, and where all are allowed the same actions."""
    greedy = logits.argmax(-1)
    allowed = logits > ALLOWED
    # a terminal state may allow none, and no action is taken there
    count = allowed.sum(-1).clip(min=1)
    u = generators.array.random(len(greedy))
    p_other = epsilon / count
    explores = u < epsilon
    share = np.divide(u, epsilon, out=np.zeros(len(greedy)), where=explores)
    rank = (share * count).astype(np.int64)
    # the action of this rank among those allowed
    explored = (np.add.accumulate(allowed[:, :-1], -1) <= rank[:, None]).sum(-1)
    action = np.where(explores, explored, greedy)
    p = np.where(action == greedy, 1 - epsilon + p_other, p_other)
    return action, np.log(p, dtype=np.float32)


def gaussian(
    params: FloatArray, std: float, generators: Generators
) -> tuple[FloatArray, FloatArray]:
    """Actions (B, A) of `TanhPoint` with normal noise, clipped to [−1, 1]. The second
    array has the log-probabilities (B,) of the noise, zero without any."""
    action = np.tanh(params)
    if std == 0.0:
        return action, np.zeros(len(action), np.float32)
    z = generators.array.standard_normal(action.shape, np.float32)
    noisy = (action + np.float32(std) * z).clip(-1.0, 1.0)
    return noisy, normal_log_prob(z, np.full_like(z, math.log(std)))


def draw_normal(
    params: FloatArray, _: float, generators: Generators
) -> tuple[FloatArray, FloatArray]:
    """Actions (B, A) of `DiagonalNormal` and their log-probabilities (B,), from mean
    and log σ side by side, (B, 2 A)."""
    size = params.shape[-1] // 2
    mean = params[:, :size]
    log_std = params[:, size:].clip(*LOG_STD_RANGE)
    noise = generators.array.standard_normal(mean.shape, np.float32)
    action = mean + np.exp(log_std) * noise
    return action, normal_log_prob((action - mean) * np.exp(-log_std), log_std)


def normal_log_prob(z: FloatArray, log_std: FloatArray) -> FloatArray:
    """−½ z² − log σ − ½ log 2π, summed over A: (B,)."""
    log_prob: FloatArray = np.add.reduce(
        -0.5 * z * z - log_std - np.float32(HALF_LOG_2PI), -1
    )
    return log_prob


@torch.inference_mode()
def from_family(
    family: DistributionFamily, params: FloatArray, generators: Generators
) -> tuple[Array, FloatArray]:
    """Actions of the family's torch distributions, and their log-probabilities."""
    distribution = family(torch.from_numpy(params))
    action, log_prob = distribution.sample_with_log_prob(generators.tensor)
    return action.numpy(), log_prob.numpy()


class Exploration(NamedTuple):
    """An action policy with an exploration variable."""

    policy: ExplorationPolicy
    kind: type[Distribution]
    """The distribution whose parameters it takes."""
    needs: str
    """What the agent must be like, as a phrase for messages."""


OF_CHOICES = "chooses one of n actions"
EXPLORATIONS: Mapping[str, Exploration] = {
    "epsilon_greedy": Exploration(epsilon_greedy, Categorical, OF_CHOICES),
    "boltzmann": Exploration(boltzmann, Categorical, OF_CHOICES),
    "gaussian": Exploration(gaussian, TanhPoint, "adds noise to a deterministic actor"),
}
"""The exploration of each `action_policy`."""

DRAWS: Mapping[type[Distribution], ExplorationPolicy] = {
    Categorical: lambda logits, _, generators: boltzmann(logits, 1.0, generators),
    DiagonalNormal: draw_normal,
    TanhPoint: lambda params, _, generators: gaussian(params, 0.0, generators),
}
"""Distributions that NumPy draws from."""


def exploration_policy(
    action_policy: str,
    family: DistributionFamily,
    action_space: gymnasium.Space[Any],
    has_mask: bool = False,
) -> ExplorationPolicy:
    """The exploration that `action_policy` names; with a mask among allowed actions.
    Raises LabError where it does not fit."""
    if isinstance(action_space, MixedActions) and action_policy not in EXPLORATIONS:
        pairs = zip(family.parts, action_space.parts, strict=True)
        return _draw_by_parts(
            family.parts,
            [
                exploration_policy(action_policy, part.family, space, has_mask)
                for part, space in pairs
            ],
        )
    if action_policy == "random":
        return _uniform(family, action_space)
    if action_policy != "default":
        exploration = EXPLORATIONS[action_policy]
        if family.kind is not exploration.kind:
            raise LabError(
                f"agent.algorithm.action_policy = {action_policy!r}: "
                f"{exploration.needs}, the environment's actions are {action_space}; "
                'use "default" or "random"'
            )
        if has_mask and exploration.policy is epsilon_greedy:
            return masked_epsilon_greedy
        return exploration.policy
    if family.greedy:
        return lambda logits, _, generators: epsilon_greedy(logits, 0.0, generators)

    def draw_by_torch(
        params: FloatArray, _: float, generators: Generators
    ) -> tuple[Array, FloatArray]:
        return from_family(family, params, generators)

    return DRAWS.get(family.kind, draw_by_torch)


def _draw_by_parts(
    parts: Sequence[FamilyPart], policies: Sequence[ExplorationPolicy]
) -> ExplorationPolicy:
    """Each part of an action by its own policy."""

    def draw(
        params: FloatArray, variable: float, generators: Generators
    ) -> tuple[FloatArray, FloatArray]:
        """Rows (B, K), and the sums of the log-probabilities of the parts, (B,)."""
        drawn = [
            policy(part.arrays_in(params), variable, generators)
            for part, policy in zip(parts, policies, strict=True)
        ]
        columns = [action.reshape(len(params), -1) for action, _ in drawn]
        rows = np.concatenate(columns, 1, dtype=np.float32)
        log_prob: FloatArray = np.add.reduce([of_part for _, of_part in drawn], 0)
        return rows, log_prob

    return draw


def _uniform(
    family: DistributionFamily, action_space: gymnasium.Space[Any]
) -> ExplorationPolicy:
    """Every action equally likely, whatever the network puts out."""
    if not isinstance(action_space, spaces.Box):
        return lambda logits, _, generators: from_family(
            family, np.where(logits > ALLOWED, np.float32(0.0), logits), generators
        )
    bounds = np.stack([action_space.low, action_space.high])
    if not np.isfinite(bounds).all():
        raise LabError(
            'agent.algorithm.action_policy = "random": needs actions with two bounds '
            f"each, the environment's are {action_space}"
        )
    low, high = torch.as_tensor(bounds, dtype=torch.float32)

    def between(
        params: FloatArray, _: float, generators: Generators
    ) -> tuple[Array, FloatArray]:
        """Actions (B, A), and −Σ log(high − low), (B,)."""
        width = (high - low).expand(len(params), -1)
        action = low + width * torch.rand(width.shape, generator=generators.tensor)
        return action.numpy(), (-width.log().sum(-1)).numpy()

    return between
