"""Code that a run folder names: it is imported only if the user says so.

A run folder may come from anywhere. It names modules: those that the run was started with
(`--import`), and those of its environments ("module:Id-v0"). Importing a module runs its code. The
command that a run prints to resume it has an `--import` for each.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from slm_lab.core.errors import Problem, SpecError, UsageError
from slm_lab.core.plugins import is_covered, module_in, refuse_inside
from slm_lab.experiment.run_dir import FOLDERS, RUN_BLOCK, RunDir
from slm_lab.experiment.search.record import Copied, Proposed, Record
from slm_lab.spec.load import spec_names
from slm_lab.spec.read import find_file, read_file
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.search import dimensions


def modules_of(spec: Spec) -> tuple[str, ...]:
    """The modules that a spec names, for its environment or for those that it searches over."""
    return _modules([spec.env.name, *_searched(spec.search)])


def modules_at(points: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The modules that points of a search name."""
    return _modules(
        name for point in points for path, value in point.items() for name in _names(path, value)
    )


def named_by(files: Iterable[Path], block: str = RUN_BLOCK) -> tuple[str, ...]:
    """All modules that spec files of runs name, those first that runs were started with.

    Raises SpecError for a file that cannot be read.
    """
    imports: list[str] = []
    names: list[str] = []
    for file in files:
        content = read_file(file)
        imports += recorded_imports(file, content, block)
        for name in spec_names(content):
            names += [
                *_names("env", content[name].get("env")),
                *_searched(content[name].get("search")),
            ]
    return tuple(dict.fromkeys([*imports, *_modules(names)]))


def recorded_imports(
    file: Path, content: Mapping[str, Any], block: str = RUN_BLOCK
) -> tuple[str, ...]:
    """The modules that a run was started with, of its spec file's content, where `block` says so.
    Raises SpecError where it does not hold a list of names."""
    about = content.get(block, {})
    recorded = about.get("imports", []) if isinstance(about, Mapping) else None
    if not isinstance(recorded, list) or not all(isinstance(name, str) for name in recorded):
        raise SpecError(str(file), [Problem(f"{block}.imports", "must be a list of module names")])
    return tuple(recorded)


def check_allowed(
    where: Path, modules: Sequence[str], allowed: Sequence[str], data_dir: Path | None = None
) -> None:
    """Raises UsageError unless `allowed` covers all `modules` that the run folder `where` names,
    and none of either lies in it, or in the folder of run folders."""
    for module in modules:
        if not all(part.isidentifier() for part in module.split(".")):
            raise UsageError(f"{where} names the module {module!r}, which no module can be called")
    refuse_inside([*modules, *allowed], [where, *_folders_of_runs(data_dir)])
    missing = [module for module in modules if not is_covered(module, allowed)]
    if missing:
        words = " ".join(f"--import {module}" for module in missing)
        raise UsageError(
            f"{where} names code that would be run: {_listed(missing)}. If you trust it, repeat "
            f"the command with {words} (or --trust for all that it names)"
        )


def imports_for(
    run_dir: RunDir, given: Sequence[str], trust: bool, data_dir: Path
) -> tuple[str, ...]:
    """What to import before a run folder is used: the modules that it was started with, and those
    that are `given` now. With `trust` all that it names.

    Raises UsageError where the user has not allowed them, SpecError for a file that cannot be read.
    """
    named = named_by([run_dir.spec_file])
    allowed = tuple(given)
    if trust:
        trials = sorted(run_dir.root.glob(f"{run_dir.prefix}_t*_spec.json"))
        events = Record(run_dir.search_record).read()
        points = [event.point for event in events if isinstance(event, Proposed | Copied)]
        named = tuple(dict.fromkeys([*named, *named_by(trials), *modules_at(points)]))
        allowed += named
    check_allowed(run_dir.root, named, allowed, data_dir)
    recorded = recorded_imports(run_dir.spec_file, read_file(run_dir.spec_file))
    return tuple(dict.fromkeys([*recorded, *allowed]))


def imports_of_file(spec_file: str, given: Sequence[str], trust: bool) -> tuple[str, ...]:
    """What to import before a run begins: what is `given`; with `trust` also what its spec file
    names, see `check_source`."""
    if not trust:
        return tuple(given)
    file = find_file(spec_file)
    named = named_by([file])
    if _is_of_a_run(file):
        check_allowed(file.resolve().parent, named, named)
    return tuple(dict.fromkeys([*given, *named]))


def check_source(spec_file: str, spec: Spec, allowed: Sequence[str]) -> None:
    """Raises UsageError as `check_allowed`, of a spec that begins a run, where its file belongs to
    a run that was made before: another one is the user's own, and may name modules."""
    file = find_file(spec_file)
    if _is_of_a_run(file):
        check_allowed(file.resolve().parent, modules_of(spec), allowed)


def _is_of_a_run(file: Path) -> bool:
    """Whether a spec file was written by a run."""
    in_run_folder = all((file.resolve().parent / part).is_dir() for part in FOLDERS)
    return in_run_folder or RUN_BLOCK in read_file(file)


def _modules(names: Iterable[str]) -> tuple[str, ...]:
    found = (module_in(name) for name in names)
    return tuple(dict.fromkeys(module for module in found if module))


def _searched(search: object) -> Iterator[str]:
    """The environments among which a search chooses."""
    for dimension in dimensions(search) if isinstance(search, Mapping) else ():
        for value in dimension.args if isinstance(dimension.args, list) else ():
            yield from _names(dimension.path, value)


def _names(path: str, value: object) -> Iterator[str]:
    """The name of an environment, if `value` sets one at the dotted path."""
    if path == "env" and isinstance(value, Mapping):
        value = value.get("name")
    if path in ("env", "env.name") and isinstance(value, str):
        yield value


def _folders_of_runs(data_dir: Path | None) -> list[Path]:
    """Not one in which the user works: then the user's own modules lie in it as well."""
    if data_dir is None or Path.cwd().is_relative_to(data_dir.resolve()):
        return []
    return [data_dir]


def _listed(modules: Sequence[str]) -> str:
    return f"the module{'' if len(modules) == 1 else 's'} {', '.join(modules)}"
