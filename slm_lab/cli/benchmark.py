"""The command `slm-lab benchmark`: its output and exit code."""

import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from rich.console import Console

from slm_lab.charts.final_returns import improvement_text
from slm_lab.cli.dispatch import resolve_names
from slm_lab.cli.display import screen
from slm_lab.cli.display.trainings import TrainingsTable
from slm_lab.cli.shell.caller import Caller
from slm_lab.cli.shell.exit_codes import FAILED, INTERRUPTED
from slm_lab.core.errors import UsageError
from slm_lab.core.plugins import import_plugins
from slm_lab.core.text import count_text, significant
from slm_lab.metrics.trial_state import Status
from slm_lab.recipes.recipe import GAMES, recipes
from slm_lab.records.run_source import RunSource
from slm_lab.records.training_record import read_records
from slm_lab.records.trust import command_text
from slm_lab.studies.benchmark.plan import BenchmarkPlan, PlannedRow, planned_row
from slm_lab.studies.benchmark.report import LEFT, BenchmarkReport
from slm_lab.studies.benchmark.results import RowResult
from slm_lab.studies.benchmark.run import BenchmarkRun
from slm_lab.studies.benchmark.suite import SuiteRow, read_suite, shipped_suites
from slm_lab.studies.trial import stop_on_signals

GATE = "gate"
"""The shipped suite that `--gate` trains."""


class BenchmarkRequest(NamedTuple):
    """The options of the user's command."""

    suite: str | None
    source: RunSource
    """`sets` are changes of every spec; `data_dir` is the folder of run folders."""
    data: Path
    """The folder of results."""
    jobs: int | None
    only: tuple[str, ...]
    """Parts of names; rows without any are left out. Empty: all rows."""


def benchmark(request: BenchmarkRequest, caller: Caller) -> int:
    """Trains what a suite lacks; returns the exit code. Raises LabError."""
    if request.suite is None:
        shipped = ", ".join(shipped_suites())
        raise UsageError(f"name a suite: a YAML file, or one of {shipped}")
    console = screen.wide_console(quiet=request.source.output != "text")
    run = _prepare(request, request.suite, request.data)
    plan = run.plan
    caller.begun(plan.folder)
    done = len(plan.trainings) - len(run.trainings)
    rest = (
        f": {count_text(len(plan.rows), 'row')}, "
        f"{count_text(len(plan.trainings), 'training')}, {done} of them done\n"
        f"run folders {run.runs}\nresults {plan.folder}"
    )
    screen.print_heading(console=console, verb="benchmark", name=plan.name, rest=rest)
    _train(console, run)
    report = BenchmarkReport(plan.records())
    _print_table(console, report, plan.name)
    if request.source.output == "json":
        made = [record.model_dump(mode="json") for record in plan.records()]
        screen.print_json({"folder": str(plan.folder), "trainings": made})
    if run.study.stopping:
        words = ["benchmark", request.suite, "--data", str(request.data)]
        screen.print_line(console, f"continue with: {command_text(words, ())}")
    return _code(run)


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
            source = replace(request.source, data_dir=Path(folder, "runs"))
            run = _prepare(
                request._replace(source=source), request.suite or GATE, Path(folder)
            )
            _train(console, run)
            if run.study.stopping:
                return _code(run)
            records = run.plan.records()
        else:
            records = read_records(data)
    made = BenchmarkReport(records)
    for suite in made.suites:
        _print_table(console, made, suite)
    promised = [row for row in made.results if row.is_kept is not None]
    if not promised:
        raise UsageError(
            "no row of these results has a bound: there is nothing to judge"
        )
    if request.source.output == "json":
        screen.print_json({"bounds": [_judgement(row) for row in promised]})
    for row in made.broken_bounds():
        finals = ", ".join(map(significant, row.final_returns)) or "none"
        bound = significant(row.first.bound)
        why = f"final returns {finals}; {row.unfinished}".rstrip("; ")
        print(f"{row.first.row} is below its bound of {bound}: {why}", file=sys.stderr)
    if made.broken_bounds():
        return FAILED
    screen.print_line(console, f"all {count_text(len(promised), 'bound')} are kept")
    return 0


def _judgement(row: RowResult) -> dict[str, Any]:
    """What `--json` says of a row with a bound."""
    return {
        "suite": row.first.suite,
        "row": row.first.row,
        "bound": row.first.bound,
        "final_returns": row.final_returns.tolist(),
        "kept": row.is_kept,
    }


def _prepare(request: BenchmarkRequest, word: str, data: Path) -> BenchmarkRun:
    """The trainings of a suite that are to be run. Raises SpecError, UsageError."""
    suite = read_suite(word)
    rows = [_row(request, row) for row in suite.rows if _is_chosen(request, row)]
    if not rows:
        names = ", ".join(row.name for row in suite.rows)
        raise UsageError(
            f"--only {' '.join(request.only)}: no row has it; there are {names}"
        )
    plan = BenchmarkPlan(suite.name, rows, suite.episodes, data)
    runs = request.source.data_dir / f"{suite.name}_benchmark"
    return BenchmarkRun(plan, runs, request.jobs)


def _is_chosen(request: BenchmarkRequest, row: SuiteRow) -> bool:
    name = row.name.lower()
    return not request.only or any(part.lower() in name for part in request.only)


def _row(request: BenchmarkRequest, row: SuiteRow) -> PlannedRow:
    """The row with its spec: its words may name a recipe, a template or a file. Raises
    UsageError for a recipe without an environment."""
    sets = (*row.sets, *request.source.sets)
    name = row.spec_name
    is_recipe = row.file in {*recipes(), *GAMES}
    if is_recipe and name is None and row.env is None:
        raise UsageError(
            f"{request.suite or GATE}: runs: {row.file} is an algorithm: name its "
            f"environments, as {{specs: [{row.file}], envs: [CartPole-v1]}}"
        )
    if is_recipe and row.env is not None:
        name = row.env
    elif row.env is not None:
        sets = (f"env.name={row.env}", *sets)
    source = replace(
        request.source, spec_file=row.file, spec_name=name, sets=sets, seed=None
    )
    source = resolve_names(source, "train")
    import_plugins(source.imports)
    return planned_row(row.name, row.method, source, row.seeds, row.bound)


def _train(console: Console, run: BenchmarkRun) -> None:
    display = TrainingsTable(console, run)
    with stop_on_signals(run.study.stop), display:
        run.study.run(display.update)
    run.keep_stopped()


def _code(run: BenchmarkRun) -> int:
    if run.study.problem is not None:
        print(f"the benchmark has stopped: {run.study.problem}", file=sys.stderr)
        return FAILED
    if run.study.stopping:
        return INTERRUPTED
    if run.study_state.of(Status.FAILED):
        return FAILED
    return 0


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
