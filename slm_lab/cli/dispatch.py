"""Dispatches `slm-lab run` to the command of its mode, and what the Python API asks
for to its command."""

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Exit

from slm_lab.cli.shell.exit_codes import report_errors, run_guarded
from slm_lab.cli.shell.parent_program import ParentProgram
from slm_lab.cli.shell.signals import ended_in_time, print_stop
from slm_lab.core.errors import UsageError
from slm_lab.core.plugins import import_plugins
from slm_lab.core.process import importing, stop_signals_blocked
from slm_lab.parallel.fork_server import start_fork_server
from slm_lab.records.annotations import check_tags
from slm_lab.records.archive import unpacked
from slm_lab.records.run_source import RunSource
from slm_lab.studies.run_mode import RunMode, Verb

if TYPE_CHECKING:
    from slm_lab.records.init_from import Parent
    from slm_lab.storage.run_dir import RunDir

PLAYING = ("eval", "enjoy")
MOST_LETTERS = 200
"""The maximum length of a name or a note, in letters."""


def run_for_caller() -> None:
    """Does what the Python API asks for that has started this process."""

    def work() -> None:
        with report_errors() as caller:
            verb, request = caller.receive()
            if verb == "compare":
                with stop_signals_blocked(), importing():
                    from slm_lab.cli.compare import compare
                raise Exit(compare(request, caller))
            if verb == "ab":
                with stop_signals_blocked(), importing():
                    from slm_lab.cli.ab import ab
                raise Exit(ab(request, caller))
            raise Exit(execute(verb, request, caller))

    run_guarded(work)


def execute(verb: Verb, asked: RunSource, caller: ParentProgram) -> int:
    """Executes the command of the mode, and returns the exit code. Raises LabError."""
    _reject_unused_options(asked, RunMode(verb, asked.run))
    if verb in PLAYING:
        return _play(verb, asked, caller)
    existing = None
    source = asked
    if asked.resume:
        existing = _find_labelled_run(asked, verb)
    if existing is not None:
        source = replace(asked, run=str(existing.root))
    # it starts with the first Session, too, and there it is reported
    with suppress(OSError):
        start_fork_server()
    with stop_signals_blocked():
        source = resolve_names(source, verb)
        import_plugins(source.imports)
        if asked.track:
            from slm_lab.cli.track import check_named

            check_named(asked)
        if existing is not None:
            _check_same(asked, verb, existing)
        with importing():
            train = _training_command(verb)
    return train(source, caller)


def _play(verb: Verb, asked: RunSource, caller: ParentProgram) -> int:
    """Executes a command that plays the agents of a run; a shared run is unpacked
    meanwhile. Returns the exit code. Raises LabError."""
    assert asked.run is not None
    with (
        ended_in_time(lambda: print_stop(caller.folder)),
        unpacked(asked.run) as folder,
    ):
        with stop_signals_blocked():
            source = resolve_names(replace(asked, run=folder), verb)
            if folder != asked.run:
                source = replace(source, archive=Path(asked.run))
            caller.folder = (source.archive or Path(source.run or "")).absolute()
            import_plugins(source.imports)
            with importing():  # imports torch
                from slm_lab.cli.evaluate import enjoy, evaluate
        if verb == "eval":
            return evaluate(source)
        return enjoy(source)


def _find_labelled_run(asked: RunSource, verb: Verb) -> "RunDir | None":
    """The run that `--name` names and `--resume` resumes; None: a new one begins."""
    from slm_lab.records.lookup import find_labelled

    assert asked.label is not None
    run_dir = find_labelled(asked.label, asked.data_dir)
    if run_dir is not None and run_dir.is_search != (verb == "search"):
        kind, mode = ("search", "search") if run_dir.is_search else ("run", "train")
        raise UsageError(
            f"--name {asked.label}: {run_dir.root} is a {kind}; use the mode {mode}"
        )
    return run_dir


def _check_same(asked: RunSource, verb: Verb, existing: "RunDir") -> None:
    """Raises UsageError if the command would begin another run than the one that it
    resumes."""
    is_search = verb == "search"
    with importing():
        from slm_lab.studies.resume import check_same

        if is_search:
            from slm_lab.studies.search.prepare import MAY_CHANGE
        else:
            from slm_lab.studies.run import MAY_CHANGE
    new = resolve_names(replace(asked, init_from=None), verb)
    check_same(existing, new, MAY_CHANGE, for_search=is_search)


def _training_command(verb: Verb) -> Callable[[RunSource, ParentProgram], int]:
    """The command of a mode that trains, with its imports."""
    if verb == "search":
        from slm_lab.cli.search import search_spec

        return search_spec
    from slm_lab.cli.run import run_spec

    return partial(run_spec, verb=verb)


def resolve_names(asked: RunSource, verb: Verb) -> RunSource:
    """The same with what its words name: the recipe, the run, its spec file, the
    modules and the agent. Raises LabError."""
    if asked.fork is not None:
        return _resolve_fork(asked)
    source = asked
    if asked.spec_file or asked.run is None:
        with importing():
            from slm_lab.recipes.recipe import with_recipe
        source = with_recipe(asked)
    if source.run is not None:
        is_recipe = source.spec_name != asked.spec_name
        return _resolve_run(source, verb, asked.spec_name if is_recipe else None)
    with importing():
        from slm_lab.records.trust import imports_of_file
    imports = imports_of_file(source.spec_file, source.imports, source.trust)
    return replace(source, imports=imports, parent=_find_parent(source))


def _resolve_run(source: RunSource, verb: Verb, env: str | None) -> RunSource:
    """The same with the folder of the run, its spec file and its modules. `env` is the
    environment typed after a recipe."""
    with importing():
        from slm_lab.cli.display.screen import console, print_line
        from slm_lab.records.lookup import find_run, find_saved, resolve_spec_name
        from slm_lab.records.trust import imports_for, own_imports
        from slm_lab.spec.read import find_file

    assert source.run is not None
    modules_of_file: tuple[str, ...] = ()
    name = None
    if source.spec_file:
        name = resolve_spec_name(source.spec_file, source.spec_name)
        modules_of_file = own_imports(find_file(source.spec_file))
    data = source.data_dir
    trial = None
    if verb in PLAYING:
        run_dir, trial = find_saved(source.run, data, name, env)
    else:
        is_search = verb == "search"
        run_dir = find_run(source.run, data, name, of_search=is_search, env=env)
    allowed = (*source.imports, *modules_of_file)
    imports = imports_for(run_dir, allowed, source.trust, data)
    if source.trust and imports:
        listed = ", ".join(imports)
        print_line(
            console(), f"importing {listed}, which {run_dir.root} names (--trust)"
        )
    return replace(
        source,
        spec_file=source.spec_file or str(run_dir.spec_file),
        spec_name=name or run_dir.spec_name,
        run=str(run_dir.root) if trial is None else f"{run_dir.root}:t{trial}",
        imports=imports,
    )


def _resolve_fork(asked: RunSource) -> RunSource:
    """The same with the folder of the run to fork, its spec file and its modules."""
    with importing():
        from slm_lab.records.lookup import find_saved

    run_dir, trial = find_saved(asked.fork or "", asked.data_dir, None)
    if run_dir.is_search:
        of_trial = run_dir.trial_spec_file(trial or 0)
        raise UsageError(
            f"{run_dir.root} is a search, and only runs are forked; train a trial's "
            f"spec as a run of its own first: slm-lab run {of_trial}"
        )
    source = _resolve_run(replace(asked, run=str(run_dir.root)), "train", None)
    return replace(source, run=None, fork=source.run)


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


def _reject_unused_options(asked: RunSource, mode: RunMode) -> None:
    """Raises UsageError for an option without effect in this mode."""
    begins = mode.run is None
    with_agent: Collection[str] = PLAYING
    if asked.init_from is not None:
        with_agent = (*PLAYING, mode.verb)
    allowed: dict[str, tuple[Any, Collection[str]]] = {
        "--episodes": (asked.episodes, PLAYING),
        "--which": (asked.which, with_agent),
        "--session": (asked.session, with_agent),
        "--render": (asked.render, ("enjoy",)),
        "--video": (asked.video, ("enjoy",)),
        "--save": (asked.save, ("eval",)),
        "--keep": (asked.keep, ("search",)),
        "--resume": (asked.resume, ("train", "search")),
        "--track": (asked.track or None, ("train", "dev", "search")),
        "--all": (asked.all_metrics, ("train", "dev")),
        "--json": (asked.output == "json", ("train", "dev", "search", "eval")),
    }
    for option, (value, verbs) in allowed.items():
        if value is not None and value is not False and mode.verb not in verbs:
            fitting = " and ".join(
                f"{verb}@RUN" if verb in PLAYING else verb for verb in verbs
            )
            raise UsageError(f"{option} works only with {fitting}, not with {mode}")
    of_new = {
        "--name": asked.label,
        "--note": asked.note,
        "--tag": asked.tags or None,
        "--init-from": asked.init_from,
        "--resume": asked.resume or None,
    }
    for option, value in of_new.items():
        if value is not None and not begins:
            raise UsageError(f"{option} works only where a run begins, not with {mode}")
    may_resume = mode.verb == "train" and (
        mode.run is not None or asked.resume or asked.fork is not None
    )
    if asked.schedules is not None and not may_resume:
        raise UsageError(
            f"--schedules works only with train@RUN or --resume, not with {mode}"
        )
    if asked.save and (mode.run or "").endswith(".zip"):
        raise UsageError("--save works with a run folder; a shared run is not changed")
    if asked.render and asked.video:
        raise UsageError("--render and --video exclude each other: remove one of them")
    _check_names(asked)


def _check_names(asked: RunSource) -> None:
    """Raises UsageError for options of a new run that do not fit each other."""
    if asked.init_parts and asked.init_from is None:
        raise UsageError(
            "--init-part names what to take from a run: add --init-from RUN"
        )
    if asked.resume and asked.label is None:
        raise UsageError(
            "--resume needs the --name of the run; train@RUN resumes any other"
        )
    for option, text in {"--name": asked.label, "--note": asked.note}.items():
        if text is not None and not 0 < len(text) <= MOST_LETTERS:
            raise UsageError(f"{option}: must have 1 to {MOST_LETTERS} letters")
    check_tags(asked.tags)
    if asked.label == "latest" or set("/:~@") & set(asked.label or ""):
        raise UsageError(f"--name {asked.label}: RUN could not find it; use no / : ~ @")
