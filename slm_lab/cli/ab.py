"""The command `slm-lab ab`: its output and exit code."""

import sys
from pathlib import Path

from rich.console import Console

from slm_lab.cli import options
from slm_lab.cli.display import screen
from slm_lab.cli.display.live import run_shown
from slm_lab.cli.display.trainings import TrainingsTable
from slm_lab.cli.shell.exit_codes import code_of_study
from slm_lab.cli.shell.parent_program import ParentProgram
from slm_lab.core.plugins import import_plugins
from slm_lab.core.text import error_summary, short_count, significant
from slm_lab.studies.ab.plan import AbRequest, difference_text, make_plan
from slm_lab.studies.ab.run import AbRun
from slm_lab.studies.compare.folder import allowed_imports
from slm_lab.studies.resolve import resolve_names


def ab(request: AbRequest, caller: ParentProgram) -> int:
    """Begins or resumes a test; returns the exit code. Raises LabError."""
    run = _open(request)
    caller.begun(run.folder)
    as_json = request.a.output == "json"
    console = screen.wide_console(quiet=as_json)
    _introduce(console, run)
    _train(console, run)
    code = _conclude(console, run)
    if as_json:
        screen.print_json(run.document(run.results.document(), code))
    return code


def _open(request: AbRequest) -> AbRun:
    if request.a.run is not None:
        options.reject_beside_resume(
            {
                "A and B": request.a.spec_file or None,
                "--set": request.b.sets or None,
                "--smallest": request.smallest,
                "--confidence": request.confidence,
                "--seed": request.a.seed,
            },
            "; only --seeds may grow",
        )
        folder = Path(request.a.run)
        imports = allowed_imports(folder, request.a.imports, request.a.trust)
        import_plugins(imports)
        return AbRun.resume(
            folder,
            imports,
            seeds=request.seeds,
            jobs=request.jobs,
        )
    a = resolve_names(request.a)
    b = resolve_names(request.b)
    import_plugins((*a.imports, *b.imports))
    plan = make_plan(request._replace(a=a, b=b))
    return AbRun.begin(plan, request.a.data_dir, request.jobs)


def _introduce(console: Console, run: AbRun) -> None:
    plan = run.plan
    a, b = plan.specs.values()
    results = run.results
    rest = (
        f": {a.agent.algorithm.name} on {a.env.name}, at most {results.allowed} seeds "
        f"of each (from {plan.seeds[0]}), {short_count(a.env.max_frame)} total frames "
        f"each\n{difference_text(a, b)}\nfolder {run.folder}"
    )
    notes = []
    if results.settled and not results.has_ended:
        notes.append(f"so far: {results.sentence}")
    screen.print_heading(
        console=console, verb="testing", name=plan.name, rest=rest, notes=notes
    )


def _train(console: Console, run: AbRun) -> None:
    results = run.results
    shown = results.settled

    def on_tick() -> None:
        nonlocal shown
        if results.settled > shown and results.progress is not None:
            screen.print_line(console, results.progress)
        shown = results.settled

    run_shown(run.study, TrainingsTable(console, run), on_tick)


def _conclude(console: Console, run: AbRun) -> int:
    results = run.results
    paths = results.draw()
    returns = results.paired_returns()
    columns = (returns.a, returns.b, returns.difference)
    pairs = zip(returns.seeds, *columns, strict=True)
    screen.print_table(
        console=console,
        title=run.plan.name,
        header=("seed", "A", "B", "B − A"),
        rows=[(str(seed), *map(significant, numbers)) for seed, *numbers in pairs],
    )
    for planned, why in results.failures:
        print(f"{planned.label} failed: {error_summary(why)}", file=sys.stderr)
    screen.print_line(console, f"graph {paths[0]}")
    screen.print_line(console, results.sentence, "bold")
    if not results.has_ended or results.has_given_up:
        screen.print_line(console, f"resume with: {run.command(run.resume_words)}")
    return code_of_study("test", run.study, bool(results.failures))
