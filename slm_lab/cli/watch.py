"""The command `slm-lab watch`: the live table of a run that another process trains."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import final

from slm_lab.cli.display.live import LiveDisplay
from slm_lab.cli.display.screen import console, print_line
from slm_lab.cli.doctor import print_finding
from slm_lab.core.errors import UsageError
from slm_lab.experiment.doctor.case import read_case
from slm_lab.experiment.doctor.training import first_finding
from slm_lab.experiment.plot.runs import FoundTrial, find_trials
from slm_lab.metrics.reader import RowFollower
from slm_lab.session.status_board import Flow, Phase, SessionProgress
from slm_lab.storage.lock import is_locked
from slm_lab.storage.result import Ending
from slm_lab.storage.run_lookup import find_folder

PAUSE = 1.0
"""Seconds between two looks at the folder."""
PHASES = {
    Ending.FINISHED: Phase.DONE,
    Ending.FAILED: Phase.FAILED,
    Ending.INTERRUPTED: Phase.STOPPED,
}


@final
class FolderBoard:
    """What a StatusBoard shows of a Trial, read from the files of its Sessions."""

    def __init__(self, trial: FoundTrial) -> None:
        self._trial = trial
        paths = {s: trial.run_dir.session(trial.trial, s) for s in trial.meta.writers}
        self._rows = {session: RowFollower(each.rows) for session, each in paths.items()}
        self._last: dict[int, Mapping[str, float | None]] = {}
        self._best: dict[int, float] = {}
        self._ends: dict[int, Ending] = {}
        self.reasons: dict[int, str] = {}
        self.stop_requested = False
        self.is_training = True

    def look(self) -> None:
        """Reads the rows that are new, and how the Sessions have ended."""
        self.is_training = is_locked(self._trial.run_dir.root)
        for session, follower in self._rows.items():
            try:
                new = follower.new_rows()
            except ValueError as error:
                raise UsageError(f"{follower.path} cannot be read: {error}") from None
            for row in new:
                self._last[session] = row
                value = row.get("recent_return")
                if value is not None:
                    self._best[session] = max(value, self._best.get(session, value))
        if not self.is_training:
            ends = read_case(self._trial).ends
            self._ends = {end.session: end.ending for end in ends}
            self.reasons = {end.session: end.error for end in ends if end.error is not None}

    def read(self, session: int) -> SessionProgress:
        """Its last row. An actor, which writes none, has only a phase."""
        row = self._last.get(session, {})
        running = Phase.RUNNING if row or session not in self._rows else Phase.STARTING
        phase = PHASES.get(self._ends.get(session, Ending.INTERRUPTED), Phase.STOPPED)
        recent = row.get("recent_return")
        return SessionProgress(
            running if self.is_training else phase,
            int(row.get("frame") or 0),
            0,
            row.get("fps"),
            row.get("final_return") if recent is None else recent,
            self._best.get(session),
        )

    def flow(self, session: int) -> Flow | None:
        """The numbers of a learner; None without one."""
        row = self._last.get(session, {})
        if row.get("policy_lag") is None:
            return None
        known = (row.get(column) for column in Flow._fields)
        return Flow(*(float("nan") if value is None else value for value in known))


def watch(run: str, data: Path) -> int:
    """Shows a run until it ends, and returns the exit code. Raises UsageError."""
    run_dir, number = find_folder(run, data)
    begun = run_dir.trials if number is None else [number]
    if not begun:
        raise UsageError(f"{run_dir.root} has no trial yet")
    (trial,) = find_trials(f"{run_dir.root}:t{begun[-1]}", data)
    screen, board = console(), FolderBoard(trial)
    print_line(screen, f"{trial.name} on {trial.spec['env']['name']}, {trial.where}")
    budget = trial.spec["env"]["max_frame"]
    with LiveDisplay(screen, trial.meta, budget, closing="") as display:
        while True:
            board.look()
            display.update(board)
            if not board.is_training:
                break
            time.sleep(PAUSE)
    finding = first_finding(run_dir, trial.trial)
    if finding is not None:
        print_finding(screen, finding, "doctor: ")
    return 0
