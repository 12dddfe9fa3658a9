"""The command `slm-lab compare`: what it prints, and the exit code it ends with."""

import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slm_lab.analysis.compare_table import text_table
from slm_lab.cli.errors import FAILED, INTERRUPTED
from slm_lab.cli.live import LiveDisplay, short
from slm_lab.cli.naming import command_text
from slm_lab.cli.screen import say, wide_console
from slm_lab.cli.signals import signals_held_back, sigterm_as_ctrl_c
from slm_lab.core.errors import UsageError
from slm_lab.core.plugins import import_plugins
from slm_lab.experiment.compare import CompareRun
from slm_lab.experiment.compare_plan import CompareRequest, allowed_imports
from slm_lab.experiment.consent import imports_of_file, modules_of
from slm_lab.experiment.result import Ending

DEFAULT_SEEDS = 3
"""With which a median leaves out a seed that had bad luck."""


@dataclass(frozen=True)
class Asked:
    """What was typed; None where an option was left out."""

    spec_file: str | None
    spec_name: str | None
    modes: str | None
    workers: str | None
    threshold: float | None
    seeds: int | None
    sets: tuple[str, ...]
    seed: int | None
    data: Path
    imports: tuple[str, ...]
    trust: bool
    resume: Path | None


def compare(asked: Asked) -> int:
    """Begins a comparison or goes on with one; returns the exit code.

    Raises LabError for what cannot be run.
    """
    with sigterm_as_ctrl_c():
        run = _run_of(asked)
        console = wide_console()
        _introduce(console, run)
        try:
            interrupted = _train_all(console, run)
        except KeyboardInterrupt:
            interrupted = True
        return _conclude(console, run, interrupted)


def _run_of(asked: Asked) -> CompareRun:
    if asked.resume is not None:
        _refuse_beside_resume(asked)
        imports = allowed_imports(asked.resume, asked.imports, asked.trust)
        with signals_held_back():
            import_plugins(imports)
        return CompareRun.resume(asked.resume, imports)
    if asked.spec_file is None:
        raise UsageError("name a spec to compare: slm-lab compare SPEC NAME; or --resume FOLDER")
    imports = imports_of_file(asked.spec_file, asked.imports, asked.trust)
    with signals_held_back():
        import_plugins(imports)
    modes, workers = _words(asked.modes, "--modes"), _words(asked.workers, "--workers")
    return CompareRun.begin(
        CompareRequest(
            asked.spec_file,
            asked.spec_name,
            modes,
            None if workers is None else tuple(sorted(map(_count, workers))),
            DEFAULT_SEEDS if asked.seeds is None else asked.seeds,
            asked.threshold,
            asked.sets,
            asked.seed,
            asked.data,
            imports,
        )
    )


def _refuse_beside_resume(asked: Asked) -> None:
    """Raises UsageError: a comparison goes on as it was begun."""
    given = {
        "SPEC": asked.spec_file,
        "--modes": asked.modes,
        "--workers": asked.workers,
        "--threshold": asked.threshold,
        "--seeds": asked.seeds,
        "--set": asked.sets or None,
        "--seed": asked.seed,
    }
    for option, value in given.items():
        if value is not None:
            raise UsageError(f"{option} has no place beside --resume: it goes on as it was begun")


def _words(text: str | None, option: str) -> tuple[str, ...] | None:
    """ "a,b" as ("a", "b"), each once."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise UsageError(f"{option} {text}: must be words with a comma between them")
    return tuple(dict.fromkeys(words))


def _count(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise UsageError(f"--workers {word}: must be whole numbers >= 1 with commas between them")
    return int(word)


def _introduce(console: Console, run: CompareRun) -> None:
    plan = run.plan
    spec = plan.baseline
    variants, seeds = len(plan.specs), len(plan.seeds)
    first, last = plan.seeds[0], plan.seeds[-1]
    say(
        console,
        Text.assemble(
            "comparing ",
            (plan.name, "bold"),
            f": {spec.agent.algorithm.name} on {spec.env.name}, {variants} variants × {seeds} "
            f"seed{'' if seeds == 1 else f's ({first} to {last})'} = {variants * seeds} trainings "
            f"of {short(spec.env.max_frame)} total frames each, {len(run.to_run)} of them to run\n"
            f"folder {run.folder}",
        ),
    )
    crowded = [variant.label for variant in plan.specs if variant.crowded]
    if crowded:
        words = f"more workers than the {plan.cores} cores: {', '.join(crowded)}"
        say(console, Text(words, "yellow"))
    for note in plan.notes:
        say(console, Text(note, "yellow"))


def _train_all(console: Console, run: CompareRun) -> bool:
    """Whether the user stopped it."""
    run.measure_chance()
    said: set[str] = set()
    for planned in run.to_run:
        number = f"[{run.planned.index(planned) + 1}/{len(run.planned)}]"
        say(console, Text.assemble(f"{number} ", (planned.label, "bold")))
        training = run.prepare(planned)
        if training is None:
            continue
        for note in training.notes:
            if note not in said:
                say(console, Text(note, "yellow"))
        said |= set(training.notes)
        meta, max_frame = planned.spec.meta, planned.spec.env.max_frame
        with LiveDisplay(console, meta, max_frame) as display:
            ending = run.train(planned, training, display.update)
        if ending is Ending.INTERRUPTED:
            return True
        run.draw()
    return False


def _conclude(console: Console, run: CompareRun, interrupted: bool) -> int:
    """Draws and shows what there is; returns the exit code."""
    paths = run.draw()
    rows = text_table(run.comparison())
    table = Table(title=run.plan.name, title_justify="left", title_style="bold")
    for index, name in enumerate(rows.header):
        table.add_column(name, justify="right" if index else "left")
    for cells in rows.rows:
        table.add_row(*cells)
    console.print(table)
    failures = list(run.failures)
    for planned, why in failures:
        print(f"{planned.label} failed:\n{why}", file=sys.stderr)
    say(console, f"graph {paths[0]}")
    say(console, f"{len(paths) - 1} more graphs and tables in {run.folder}")
    if failures and run.would_repeat:
        told = "what is left would fail again: change the spec, and begin a new comparison"
        say(console, Text(told, "yellow"))
    elif interrupted or failures:
        words = ["compare", "--resume", str(run.folder)]
        modules = [*run.plan.imports, *modules_of(run.plan.baseline)]
        say(console, f"go on with: {command_text(words, modules)}")
    return INTERRUPTED if interrupted else FAILED if failures else 0
