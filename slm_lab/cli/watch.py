"""The command `slm-lab watch`: the live table of a run or search that another process
trains."""

import time
from contextlib import suppress
from pathlib import Path

from slm_lab.charts.search_summary import short_names
from slm_lab.cli.display.live import LiveDisplay
from slm_lab.cli.display.screen import console, print_line, wide_console
from slm_lab.cli.display.search_live import SearchDisplay
from slm_lab.cli.doctor import print_first_finding
from slm_lab.cli.shell.exit_codes import INTERRUPTED
from slm_lab.core.errors import UsageError
from slm_lab.experiment.plot.trials import trial_of
from slm_lab.experiment.runs.recorded import RecordedSearch, RecordedTrial
from slm_lab.experiment.search.outcomes import chosen_trial
from slm_lab.metrics.trial_state import TABLE_TRIALS
from slm_lab.storage.maybe_damaged import value_at
from slm_lab.storage.run_dir import RunDir
from slm_lab.storage.run_lookup import find_folder

PAUSE = 1.0
"""Seconds between two looks at the folder."""


def watch(run: str, data: Path) -> int:
    """Shows a run until it ends, and returns the exit code. Raises UsageError."""
    run_dir, number = find_folder(run, data)
    try:
        if run_dir.is_search and number is None:
            _watch_search(run_dir)
        else:
            _watch_trial(run_dir, number)
    except KeyboardInterrupt:
        print_line(console(), "stopped watching; the training continues")
        return INTERRUPTED
    return 0


def _watch_trial(run_dir: RunDir, number: int | None) -> None:
    begun = run_dir.trials if number is None else [number]
    if not begun:
        raise UsageError(f"{run_dir.root} has no trial yet")
    trial = trial_of(run_dir, begun[-1])
    screen, recorded = console(), RecordedTrial(trial)
    print_line(
        screen,
        f"{trial.name} on {value_at(trial.spec, 'env.name', '?')}, {trial.where}",
    )
    budget = int(value_at(trial.spec, "env.max_frame", 0.0))
    with LiveDisplay(screen, trial.meta, budget) as display:
        while recorded.look():
            display.update(recorded)
            time.sleep(PAUSE)
        display.update(recorded)
    print_first_finding(screen, trial)


def _watch_search(run_dir: RunDir) -> None:
    screen, recorded = wide_console(), RecordedSearch(run_dir)
    summary = recorded.summary
    print_line(screen, f"search {summary.name}: {summary.title}, {run_dir.root}")
    names = short_names([each.path for each in summary.variables])
    is_running = recorded.look()
    with SearchDisplay(screen, recorded, names, summary.max_frame) as display:
        while is_running:
            display.update()
            time.sleep(PAUSE)
            is_running = recorded.look()
    display.print_best(TABLE_TRIALS)
    with suppress(UsageError):  # no trial has begun
        print_first_finding(screen, trial_of(run_dir, chosen_trial(run_dir, None)))
