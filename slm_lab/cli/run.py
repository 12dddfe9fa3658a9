"""The command `slm-lab run`: its output and exit code."""

import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from slm_lab.cli.display import screen
from slm_lab.cli.display.screen import (
    print_heading,
    print_json,
    print_line,
    print_table,
)
from slm_lab.cli.display.sessions import SessionsTable, print_resume
from slm_lab.cli.doctor import print_first_finding
from slm_lab.cli.shell.exit_codes import FAILED, INTERRUPTED
from slm_lab.cli.shell.parent_program import ParentProgram
from slm_lab.cli.track import tracked
from slm_lab.core.errors import LabError, TrainingFailed
from slm_lab.core.text import count_text, error_summary, significant, with_spread
from slm_lab.doctor.diagnosis import advice_after_divergence
from slm_lab.metrics.row import LABELS
from slm_lab.records.overview import run_document
from slm_lab.records.run_record import RunRecord
from slm_lab.records.run_source import RunSource
from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.spec.session_names import full_name, sessions_text
from slm_lab.storage.result import Ending, TrialResult
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.run import PreparedRun
from slm_lab.studies.run_mode import Verb

MAIN_GRAPHS = (
    "_trial_graph_mean_returns_ma_vs_frames",
    "_trial_graph_eval_mean_returns_vs_frames",
)

FIRST_METRICS = (
    "final_return",
    "random_return",
    "strength",
    "consistency",
    "frames_per_s",
)
"""The metrics that are printed at the end without --all."""


def run_spec(source: RunSource, caller: ParentProgram, verb: Verb) -> int:
    """Begins or resumes a run; returns the exit code. Its plug-ins must be imported. At
    the end it prints `FIRST_METRICS`, or all. Raises LabError."""
    console = screen.console(quiet=source.output != "text")
    run = PreparedRun(source, verb)
    caller.begun(run.run_dir.root)
    _introduce(console, run)
    with tracked(console, source, run.run_dir) as trackers:
        result = _train(console, run)
        if result.interrupted:
            trackers.hurry()
    _show_restarts(console, result, run.spec.meta)
    _report_failures(result, run.spec.meta, caller)
    file = None
    if not source.all_metrics:
        file = run.run_dir.trial_metrics_file(0)
    _show_metrics(console, result, len(run.spec.meta.writers), file)
    _show_graphs(console, result, RunRecord(run.run_dir))
    _print_next_steps(console, result, run)
    if run.verb == "train" and source.output == "text":
        _print_diagnosis(console, run.run_dir)
    code = _exit_code(result)
    if source.output == "json":
        print_json(run_document(run.run_dir, code))
    return code


def _introduce(console: Console, run: PreparedRun) -> None:
    """Prints what begins, where its files are, and notes."""
    spec = run.spec
    rest = (
        f": {spec.agent.algorithm.name} on {spec.env.name}, "
        f"{sessions_text(spec.meta)}, seed {run.root_seed}\nrun folder "
        f"{run.run_dir.root}"
    )
    print_heading(
        console=console,
        verb=run.begins_by,
        name=spec.name,
        rest=rest,
        notes=(*run.notes, *_advise_against_repeat(run)),
    )


def _train(console: Console, run: PreparedRun) -> TrialResult:
    """Trains below a live table. A second Ctrl-C raises KeyboardInterrupt."""
    try:
        with SessionsTable(console, run.spec.meta, run.spec.env.max_frame) as display:
            return run.start(display.update)
    except KeyboardInterrupt:
        print_resume(console, "train", run)
        raise


def _report_failures(
    result: TrialResult, meta: MetaSpec, caller: ParentProgram
) -> None:
    """Sends failures to the program that started the command, else prints them."""
    failures = _failures(result, meta)
    if failures and caller.exists:
        caller.send(TrainingFailed(failures))
    elif failures:
        print(failures, file=sys.stderr)


def _print_diagnosis(console: Console, run_dir: RunDir) -> None:
    """Prints the doctor's first finding, if there is one."""
    with suppress(LabError):  # damaged rows; training and plots report them
        if print_first_finding(console, RunRecord(run_dir)):
            print_line(console, f"more: slm-lab doctor {run_dir.root}")


def _exit_code(result: TrialResult) -> int:
    if result.failed or result.problem:
        return FAILED
    if result.interrupted:
        return INTERRUPTED
    return 0


def _advise_against_repeat(run: PreparedRun) -> Iterator[str]:
    """Advice against a resume that would only fail as the last training did."""
    if not run.resume:
        return
    with suppress(LabError):  # damaged files; training reports them
        ends = RunRecord(run.run_dir).results
        if any(end.diverged for end in ends):
            advice = advice_after_divergence(run.spec, ends)
            yield f"the last training diverged, and {advice}"


def _print_next_steps(console: Console, result: TrialResult, run: PreparedRun) -> None:
    """Prints the resume command, unless a resume would only fail again; then the
    reason."""
    meta = run.spec.meta
    if result.is_resume_useful(meta):
        print_resume(console, "train", run)
    diverged = [end for end in result.unfinished(meta) if end.diverged]
    if diverged:
        names = ", ".join(full_name(meta, end.session) for end in diverged)
        advice = advice_after_divergence(run.spec, diverged)
        print_line(console, f"{names}: {advice}", "yellow")


def _show_metrics(
    console: Console, result: TrialResult, num_writers: int, rest_in: Path | None
) -> None:
    """Prints the table of metrics: all, or only the first ones if the rest is in a
    file."""
    metrics = result.metrics
    rows = {}
    if not metrics.num_sessions:
        return
    for name, words in LABELS["metrics"].items():
        value = significant(getattr(metrics, name))
        if name == "final_return":
            value = with_spread(metrics.final_return, metrics.final_return_std)
        rows[name] = (words, value, f"{metrics.rests_on[name]} of {num_writers}")
        if name == "final_return" and metrics.random_return is not None:
            of_random = significant(metrics.random_return)
            rows["random_return"] = ("return of the Random agent", of_random, "")
    for name, words in LABELS["speeds"].items():
        speed = getattr(result.throughput, name)
        if speed is not None:
            rows[name] = (words, significant(speed), "")
    shown = [name for name in rows if rest_in is None or name in FIRST_METRICS]
    table = [rows[name] for name in shown]
    print_table(console, "Trial metrics", ("metric", "value", "Sessions"), table)
    short = {
        name: re.split("[,:]", words)[0] for name, words in LABELS["metrics"].items()
    }
    by_reason: dict[str, list[str]] = {}
    for name, reason in metrics.reasons.items():
        if name in shown:
            by_reason.setdefault(reason, []).append(short.get(name, name))
    for reason, names in by_reason.items():
        print_line(console, f"– {', '.join(names)}: {reason}", "dim")
    if rest_in is not None and len(shown) < len(rows):
        number = len(rows) - len(shown)
        print_line(console, f"{number} more metrics with --all, and in {rest_in}")


def _show_graphs(console: Console, result: TrialResult, record: RunRecord) -> None:
    folder = record.folder
    main = [path for path in result.graphs if path.stem.endswith(MAIN_GRAPHS)]
    for path in main:
        print_line(console, f"graph {path}")
    others = set(record.graphs).difference(main)
    if main:
        print_line(console, f"{len(others)} more graphs in {folder}")
    if result.lacks_graphs:
        now = f"slm-lab plot {shlex.quote(str(folder))}"
        print_line(
            console, f"the stop left graphs out: a resume draws them; now: {now}"
        )


def _rests_on(result: TrialResult, meta: MetaSpec) -> str:
    """The Sessions that the metrics use, as text; "" if none. Actors write no rows."""
    whole = [s.session for s in result.sessions if s.ending is not Ending.FAILED]
    learners = sum(not meta.is_actor(session) for session in whole)
    if not learners:
        return ""
    if meta.mode.has_learner:
        return f"; the metrics rest on {count_text(learners, 'learner')}"
    return f"; the metrics rest on the other {learners}"


def _show_restarts(console: Console, result: TrialResult, meta: MetaSpec) -> None:
    for session in result.sessions:
        if session.restarted_because is not None:
            name = full_name(meta, session.session)
            reason = error_summary(session.restarted_because)
            message = (
                f"{name} was restarted {session.restarts}×, the last time because: "
                f"{reason}"
            )
            print_line(console, message, "yellow")


def _failures(result: TrialResult, meta: MetaSpec) -> str:
    """Why Sessions failed or lost their last steps, as text; "" if none did."""
    lines = []
    for session in result.failed:
        code = ""
        if session.exit_code is not None:
            code = f" (exit code {session.exit_code})"
        name = full_name(meta, session.session)
        lines.append(f"{name} failed at frame {session.frame}{code}:\n{session.error}")
    for session in result.sessions:
        if session.ending is Ending.INTERRUPTED and session.error is not None:
            lines.append(f"{full_name(meta, session.session)}: {session.error}")
    if result.failed:
        count = f"{len(result.failed)} of {len(result.sessions)} Sessions failed"
        lines.append(f"{count}{_rests_on(result, meta)}")
    if result.problem:
        lines.append(result.problem)
    return "\n".join(lines)
