"""Modules and clusters named in a run folder are used only with the user's permission.

A run folder may come from anywhere, and importing a module runs its code. A run folder
names the modules of the run's `--import` options. It also names the modules of its
environments ("module:Id-v0") and of their wrappers ("module:Class"). The resume command
that a run prints has an `--import` for each."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from slm_lab.core.errors import SpecError, UsageError
from slm_lab.core.plugins import code_name, is_covered, module_in, refuse_inside
from slm_lab.core.text import escape_line
from slm_lab.records.event_log import Copied, EventLog, Proposed
from slm_lab.spec.limits import nodes
from slm_lab.spec.load import spec_names
from slm_lab.spec.read import find_file, read_file
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.search import dimensions
from slm_lab.storage.run_dir import FOLDERS, RUN_BLOCK, RunDir

FLATTEN = "gymnasium.wrappers:FlattenObservation"
"""A wrapper of recipes. It takes no arguments, so a run folder may name it without
permission."""
IMPORTS = "imports"
"""The key of a spec file for the modules that the user's own file imports."""


def modules_of(spec: Spec) -> tuple[str, ...]:
    """The modules of a spec's environment and wrappers, and of those that it searches
    over."""
    return _modules([*spec.env.code_names, *_searched(spec.search)])


def modules_at(trials: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The modules named by the params of trials."""
    return _modules(
        name
        for params in trials
        for path, value in params.items()
        for name in _names(path, value)
    )


def named_by(files: Iterable[Path], block: str = RUN_BLOCK) -> tuple[str, ...]:
    """All modules named by spec files of runs, first the ones of `--import` options.
    Raises SpecError for an unreadable file."""
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


def command_text(words: Sequence[str], modules: Sequence[str]) -> str:
    """The command `slm-lab` with these words, and --import for the modules of a run
    folder. Modules that another one covers are left out."""
    named = dict.fromkeys(modules)
    needed = [
        module
        for module in named
        if not is_covered(module, [*(named.keys() - {module})])
    ]
    imports = [word for module in needed for word in ("--import", module)]
    return shlex.join(["slm-lab", *words, *imports])


def resume_words(folder: Path, is_search: bool, cluster: object) -> list[str]:
    """The words of the command that resumes the run in `folder`; a cluster is typed
    again."""
    words = ["run", f"{'search' if is_search else 'train'}@{folder}"]
    if cluster is None:
        return words
    return [*words, "--cluster", str(cluster)]


def recorded_imports(
    file: Path, content: Mapping[str, Any], block: str = RUN_BLOCK
) -> tuple[str, ...]:
    """The modules that a run was started with, from `block` in its spec file's content.
    Raises SpecError if the entry is no list of names."""
    recorded_block = content.get(block, {})
    recorded = None
    if isinstance(recorded_block, Mapping):
        recorded = recorded_block.get("imports", [])
    if not isinstance(recorded, list) or not all(
        isinstance(name, str) for name in recorded
    ):
        message = "must be a list of module names"
        raise SpecError.of(str(file), f"{block}.imports", message)
    return tuple(recorded)


def check_allowed(
    where: Path,
    modules: Sequence[str],
    allowed: Sequence[str],
    data_dir: Path | None = None,
) -> None:
    """Raises UsageError unless `allowed` covers all `modules` named by the run folder
    `where`. Also raises it if a module of either list lies in that folder or beside it,
    or in `data_dir`."""
    for module in modules:
        if not all(part.isidentifier() for part in module.split(".")):
            raise UsageError(
                f"{where} names the module {module!r}, which is no valid module name"
            )
    # A folder that the user works in may hold the user's own modules, too.
    around = [folder for folder in (where.parent, data_dir) if folder is not None]
    foreign = [
        folder for folder in around if not Path.cwd().is_relative_to(folder.resolve())
    ]
    refuse_inside([*modules, *allowed], [where, *foreign])
    missing = [module for module in modules if not is_covered(module, allowed)]
    if missing:
        words = " ".join(f"--import {module}" for module in missing)
        noun = "module" if len(missing) == 1 else "modules"
        raise UsageError(
            f"{where} names code that would be run: the {noun} {', '.join(missing)}. "
            "If you trust it, "
            f"repeat the command with {words} (or --trust for all modules that it "
            "names); in Python: imports=[…], or trust=True"
        )


def check_cluster_allowed(where: Path, spec: Spec, sets: Sequence[str]) -> None:
    """Raises UsageError if the run folder `where`, and not the `sets` of the command
    line, names the Ray cluster. Who answers there may run any code here."""
    address = spec.meta.cluster
    typed = {text.partition("=")[0].strip() for text in sets}
    if address is not None and not typed & {"meta", "meta.cluster"}:
        raise UsageError(
            f"{where} names the Ray cluster {escape_line(address)}, which could run "
            "any code here. If you trust it, repeat the command with --cluster "
            f"{escape_line(shlex.quote(address))}; -s meta.cluster=null trains on this "
            "machine"
        )


def refuse_paths(archive: Path, arguments: Mapping[str, Any]) -> None:
    """Raises UsageError if arguments of the environment in a shared run name files. The
    environment would open them on this machine."""
    for path, value in nodes(arguments):
        if isinstance(value, str) and re.search(r"[/\\]|^~", value):
            raise UsageError(
                f"{archive}: env.{path} = {json.dumps(value)} names a file, which may "
                "be any of your files. If you trust it, unzip it into the data folder "
                "and use the folder"
            )


def imports_for(
    run_dir: RunDir, imports: Sequence[str], trust: bool, data_dir: Path
) -> tuple[str, ...]:
    """The modules to import before using a run folder: its recorded `--import`s and
    `imports`. With `trust`, also all other modules that the folder names. Raises
    UsageError for a module that the user has not allowed, SpecError for an unreadable
    file."""
    named = named_by([run_dir.spec_file])
    allowed = tuple(imports)
    if trust:
        trials = sorted(run_dir.root.glob(f"{run_dir.prefix}_t*_spec.json"))
        events = EventLog(run_dir.event_log_file).read()
        points = [
            event.params for event in events if isinstance(event, Proposed | Copied)
        ]
        named = tuple(dict.fromkeys([*named, *named_by(trials), *modules_at(points)]))
        allowed += named
    check_allowed(run_dir.root, named, allowed, data_dir)
    recorded = recorded_imports(run_dir.spec_file, read_file(run_dir.spec_file))
    return tuple(dict.fromkeys([*recorded, *allowed]))


def imports_of_file(
    spec_file: str, typed: Sequence[str], trust: bool
) -> tuple[str, ...]:
    """The modules to import before a run begins: the `typed` ones, and the `imports` of
    the user's own spec file. With `trust` also all others that the file names. See
    `check_source`. Raises SpecError."""
    file = find_file(spec_file)
    imports = dict.fromkeys([*typed, *own_imports(file)])
    if trust:
        named = named_by([file])
        if is_of_run_folder(file):
            check_allowed(file.resolve().parent, named, named)
        imports.update(dict.fromkeys(named))
    return tuple(imports)


def own_imports(file: Path) -> tuple[str, ...]:
    """The modules under the key `imports` of a spec file, beside its specs. A file that
    a run has written may name none there. Raises SpecError if they are no list of
    names."""
    modules = read_file(file).get(IMPORTS, [])
    if is_of_run_folder(file):
        return ()
    is_list = isinstance(modules, list) and all(
        isinstance(name, str) for name in modules
    )
    if not is_list or not all(
        part.isidentifier() for name in modules for part in name.split(".")
    ):
        message = "must be a list of module names, without .py"
        raise SpecError.of(str(file), IMPORTS, message, modules)
    return tuple(modules)


def check_source(
    spec_file: str, spec: Spec, allowed: Sequence[str], sets: Sequence[str] = ()
) -> None:
    """Applies `check_allowed` and `check_cluster_allowed` to the spec of a new run if
    its file was written by a run. Any other spec file is the user's own and may name
    both. Raises UsageError."""
    file = find_file(spec_file)
    if is_of_run_folder(file):
        check_allowed(file.resolve().parent, modules_of(spec), allowed)
        check_cluster_allowed(file, spec, sets)


def is_of_run_folder(file: Path) -> bool:
    """Whether a run has written the spec file, as far as its place and its content
    tell."""
    in_run_folder = all((file.resolve().parent / part).is_dir() for part in FOLDERS)
    return in_run_folder or RUN_BLOCK in read_file(file)


def _modules(names: Iterable[str]) -> tuple[str, ...]:
    modules = (module_in(name) for name in names if name != FLATTEN)
    return tuple(dict.fromkeys(module for module in modules if module))


def _searched(search: object) -> Iterator[str]:
    """The names of the environments and wrappers in a search block."""
    for dimension in dimensions(search) if isinstance(search, Mapping) else ():
        for value in dimension.args if isinstance(dimension.args, list) else ():
            yield from _names(dimension.path, value)


def _names(path: str, value: object) -> Iterator[str]:
    """The names of an environment and its wrappers, as far as `value` sets them at the
    path."""
    if path == "env" and isinstance(value, Mapping):
        yield from _names("env.name", value.get("name"))
        yield from _names("env.wrappers", value.get("wrappers"))
    elif path == "env.name":
        env_name = code_name(value) if isinstance(value, str) else None
        if env_name is not None:
            yield env_name
    elif path.startswith("env.wrappers"):
        for entry in value if isinstance(value, list) else [value]:
            name = entry
            if isinstance(entry, Mapping):
                name = entry.get("name")
            if isinstance(name, str):
                yield name
