"""The option `--treat` of `slm-lab doctor`: its output and exit code."""

import sys

from rich.console import Console

from slm_lab.cli.dispatch import import_modules
from slm_lab.cli.display import screen
from slm_lab.cli.display.live import run_shown
from slm_lab.cli.display.trainings import TrainingsTable
from slm_lab.cli.doctor import print_findings
from slm_lab.cli.shell.exit_codes import code_of_study
from slm_lab.cli.shell.parent_program import ParentProgram
from slm_lab.core.text import count_text, error_summary, significant
from slm_lab.doctor.diagnosis import FEWEST_SEEDS, diagnose
from slm_lab.studies.resolve import resolve_names
from slm_lab.studies.treat.plan import TreatRequest, make_plan
from slm_lab.studies.treat.run import Effect, TreatRun, treat_document


def treat(request: TreatRequest, caller: ParentProgram) -> int:
    """Diagnoses a run, and begins or resumes its treatment; returns the exit code.
    Raises LabError."""
    request = request._replace(source=resolve_names(request.source))
    source = request.source
    import_modules(source)
    assert source.fork is not None
    as_json = source.output == "json"
    console = screen.wide_console(quiet=as_json)
    where, findings, unseen = diagnose(
        run=source.fork,
        data_dir=source.data_dir,
        imports=source.imports,
        trust=source.trust,
    )
    print_findings(console, where, findings, unseen)
    plan = make_plan(request, findings)
    run = None
    code = 0
    if plan is None:
        screen.print_line(console, "nothing to treat")
    else:
        run = TreatRun.open(plan, source.data_dir, request.jobs)
        caller.begun(run.folder)
        _introduce(console, run)
        run_shown(run.study, TrainingsTable(console, run))
        code = _conclude(console, run)
    if as_json:
        screen.print_json(treat_document(findings, run, code))
    return code


def _introduce(console: Console, run: TreatRun) -> None:
    remedies = run.treatment.remedies
    frames = max(remedy.until - remedy.frame for remedy in remedies)
    seeds = len(run.results.run.meta.trainings)
    notes = [*run.plan.notes]
    if seeds < FEWEST_SEEDS:
        notes.append(
            f"with {count_text(seeds, 'seed')} a remedy may look better by chance"
        )
    count = f"{len(remedies)} remedies" if len(remedies) > 1 else "1 remedy"
    rest = f": {count}, at most {frames:,} total frames each\nfolder {run.folder}"
    screen.print_heading(
        console=console,
        verb="treating",
        name=run.treatment.run,
        rest=rest,
        notes=notes,
    )


def _conclude(console: Console, run: TreatRun) -> int:
    results = run.results
    results.judge()
    for label, why in results.failures:
        print(f"{label} failed: {error_summary(why)}", file=sys.stderr)
    if run.study.stopping:
        screen.print_line(console, f"resume with: {run.command(run.resume_words)}")
        return code_of_study("treatment", run.study)
    graphs = results.draw()
    screen.print_table(
        console=console,
        title="Remedies",
        header=("finding", "remedy", "from", "return", "untreated", "verdict"),
        rows=[_row(effect) for effect in results.effects],
        left=("finding", "remedy", "verdict"),
        whole=True,
    )
    for graph in graphs[:1]:
        screen.print_line(console, f"graph {graph}")
    screen.print_line(console, results.sentence, "bold")
    best = results.best
    if best is not None and best.folder is not None:
        command = run.command(["run", f"train@{best.folder}"])
        screen.print_line(console, f"train it to the end: {command}")
    return 0


def _row(effect: Effect) -> tuple[str, ...]:
    return (
        effect.finding,
        " ".join(effect.remedy.settings),
        f"{effect.remedy.frame:,}",
        significant(effect.treated),
        significant(effect.untreated),
        effect.verdict,
    )
