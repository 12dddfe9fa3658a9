"""The commands `slm-lab runs`, `diff` and `tidy`: their output and exit codes.

A list of 200 runs takes less than a second, so nothing that takes long is imported for
it."""

import os
import re
from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.filesize import decimal

from slm_lab.cli.display.screen import print_json, print_line, print_table, wide_console
from slm_lab.core.errors import UsageError
from slm_lab.core.text import count_text, escape_line
from slm_lab.core.values import short_names, value_text
from slm_lab.records.annotations import annotate, check_note, check_tags
from slm_lab.records.overview import (
    Overview,
    below_parents,
    overview_document,
    overviews_in,
    varied_params,
)
from slm_lab.records.run_record import RunStatus
from slm_lab.records.tidy import delete, selected
from slm_lab.storage.run_dir import RunDir

COLUMNS = {
    "run": "run",
    "environment": "env",
    "tags": "tags",
    "changed": "changed",
    "mode": "mode",
    "status": "status",
    "all frames": "frames",
    "return": "final_return",
    "frames/s": "frames_per_s",
    "size": "bytes",
    "started": "started",
}
"""Columns of the table, and their names in a document."""
SORTS = tuple(dict.fromkeys((*(field.name for field in fields(Overview)), *COLUMNS)))
STATUSES = (*RunStatus, "dev")
UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
LEFT = ("environment", "tags", "changed", "mode", "status")
LEAVE_OUT = (
    "started",
    "size",
    "frames/s",
    "mode",
    "all frames",
    "environment",
    "changed",
)
"""Columns that a narrow terminal leaves out, in this order. The columns of
hyperparameters come after `FIRST_OUT`, the last of them first."""
FIRST_OUT = 4
MOST_PARAMS = 8
"""Columns of hyperparameters."""
COLUMN_GAP = 2
CHANGED_WIDTH = 16
"""Spaces between columns, and the minimum width of the column "changed"."""


def list_runs(
    patterns: Sequence[str],
    sort: str | None,
    status: str | None,
    tags: Sequence[str],
    data: Path,
    as_json: bool,
) -> None:
    """Prints a table of runs, by default the newest last. Raises UsageError for unknown
    words."""
    for option, word, allowed in (
        ("--sort", sort, SORTS),
        ("--status", status, STATUSES),
    ):
        if word not in (None, *allowed):
            from slm_lab.spec.schema.messages import choice_message  # imports pydantic

            raise UsageError(f"{option} {word}: {choice_message(str(word), allowed)}")
    _refuse_file(data)
    runs = [run for run in overviews_in(data) if run.matches(patterns, status, tags)]
    varied = varied_params(runs)
    sort_value = attrgetter(COLUMNS.get(sort or "", sort or "started"))
    known = [run for run in runs if sort_value(run) is not None]
    unknown = [run for run in runs if sort_value(run) is None]
    runs = [*unknown, *sorted(known, key=sort_value)]
    if as_json:
        print_json([overview_document(run, varied) for run in runs])
    elif runs:
        placed = [(0, run) for run in runs]
        if sort is None:
            placed = below_parents(runs)
        _print_runs(
            wide_console(),
            [run for _, run in placed],
            varied,
            depths=[depth for depth, _ in placed],
        )
    elif os.path.isdir(data):
        print_line(wide_console(), f"no such runs in {data}")
    else:
        print_line(wide_console(), f"there is no folder {data}; slm-lab run makes it")


def change_annotations(
    add: Sequence[str], remove: Sequence[str], notes: Sequence[str], data: Path
) -> None:
    """Adds and removes tags, each NAME=TAG, and sets notes, each NAME=TEXT; prints what
    the runs have then. Raises UsageError before anything is changed if a run is
    missing, or a tag is none."""
    from slm_lab.records.lookup import find_folder  # imports pydantic

    changes: dict[Path, tuple[RunDir, dict[str, Any]]] = {}

    def change_of(option: str, name: str, text: str) -> dict[str, Any]:
        if not name:
            raise UsageError(f"{option} {text}: must be NAME=…, with a run")
        run_dir, trial = find_folder(name, data)
        if trial is not None:
            raise UsageError(f"{option} {name}: a search is tagged, not a trial of it")
        empty: dict[str, Any] = {"add": [], "remove": [], "note": None}
        return changes.setdefault(run_dir.root.resolve(), (run_dir, empty))[1]

    for option, texts, key in (("--tag", add, "add"), ("--untag", remove, "remove")):
        for text in texts:
            name, _, tag = text.rpartition("=")
            check_tags([tag])
            change_of(option, name, text)[key].append(tag)
    for text in notes:
        name, _, note = text.partition("=")
        check_note(note)
        change_of("--note", name, text)["note"] = note
    for run_dir, change in changes.values():
        after = annotate(run_dir, **change)
        parts = [", ".join(after.tags) or "no tags", after.note]
        line = f"{run_dir.root.name}: {'; '.join(filter(None, parts))}"
        print_line(wide_console(), escape_line(line))


def _print_runs(
    console: Console,
    runs: Sequence[Overview],
    varied: Sequence[str] = (),
    depths: Sequence[int] = (),
) -> None:
    """Prints a table; each run has the depth at which it stands in a tree of forks."""
    texts = [run.cells() for run in runs]
    for cells, depth in zip(texts, depths, strict=False):
        if depth:
            cells["run"] = f"{'  ' * (depth - 1)}↳ {cells['run']}"
    columns = {
        heading: [cells[name] for cells in texts] for heading, name in COLUMNS.items()
    }
    names = short_names(varied)
    params = {
        names[path] if names[path] not in columns else path: path
        for path in varied[:MOST_PARAMS]
    }
    of_runs = {
        heading: [
            value_text(run.params[path]) if path in run.params else "" for run in runs
        ]
        for heading, path in params.items()
    }
    place = list(columns).index("mode")
    before = list(columns.items())
    columns = dict([*before[:place], *of_runs.items(), *before[place:]])
    if not any(columns["tags"]):
        del columns["tags"]
    widths = {
        name: max(map(len, [name, *column])) + COLUMN_GAP
        for name, column in columns.items()
    }
    longest = widths["changed"]
    widths["changed"] = min(longest, CHANGED_WIDTH + COLUMN_GAP)
    first = LEAVE_OUT[:FIRST_OUT]
    for name in (*first, *reversed(params), *LEAVE_OUT[FIRST_OUT:]):
        if sum(widths.values()) > console.width:
            del columns[name], widths[name]
    if "changed" in columns:
        room = (
            min(longest, console.width - sum(widths.values()) + widths["changed"])
            - COLUMN_GAP
        )
        whole = columns["changed"]
        columns["changed"] = [
            text if len(text) <= room else f"{text[: room - 1]}…" for text in whole
        ]
    rows = zip(*columns.values(), strict=True)
    plain: Any = {"box": None, "pad_edge": False, "padding": (0, 1)}
    print_table(
        console=console,
        title="",
        header=tuple(columns),
        rows=rows,
        left=LEFT,
        whole=True,
        **plain,
    )


def tidy_runs(data: Path, dev: bool, failed: bool, older: str | None, yes: bool) -> int:
    """Prints the runs to delete, and with `yes` deletes them. Raises UsageError."""
    if not (dev or failed or older):
        raise UsageError(
            "choose what to delete: --dev, --failed, --older 30d, or several of them"
        )
    console = wide_console()
    age = None
    if older is not None:
        age = _parse_age(older)
    _refuse_file(data)
    runs = selected(data, dev, failed, age)
    if not runs:
        none = "there is no folder"
        if os.path.isdir(data):
            none = "nothing to delete in"
        print_line(console, f"{none} {data}")
        return 0
    _print_runs(console, runs)
    if not yes:
        total = decimal(sum(run.bytes for run in runs))
        print_line(
            console, f"--yes would delete {count_text(len(runs), 'run')}, {total}"
        )
        return 0
    code = 0
    for run, reason in delete(data, runs):
        name = run.cells()["run"]
        if reason is None:
            print_line(console, f"deleted {name}")
        else:
            code = 1
            print_line(console, f"kept {name}: {reason}", "yellow")
    return code


def _refuse_file(data: Path) -> None:
    if os.path.isfile(data):
        raise UsageError(f"--data {data}: must be a folder, not a file")


def _parse_age(text: str) -> timedelta:
    """The time of "30d". Raises UsageError."""
    match = re.fullmatch(r"(\d{1,5})([mhdw])", text)
    if match is None:
        units = ", ".join(f"{unit} ({name})" for unit, name in UNITS.items())
        raise UsageError(f"--older {text}: must be a whole number and a unit: {units}")
    return timedelta(**{UNITS[match[2]]: int(match[1])})


def diff_runs(a: str, b: str, data: Path) -> None:
    """Prints the differences between two runs. Raises LabError."""
    from slm_lab.charts.diff import diff
    from slm_lab.charts.final_returns import text_table

    console = wide_console()
    difference = diff(a, b, data)
    for title, table in difference.tables.items():
        if table.rows:
            print_table(
                console=console,
                title=title,
                header=table.header,
                rows=table.rows,
                left=table.header,
                box=SIMPLE_HEAD,
            )
        else:
            print_line(console, f"{title}: none")
    results = difference.results
    if results.endings:
        table = text_table(results.endings)
        print_table(
            console=console,
            title="Results",
            header=table.header,
            rows=table.rows,
            spare=table.spare,
            whole=True,
            box=SIMPLE_HEAD,
        )
    for text in results.sentences:
        print_line(console, text)
