"""What the Sessions of a Trial have written so far: their rows, and how far each is."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from slm_lab.analysis.table import TextTable
from slm_lab.core.errors import LabError
from slm_lab.core.text import error_summary, significant
from slm_lab.experiment.plot.runs import FoundTrial, ReadRows
from slm_lab.metrics.reader import Rows
from slm_lab.storage.maybe_damaged import trial_metrics


def session_name(found: FoundTrial, session: int) -> str:
    """ "Session 0"; "learner 0" in a mode in which only learners write rows."""
    return f"learner {session}" if found.meta.mode.has_learner else f"Session {session}"


class SessionRows(NamedTuple):
    """The rows of the Sessions of a Trial so far."""

    rows: dict[int, Rows]
    """By Session; only of those that have rows."""
    played: dict[int, Rows]
    """Of their evaluations."""
    problems: list[str]
    """Why others cannot be read."""


def read_sessions(found: FoundTrial, read: ReadRows) -> SessionRows:
    """The rows of all Sessions; a damaged file hides no other."""
    sessions = SessionRows({}, {}, [])
    for session in found.meta.writers:
        paths = found.run_dir.session(found.trial, session)
        for file, into in ((paths.rows, sessions.rows), (paths.eval_rows, sessions.played)):
            try:
                if len(rows := read(paths, file)):
                    into[session] = rows
            except LabError as error:
                sessions.problems.append(f"{file.name}: {error_summary(str(error))}")
    return sessions


def session_table(found: FoundTrial, rows: Mapping[int, Rows]) -> TextTable:
    """A line for each Session that has rows."""
    recorded = trial_metrics(found.run_dir, found.trial).get("sessions") or []
    ends = {each.get("session"): each for each in recorded}
    lines = []
    for session, each in rows.items():
        last = {name: each[name][-1] for name in each.columns}
        end = ends.get(session, {})
        known = last.get("recent_return", np.nan)
        value = known if np.isfinite(known) else last.get("final_return", np.nan)
        lines.append((
            session_name(found, session),
            str(end.get("ending", "")),
            f"{last['frame']:,.0f}",
            significant(float(last.get("fps", 0.0))),
            significant(float(value)) if np.isfinite(value) else "–",
            error_summary(str(end.get("error") or "")),
        ))  # fmt: skip
    header = ("Session", "ended", "frame", "frames/s", "return", "reason")
    return TextTable(header, tuple(lines), words=1)
