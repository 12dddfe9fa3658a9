"""The command `slm-lab compare`: its output and exit code."""

import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from slm_lab.cli import options
from slm_lab.cli.display import screen
from slm_lab.cli.display.sessions import SessionsTable
from slm_lab.cli.shell.exit_codes import code_of_study
from slm_lab.cli.shell.parent_program import ParentProgram
from slm_lab.core.errors import UsageError
from slm_lab.core.plugins import import_plugins
from slm_lab.core.text import count_text, short_count
from slm_lab.storage.result import TrialResult
from slm_lab.studies.compare.folder import allowed_imports
from slm_lab.studies.compare.modes import CompareRequest, make_plan
from slm_lab.studies.compare.plan import Planned
from slm_lab.studies.compare.run import CompareRun
from slm_lab.studies.resolve import resolve_names
from slm_lab.studies.run import PreparedRun

DEFAULT_SEEDS = 3
"""The fewest seeds with which a median ignores one unlucky seed."""


def compare(request: CompareRequest, caller: ParentProgram) -> int:
    """Begins or resumes a comparison; returns the exit code. `source.run` is the folder
    to resume, and 0 seeds are `DEFAULT_SEEDS`. Raises LabError."""
    run = _open(request)
    caller.begun(run.folder)
    as_json = request.source.output == "json"
    console = screen.wide_console(quiet=as_json)
    _introduce(console, run)
    _train(console, run)
    code = _conclude(console, run)
    if as_json:
        screen.print_json(run.document(run.results.document(), code))
    return code


def _open(request: CompareRequest) -> CompareRun:
    source = request.source
    if source.run is not None:
        options.reject_beside_resume(
            {
                "SPEC": source.spec_file or None,
                "--modes": request.modes,
                "--workers": request.workers,
                "--threshold": request.threshold,
                "--seeds": request.seeds or None,
                "--set": source.sets or None,
                "--seed": source.seed,
            }
        )
        folder = Path(source.run)
        imports = allowed_imports(folder, source.imports, source.trust)
        import_plugins(imports)
        return CompareRun.resume(folder, imports)
    if not source.spec_file:
        raise UsageError(
            "name a spec to compare: slm-lab compare SPEC NAME; or --resume FOLDER"
        )
    source = resolve_names(source)
    import_plugins(source.imports)
    seeds = request.seeds or DEFAULT_SEEDS
    plan = make_plan(request._replace(source=source, seeds=seeds))
    return CompareRun.begin(plan, source.data_dir)


def parse_list(text: str | None, option: str) -> tuple[str, ...] | None:
    """ "a,b" as ("a", "b"), each once. Raises UsageError."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise UsageError(f"{option} {text}: must be words separated by commas")
    return tuple(dict.fromkeys(words))


def parse_counts(text: str | None) -> tuple[int, ...] | None:
    """The numbers of workers, in ascending order. Raises UsageError."""
    words = parse_list(text, "--workers")
    for word in words or ():
        if not word.isdecimal() or int(word) < 1:
            raise UsageError(
                f"--workers {word}: must be whole numbers >= 1 separated by commas"
            )
    if words is None:
        return None
    return tuple(sorted(map(int, words)))


def _introduce(console: Console, run: CompareRun) -> None:
    plan = run.plan
    spec = plan.baseline
    variants = len(plan.specs)
    seeds = len(plan.seeds)
    texts = count_text(seeds, "seed")
    if seeds > 1:
        texts = f"{texts} ({plan.seeds[0]} to {plan.seeds[-1]})"
    rest = (
        f": {spec.agent.algorithm.name} on {spec.env.name}, {variants} variants × "
        f"{texts} = "
        f"{variants * seeds} trainings of {short_count(spec.env.max_frame)} total "
        f"frames each, {len(run.to_run)} of them to run\nfolder {run.folder}"
    )
    crowded = ", ".join(way.label for way in plan.ways.values() if way.crowded)
    words = []
    if crowded:
        words.append(f"more workers than the {plan.cores} cores: {crowded}")
    screen.print_heading(
        console=console,
        verb="comparing",
        name=plan.name,
        rest=rest,
        notes=(*words, *plan.notes),
    )


def _train(console: Console, run: CompareRun) -> None:
    printed: set[str] = set()

    def opens(planned: Planned) -> None:
        number = f"[{planned.number + 1}/{len(run.planned)}]"
        screen.print_line(console, Text.assemble(f"{number} ", (planned.label, "bold")))

    def trains(planned: Planned, training: PreparedRun) -> TrialResult:
        for note in training.notes:
            if note not in printed:
                screen.print_line(console, note, "yellow")
        printed.update(training.notes)
        meta = planned.spec.meta
        max_frame = planned.spec.env.max_frame
        with SessionsTable(console, meta, max_frame) as display:
            return training.start(display.update)

    run.run(opens, trains)


def _conclude(console: Console, run: CompareRun) -> int:
    study = run.study
    kind = "graph"
    paths = []
    # The graphs have been drawn after the last training that finished.
    if study.stopping and study.problem is None:
        kind = "table"
        paths = run.results.write_tables()
    else:
        paths = run.results.draw()
    rows = run.results.text_table()
    screen.print_table(console, run.plan.name, rows.header, rows.rows, spare=rows.spare)
    failures = run.failures
    for planned, why in failures:
        print(f"{planned.label} failed:\n{why}", file=sys.stderr)
    damaged = run.results.damaged
    for number, why in damaged.items():
        label = run.planned[number].label
        print(f"{label} is left out: {why}", file=sys.stderr)
    screen.print_line(console, f"{kind} {paths[0]}")
    screen.print_line(
        console, f"{len(paths) - 1} more graphs and tables in {run.folder}"
    )
    if failures and run.would_repeat:
        message = (
            "the rest would fail again: change the spec, and begin a new comparison"
        )
        screen.print_line(console, message, "yellow")
    elif study.stopping or failures:
        screen.print_line(console, f"resume with: {run.command(run.resume_words)}")
    return code_of_study("comparison", study, bool(failures or damaged))
