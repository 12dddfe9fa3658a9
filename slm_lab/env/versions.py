"""The step limit, all arguments and the code of an environment. Scores depend on
them."""

import ast
import functools
import hashlib
import inspect
import json
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

from slm_lab.core.recorded import recordable
from slm_lab.core.registry import load_target
from slm_lab.env.lookup import find_env, package_of, step_limit
from slm_lab.env.pettingzoo import AgentMaker
from slm_lab.env.pool_names import is_only_in_pool, is_pooled
from slm_lab.env.simulators.atari import atari_keys, is_atari
from slm_lab.env.simulators.batched import is_batched
from slm_lab.env.vector.autoreset import Vectorisation, choose_mode
from slm_lab.spec.schema.env import EnvSpec


def episode_limit(spec: EnvSpec) -> int | None:
    """Steps after which an episode is truncated; None: never. Raises as `make_env`."""
    entry = find_env(spec)
    if is_atari(entry):
        return atari_keys(spec, entry).max_steps
    return step_limit(spec, entry)


def env_record(spec: EnvSpec) -> dict[str, Any]:
    """The id, vectorisation, step limit and all arguments, registered ones included, as
    JSON. Raises as `make_env`."""
    entry = find_env(spec)
    arguments = {**entry.kwargs, **spec.arguments}
    if is_atari(entry):
        keys = atari_keys(spec, entry)
        arguments = {"game": entry.kwargs["game"], **keys.model_dump(exclude_none=True)}
    backend = "gymnasium"
    mode: Vectorisation = "native"
    if is_pooled(spec) or is_batched(spec):
        backend = spec.backend
    else:
        mode = choose_mode(spec, entry)
    if is_only_in_pool(entry):
        backend = "envpool"
    return {
        "id": entry.id,
        "backend": backend,
        "vectorization_mode": mode,
        "max_t": episode_limit(spec),
        "arguments": recordable(arguments),
    }


MOST_ARGUMENTS = 100_000
"""Values in the arguments of a registration that a digest contains."""


def code_digest(spec: EnvSpec) -> str:
    """A digest of what the environment's `step` and `reset` depend on besides the spec.
    It covers the arguments of its registration. It covers the files of its modules, its
    wrappers' modules and all that they import. Of installed packages among these it
    covers the versions. Raises as `find_env`, and what an import raises."""
    entry = find_env(spec)
    registered = recordable(
        [entry.max_episode_steps, entry.kwargs], most=MOST_ARGUMENTS
    )
    parts = [json.dumps(registered, sort_keys=True)]
    todo = sorted(
        {module for target in _code_of(spec, entry) for module in _modules_of(target)}
    )
    seen = set(todo)
    while todo:
        module = todo.pop(0)
        file = _file_of(module)
        package = module.partition(".")[0]
        if file is None or package in sys.stdlib_module_names or package == "slm_lab":
            continue
        package_version = _installed_version(package, file)
        if package_version is not None:
            parts.append(f"{package} {package_version}")
            continue
        content = file.read_bytes()
        parts.append(f"{module} {hashlib.sha256(content).hexdigest()}")
        imported = sorted(set(_imported_by(module, file, content)) - seen)
        seen.update(imported)
        todo += imported
    return hashlib.sha256("\n".join(sorted(set(parts))).encode()).hexdigest()[:16]


def comes_from(spec: EnvSpec, packages: Collection[str]) -> bool:
    """Whether the code of an environment comes from these packages. Raises as
    `find_env`."""
    return package_of(find_env(spec)).replace("_", "-") in packages


def _code_of(spec: EnvSpec, entry: GymnasiumSpec) -> Iterator[Any]:
    """The classes and functions that make the environment, or their names."""
    yield from filter(None, (entry.entry_point, entry.vector_entry_point))
    yield from (wrapper.entry_point for wrapper in entry.additional_wrappers)
    yield from (name for name, _ in spec.wrapped_by)


def _modules_of(target: Any) -> Iterator[str]:
    """The modules of a class, and of its bases, or of a function."""
    if isinstance(target, AgentMaker):
        yield target.module
        return
    thing = target
    if isinstance(target, str):
        thing = load_target(target)
    thing = thing.func if isinstance(thing, functools.partial) else thing
    for part in inspect.getmro(thing) if inspect.isclass(thing) else (thing,):
        yield getattr(part, "__module__", None) or type(part).__module__


def _file_of(module: str) -> Path | None:
    """The file of a module, which need not have been imported; None if it has none."""
    origin = getattr(sys.modules.get(module), "__file__", None)
    places = None
    for end in range(module.count(".") + 1) if origin is None else ():
        name = ".".join(module.split(".")[: end + 1])
        try:
            module_spec = PathFinder.find_spec(name, places)
        except KeyError:  # in a folder without __init__.py of a package not imported
            return None
        if module_spec is None:
            return None
        origin = module_spec.origin
        places = module_spec.submodule_search_locations
    if origin is not None and Path(origin).is_file():
        return Path(origin)
    return None


def _installed_version(package: str, file: Path) -> str | None:
    """The version of the package, unless its files may be edited where they lie."""
    if not {"site-packages", "dist-packages"} & set(file.parts):
        return None
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _imported_by(module: str, file: Path, content: bytes) -> Iterator[str]:
    """Names of what the source of a module imports: modules, and maybe what they
    contain."""
    if file.suffix != ".py":
        return
    package = module
    if file.stem != "__init__":
        package = module.rpartition(".")[0]
    tree = ast.Module([], [])
    with suppress(SyntaxError, ValueError):  # it is being edited
        tree = ast.parse(content)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".") if node.level else []
            above = above[: len(above) - node.level + 1]
            base = ".".join([*above, *filter(None, [node.module])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
