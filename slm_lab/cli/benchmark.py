"""The command `slm-lab benchmark`: its output and exit code."""

import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from slm_lab.charts.final_returns import improvement_text
from slm_lab.cli.display import screen
from slm_lab.cli.display.live import run_shown
from slm_lab.cli.display.trainings import TrainingsTable
from slm_lab.cli.shell.exit_codes import FAILED, code_of_study
from slm_lab.cli.shell.parent_program import ParentProgram
from slm_lab.core.errors import UsageError
from slm_lab.core.text import count_text
from slm_lab.metrics.trial_state import Status
from slm_lab.records.run_source import RunSource
from slm_lab.records.training_record import read_records
from slm_lab.records.trust import command_text
from slm_lab.studies.benchmark.gate import GATE, judge_bounds
from slm_lab.studies.benchmark.prepare import BenchmarkRequest, prepare
from slm_lab.studies.benchmark.report import LEFT, BenchmarkReport
from slm_lab.studies.benchmark.run import BenchmarkRun


def benchmark(request: BenchmarkRequest, caller: ParentProgram) -> int:
    """Trains what a suite lacks; returns the exit code. Raises LabError."""
    console = screen.wide_console(quiet=request.source.output != "text")
    run = prepare(request)
    plan = run.plan
    caller.begun(plan.folder)
    done = len(plan.trainings) - len(run.trainings)
    rest = (
        f": {count_text(len(plan.rows), 'row')}, "
        f"{count_text(len(plan.trainings), 'training')}, {done} of them done\n"
        f"run folders {run.runs}\nresults {plan.folder}"
    )
    screen.print_heading(console=console, verb="benchmark", name=plan.name, rest=rest)
    run_shown(run.study, TrainingsTable(console, run))
    _print_table(console, BenchmarkReport(plan.records()), plan.name)
    if request.source.output == "json":
        screen.print_json(run.document())
    if run.study.stopping:
        command = command_text(_words(request), request.source.imports)
        screen.print_line(console, f"continue with: {command}")
    return _code(run)


def _words(request: BenchmarkRequest) -> list[str]:
    """The words of the command that continues the benchmark."""
    source = request.source
    words = ["benchmark", str(request.suite), "--data", str(request.data)]
    if source.data_dir != RunSource.data_dir:
        words += ["--runs", str(source.data_dir)]
    if request.jobs is not None:
        words += ["--jobs", str(request.jobs)]
    for part in request.only:
        words += ["--only", part]
    for change in source.sets:
        words += ["-s", change]
    return words


def report(data: Path, out: Path, as_json: bool) -> int:
    """Writes tables and graphs of the results in `data`, and prints the tables; returns
    the exit code. Raises LabError."""
    made = BenchmarkReport(read_records(data))
    paths = made.write(out)
    if as_json:
        screen.print_json({"files": [str(path) for path in paths]})
        return 0
    console = screen.wide_console()
    for suite in made.suites:
        _print_table(console, made, suite)
        for ranking in made.improvements(suite):
            screen.print_line(console, improvement_text(ranking))
    screen.print_line(console, f"{len(paths)} tables and graphs in {out}")
    return 0


def gate(request: BenchmarkRequest, data: Path | None) -> int:
    """Judges whether every training of a row reaches the row's bound. It judges the
    results in `data`, or trains a suite afresh and judges its results. Returns the exit
    code. Raises LabError."""
    console = screen.wide_console(quiet=request.source.output != "text")
    if data is not None and request.suite is not None:
        raise UsageError(
            "--gate --data judges all results in the folder: leave out the suite, "
            "or --data"
        )
    with TemporaryDirectory(prefix="slm_lab_gate_") as folder:
        if data is None:
            run = prepare(
                request._replace(
                    suite=request.suite or GATE,
                    source=replace(request.source, data_dir=Path(folder, "runs")),
                    data=Path(folder),
                )
            )
            run_shown(run.study, TrainingsTable(console, run))
            if run.study.stopping:
                return _code(run)
            records = run.plan.records()
        else:
            records = read_records(data)
    made = BenchmarkReport(records)
    for suite in made.suites:
        _print_table(console, made, suite)
    verdict = judge_bounds(made.results)
    if request.source.output == "json":
        screen.print_json(verdict.document())
    for failure in verdict.failures:
        print(failure, file=sys.stderr)
    if not verdict.is_passed:
        return FAILED
    bounds = count_text(len(verdict.rows), "bound")
    screen.print_line(console, f"all {bounds} are kept")
    return 0


def _code(run: BenchmarkRun) -> int:
    failed = run.study_state.of(Status.FAILED)
    return code_of_study("benchmark", run.study, bool(failed))


def _print_table(console: Console, made: BenchmarkReport, suite: str) -> None:
    table = made.table(suite)
    screen.print_table(
        console=console,
        title=suite,
        header=table.header,
        rows=table.rows,
        left=tuple(LEFT),
        spare=table.spare,
    )
