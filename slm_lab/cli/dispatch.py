"""Dispatches `slm-lab run` to the command of its mode."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from slm_lab.cli.signals import ended_in_time, sigterm_as_ctrl_c
from slm_lab.core.errors import UsageError
from slm_lab.core.plugins import import_plugins
from slm_lab.core.process import importing, stop_signals_blocked
from slm_lab.experiment.mode import Mode, Verb, parse_mode

if TYPE_CHECKING:
    from slm_lab.experiment.source import RunSource


@dataclass(frozen=True)
class RunOptions:
    """The options of `slm-lab run`; None if omitted."""

    spec_file: str
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
    with sigterm_as_ctrl_c():
        if mode.verb == "search":
            return _search(options, mode)
        if mode.run is None or mode.verb == "train":
            return _train(options, mode)
        with ended_in_time():
            return _play(options, mode.verb, mode.run)


def _train(options: RunOptions, mode: Mode) -> int:
    """Begins or resumes a run; returns the exit code."""
    with stop_signals_blocked():
        imports = _allowed(options, mode.verb, mode.run)
        import_plugins(imports)
        with importing():
            from slm_lab.cli.run import run_spec

    return run_spec(options.source(mode.run, imports), mode.verb)


def _search(options: RunOptions, mode: Mode) -> int:
    """Begins or resumes a search; returns the exit code."""
    with stop_signals_blocked():
        imports = _allowed(options, mode.verb, mode.run)
        import_plugins(imports)
        with importing():
            from slm_lab.cli.search import search_spec

    return search_spec(options.source(mode.run, imports), options.keep)


def _play(options: RunOptions, verb: Verb, run: str) -> int:
    """Evaluates or shows saved agents of a run; returns the exit code."""
    with stop_signals_blocked():
        imports = _allowed(options, verb, run)
        import_plugins(imports)
        # Imports torch, which a process that only watches a training does not need.
        with importing():
            from slm_lab.cli.evaluate import Choice, enjoy, evaluate

    source = options.source(run, imports)
    choice = Choice(options.episodes, options.which, options.session)
    if verb == "eval":
        return evaluate(source, choice)
    return enjoy(source, choice, options.render, options.video)


def _allowed(options: RunOptions, verb: Verb, run: str | None) -> tuple[str, ...]:
    """The modules to import: those of the options, and for an existing run its recorded ones."""
    with importing():
        from slm_lab.experiment.trust import imports_for, imports_of_file
        from slm_lab.storage.run_lookup import asked_spec_name, find_run, find_saved

    if run is None:
        return imports_of_file(options.spec_file, options.imports, options.trust)
    name = asked_spec_name(options.spec_file, options.spec_name)
    if verb in ("eval", "enjoy"):
        run_dir, _ = find_saved(run, options.data, name)
    else:
        run_dir = find_run(run, options.data, name, verb == "search")
    imports = imports_for(run_dir, options.imports, options.trust, options.data)
    _report_trusted(imports if options.trust else (), run_dir.root)
    return imports


def _report_trusted(modules: Sequence[str], folder: Path) -> None:
    from slm_lab.cli.screen import console, print_line

    if modules:
        print_line(console(), f"importing {', '.join(modules)}, which {folder} names (--trust)")


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
