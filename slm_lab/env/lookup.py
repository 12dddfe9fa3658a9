"""Finds Gymnasium's entry for the name in a spec, with errors that name the fix.

Installed packages that may register an unknown environment are imported."""

import importlib
import importlib.util
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import partial
from importlib.metadata import EntryPoint, distributions, entry_points
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs import registration
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

from slm_lab.core.errors import MissingExtraError, SpecError
from slm_lab.core.plugins import missing_module_message
from slm_lab.core.process import running_import_of
from slm_lab.core.registry import ENVS, import_failure
from slm_lab.env.extras import (
    import_extra,
    pip_command,
    require,
)
from slm_lab.env.foreign import SingleCreator
from slm_lab.env.pettingzoo import parallel_entry
from slm_lab.env.pool_names import nearest_of_pool, pool_entry
from slm_lab.spec.schema.env import EnvSpec

GROUP = "gymnasium.envs"
"""The entry points of packages with environments. Gymnasium 1.0 and later imports
none."""

NO_NAMESPACE = "__root__"

ATARI = "ale_py"
"""Registers games under ids without `ALE/` too, such as Pong-v4."""


def ask_packages(env_id: str) -> list[str]:
    """Imports packages one by one until `env_id` is registered. Returns a line for each
    package that does not import."""
    failures = []
    for name, register in _registrars(env_id):
        try:
            with warnings.catch_warnings():
                # about ids that an import has registered already
                warnings.simplefilter("ignore")
                register()
        except (Exception, SystemExit) as error:
            failures.append(f"{name} does not import: {import_failure(error)}")
        if env_id in gymnasium.registry:
            break
    return failures


def _registrars(env_id: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Packages with functions that register ids, the likeliest first, because imports
    take time."""
    for package in _namesakes(env_id):
        yield package, partial(importlib.import_module, package)
    for point in entry_points(group=GROUP):
        yield point.value, partial(_load, point)
    if importlib.util.find_spec(ATARI) is not None:
        yield ATARI, partial(importlib.import_module, ATARI)


def _namesakes(env_id: str) -> Iterator[str]:
    """Packages that need Gymnasium and are named like the id: minigrid for
    MiniGrid-Empty-5x5-v0. Many packages have no entry point, but register their ids on
    import."""
    word = _letters(env_id.replace("/", "-").partition("-")[0])
    for distribution in distributions():
        name = distribution.metadata["Name"] or ""
        needs = [requirement.lower() for requirement in distribution.requires or ()]
        needs_gymnasium = any(
            requirement.startswith("gymnasium") for requirement in needs
        )
        if word and _letters(name).startswith(word) and needs_gymnasium:
            package = name.replace("-", "_")
            if importlib.util.find_spec(package) is not None:
                yield package


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def _load(point: EntryPoint) -> None:
    function: Any = point.load()
    if not callable(function):
        return
    if point.name == NO_NAMESPACE:
        function()
        return
    with registration.namespace(point.name):
        function()


@dataclass(frozen=True)
class Extra:
    """A family of environments of an optional dependency."""

    name: str
    module: str
    id_part: str | None = None
    """A part of all ids of the family. They are registered by the import of
    `module`."""
    entry_point: str | None = None
    """The prefix of all entry points of a family whose ids Gymnasium registers."""
    has_successor: bool = False
    """Whether the family was replaced, so errors should not advise to install it."""

    def owns(self, name: str) -> bool:
        """Whether the environment called `name` belongs to the family."""
        entry = gymnasium.registry.get(name)
        if entry is None:
            return self.id_part is not None and self.id_part in name
        return in_families(
            entry, self.entry_point or f"{self.module}.", f"{self.module}:"
        )

    def prepare(self) -> None:
        """Registers the family's ids. Raises MissingExtraError as `import_extra`."""
        if self.id_part is None:
            require(self.module, self.name)
        elif (
            not self.has_successor or importlib.util.find_spec(self.module) is not None
        ):
            import_extra(self.module, self.name)


def in_families(entry: GymnasiumSpec, *families: str) -> bool:
    """Whether the entry point of `entry` begins with one of `families`."""
    return isinstance(entry.entry_point, str) and entry.entry_point.startswith(families)


def step_limit(spec: EnvSpec, entry: GymnasiumSpec) -> int | None:
    """Steps after which an episode is truncated; None: never."""
    if spec.max_t is None:
        return entry.max_episode_steps
    return spec.max_t


EXTRAS = (
    Extra("atari", "ale_py", id_part="ALE/"),
    Extra("atari", "ale_py", id_part="NoFrameskip-", has_successor=True),
    Extra("minigrid", "minigrid", id_part="MiniGrid-"),
    Extra("minigrid", "minigrid", id_part="BabyAI-"),
    Extra("minatar", "minatar", id_part="MinAtar/"),
    Extra("bullet", "pybullet_envs_gymnasium", id_part="BulletEnv-"),
    Extra("box2d", "Box2D", entry_point="gymnasium.envs.box2d"),
    Extra("mujoco", "mujoco", entry_point="gymnasium.envs.mujoco"),
)

ELSEWHERE = (
    "write package.module:Id-v0 for an environment of a package; for your own module "
    "add --import module"
)
"""The hint how to name an environment that Gymnasium itself does not know."""

ATARI_VECTOR = "ale_py.vector_env:AtariVectorEnv"
"""The vector entry point of the games that the lab preprocesses."""
ATARI_SINGLE = "ale_py.env:AtariEnv"
"""The entry point of all games."""

_NAMES_OF_GAMES = Path(__file__).with_name("simulators") / "atari_games.txt"
GAMES = tuple(f"ALE/{name}-v5" for name in _NAMES_OF_GAMES.read_text().split())
"""The games of ale-py, for hints if it is not installed."""

MUJOCO = (
    "Ant",
    "HalfCheetah",
    "Hopper",
    "HumanoidStandup",
    "Humanoid",
    "InvertedDoublePendulum",
    "InvertedPendulum",
    "Pusher",
    "Reacher",
    "Swimmer",
    "Walker2d",
)
"""The environments of MuJoCo, whose version 5 the lab supports."""
_ANY_OF_MUJOCO = "|".join(MUJOCO)
SUCCESSORS = (
    (re.compile(rf"Roboschool({_ANY_OF_MUJOCO})-v\d+"), r"\1-v5"),
    (re.compile(rf"({_ANY_OF_MUJOCO})-v[0-4]"), r"\1-v5"),
    (re.compile(r"(\w+?)(?:NoFrameskip|Deterministic)-v\d+"), r"ALE/\1-v5"),
    (re.compile(r"Pendulum-v0"), "Pendulum-v1"),
    (re.compile(r"BipedalWalker(Hardcore)?-v[0-2]"), r"BipedalWalker\1-v3"),
    (re.compile(r"LunarLander-v[0-2]"), "LunarLander-v3"),
    (
        re.compile(r"LunarLanderContinuous-v\d+"),
        'LunarLander-v3 with "continuous": true',
    ),
)
"""Patterns of ids whose simulator no longer exists, and their successors. They apply
only to ids that Gymnasium does not know: an installed package may still register
one."""


def find_env(spec: EnvSpec) -> GymnasiumSpec:
    """The entry of the environment of `spec`, see `find_registered`, or the one that
    envpool or PettingZoo alone has. Raises MissingExtraError if the family is not
    installed, SpecError if there is no such environment."""
    if spec.has_agents:
        return parallel_entry(spec)
    entry = pool_entry(spec)
    if entry is not None:
        return entry
    return find_registered(spec.name)


def find_registered(name: str) -> GymnasiumSpec:
    """The entry of `name`: a Gymnasium id, "package.module:id", or a plug-in. Imports
    the module that registers it, never the simulator; for an unknown id, packages that
    may register it. Raises MissingExtraError if the family is not installed, SpecError
    if there is no such environment."""
    module_name, _, env_id = name.rpartition(":")
    if module_name:
        _import_registrar(module_name, name)
    _register_plug_in(env_id)
    for extra in EXTRAS:
        if extra.owns(env_id):
            extra.prepare()
    failures = []
    if env_id not in gymnasium.registry and not module_name:
        failures = ask_packages(env_id)
    entry = gymnasium.registry.get(env_id)
    if entry is None or _is_stub(entry):
        reasons = [_unknown_id_message(module_name, env_id), *failures]
        if (
            not module_name
            and replaced_message(env_id) is None
            and reasons[0][-1:] != "?"
        ):
            reasons.append(ELSEWHERE)
        raise SpecError.of("env", "env.name", "; ".join(reasons), name)
    if "NoFrameskip-" in env_id:
        return _drop_own_skip(entry)
    if entry.entry_point is None:
        return replace(entry, entry_point=SingleCreator(entry.vector_entry_point))
    return entry


def _drop_own_skip(entry: GymnasiumSpec) -> GymnasiumSpec:
    """A NoFrameskip id of ale-py as the game that the lab preprocesses, with its sticky
    actions."""
    if entry.entry_point != ATARI_SINGLE:
        return entry
    kwargs = {key: value for key, value in entry.kwargs.items() if key != "frameskip"}
    return replace(entry, kwargs=kwargs, vector_entry_point=ATARI_VECTOR)


def _import_registrar(module_name: str, name: str) -> None:
    package = module_name.partition(".")[0]
    for extra in EXTRAS:
        if extra.module == package:
            extra.prepare()
    try:
        with running_import_of(module_name):
            importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        message = missing_module_message(module_name, error)
        if message is None:
            why = import_failure(error)
            message = (
                f"the module {module_name} that should register it does not import: "
                f"{why}"
            )
        raise SpecError.of("env", "env.name", message, name) from error


def _register_plug_in(env_id: str) -> None:
    plug_in = ENVS.get(env_id)
    if plug_in is not None and plug_in.fault is not None:
        raise SpecError.of("env", "env.name", plug_in.fault, env_id)
    if plug_in is None:
        return
    known = gymnasium.registry.get(env_id)
    if known is None:
        gymnasium.register(env_id, entry_point=plug_in.target)
    elif known.entry_point != plug_in.target:
        taken = (
            f"is an id of Gymnasium's or of another package; {plug_in.target} offers "
            "it, too"
        )
        message = f"{taken}: one of the two needs another name"
        raise SpecError.of("env", "env.name", message, env_id)


def _is_stub(entry: GymnasiumSpec) -> bool:
    """Whether the id only remains to report that its simulator (mujoco-py) is gone."""
    return inspect.isfunction(
        entry.entry_point
    ) and entry.entry_point.__name__.startswith("_raise")


def _unknown_id_message(module_name: str, env_id: str) -> str:
    """The message for an id that is unknown even after the import of `module_name` ("":
    none)."""
    replaced = replaced_message(env_id)
    if replaced is not None:
        return replaced
    if env_id in _ids_of_old_gym():
        return (
            "it is registered with the old package gym; register it with "
            "gymnasium.register, its class a gymnasium.Env with spaces of "
            "gymnasium.spaces"
        )
    thing = getattr(sys.modules.get(module_name), env_id, None)
    if inspect.isclass(thing) and issubclass(thing, gymnasium.Env):
        return _class_for_id(thing, f"{module_name}:")
    known = [
        *(i for i, entry in gymnasium.registry.items() if not _is_stub(entry)),
        *ENVS.names(),
    ]
    nearest = _nearest_id(env_id, known)
    if not module_name:
        hint = _hint(nearest or _nearest_id(env_id, GAMES)) or _hint_of_pool(env_id)
        return f"there is no such environment{hint}"
    package = module_name.partition(".")[0]
    same_package = [other for other in known if _package_of_id(other) == package]
    nearest_own = _nearest_id(env_id, same_package)
    if nearest_own is not None:
        return f"there is no such environment{_hint(f'{module_name}:{nearest_own}')}"
    some = ""
    if same_package:
        others = " and others" if same_package[3:] else ""
        some = f"; {package} has {', '.join(same_package[:3])}{others}"
    return f"there is no such environment{_hint(nearest)}{some}"


def _ids_of_old_gym() -> Collection[str]:
    """The ids in the registry of the package gym, if anything has imported it."""
    registry = getattr(sys.modules.get("gym.envs.registration"), "registry", {})
    # before gym 0.26: a class
    ids: Collection[str] = getattr(registry, "env_specs", registry)
    return ids


def _hint(nearest: str | None) -> str:
    if nearest is None:
        return ""
    hint = f"; did you mean {nearest}?"
    if nearest in GAMES and nearest not in gymnasium.registry:
        hint += f" It comes with {pip_command('atari')}"
    return hint


def _hint_of_pool(env_id: str) -> str:
    """The hint for an id of envpool, or that envpool may have it; "" if it does
    not."""
    try:
        nearest = nearest_of_pool(env_id)
    except MissingExtraError:
        more = f"envpool has many more: {pip_command('envpool')}, then envpool:ID"
        return f"; {more}"
    if nearest is None:
        return ""
    return f"; did you mean {nearest}?"


def _class_for_id(class_: type, prefix: str) -> str:
    """The message for a class name instead of an id, with an id of the class if it has
    one."""
    name = class_.__name__
    package = class_.__module__.partition(".")[0]
    for env_id, entry in gymnasium.registry.items():
        target = entry.entry_point
        if isinstance(target, str):
            is_of_class = target.endswith(f":{name}") and package_of(entry) == package
        else:
            is_of_class = inspect.isclass(target) and target is class_
        if is_of_class:
            return f"{name} is a class, not an id; write {prefix}{env_id}"
    return (
        f'{name} is a class, not an id: gymnasium.register("{name}-v0", '
        f'entry_point="{class_.__module__}:{name}") in that module makes it '
        f"{prefix}{name}-v0"
    )


def _nearest_id(env_id: str, known: Sequence[str]) -> str | None:
    """The known id that `env_id` probably misspells; None if there is none. At most one
    in four letters of the name may differ: a wrong hint would mislead users."""
    wanted = _parted(env_id.strip())[0]
    slips = {
        name: _slips(wanted.lower(), name.lower())
        for name in {_parted(i)[0] for i in known}
    }
    nearest = min(
        sorted(slips), key=lambda name: (slips[name], name != wanted), default=""
    )
    if not nearest or slips[nearest] > max(len(wanted), len(nearest)) // 4:
        return None
    # The newest version in any namespace (as ALE/); Gymnasium's ids come first.
    same_name = [candidate for candidate in known if _parted(candidate)[0] == nearest]
    return max(
        same_name, key=lambda i: (_package_of_id(i) == "gymnasium", _parted(i)[1])
    )


def _slips(name: str, other: str) -> int:
    """The number of letters of the longer name without a match in the shorter one."""
    blocks = SequenceMatcher(None, name, other, autojunk=False).get_matching_blocks()
    return max(len(name), len(other)) - sum(block.size for block in blocks)


def _parted(env_id: str) -> tuple[str, int]:
    """The name in an id, without its namespace, and its version (-1: none)."""
    full_name = env_id.rpartition("/")[2]
    name, _, version = full_name.rpartition("-v")
    if version.isdecimal():
        return (name, int(version))
    return (full_name, -1)


def _package_of_id(env_id: str) -> str:
    """The package with the code of a known id; "" if it is unknown."""
    entry = gymnasium.registry.get(env_id)
    if entry is None:
        return ""
    return package_of(entry)


def package_of(entry: GymnasiumSpec) -> str:
    """The package with the code of an environment; "" if it is unknown."""
    module = entry.entry_point
    if not isinstance(module, str):
        module = getattr(module, "__module__", "")
    return module.partition(":")[0].partition(".")[0]


def replaced_message(env_id: str) -> str | None:
    """The message for a replaced environment; None for an id of no replaced family."""
    for pattern, replacement in SUCCESSORS:
        match = pattern.fullmatch(env_id)
        if match:
            return f"its simulator is gone; use {match.expand(replacement)}"
    if env_id.startswith("Roboschool"):
        return "its simulator is gone, and this environment has no successor"
    return None
