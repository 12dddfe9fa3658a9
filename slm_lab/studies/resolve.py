"""Finds what the words of a request name: a recipe, a run, its spec file, the modules
and an agent."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from slm_lab.core.errors import SpecError, UsageError
from slm_lab.core.process import importing
from slm_lab.recipes.recipe import is_algorithm, with_recipe
from slm_lab.records.lookup import (
    find_labelled,
    find_run,
    find_saved,
    resolve_spec_name,
)
from slm_lab.records.run_source import RunSource
from slm_lab.records.trust import imports_for, imports_of_file, own_imports
from slm_lab.spec.load import spec_names
from slm_lab.spec.read import find_file, read_file
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.run_mode import PLAYING, Verb

if TYPE_CHECKING:
    from slm_lab.records.init_from import Parent

SpecWords: TypeAlias = tuple[str, str | None]
"""A spec file, or an algorithm; and the name in it, or the environment."""
AB_USAGE = "slm-lab ab A B; slm-lab ab SPEC -s KEY=VALUE; or --resume FOLDER"


def resolve_names(asked: RunSource, verb: Verb = "train") -> RunSource:
    """The source with what its words name: the recipe, the run, its spec file, the
    modules and the agent. The modules are to be imported next. Raises LabError."""
    if asked.fork is not None:
        return _resolve_fork(asked)
    source, run_dir = find_begun(asked, verb)
    if run_dir is not None:
        return _resolve_run(source, run_dir)
    imports = imports_of_file(source.spec_file, source.imports, source.trust)
    return replace(source, imports=imports, parent=_find_parent(source))


def find_begun(asked: RunSource, verb: Verb) -> tuple[RunSource, RunDir | None]:
    """The source with its recipe and the folder of its run, and this run. The run is
    the one that the source names, or with `resume` the one of its label. It is None if
    a new one begins. Raises LabError."""
    if asked.resume:
        labelled = _find_labelled(asked, verb)
        if labelled is not None:
            asked = replace(asked, run=str(labelled.root))
    source = asked
    if asked.spec_file or asked.run is None:
        source = with_recipe(asked)
    if source.run is None:
        return source, None
    name = source.spec_name
    # typed after a recipe
    env = asked.spec_name if name != asked.spec_name else None
    if source.spec_file:
        name = resolve_spec_name(source.spec_file, name)
    data = source.data_dir
    trial = None
    if verb in PLAYING:
        run_dir, trial = find_saved(source.run, data, name, env)
    else:
        is_search = verb == "search"
        run_dir = find_run(source.run, data, name, of_search=is_search, env=env)
    run = str(run_dir.root)
    if trial is not None:
        run = f"{run}:t{trial}"
    return replace(source, spec_name=name or run_dir.spec_name, run=run), run_dir


def _find_labelled(asked: RunSource, verb: Verb) -> RunDir | None:
    """The run that `--name` names and `--resume` resumes; None: a new one begins."""
    assert asked.label is not None
    run_dir = find_labelled(asked.label, asked.data_dir)
    if run_dir is not None and run_dir.is_search != (verb == "search"):
        kind, mode = ("search", "search") if run_dir.is_search else ("run", "train")
        raise UsageError(
            f"--name {asked.label}: {run_dir.root} is a {kind}; use the mode {mode}"
        )
    return run_dir


def _resolve_run(source: RunSource, run_dir: RunDir) -> RunSource:
    """The source with the spec file and the modules of its run."""
    allowed = source.imports
    if source.spec_file:
        allowed = (*allowed, *own_imports(find_file(source.spec_file)))
    return replace(
        source,
        spec_file=source.spec_file or str(run_dir.spec_file),
        imports=imports_for(run_dir, allowed, source.trust, source.data_dir),
    )


def _resolve_fork(asked: RunSource) -> RunSource:
    """The source with the folder of the run to fork, its spec file and its modules."""
    run_dir, trial = find_saved(asked.fork or "", asked.data_dir, None)
    if run_dir.is_search:
        of_trial = run_dir.trial_spec_file(trial or 0)
        raise UsageError(
            f"{run_dir.root} is a search, and only runs are forked; train a trial's "
            f"spec as a run of its own first: slm-lab run {of_trial}"
        )
    source = replace(asked, fork=str(run_dir.root), spec_name=run_dir.spec_name)
    return _resolve_run(source, run_dir)


def _find_parent(source: RunSource) -> "Parent | None":
    """The agent of `--init-from`, which a new run begins with."""
    if source.init_from is None:
        return None
    with importing():  # imports torch
        from slm_lab.records.init_from import find_parent
    return find_parent(
        source.init_from,
        source.init_parts,
        which=source.which,
        session=source.session,
        data_dir=source.data_dir,
    )


def check_resumed(asked: RunSource, source: RunSource, verb: Verb) -> None:
    """Raises UsageError if `source`, which `asked` has become, resumes by its label
    another run than `asked` would begin. The modules must be imported."""
    if not asked.resume or source.run is None:
        return
    is_search = verb == "search"
    with importing():
        from slm_lab.studies.resume import check_same

        if is_search:
            from slm_lab.studies.search.run import CHANGES_OF_RESUME
        else:
            from slm_lab.studies.run import CHANGES_OF_RESUME
    run_dir = RunDir(Path(source.run), source.spec_name or "")
    new = resolve_names(replace(asked, resume=False, init_from=None), verb)
    check_same(run_dir, new, CHANGES_OF_RESUME, for_search=is_search)


def specs_of(words: Sequence[str]) -> tuple[SpecWords, SpecWords]:
    """The specs that the words of `slm-lab ab` name as A and as B. Each is FILE, FILE
    NAME or ALGO ENV; two of one file are FILE NAME NAME. A single spec is both. Raises
    UsageError, SpecError."""
    specs: list[SpecWords] = []
    rest = list(words)
    while rest:
        file = rest.pop(0)
        names: list[str] = []
        while rest and len(names) < 2 and _belongs(file, rest[0]):
            names.append(rest.pop(0))
        specs += [(file, name) for name in names] or [(file, None)]
    if not specs:
        raise UsageError(f"name what to test: {AB_USAGE}")
    if len(specs) > 2:
        raise UsageError(f"{' '.join(words)}: these are {len(specs)} specs: {AB_USAGE}")
    return specs[0], specs[-1]


def _belongs(file: str, word: str) -> bool:
    """Whether a word names a spec in the file before it, or the environment of an
    algorithm."""
    if is_algorithm(file):
        return not is_algorithm(word) and not _is_file(word)
    return word in spec_names(read_file(find_file(file)))


def _is_file(word: str) -> bool:
    try:
        find_file(word)
    except SpecError:
        return False
    return True
