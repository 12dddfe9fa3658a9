"""The command `slm-lab run`: what it prints, and the exit code it ends with."""

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from slm_lab.cli.errors import FAILED, INTERRUPTED
from slm_lab.cli.live import LiveDisplay, number
from slm_lab.experiment.result import Ending, TrialResult
from slm_lab.experiment.run import Run, RunRequest
from slm_lab.experiment.worker import import_plugins

SHOWN_METRICS = (
    ("total_reward_ma", "return, mean of the last 100 rows"),
    ("strength", "strength: return above chance, mean"),
    ("max_strength", "max strength"),
    ("final_strength", "final strength"),
    ("sample_efficiency", "sample efficiency, 1/frame"),
    ("training_efficiency", "training efficiency, 1/optimizer step"),
    ("stability", "stability"),
    ("consistency", "consistency"),
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
    """Runs one request; returns the exit code. Raises LabError for what cannot be run."""
    import_plugins(imports)
    console = Console(file=sys.stdout)
    run = Run(RunRequest(spec_file, spec_name, mode, sets, seed, data, imports))
    spec = run.spec
    verb = "resuming" if run.resume else "training"
    console.print(
        f"{verb} [bold]{spec.name}[/bold]: {spec.agent.algorithm.name} on {spec.env.name}, "
        f"{spec.meta.max_session} Session{'s' if spec.meta.max_session > 1 else ''}, "
        f"seed {run.root_seed}\nrun folder {run.run_dir.root}",
        highlight=False,
        soft_wrap=True,
    )
    with LiveDisplay(console, spec.meta.max_session, spec.env.max_frame) as display:
        result = run.start(display.update)
    _show_failures(result)
    _show_metrics(console, result)
    _show_graphs(console, result)
    if result.failed:
        return FAILED
    if result.interrupted:
        folder = run.run_dir.root
        console.print(f"go on with: slm-lab run {spec_file} {spec.name} train@{folder}")
        return INTERRUPTED
    return 0


def _show_metrics(console: Console, result: TrialResult) -> None:
    metrics = result.metrics
    table = Table(title="Trial metrics", title_justify="left", title_style="bold")
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("Sessions", justify="right")
    for name, words in SHOWN_METRICS:
        value = getattr(metrics, name)
        shown = number(value, ".5g") if value is not None else f"– ({metrics.reasons[name]})"
        table.add_row(words, shown, f"{metrics.rests_on[name]} of {len(result.sessions)}")
    if metrics.random_return is not None:
        table.add_row("return of the Random agent", number(metrics.random_return, ".5g"), "")
    console.print(table)


def _show_graphs(console: Console, result: TrialResult) -> None:
    if result.graphs:
        console.print("graphs:")
        for path in result.graphs:
            console.print(f"  {path}", highlight=False, soft_wrap=True)


def _show_failures(result: TrialResult) -> None:
    for session in result.failed:
        print(
            f"Session {session.session} failed at frame {session.frame} "
            f"(exit code {session.exit_code}):\n{session.error}",
            file=sys.stderr,
        )
    if result.failed:
        whole = sum(s.ending is not Ending.FAILED for s in result.sessions)
        print(
            f"{len(result.failed)} of {len(result.sessions)} Sessions failed; "
            f"the metrics rest on the other {whole}",
            file=sys.stderr,
        )
