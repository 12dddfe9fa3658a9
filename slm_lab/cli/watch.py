"""The command `slm-lab watch`: the live table of a run or search that another process
trains."""

import time
from contextlib import suppress
from pathlib import Path

from slm_lab.cli.display.screen import console, print_line, wide_console
from slm_lab.cli.display.sessions import SessionsTable
from slm_lab.cli.display.trials import TrialsTable
from slm_lab.cli.doctor import print_first_finding
from slm_lab.cli.shell.exit_codes import INTERRUPTED
from slm_lab.core.errors import UsageError
from slm_lab.core.recorded import value_at
from slm_lab.metrics.trial_state import TABLE_TRIALS
from slm_lab.records.lookup import find_folder
from slm_lab.records.progress import SearchProgress, TrialProgress
from slm_lab.records.run_record import RunRecord
from slm_lab.studies.search.outcomes import summarise

PAUSE = 1.0
"""Seconds between two looks at the folder."""


def watch(run: str, data: Path) -> int:
    """Shows a run until it ends, and returns the exit code. Raises UsageError."""
    run_dir, number = find_folder(run, data)
    record = RunRecord(run_dir)
    if number is not None:
        record = record.trial_at(number)
    try:
        if record.is_search:
            _watch_search(record)
        else:
            _watch_trial(record if number is not None else _newest_trial(record))
    except KeyboardInterrupt:
        print_line(console(), "stopped watching; the training continues")
        return INTERRUPTED
    return 0


def _newest_trial(record: RunRecord) -> RunRecord:
    trials = record.trials
    if not trials:
        raise UsageError(f"{record.folder} has no trial yet")
    return trials[-1]


def _watch_trial(trial: RunRecord) -> None:
    screen = console()
    trial.check_spec()
    progress = TrialProgress(trial)
    print_line(screen, f"{trial.name} on {trial.env}, {trial.where}")
    budget = int(value_at(trial.spec, "env.max_frame", 0.0))
    with SessionsTable(screen, trial.meta, budget) as display:
        while progress.look():
            display.update(progress)
            time.sleep(PAUSE)
        display.update(progress)
    print_first_finding(screen, trial)


def _watch_search(search: RunRecord) -> None:
    screen = wide_console()
    summary = summarise(search)
    progress = SearchProgress(search)
    print_line(screen, f"search {summary.name}: {summary.title}, {search.folder}")
    is_running = progress.look()
    with TrialsTable(screen, progress, summary.names, summary.max_frame) as display:
        while is_running:
            display.update()
            time.sleep(PAUSE)
            is_running = progress.look()
    display.print_best(TABLE_TRIALS)
    with suppress(UsageError):  # no trial has begun
        print_first_finding(screen, RunRecord(search.run_dir).trial_at(None))
