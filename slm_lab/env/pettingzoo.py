"""PettingZoo's parallel environments, where several agents act at the same time
(arXiv:2009.14471).

Nothing is imported from PettingZoo: an environment is what has its methods. Agents may
leave before the others do, join later, and come back."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, TypeAlias, final

import gymnasium
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec
from typing_extensions import override

from slm_lab.core.errors import LabError, MissingExtraError, Problem, SpecError
from slm_lab.core.plugins import (
    PETTINGZOO,
    ZOO_FAMILIES,
    ZOO_PACKAGES,
    missing_module_message,
    zoo_module,
)
from slm_lab.core.process import running_import_of
from slm_lab.core.registry import import_failure, nearest_name
from slm_lab.env.convert.mask import INFO, MASK, MaskReader, action_sizes
from slm_lab.env.extras import import_extra, known_warnings_ignored, pip_command
from slm_lab.env.interface import AnySpace
from slm_lab.spec.schema.env import EnvSpec

ParallelEnv: TypeAlias = Any
"""An environment with the methods of PettingZoo's class of this name."""

EXTRA = "pettingzoo"
INSTALLED_FAMILIES = ("butterfly", "sisl")
"""The families whose libraries the extra installs."""

RESET = "({agent: observation}, {agent: info})"
STEP = "five dicts by agent: observations, rewards, terminations, truncations, infos"

LIKENESS = 0.8
"""How similar a module is, 0 to 1, to one that it probably misspells."""


def parallel_entry(spec: EnvSpec) -> GymnasiumSpec:
    """The entry of "pettingzoo:MODULE", whose environment is one agent among others.
    Imports the module. Raises MissingExtraError for a package that is missing,
    SpecError for a module without agents that act at the same time."""
    name = zoo_module(spec.name)
    if not name or name.startswith("."):
        message = f"names no module; write {PETTINGZOO}FAMILY.NAME_vN, or a module"
        raise SpecError.of("env", "env.name", message, spec.name)
    module = _imported(name, spec.name)
    if not callable(getattr(module, "parallel_env", None)):
        message = (
            f"the module {name} has no parallel_env, with which PettingZoo makes an "
            "environment"
        )
        if hasattr(module, "env"):
            message = (
                f"the agents of {name} take turns (it has env, and no parallel_env); "
                "the lab trains agents that act at the same time"
            )
        elif _environments_in(name):
            known = ", ".join(_environments_in(name))
            message = f"{name} is a package of environments: {known}"
        raise SpecError.of("env", "env.name", message, spec.name)
    return GymnasiumSpec(
        id=spec.name,
        entry_point=AgentMaker(name, spec.action_mask),
        max_episode_steps=spec.max_t,
    )


def _imported(name: str, typed: str) -> Any:
    is_own = name.startswith("pettingzoo.")
    if is_own:
        import_extra("pettingzoo", EXTRA)
    try:
        with running_import_of(name), known_warnings_ignored():
            return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = missing_module_message(name, error)
        if missing is not None:
            why = _missing_here(name) or missing
            raise SpecError.of("env", "env.name", why, typed) from None
        why = f"{name} does not import: {import_failure(error)}"
        if is_own and isinstance(error, ModuleNotFoundError):
            raise MissingExtraError(f"{why}; run: {_command(name)}") from error
        raise SpecError.of("env", "env.name", why, typed) from error


def _command(name: str) -> str:
    """The command that installs what a module of PettingZoo needs."""
    family = name.split(".")[1]
    if family in INSTALLED_FAMILIES:
        return pip_command(EXTRA)
    return f'pip install "pettingzoo[{family}]"'


def _missing_here(name: str) -> str | None:
    """The message for a module that its package does not have; None for others."""
    package, _, rest = name.partition(".")
    if package == "mpe":
        return f"this family is a package now; write {PETTINGZOO}mpe2.{rest}"
    parent, _, module = name.rpartition(".")
    known = _environments_in(parent)
    if known:
        hint = _hint(module, known) or f"it has {', '.join(known)}"
        return f"{parent} has no such environment; {hint}"
    families = [f"pettingzoo.{family}" for family in sorted(ZOO_FAMILIES)]
    for other in (*families, *sorted(ZOO_PACKAGES)):
        known += _environments_in(other)
    elsewhere = _hint(module, known)
    if elsewhere is None:
        return None
    return f"there is no such module; {elsewhere}"


def _hint(module: str, known: Sequence[str]) -> str | None:
    """Which of the `known` environments a module probably misspells; None if none."""
    by_module = {name.rpartition(".")[2]: name for name in known}
    nearest = nearest_name(module, list(by_module), LIKENESS)
    return None if nearest is None else f"did you mean {by_module[nearest]}?"


def _environments_in(package: str) -> list[str]:
    """The environments of a package, as a spec names them; none if it is missing."""
    try:
        folder = importlib.import_module(package).__path__
    except (ImportError, AttributeError, ValueError):  # no package
        return []
    modules = (module.name for module in pkgutil.iter_modules(folder))
    return [_typed(f"{package}.{name}") for name in modules if "_v" in name]


def _typed(name: str) -> str:
    """How a spec names the environment of a module."""
    return f"{PETTINGZOO}{name.removeprefix('pettingzoo.')}"


def agents_problems(spec: EnvSpec) -> list[Problem]:
    """The problems of keys that parallel environments do not have."""
    problems: list[Problem] = []
    if spec.vectorization_mode not in (None, "sync"):
        message = (
            "copies of a parallel environment are stepped in this process; use null, "
            "and parallel Sessions for more processes (meta.distributed)"
        )
        mode = spec.vectorization_mode
        problems.append(Problem("env.vectorization_mode", message, mode))
    if spec.changing_argument is not None:
        path = f"env.{spec.changing_argument}"
        message = "an argument of a parallel environment stays; write a value"
        problems.append(Problem(path, message))
    if spec.backend != "gymnasium":
        message = f'has no parallel environments; use "gymnasium" for {spec.name}'
        problems.append(Problem("env.backend", message, spec.backend))
    return problems


class AgentStep(NamedTuple):
    """What a step brought to one agent, in the order of Gymnasium."""

    obs: Any
    reward: Any
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class FirstObservation(NamedTuple):
    """What an agent sees that begins an episode."""

    obs: Any
    info: dict[str, Any]


class TeamStep(NamedTuple):
    """One step of a parallel environment, by agent."""

    acted: dict[Any, AgentStep]
    """The results of the agents that have acted."""
    joined: dict[Any, FirstObservation]
    """The first observations of agents that act from now on, and have not before."""


@final
class Team(gymnasium.Env[Any, Any]):
    """A parallel environment. `reset` returns a `FirstObservation` for each agent that
    acts, `step` a `TeamStep`, and whether all agents have left. Every episode has a
    seed of its own, drawn from `np_random`. Without a seed many environments draw one
    at random, and their episodes cannot be repeated."""

    def __init__(self, env: ParallelEnv, name: str) -> None:
        """Raises SpecError unless all agents have the same spaces."""
        self.env = env
        """The environment of PettingZoo."""
        self.name = name
        self.metadata = getattr(env, "metadata", None) or {}
        self.render_mode = getattr(env, "render_mode", None)
        self.possible_agents = self._named()
        self.agents: tuple[Any, ...] = ()
        """The agents that act in the next step."""
        self.limit: int | None = None
        """Steps after which all agents are truncated; None: never."""
        self.elapsed = 0
        """Steps of the episode."""
        self.seen: dict[Any, Any] = {}
        """The newest observation of each agent."""
        self.infos: dict[Any, dict[str, Any]] = {}
        """The info beside it."""
        first = self.possible_agents[0]
        self.observation_space = env.observation_space(first)
        self.action_space = env.action_space(first)
        self._check_alike()

    def _named(self) -> tuple[Any, ...]:
        agents = tuple(getattr(self.env, "possible_agents", ()))
        if not agents:
            message = (
                "it names no possible_agents, of which the lab must know all before "
                "the first episode"
            )
            raise SpecError.of("env", "env.name", message, self.name)
        return agents

    def _check_alike(self) -> None:
        first, *others = self.possible_agents
        kinds = {
            "observations": (self.env.observation_space, self.observation_space),
            "actions": (self.env.action_space, self.action_space),
        }
        for what, (space_of, space) in kinds.items():
            other = [agent for agent in others if space_of(agent) != space]
            if other:
                names = ", ".join(map(str, other[:MOST_NAMED]))
                if other[MOST_NAMED:]:
                    names += f" and {len(other) - MOST_NAMED} more"
                message = (
                    f"one policy is for agents of the same spaces: the {what} of "
                    f"{names} are {_short(space_of(other[0]))}, and those of {first} "
                    f"{_short(space)}; make them equal in a module of your own, as "
                    "SuperSuit's pad_observations and pad_action_space do"
                )
                raise SpecError.of("env", "env.name", message, self.name)

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[Any, FirstObservation], dict[str, Any]]:
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**31))
        with known_warnings_ignored():
            result = self.env.reset(seed=drawn, options=options)
        is_pair = isinstance(result, tuple) and len(result) == 2
        if not is_pair or not isinstance(result[0], Mapping):
            self._refuse(f"reset() must return {RESET}")
        obs, infos = result
        self.elapsed = 0
        self.seen = {}
        self.infos = {}
        self._see(obs, infos)
        self.agents = self._acting()
        if not self.agents:
            self._refuse("after reset() its list agents is empty")
        return self._joined(self.agents, obs, infos, "reset"), {}

    @override
    def step(
        self, action: Mapping[Any, Any]
    ) -> tuple[TeamStep, float, bool, bool, dict[str, Any]]:
        """`action` has one for each of `agents`."""
        result = self.env.step(dict(action))
        if not _is_step(result):
            self._refuse(f"step() must return {STEP}")
        obs, _, _, _, infos = result
        self.elapsed += 1
        is_cut = self.limit is not None and self.elapsed >= self.limit
        acting = self._acting()
        staying = set(acting)
        acted = {
            agent: self._agent_step(agent, result, agent in staying, is_cut)
            for agent in self.agents
        }
        done = {
            agent for agent, step in acted.items() if step.terminated or step.truncated
        }
        self._see(obs, infos)
        joining = tuple(agent for agent in acting if agent not in acted)
        is_over = is_cut or (done == acted.keys() and not joining)
        if is_over:
            self.agents = ()
            return TeamStep(acted, {}), 0.0, True, False, {}
        if done & staying:
            agent = next(agent for agent in acted if agent in done & staying)
            self._refuse(
                f"{agent} has terminated or was truncated, and is still in its list "
                "agents; take it out there"
            )
        joined = self._joined(joining, obs, infos, "step")
        self.agents = acting
        return TeamStep(acted, joined), 0.0, False, False, {}

    def _see(self, obs: Mapping[Any, Any], infos: Any) -> None:
        self.seen.update(obs)
        self.infos |= {agent: _info_of(infos, agent) for agent in obs}

    def _acting(self) -> tuple[Any, ...]:
        """The agents that act next, in the order of `possible_agents`."""
        listed = set(self.env.agents)
        unknown = sorted(map(str, listed - set(self.possible_agents)))
        if unknown:
            self._refuse(f"{unknown[0]} is none of its possible_agents")
        return tuple(agent for agent in self.possible_agents if agent in listed)

    def _agent_step(
        self, agent: Any, result: Any, stays: bool, is_cut: bool
    ) -> AgentStep:
        """What the step brought to `agent`. One that leaves without a word has
        terminated."""
        obs, rewards, terminations, truncations, infos = result
        terminated = bool(terminations.get(agent, False))
        truncated = bool(truncations.get(agent, False))
        if not stays and not truncated:
            terminated = True
        truncated = truncated or is_cut
        if agent not in obs and not terminated:
            self._refuse(f"step() returned no observation of {agent}")
        if agent not in rewards and stays:
            self._refuse(f"step() returned no reward of {agent}")
        if agent in obs:
            last = FirstObservation(obs[agent], _info_of(infos, agent))
        else:
            last = FirstObservation(self.seen[agent], self.infos.get(agent, {}))
        return AgentStep(
            obs=last.obs,
            reward=rewards.get(agent, 0.0),
            terminated=terminated,
            truncated=truncated,
            info=last.info,
        )

    def _joined(
        self, agents: tuple[Any, ...], obs: Mapping[Any, Any], infos: Any, method: str
    ) -> dict[Any, FirstObservation]:
        missing = [agent for agent in agents if agent not in obs]
        if missing:
            self._refuse(f"{method}() returned no observation of {missing[0]}")
        return {
            agent: FirstObservation(obs[agent], _info_of(infos, agent))
            for agent in agents
        }

    def _refuse(self, fault: str) -> NoReturn:
        raise LabError(f"{self.name} breaks PettingZoo's interface: {fault}")

    @override
    def render(self) -> Any:
        return self.env.render()

    @override
    def close(self) -> None:
        self.env.close()


MOST_NAMED = 5
"""Agents that a message names."""
_LETTERS = 80


def _short(space: AnySpace) -> str:
    text = " ".join(str(space).split())
    if len(text) > _LETTERS:
        return f"{text[:_LETTERS]}…"
    return text


def _is_step(result: Any) -> bool:
    is_five = isinstance(result, tuple) and len(result) == 5
    return is_five and all(isinstance(part, Mapping) for part in result)


def _info_of(infos: Any, agent: Any) -> dict[str, Any]:
    """The info of one agent; empty without any."""
    if not isinstance(infos, Mapping):
        return {}
    return dict(infos.get(agent) or {})


@final
@dataclass(frozen=True)
class AgentMaker:
    """Makes one agent among the others of the environment in `module`."""

    module: str
    mask_place: str | None = None
    """The place of the other agents' masks; None: `MASK`, if there are any masks."""

    def __call__(self, **arguments: Any) -> "OneAgent":
        """The environment."""
        team = Team(self._maker(**arguments), f"{PETTINGZOO}{self.module}")
        return OneAgent(team, self.mask_place)

    @property
    def _maker(self) -> Callable[..., ParallelEnv]:
        maker: Callable[..., ParallelEnv]
        maker = importlib.import_module(self.module).parallel_env
        return maker

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the environment's class. Raises AttributeError if it is
        unknown, as for a function. Gymnasium asks for the attribute."""
        module = importlib.import_module(self.module)
        for thing in (self._maker, getattr(module, "raw_env", None)):
            metadata = getattr(thing, "metadata", None)
            if isinstance(metadata, Mapping):
                return {"render_modes": [], **metadata}
        raise AttributeError(f"{self.module}.parallel_env has no metadata")

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._maker)


@final
class OneAgent(gymnasium.Env[Any, Any]):
    """One agent of a parallel environment as an environment of its own. The others draw
    random actions, those that their masks allow. It is the first that acts when an
    episode begins."""

    def __init__(self, team: Team, mask_place: str | None) -> None:
        self.team = team
        self._mask_place = mask_place
        self._masks: MaskReader | None = None
        self.observation_space = team.observation_space
        self.action_space = team.action_space
        self.metadata = team.metadata
        self.render_mode = team.render_mode
        self._agent: Any = None
        self._others: dict[Any, FirstObservation] = {}

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.action_space.seed(seed)
        self._others, _ = self.team.reset(seed=seed, options=options)
        self._agent = self.team.agents[0]
        obs, info = self._others.pop(self._agent)
        return obs, info

    @override
    def step(self, action: Any) -> AgentStep:
        actions = {agent: self._draw(seen) for agent, seen in self._others.items()}
        result, *_ = self.team.step({**actions, self._agent: action})
        self._others = dict(result.joined)
        for agent, step in result.acted.items():
            if agent in self.team.agents and agent != self._agent:
                self._others[agent] = FirstObservation(step.obs, step.info)
        return result.acted[self._agent]

    def _draw(self, seen: FirstObservation) -> Any:
        if self._mask_place is None:
            self._mask_place = self._place_in(seen)
        if self._mask_place is None:
            return self.action_space.sample()
        if self._masks is None:
            self._masks = MaskReader(
                place=self._mask_place,
                observation_space=self.observation_space,
                action_space=self.action_space,
                env_name=self.team.name,
            )
        mask = self._masks.find(seen.obs, seen.info, "step")
        return self._masks.sample(self._masks.read(mask))

    def _place_in(self, seen: FirstObservation) -> str | None:
        """The place of a mask of the usual name; None without one."""
        if action_sizes(self.action_space) is None:
            return None
        if MASK in seen.info:
            return f"{INFO}{MASK}"
        if isinstance(seen.obs, Mapping) and MASK in seen.obs:
            return MASK
        return None

    @override
    def render(self) -> Any:
        return self.team.render()

    @override
    def close(self) -> None:
        self.team.close()
