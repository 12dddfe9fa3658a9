"""Dispatches `slm-lab run` to the command of its mode."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from slm_lab.cli.signals import ended_in_time, sigterm_as_ctrl_c
from slm_lab.core.errors import UsageError
from slm_lab.core.plugins import import_plugins
from slm_lab.core.process import importing, stop_signals_blocked
from slm_lab.experiment.mode import Mode, Verb, parse_mode
from slm_lab.storage.archive import unpacked

if TYPE_CHECKING:
    from slm_lab.experiment.source import RunSource

PLAYING = ("eval", "enjoy")
"""Modes that play with saved agents."""


@dataclass(frozen=True)
class RunOptions:
    """The options of `slm-lab run`; None if omitted."""

    spec_file: str
    """"": that of the run, for eval@RUN and enjoy@RUN."""
    spec_name: str | None
    mode: str
    sets: tuple[str, ...]
    seed: int | None
    data: Path
    imports: tuple[str, ...]
    trust: bool
    episodes: int | None
    which: Literal["best", "latest"] | None
    session: int | None
    render: bool
    video: bool
    keep: int | None

    def source(self, run: str | None, imports: tuple[str, ...]) -> "RunSource":
        """What the command works on; `imports` are the imported plug-ins."""
        from slm_lab.experiment.source import RunSource

        data = self.data
        return RunSource(self.spec_file, self.spec_name, run, self.sets, self.seed, data, imports)


def execute(options: RunOptions) -> int:
    """Executes the command of the mode, and returns the exit code. Raises LabError."""
    mode = parse_mode(options.mode)
    _reject_unused_options(options, mode)
    plays = mode.verb in PLAYING
    with (
        sigterm_as_ctrl_c(),
        ended_in_time() if plays else nullcontext(),
        unpacked(mode.run) if plays and mode.run else nullcontext(mode.run) as run,
    ):
        mode = replace(mode, run=run)
        with stop_signals_blocked():
            options = _with_spec(options, run)
            imports = _allowed(options, mode)
            import_plugins(imports)
            with importing():
                command = _command(options, mode.verb)
        return command(options.source(mode.run, imports))


def _command(options: RunOptions, verb: Verb) -> Callable[["RunSource"], int]:
    """The command of a mode. Each has its own imports: only `evaluate` and `enjoy` need torch."""
    if verb in PLAYING:
        from slm_lab.cli.evaluate import enjoy, evaluate

        play = evaluate if verb == "eval" else enjoy
        return lambda source: play(source, options)
    if verb == "search":
        from slm_lab.cli.search import search_spec

        return lambda source: search_spec(source, options.keep)
    from slm_lab.cli.run import run_spec

    return lambda source: run_spec(source, verb)


def _with_spec(options: RunOptions, run: str | None) -> RunOptions:
    """The options with a spec file: the given one, or the run's own."""
    if options.spec_file or run is None:
        return options
    with importing():
        from slm_lab.storage.run_lookup import find_folder

    return replace(options, spec_file=str(find_folder(run, options.data)[0].spec_file))


def _allowed(options: RunOptions, mode: Mode) -> tuple[str, ...]:
    """The modules to import: those of the options, and for an existing run its recorded ones."""
    with importing():
        from slm_lab.cli.screen import console, print_line
        from slm_lab.experiment.trust import imports_for, imports_of_file
        from slm_lab.storage.run_lookup import asked_spec_name, find_run, find_saved

    if mode.run is None:
        return imports_of_file(options.spec_file, options.imports, options.trust)
    name = asked_spec_name(options.spec_file, options.spec_name)
    if mode.verb in PLAYING:
        run_dir, _ = find_saved(mode.run, options.data, name)
    else:
        run_dir = find_run(mode.run, options.data, name, mode.verb == "search")
    imports = imports_for(run_dir, options.imports, options.trust, options.data)
    if options.trust and imports:
        listed = ", ".join(imports)
        print_line(console(), f"importing {listed}, which {run_dir.root} names (--trust)")
    return imports


def _reject_unused_options(options: RunOptions, mode: Mode) -> None:
    """Raises UsageError for an option without effect in this mode."""
    given = {
        "--episodes": options.episodes is not None,
        "--which": options.which is not None,
        "--session": options.session is not None,
        "--render": options.render,
        "--video": options.video,
        "--keep": options.keep is not None,
    }
    of = {
        "eval": ("--episodes", "--which", "--session"),
        "enjoy": ("--episodes", "--which", "--session", "--render", "--video"),
        "search": ("--keep",),
    }
    for option, is_given in given.items():
        if is_given and option not in of.get(mode.verb, ()):
            fitting = " and ".join(
                verb if verb == "search" else f"{verb}@RUN"
                for verb, options in of.items()
                if option in options
            )
            raise UsageError(f"{option} works only with {fitting}, not with {options.mode}")
    if options.render and options.video:
        raise UsageError("--render and --video exclude each other: remove one of them")
