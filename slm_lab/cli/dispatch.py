"""From the words after `slm-lab run` to the command that carries them out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slm_lab.cli.signals import ended_in_time, signals_held_back, sigterm_as_ctrl_c
from slm_lab.core.errors import UsageError
from slm_lab.core.imports import importing
from slm_lab.core.plugins import import_plugins
from slm_lab.experiment.mode import Mode, Verb, parse_mode


@dataclass(frozen=True)
class Asked:
    """What was typed; None where an option was left out."""

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


def carry_out(asked: Asked) -> int:
    """Runs, evaluates or shows; returns the exit code. Raises LabError for what cannot be done."""
    mode = parse_mode(asked.mode)
    _refuse_foreign_options(asked, mode)
    with sigterm_as_ctrl_c():
        if mode.verb == "search":
            return _search(asked, mode)
        if mode.run is None or mode.verb == "train":
            return _train(asked, mode)
        with ended_in_time():
            return _look_at(asked, mode.verb, mode.run)


def _train(asked: Asked, mode: Mode) -> int:
    """Begins a run or goes on with one; returns the exit code."""
    with signals_held_back():
        imports = _allowed(asked, mode.verb, mode.run)
        import_plugins(imports)
        with importing():
            from slm_lab.cli.run import run_spec

    return run_spec(
        asked.spec_file,
        asked.spec_name,
        asked.mode,
        asked.sets,
        asked.seed,
        asked.data,
        imports,
    )


def _search(asked: Asked, mode: Mode) -> int:
    """Begins a search or goes on with one; returns the exit code."""
    with signals_held_back():
        imports = _allowed(asked, mode.verb, mode.run)
        import_plugins(imports)
        with importing():
            from slm_lab.cli.search import search_spec
            from slm_lab.experiment.search.prepare import SearchRequest

    return search_spec(
        SearchRequest(
            asked.spec_file,
            asked.spec_name,
            mode.run,
            asked.sets,
            asked.seed,
            asked.data,
            imports,
            asked.keep,
        )
    )


def _look_at(asked: Asked, verb: Verb, run: str) -> int:
    """Evaluates or shows what a run has saved; returns the exit code."""
    with signals_held_back():
        imports = _allowed(asked, verb, run)
        import_plugins(imports)
        # Needs torch, which the process that only watches a training does without.
        with importing():
            from slm_lab.cli.evaluate import Choice, enjoy, evaluate
            from slm_lab.experiment.saved_run import SavedRunRequest

    request = SavedRunRequest(
        asked.spec_file, asked.spec_name, run, asked.sets, asked.seed, asked.data, imports
    )
    choice = Choice(asked.episodes, asked.which, asked.session)
    if verb == "eval":
        return evaluate(request, choice)
    return enjoy(request, choice, asked.render, asked.video)


def _allowed(asked: Asked, verb: Verb, run: str | None) -> tuple[str, ...]:
    """The modules that a run was started with, if it has begun, and those that were typed now."""
    with importing():
        from slm_lab.experiment.consent import imports_for, imports_of_file
        from slm_lab.experiment.recorded import asked_spec_name, find_run, find_saved

    if run is None:
        return imports_of_file(asked.spec_file, asked.imports, asked.trust)
    name = asked_spec_name(asked.spec_file, asked.spec_name)
    if verb in ("eval", "enjoy"):
        run_dir, _ = find_saved(run, asked.data, name)
    else:
        run_dir = find_run(run, asked.data, name, verb == "search")
    imports = imports_for(run_dir, asked.imports, asked.trust, asked.data)
    _report_trusted(imports if asked.trust else (), run_dir.root)
    return imports


def _report_trusted(modules: Sequence[str], folder: Path) -> None:
    from slm_lab.cli.screen import console, say

    if modules:
        say(console(), f"importing {', '.join(modules)}, which {folder} names (--trust)")


def _refuse_foreign_options(asked: Asked, mode: Mode) -> None:
    """Raises UsageError for an option that means nothing in this mode."""
    given = {
        "--episodes": asked.episodes is not None,
        "--which": asked.which is not None,
        "--session": asked.session is not None,
        "--render": asked.render,
        "--video": asked.video,
        "--keep": asked.keep is not None,
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
            raise UsageError(
                f"{option} means nothing to the mode {asked.mode}; it is for {fitting}"
            )
    if asked.render and asked.video:
        raise UsageError("--render and --video do not go together: leave one of them out")
