"""Installed packages that register environments, asked when nobody else knows an id."""

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import EntryPoint, distributions, entry_points
from typing import Any, NamedTuple

import gymnasium
from gymnasium.envs import registration

from slm_lab.core.registry import import_failure

GROUP = "gymnasium.envs"
"""The entry points by which packages offer environments. Gymnasium has imported none since 1.0."""

NO_NAMESPACE = "__root__"

ATARI = "ale_py"
"""Registers the games without `ALE/` under ids of no pattern, as Pong-v4."""


class Registrar(NamedTuple):
    """What registers ids when it is called, and the name of whom to blame where it fails."""

    name: str
    register: Callable[[], object]


def ask_packages(env_id: str) -> list[str]:
    """Has one package after another register its ids until `env_id` is there.

    Returns why packages could not be asked, one line each.
    """
    failures = []
    for name, register in _registrars(env_id):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of ids that importing has registered already
                register()
        except (Exception, SystemExit) as error:
            failures.append(f"{name} does not import: {import_failure(error)}")
        if env_id in gymnasium.registry:
            break
    return failures


def _registrars(env_id: str) -> Iterator[Registrar]:
    """The likeliest first: imports take time."""
    for package in _namesakes(env_id):
        yield Registrar(package, partial(importlib.import_module, package))
    for point in entry_points(group=GROUP):
        yield Registrar(point.value, partial(_load, point))
    if importlib.util.find_spec(ATARI) is not None:
        yield Registrar(ATARI, partial(importlib.import_module, ATARI))


def _namesakes(env_id: str) -> Iterator[str]:
    """Packages for Gymnasium whose name begins as the id does: minigrid, for MiniGrid-Empty-5x5-v0.

    Many packages have no entry point, and register their ids when they are imported.
    """
    word = _letters(env_id.replace("/", "-").partition("-")[0])
    for distribution in distributions():
        name = distribution.metadata["Name"] or ""
        if word and _letters(name).startswith(word) and _needs_gymnasium(distribution.requires):
            package = name.replace("-", "_")
            if importlib.util.find_spec(package) is not None:
                yield package


def _needs_gymnasium(requirements: list[str] | None) -> bool:
    return any(each.lower().startswith("gymnasium") for each in requirements or ())


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def _load(point: EntryPoint) -> None:
    """Imports what an entry point names, and calls it if it is a function."""
    function: Any = point.load()
    if not callable(function):
        return
    if point.name == NO_NAMESPACE:
        function()
        return
    with registration.namespace(point.name):
        function()
