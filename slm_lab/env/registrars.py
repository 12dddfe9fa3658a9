"""Imports installed packages that may register an unknown environment."""

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import EntryPoint, distributions, entry_points
from typing import Any

import gymnasium
from gymnasium.envs import registration

from slm_lab.core.registry import import_failure

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
        needs = [each.lower() for each in distribution.requires or ()]
        needs_gymnasium = any(each.startswith("gymnasium") for each in needs)
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
