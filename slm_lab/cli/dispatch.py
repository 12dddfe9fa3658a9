"""Dispatches `slm-lab run` to the command of its mode, and what the Python API asks
for to its command."""

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from typer import Exit

from slm_lab.cli.display.screen import console, print_line
from slm_lab.cli.shell.exit_codes import report_errors, run_guarded
from slm_lab.cli.shell.parent_program import ParentProgram
from slm_lab.cli.shell.signals import ended_in_time, print_stop
from slm_lab.core.errors import UsageError
from slm_lab.core.plugins import import_plugins
from slm_lab.core.process import importing, stop_signals_blocked
from slm_lab.parallel.fork_server import start_fork_server
from slm_lab.records.annotations import check_tags
from slm_lab.records.run_source import RunSource
from slm_lab.studies.run_mode import PLAYING, RunMode, Verb

COMPARISONS = {"compare": "slm_lab.cli.compare:compare", "ab": "slm_lab.cli.ab:ab"}
"""The commands of comparisons that the Python API asks for, by its verbs. They are
imported when they run."""
MOST_LETTERS = 200
"""The maximum length of a name or a note, in letters."""


def run_for_caller() -> None:
    """Does what the Python API asks for that has started this process."""

    def work() -> None:
        with report_errors() as caller:
            verb, request = caller.receive()
            if verb not in COMPARISONS:
                raise Exit(execute(verb, request, caller))
            with stop_signals_blocked(), importing():
                command = resolve_name(COMPARISONS[verb])
            raise Exit(command(request, caller))

    run_guarded(work)


def execute(verb: Verb, asked: RunSource, caller: ParentProgram) -> int:
    """Executes the command of the mode, and returns the exit code. Raises LabError."""
    _reject_unused_options(asked, RunMode(verb, asked.run))
    if verb in PLAYING:
        return _play(verb, asked, caller)
    # it starts with the first Session, too, and there it is reported
    with suppress(OSError):
        start_fork_server()
    with stop_signals_blocked():
        with importing():
            from slm_lab.studies.resolve import check_resumed, resolve_names
        source = resolve_names(asked, verb)
        import_modules(source)
        if asked.track:
            from slm_lab.cli.track import check_named

            check_named(asked)
        check_resumed(asked, source, verb)
        with importing():
            train = _training_command(verb)
    return train(source, caller)


def _play(verb: Verb, asked: RunSource, caller: ParentProgram) -> int:
    """Executes a command that plays the agents of a run; a shared run is unpacked
    meanwhile. Returns the exit code. Raises LabError."""
    with (
        ended_in_time(lambda: print_stop(caller.folder)),
        asked.unpacked() as unpacked,
    ):
        with stop_signals_blocked():
            with importing():
                from slm_lab.studies.resolve import resolve_names
            source = resolve_names(unpacked, verb)
            caller.folder = (source.archive or Path(source.run or "")).absolute()
            import_modules(source)
            with importing():  # imports torch
                from slm_lab.cli.evaluate import enjoy, evaluate
        if verb == "eval":
            return evaluate(source)
        return enjoy(source)


def _training_command(verb: Verb) -> Callable[[RunSource, ParentProgram], int]:
    """The command of a mode that trains, with its imports."""
    if verb == "search":
        from slm_lab.cli.search import search_spec

        return search_spec
    from slm_lab.cli.run import run_spec

    return partial(run_spec, verb=verb)


def import_modules(source: RunSource) -> None:
    """Imports the modules of a request. Prints those that only the user's trust in a
    run lets it name."""
    run = source.fork or source.run
    if source.trust and source.imports and run is not None:
        listed = ", ".join(source.imports)
        print_line(console(), f"importing {listed}, which {run} names (--trust)")
    import_plugins(source.imports)


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
