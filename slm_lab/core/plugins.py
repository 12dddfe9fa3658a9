"""Imports modules that register parts from outside this package."""

import importlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.machinery import all_suffixes
from pathlib import Path
from types import ModuleType
from typing import Any

from slm_lab.core.errors import UsageError
from slm_lab.core.process import imported_code, running_import_of, stop_signals_blocked
from slm_lab.core.registry import import_failure

INSTALLED = frozenset({"site-packages", "dist-packages"})
"""The names of folders of installed packages."""

ENVPOOL = "envpool:"
PLAYGROUND = "playground/"
PETTINGZOO = "pettingzoo:"
ZOO_PACKAGES = frozenset({"pettingzoo", "mpe2"})
"""The packages of environments that the extra of PettingZoo installs."""
ZOO_FAMILIES = frozenset({"atari", "butterfly", "classic", "sisl"})
"""The families of environments in PettingZoo itself."""


def listed(value: Any) -> list[Any]:
    """A list of names or other objects; one that stands alone, as a text does, is the
    only one."""
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return list(value)
    return [value]


def listed_texts(value: Any) -> tuple[str, ...]:
    """The texts of what `listed` returns."""
    return tuple(map(str, listed(value)))


def import_plugins(modules: Sequence[str]) -> None:
    """Imports the modules that register parts from outside this package. Modules in the
    working directory are found. Raises UsageError if one does not import. Signals wait
    meanwhile."""
    if modules:
        look_in_working_directory()
    for module in modules:
        _refuse_namesake(module)
        try:
            with stop_signals_blocked(), running_import_of(module):
                imported = importlib.import_module(module)
        except (Exception, SystemExit) as error:
            name = module.removesuffix(".py").replace("/", ".")
            why = import_failure(error)
            if module[:1] in ("", "."):
                why = "must be the name of a module, such as my_env"
            elif module.endswith(".py"):
                why = f"write {name}, without .py"
            raise UsageError(f"--import {module}: {why}") from error
        _refuse_folder(module, imported)


def _refuse_folder(module: str, imported: ModuleType) -> None:
    """Raises UsageError if `imported` is a folder without an `__init__.py`: Python
    imports any folder as an empty package."""
    module_spec = imported.__spec__
    places = [Path(place) for place in getattr(imported, "__path__", ())]
    folder = next(filter(Path.is_dir, places), None)
    if module_spec is None or module_spec.has_location or folder is None:
        return
    if folder.is_relative_to(Path.cwd()):
        folder = folder.relative_to(Path.cwd())
    sys.modules.pop(module)  # so that a repeated import finds what is there then
    package = folder / module.rpartition(".")[2]
    fix = "name a module in it"
    path: list[str] | None = [] if "." in module else None  # of a parent, or sys.path
    specs = [finder.find_spec(module, path) for finder in sys.meta_path]
    if any(spec is not None and spec.has_location for spec in specs):
        fix = "it hides the installed package: repeat the command in another folder"
    elif (package / "__init__.py").is_file():
        fix = f"its package is {package}: repeat the command in {folder}"
        if (folder / "pyproject.toml").is_file() and not folder.is_absolute():
            fix += f", or install it: pip install -e ./{folder}"
    raise UsageError(
        f"--import {module}: nothing was imported, because the folder {folder} has no "
        f"__init__.py; {fix}"
    )


def refuse_during_import(command: str) -> None:
    """Raises UsageError while a module of the user is being imported. A training that
    began then would import the module again, and so start others without end."""
    module = imported_code()
    if module is not None:
        guard = 'if __name__ == "__main__":'
        raise UsageError(
            f"{command} was called while {module} was being imported; put the call "
            f"under `{guard}`, so that only the program itself makes it"
        )


def _refuse_namesake(module: str) -> None:
    """Raises UsageError if the working directory has a file of this name, but Python
    would import another module. This may be an installed module, or one of Python's
    own. Imports nothing."""
    package = module.partition(".")[0]
    file_name = f"{package}.py"
    module_spec = None
    # ValueError: a module without a spec, as __main__
    with suppress(ImportError, ValueError):
        module_spec = importlib.util.find_spec(package)
    if not os.path.isfile(file_name) or module_spec is None:
        return
    place = "Python's own module"
    if module_spec.has_location and module_spec.origin is not None:
        place = module_spec.origin
        is_of_python = Path(place).is_relative_to(sysconfig.get_path("stdlib"))
        if not is_of_python and INSTALLED.isdisjoint(Path(place).parts):
            return
    raise UsageError(
        f"--import {module}: would import {place}, not ./{file_name}, which has the "
        "same name; rename the file"
    )


def is_here(package: str) -> bool:
    """Whether the working directory has a package or a module of this name."""
    return any(os.path.exists(path) for path in (package, f"{package}.py"))


def missing_module_message(module_name: str, error: BaseException) -> str | None:
    """The message for a missing module; None if it fails for another reason."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    if not f"{module_name}.".startswith(f"{error.name}."):
        return None  # it exists, but another module is missing
    package = module_name.partition(".")[0]
    if error.name != package:
        return f"the package {package} has no module {error.name}"
    if is_here(package):
        return (
            "modules of this folder need an option: repeat the command with --import "
            f"{package}"
        )
    return (
        f"the package {package} is not installed; install it with pip (where its name "
        "may be another one)"
    )


def typed_modules(name: str) -> tuple[str, ...]:
    """The module of an environment that the user types as "my_env:MyEnv-v0" or
    "pettingzoo:my_env", if it is here."""
    module = module_in(code_name(name) or "")
    if module and is_here(module.partition(".")[0]):
        return (module,)
    return ()


def module_in(name: str) -> str:
    """The module in "package.module:Id-v0" or "package.module:Class"; or ""."""
    return name.rpartition(":")[0]


def code_name(env_name: str) -> str | None:
    """The name of an environment with the module of its code before a colon, if it has
    one. None if the lab itself finds it: in envpool, or in what the extra of PettingZoo
    installs."""
    if env_name.startswith((ENVPOOL, PLAYGROUND)):
        return None
    if not env_name.startswith(PETTINGZOO):
        return env_name
    module = zoo_module(env_name)
    if module.partition(".")[0] in ZOO_PACKAGES:
        return None
    return f"{module}:parallel_env"


def zoo_module(name: str) -> str:
    """The module of "pettingzoo:MODULE". A module of PettingZoo's own families may
    leave out the package, as in "pettingzoo:sisl.pursuit_v5"."""
    module = name.removeprefix(PETTINGZOO)
    if module.partition(".")[0] in ZOO_FAMILIES:
        return f"pettingzoo.{module}"
    return module


def is_covered(module: str, allowed: Sequence[str]) -> bool:
    """Whether `module` or one of its parent packages is in `allowed`."""
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


def refuse_inside(modules: Sequence[str], folders: Sequence[Path]) -> None:
    """Raises UsageError if a module lies in `folders`, unless installed. Imports
    nothing."""
    installed = [
        Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")
    ]
    inside = [folder.resolve() for folder in folders]
    for module in modules:
        for place in filter(os.path.exists, _places(module)):
            folder = next((root for root in inside if place.is_relative_to(root)), None)
            if folder is not None and not any(
                place.is_relative_to(root) for root in installed
            ):
                raise UsageError(
                    f"the module {module} is in {folder}, a folder of runs, whose "
                    "code is never run; move it out of there if it is yours"
                )


def _places(module: str) -> Iterator[Path]:
    """Possible paths of a module's code, with links resolved; they need not exist."""
    package, *rest = module.split(".")
    module_spec = None
    with suppress(ImportError, ValueError):
        module_spec = importlib.util.find_spec(package)
    locations = [Path.cwd() / package]
    if module_spec is not None:
        if module_spec.has_location and module_spec.origin is not None:
            yield Path(module_spec.origin).resolve()
        locations += map(Path, module_spec.submodule_search_locations or ())
    for location in locations:
        whole = location.joinpath(*rest)
        yield whole.resolve()
        yield from (
            whole.with_name(whole.name + end).resolve() for end in all_suffixes()
        )


def look_in_working_directory(folder: str | None = None) -> None:
    """Adds the working directory of this or another process to `sys.path`, as the last
    entry. So a file in it, maybe downloaded, is never imported in place of an installed
    package."""
    here = folder or str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
