"""The command `slm-lab run`: what it prints, and the exit code it ends with."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slm_lab.analysis.metrics import TrialMetrics
from slm_lab.cli import screen
from slm_lab.cli.advice import what_to_change
from slm_lab.cli.errors import FAILED, INTERRUPTED
from slm_lab.cli.live import LiveDisplay
from slm_lab.cli.naming import command_text, count_text, full_name, sessions_text
from slm_lab.cli.screen import say
from slm_lab.core.headline import headline
from slm_lab.core.numerals import significant
from slm_lab.experiment.consent import modules_of
from slm_lab.experiment.result import Ending, TrialResult, never_began
from slm_lab.experiment.run import Run, RunRequest
from slm_lab.spec.schema.meta import MetaSpec

SHOWN_METRICS = (
    ("final_return", "final return (last 5 % of the frames)"),
    ("total_reward_ma", "moving average of the last 100 rows"),
    ("strength", "strength: return above chance, mean"),
    ("max_strength", "max strength"),
    ("final_strength", "final strength"),
    ("sample_efficiency", "sample efficiency, 1/frame"),
    ("training_efficiency", "training efficiency, 1/optimizer step"),
    ("stability", "stability"),
    ("consistency", "consistency"),
)

SHOWN_SPEEDS = (
    ("frames_per_s", "frames/s of a training"),
    ("updates_per_s", "gradient steps/s of a training"),
    ("staleness_p50", "staleness of gradients, median"),
    ("staleness_p95", "staleness of gradients, 95 % quantile"),
    ("sync_share", "share of the time spent on exchanging"),
    ("eps", "EPS: environments learned from, slices/s"),
    ("policy_lag", "updates that actors were behind, mean"),
    ("policy_lag_max", "updates that actors were behind, most"),
    ("actor_wait_share", "share of the time that actors waited"),
    ("learner_wait_share", "share of the time that the learner waited"),
)

MAIN_GRAPHS = (
    "_trial_graph_mean_returns_ma_vs_frames",
    "_trial_graph_eval_mean_returns_vs_frames",
)


def run_spec(
    spec_file: str,
    spec_name: str | None,
    mode: str,
    sets: tuple[str, ...],
    seed: int | None,
    data: Path,
    imports: tuple[str, ...],
) -> int:
    """Runs one request, whose plug-ins are imported; returns the exit code.

    Raises LabError for what cannot be run.
    """
    console = screen.console()
    run = Run(RunRequest(spec_file, spec_name, mode, sets, seed, data, imports))
    spec = run.spec
    verb = "resuming" if run.resume else "training"
    say(
        console,
        Text.assemble(
            f"{verb} ",
            (spec.name, "bold"),
            f": {spec.agent.algorithm.name} on {spec.env.name}, "
            f"{sessions_text(spec.meta)}, "
            f"seed {run.root_seed}\nrun folder {run.run_dir.root}",
        ),
    )
    for note in run.notes:
        say(console, Text(note, "yellow"))
    try:
        with LiveDisplay(console, spec.meta, spec.env.max_frame) as display:
            result = run.start(display.update)
    except KeyboardInterrupt:  # the second one
        say(console, f"go on with: {resume_command(run, imports)}")
        raise
    _show_restarts(console, result, spec.meta)
    _show_failures(result, spec.meta)
    _show_metrics(console, result, len(spec.meta.writers))
    _show_graphs(console, result, run.run_dir.root)
    _show_what_is_left(console, result, run, imports)
    if result.failed or result.problem:
        return FAILED
    return INTERRUPTED if result.interrupted else 0


def _show_what_is_left(
    console: Console, result: TrialResult, run: Run, imports: tuple[str, ...]
) -> None:
    """The command to resume, unless that would only repeat what has happened; then why."""
    meta = run.spec.meta
    unfinished = [
        each
        for each in result.sessions
        if each.ending is not Ending.FINISHED and not meta.is_actor(each.session)
    ]
    diverged = [each for each in unfinished if each.diverged]
    stuck = [each for each in unfinished if each.diverged or each.unusable]
    left = [each for each in unfinished if each not in stuck and not each.lost_others]
    if (left or (unfinished and not stuck)) and not never_began(result.sessions):
        say(console, f"go on with: {resume_command(run, imports)}")
    if diverged:
        names = ", ".join(full_name(meta, each.session) for each in diverged)
        say(console, Text(f"{names}: {what_to_change(run.spec)}", "yellow"))


def resume_command(run: Run, imports: tuple[str, ...]) -> str:
    """What to type to go on: the run's own spec file needs no -s, --seed or --data."""
    words = ["run", str(run.run_dir.spec_file), run.spec.name, f"train@{run.run_dir.root}"]
    return command_text(words, [*imports, *modules_of(run.spec)])


def _show_metrics(console: Console, result: TrialResult, num_writers: int) -> None:
    metrics = result.metrics
    if not metrics.num_sessions:
        return
    table = Table(title="Trial metrics", title_justify="left", title_style="bold")
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("Sessions", justify="right")
    for name, words in SHOWN_METRICS:
        value = significant(getattr(metrics, name))
        if name == "final_return":
            value = _with_spread(metrics)
        table.add_row(words, value, f"{metrics.rests_on[name]} of {num_writers}")
    for name, words in SHOWN_SPEEDS:
        speed = getattr(result.throughput, name)
        if speed is not None:
            table.add_row(words, significant(speed), "")
    if metrics.random_return is not None:
        table.add_row("return of the Random agent", significant(metrics.random_return), "")
    console.print(table)
    for reason, names in _by_reason(metrics.reasons).items():
        say(console, Text(f"– {', '.join(names)}: {reason}", "dim"))


def _with_spread(metrics: TrialMetrics) -> str:
    """The final return, with its standard deviation over several Sessions or runs."""
    std = metrics.final_return_std
    spread = "" if std is None else f" ± {significant(std)}"
    return f"{significant(metrics.final_return)}{spread}"


def _by_reason(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    """Those without a value, by the first words that the table has for them, grouped by why."""
    words = {name: re.split("[,:]", shown)[0] for name, shown in SHOWN_METRICS}
    grouped: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        grouped.setdefault(reason, []).append(words.get(name, name))
    return grouped


def _show_graphs(console: Console, result: TrialResult, folder: Path) -> None:
    """The trial graphs themselves; the others lie beside them."""
    main = [path for path in result.graphs if path.stem.endswith(MAIN_GRAPHS)]
    for path in main:
        say(console, f"graph {path}")
    others = len(list(folder.rglob("*_graph_*.png"))) - sum(p.suffix == ".png" for p in main)
    if main:
        say(console, f"{others} more graphs in {folder}")


def _rests_on(result: TrialResult, meta: MetaSpec) -> str:
    """What is left for the metrics, if anything is: of actors, who write no rows, nothing is."""
    whole = [s.session for s in result.sessions if s.ending is not Ending.FAILED]
    learners = sum(not meta.is_actor(session) for session in whole)
    if not learners:
        return ""
    if meta.distributed == "actor_learner":
        return f"; the metrics rest on {count_text(learners, 'learner')}"
    return f"; the metrics rest on the other {learners}"


def _show_restarts(console: Console, result: TrialResult, meta: MetaSpec) -> None:
    """Of those that had to be, also where all went well in the end."""
    for session in result.sessions:
        if session.restarted_because is not None:
            name, why = full_name(meta, session.session), headline(session.restarted_because)
            told = f"{name} was restarted {session.restarts}×, the last time because: {why}"
            say(console, Text(told, "yellow"))


def _show_failures(result: TrialResult, meta: MetaSpec) -> None:
    for session in result.failed:
        code = "" if session.exit_code is None else f" (exit code {session.exit_code})"
        print(
            f"{full_name(meta, session.session)} failed at frame {session.frame}{code}:\n"
            f"{session.error}",
            file=sys.stderr,
        )
    for session in result.sessions:
        if session.ending is Ending.INTERRUPTED and session.error is not None:
            print(f"{full_name(meta, session.session)}: {session.error}", file=sys.stderr)
    if result.failed:
        print(
            f"{len(result.failed)} of {len(result.sessions)} Sessions failed"
            f"{_rests_on(result, meta)}",
            file=sys.stderr,
        )
    if result.problem:
        print(result.problem, file=sys.stderr)
