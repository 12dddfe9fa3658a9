"""Whole episodes, sampled without bias. Needs no torch: it measures the Random
agent."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from slm_lab.core.errors import LabError
from slm_lab.core.types import Array, BoolArray
from slm_lab.env.vector_env import FinishedEpisodes, VectorEnv

if TYPE_CHECKING:
    from slm_lab.spec.schema.env import EnvSpec

MAX_STEPS = 100_000
"""Steps after which an episode without a longer limit counts as endless."""
MAX_ENVS = 10
"""Maximum number of environments that play episodes side by side."""


def even_num_envs(episodes: int, num_envs: int) -> int:
    """The largest number of environments that divides `episodes`, at most MAX_ENVS and
    `num_envs`. It is no more than in the training, because an environment may exist
    only so often."""
    return max(n for n in range(1, min(MAX_ENVS, num_envs) + 1) if episodes % n == 0)


def step_bound(spec: "EnvSpec") -> int:
    """Steps after which an episode counts as endless: its own limit, at least
    MAX_STEPS."""
    from slm_lab.env.versions import episode_limit

    return max(MAX_STEPS, episode_limit(spec) or 0)


def join_episodes(parts: Sequence[FinishedEpisodes]) -> FinishedEpisodes:
    """Concatenates parts, in the order in which the episodes ended."""
    return FinishedEpisodes(*map(np.concatenate, zip(*parts, strict=True)))


def summarise_episodes(episodes: FinishedEpisodes) -> dict[str, float]:
    """Their number, the mean, population standard deviation and extremes of their
    returns, and their mean length."""
    returns = episodes.episode_return
    return {
        "episodes": len(returns),
        "mean": float(returns.mean()),
        "std": float(returns.std()),
        "min": float(returns.min()),
        "max": float(returns.max()),
        "length": float(episodes.episode_length.mean()),
    }


def longest(episodes: FinishedEpisodes) -> int:
    """The steps of the longest: of a copy with several agents, how long it was
    played."""
    return int(episodes.episode_length.max())


def finished_episodes(
    env: VectorEnv,
    choose_action: Callable[[Array], Array],
    per_env: int,
    name: str,
    max_steps: int = MAX_STEPS,
    stop: Callable[[], bool] = lambda: False,
    ended: Callable[[BoolArray], None] = lambda which: None,
) -> Iterator[FinishedEpisodes]:
    """Yields fresh episodes as they end, `per_env` of every environment. Every
    environment contributes the same number: taking the first to finish would favour
    short ones. A copy with several agents plays `per_env` of its own episodes. The
    episodes of its agents are yielded together, when all agents have left. If `stop`,
    called before every step, returns true, no more are played. `ended` is called after
    every step with a mask (N,) of the episodes that ended. Raises LabError if an
    episode of `name` does not end in `max_steps` or its return is not finite."""
    counts = np.zeros(env.num_envs, np.int64)
    began = np.zeros(env.num_envs, np.int64)
    now = 0
    next_check = max_steps
    parts: list[FinishedEpisodes] = []
    obs = env.reset()
    while counts.min() < per_env and not stop():
        step = env.step(choose_action(obs))
        obs = step.obs
        ended(step.terminated | step.truncated)
        now += 1
        if step.finished is not None:
            index, episode_return, *_ = step.finished
            wanted = counts[index] < per_env
            over = index if step.begun is None else np.flatnonzero(step.begun)
            counts[over] += 1
            began[over] = now
            if wanted.any():
                returns = episode_return[wanted]
                if not np.isfinite(returns).all():
                    raise LabError(
                        f"{name}: episodes ended with returns {returns.tolist()}: "
                        "a return must be finite"
                    )
                parts.append(
                    FinishedEpisodes._make(column[wanted] for column in step.finished)
                )
            if parts and len(over):
                yield join_episodes(parts)
                parts.clear()
        if now >= next_check and counts.min() < per_env:
            next_check = int(began[counts < per_env].min()) + max_steps
            if now >= next_check:
                raise LabError(
                    f"{name}: an episode did not end in {max_steps:,} steps; bound it "
                    "with env.max_t (a training keeps its own: start a new run)"
                )
