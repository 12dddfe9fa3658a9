"""Facts about an environment: its spaces, its speed, and what random actions get."""

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env as gymnasium_check

from slm_lab.core.actions import RandomActions
from slm_lab.core.errors import LabError
from slm_lab.core.registry import import_failure
from slm_lab.core.text import significant
from slm_lab.env.convert.mask import action_sizes
from slm_lab.env.convert.nested import element
from slm_lab.env.convert.parts import bare_env
from slm_lab.env.failure import as_exception, closing_env
from slm_lab.env.interface import first_reset, first_step
from slm_lab.env.lookup import find_env
from slm_lab.env.make import make_one
from slm_lab.env.pettingzoo import OneAgent
from slm_lab.env.simulators.atari import is_atari
from slm_lab.env.vector_env import Conversions
from slm_lab.env.versions import episode_limit
from slm_lab.spec.schema.env import EnvSpec

PLAY_SECONDS = 3.0
FIRST_EPISODE_SECONDS = 20.0
EPISODES = 100
"""Episodes after which random play ends earlier."""
SLOW = 500.0
"""Steps/s below which several processes are advised."""
IN_COPIES = "env.vectorization_mode async steps copies in processes"
IN_SESSIONS = "parallel Sessions step in processes, see meta.distributed"
"""The way to several processes where copies with several agents share one."""
LONG = 1000
"""Mean steps of random episodes above which a step limit is advised."""
HARMLESS = ("infinity", "normalized space")
"""The checker's findings that the lab handles: it scales actions, clips normalised
observations."""
_LETTERS = 160
FEW = 3
"""Episodes from which on equal returns are no accident."""


@dataclass(frozen=True)
class RandomPlay:
    """The results of uniformly random actions in one copy."""

    steps: int
    seconds: float
    returns: tuple[float, ...]
    """The raw returns of whole episodes."""
    lengths: tuple[int, ...]
    unfinished: float = 0.0
    """The return of the last episode so far."""
    broken: int = 0
    """Steps whose observation or reward was not finite."""

    @property
    def steps_per_s(self) -> float:
        """The speed of one copy."""
        return self.steps / max(self.seconds, 1e-9)

    @property
    def mean_return(self) -> float | None:
        """The mean return of the whole episodes; None without any."""
        return float(np.mean(self.returns)) if self.returns else None

    @property
    def return_std(self) -> float | None:
        """The population standard deviation; None with less than two episodes."""
        return float(np.std(self.returns)) if len(self.returns) > 1 else None

    @property
    def mean_length(self) -> float | None:
        """The mean number of steps of the whole episodes; None without any."""
        return float(np.mean(self.lengths)) if self.lengths else None


@dataclass(frozen=True)
class EnvFacts:
    """The facts about an environment that a user needs before the first training."""

    observations: str
    actions: str
    play: RandomPlay
    notes: tuple[str, ...]
    """The messages of Gymnasium's checker, and the obstacles to learning."""
    agents: tuple[str, ...] = ()
    """The agents of one copy; empty if it has only one. Random play is the play of the
    first."""

    @property
    def frames_per_s(self) -> float:
        """The frames per second of one copy, if all its agents act."""
        return self.play.steps_per_s * max(len(self.agents), 1)


def env_facts(env: EnvSpec) -> EnvFacts:
    """Constructs the environment, checks it and plays it for a few seconds. Raises
    LabError if it cannot be made or breaks Gymnasium's interface."""
    single, conversions = make_one(env)
    hints = list[str]()
    with closing_env(single):
        try:
            if env.action_mask is None:
                hints += _mask_hints(single)
            play = _play_randomly(single, conversions)
        except LabError:
            raise
        except BaseException as error:
            if not isinstance(as_exception(error), Exception):
                raise
            failure = f"{env.name} raises {import_failure(error)}"
            raise LabError("; ".join([failure, *hints])) from error
        warnings: tuple[str, ...] = ()
        # the checker chooses among all actions
        if env.action_mask is None and not is_atari(find_env(env)):
            warnings = _checker_notes(single.unwrapped)
        agents: tuple[str, ...] = ()
        if isinstance(single.unwrapped, OneAgent):
            agents = tuple(map(str, single.unwrapped.team.possible_agents))
        observations, actions = map(
            _space_text, (bare_env(single).observation_space, single.action_space)
        )
    processes = IN_SESSIONS if agents else IN_COPIES
    obstacles = obstacles_to_learning(play, episode_limit(env), processes)
    notes = (*warnings, *hints, *obstacles)
    return EnvFacts(
        observations=observations,
        actions=actions,
        play=play,
        notes=notes,
        agents=agents,
    )


def _space_text(space: gymnasium.Space[Any]) -> str:
    """A space in a line; bounds that differ from number to number are left out."""
    text = " ".join(str(space).split())
    shown = text
    if not isinstance(space, gymnasium.spaces.Dict):
        shown = f"{text[:_LETTERS]}…"
    if isinstance(space, gymnasium.spaces.Box):
        shown = (
            f"Box({space.low.min():g}, {space.high.max():g}, {space.shape}, "
            f"{space.dtype})"
        )
    if len(text) <= _LETTERS:
        return text
    return shown


def _mask_hints(env: gymnasium.Env[Any, Any]) -> Iterator[str]:
    """The advice to use a mask of actions that the environment gives. A mask is a part
    of the observation, or an entry of the info, with such a name. It has a number for
    each value of an action."""
    values = action_sizes(env.action_space)
    if values is None:
        return
    _, info = first_reset(env, seed=0)
    space = bare_env(env).observation_space
    sizes: dict[str, int] = {}
    if isinstance(space, gymnasium.spaces.Dict):
        for key, part in space.items():
            sizes[str(key)] = math.prod(part.shape or ())
    for key, value in info.items():
        sizes[f"info.{key}"] = getattr(value, "size", 0)
    for place, size in sizes.items():
        if "mask" in place.lower() and size == values.sum():
            yield f"it tells which actions are allowed: -s env.action_mask={place}"
            return


def _play_randomly(
    env: gymnasium.Env[Any, Any], conversions: Conversions
) -> RandomPlay:
    random_action = _random_policy(env, conversions)
    obs, _ = first_reset(env, seed=0)
    first_step(env, random_action(obs))
    obs, _ = env.reset(seed=0)
    returns = list[float]()
    lengths = list[int]()
    steps = length = broken = 0
    total = 0.0
    began = time.perf_counter()
    while len(returns) < EPISODES:
        if time.perf_counter() - began > (
            PLAY_SECONDS if returns else FIRST_EPISODE_SECONDS
        ):
            break
        obs, reward, terminated, truncated, _ = env.step(random_action(obs))
        broken += not (math.isfinite(reward) and _is_finite(obs))
        steps = steps + 1
        length = length + 1
        total = total + float(reward)
        if terminated or truncated:
            returns.append(total)
            lengths.append(length)
            length = 0
            total = 0.0
            obs, _ = env.reset()
    return RandomPlay(
        steps=steps,
        seconds=time.perf_counter() - began,
        returns=tuple(returns),
        lengths=tuple(lengths),
        unfinished=total,
        broken=broken,
    )


def _random_policy(
    env: gymnasium.Env[Any, Any], conversions: Conversions
) -> Callable[[Any], Any]:
    """Maps observations to random actions, with a mask to those that it allows."""
    space = env.action_space
    layout = conversions.layout
    if layout.mask is None:
        # an environment may seed its own in `reset`
        actions = copy.deepcopy(space)
        actions.seed(0)
        return lambda obs: actions.sample()
    allowed = RandomActions(conversions.action.space, 1, seed=0, layout=layout)

    def choose(obs: Any) -> Any:
        drawn = allowed.draw(np.asarray(obs)[None])
        return element(space, conversions.action.convert(drawn), 0)

    return choose


def _is_finite(obs: object) -> bool:
    """Whether no number is infinite or NaN. Integers, as of large images, are not
    read."""
    array = np.asarray(obs)
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def obstacles_to_learning(
    play: RandomPlay, limit: int | None, processes: str = IN_COPIES
) -> Iterator[str]:
    """The obstacles to learning, one line each. `limit` is the most steps of an
    episode; None: episodes may last for ever. `processes` says how steps are taken in
    several."""
    returns = np.asarray(play.returns)
    if not play.returns and limit is None:
        yield f"no episode ended in {play.steps:,} steps: bound episodes with env.max_t"
    elif limit is None and (play.mean_length or 0.0) > LONG:
        steps = significant(play.mean_length)
        yield (
            f"episodes have no step limit and took {steps} steps: bound them with "
            "env.max_t"
        )
    if play.broken:
        share = f"{play.broken:,} of {play.steps:,} steps"
        yield (
            f"{share} gave observations or rewards that are not finite, which stops a "
            "training"
        )
    elif len(returns) >= FEW and np.ptp(returns) == 0:
        yield (
            f"random actions got the same return, {significant(returns[0])}, in all "
            f"{len(returns)} episodes: an agent learns only after it gets a different "
            "one; shape the reward, or begin episodes nearer to the goal"
        )
    if play.steps_per_s < SLOW:
        speed = significant(play.steps_per_s)
        yield f"{speed} steps/s are slow: {processes}"


def _checker_notes(env: gymnasium.Env[Any, Any]) -> tuple[str, ...]:
    """The findings of Gymnasium's own checker, the first line of each."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            gymnasium_check(env, skip_render_check=True)
        # AssertionError, and what the environment raises
        except BaseException as error:
            if not isinstance(as_exception(error), Exception):
                raise
            kind = ""
            if not isinstance(error, AssertionError):
                kind = f"{type(error).__name__}: "
            messages.append(f"{kind}{error}")
    messages += [
        str(warning.message) for warning in caught if warning.category is UserWarning
    ]
    lines = [(text.strip().splitlines() or [""])[0] for text in messages]
    for added in ("\x1b[33m", "\x1b[0m", "WARN: "):  # by Gymnasium
        lines = [line.replace(added, "") for line in lines]
    notes = (line for line in lines if not any(word in line for word in HARMLESS))
    return tuple(dict.fromkeys(f"Gymnasium's checker: {line}" for line in notes))
