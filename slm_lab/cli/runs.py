"""The commands `slm-lab runs` and `slm-lab tidy`: their output and exit codes.

Imports no library that takes long: a list of 200 runs takes less than a second.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from slm_lab.cli.display.document import print_json
from slm_lab.cli.display.screen import print_line, print_table, wide_console
from slm_lab.core.errors import UsageError
from slm_lab.core.text import significant
from slm_lab.experiment.runs.cells import changed_text, return_text, size_text
from slm_lab.experiment.runs.summary import RunStatus, RunSummary, summary_of
from slm_lab.experiment.runs.tidy import Selection, delete, selected
from slm_lab.spec.schema.messages import not_among
from slm_lab.storage.run_dir import runs_in

SORTS = tuple(field.name for field in fields(RunSummary))
STATUSES = (*RunStatus, "dev")
UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
LEAVE_OUT = ("size", "frames/s", "mode", "frames", "environment", "changed")
"""Columns that a narrow terminal leaves out, in this order."""
GAP = 2
"""Blanks between two columns."""


@dataclass(frozen=True)
class RunsOptions:
    """The options of `slm-lab runs`; None if omitted."""

    pattern: str | None
    sort: str | None
    status: str | None
    data: Path
    as_json: bool


def list_runs(options: RunsOptions) -> int:
    """Prints a table of runs, the newest last. Raises UsageError for an unknown word."""
    if options.sort not in (None, *SORTS):
        raise UsageError(f"--sort {options.sort}: {not_among(str(options.sort), SORTS)}")
    if options.status not in (None, *STATUSES):
        raise UsageError(f"--status {options.status}: {not_among(str(options.status), STATUSES)}")
    runs = [summary_of(run) for run in runs_in(options.data)]
    runs = sorted(
        filter(lambda run: _fits(run, options), runs), key=_key(options.sort or "started")
    )
    if options.as_json:
        print_json([run.to_json() for run in runs])
        return 0
    console = wide_console()
    if runs:
        _print_runs(console, runs)
    else:
        print_line(console, f"no such runs in {options.data}")
    return 0


def _fits(run: RunSummary, options: RunsOptions) -> bool:
    words = [run.run, run.name, run.label, run.env, run.note]
    pattern = options.pattern or ""
    found = any(pattern.lower() in word.lower() or fnmatch(word, pattern) for word in words)
    status = options.status
    return found and (status in (None, run.status) or (status == "dev" and run.is_dev))


def _key(name: str) -> Callable[[RunSummary], Any]:
    """Sorts by an attribute, unknown values first."""

    def key(run: RunSummary) -> Any:
        value = getattr(run, name)
        return (value is not None, "" if value is None else value)

    return key


def _print_runs(console: Console, runs: Sequence[RunSummary]) -> None:
    columns = {
        "run": [run.run for run in runs],
        "environment": [run.env for run in runs],
        "changed": [changed_text(run) for run in runs],
        "mode": [run.mode for run in runs],
        "status": [f"{run.status}{' (dev)' if run.is_dev else ''}" for run in runs],
        "frames": [f"{run.frames:,}" for run in runs],
        "return": [return_text(run) for run in runs],
        "frames/s": [significant(run.frames_per_s) for run in runs],
        "size": [size_text(run.bytes) for run in runs],
    }
    widths = {name: max(map(len, [name, *cells])) + GAP for name, cells in columns.items()}
    for name in LEAVE_OUT:
        if sum(widths.values()) > console.width:
            del columns[name], widths[name]
    rows = zip(*columns.values(), strict=True)
    left = ("environment", "changed", "mode", "status")
    print_table(console, "", tuple(columns), rows, left, box=None, pad_edge=False, padding=(0, 1))


def tidy_runs(data: Path, dev: bool, failed: bool, older: str | None, yes: bool) -> int:
    """Prints the runs to delete, and with `yes` deletes them. Raises UsageError."""
    if not (dev or failed or older):
        raise UsageError("choose what to delete: --dev, --failed, --older 30d, or several of them")
    console = wide_console()
    runs = selected(data, Selection(dev, failed, None if older is None else _duration(older)))
    if not runs:
        print_line(console, f"nothing to delete in {data}")
        return 0
    _print_runs(console, runs)
    if not yes:
        total = size_text(sum(run.bytes for run in runs))
        runs_text = f"{len(runs)} run{'' if len(runs) == 1 else 's'}"
        print_line(console, f"--yes would delete these {runs_text}, {total}")
        return 0
    code = 0
    for run, why in delete(data, runs):
        message = f"deleted {run.run}" if why is None else f"kept {run.run}: {why}"
        print_line(console, Text(message, "" if why is None else "yellow"))
        code = code if why is None else 1
    return code


def _duration(text: str) -> timedelta:
    """ "30d"."""
    match = re.fullmatch(r"(\d{1,5})([mhdw])", text)
    if match is None:
        units = ", ".join(f"{unit} ({name})" for unit, name in UNITS.items())
        raise UsageError(f"--older {text}: must be a whole number and a unit: {units}")
    return timedelta(**{UNITS[match[2]]: int(match[1])})
