"""The lines and tables of a study's trials, of a search and of other studies."""

import io
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from slm_lab.cli.display.live import STOPPING
from slm_lab.cli.display.trainings import TrainingsTable
from slm_lab.cli.display.trials import TrialsTable
from slm_lab.metrics.trial_state import Status
from slm_lab.records.event_log import Began, Ended, Proposed, Retried, StudyState

CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")
"""What moves the cursor of a terminal, or colours."""


class Watched:
    """A study of four trials that a table shows, and what is printed meanwhile."""

    def __init__(self, kind, is_terminal):
        self.study_state = StudyState()
        self.stopping = False
        self.num_trials = 4
        self.out = io.StringIO()
        self.pool = SimpleNamespace(running={})
        self.study = self
        console = Console(
            file=self.out, width=100, height=20, force_terminal=is_terminal
        )
        self.table = TrainingsTable(console, self)
        if kind is TrialsTable:
            self.table = TrialsTable(console, self, {"lr": "lr"}, 100)

    def frame_of(self, trial):
        return 7

    def label(self, trial):
        return f"seed {trial}"

    def budget(self, trial):
        return 100

    def apply(self, *events):
        for event in events:
            self.study_state.apply(event)
            self.table.update()

    @property
    def lines(self):
        return CONTROL.sub("", self.out.getvalue()).splitlines()


def ended(trial, status, **more):
    facts = {"frame": 100, "score": 5.0, "seconds": 3.0, "metrics": {}, "error": None}
    return Ended(trial, status, **{**facts, **more}, would_repeat=False)


TOLD = {
    TrialsTable: [
        "t0 begins: lr 1",
        "t1 begins: lr 2",
        "t0 finished at 100 frames with 5.00; best so far t0 with 5.00: lr 1",
        "t1 restarts: lost",
        "t1 failed: boom",
        STOPPING,
    ],
    TrainingsTable: [
        "[1/4] seed 0 begins",
        "[2/4] seed 1 begins",
        "[1/4] seed 0: 5.00 after 100 frames, 0:03",
        "[2/4] seed 1 restarts: lost",
        "[2/4] seed 1 failed: boom",
        STOPPING,
    ],
}
BESIDE_THE_TABLE = {
    TrialsTable: ["t1 restarts: lost", "t1 failed: boom"],
    TrainingsTable: TOLD[TrainingsTable][2:5],
}
"""What a terminal shows above its live table, too."""


@pytest.mark.parametrize("kind", TOLD)
@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_line_tells_of_each_change_that_the_screen_does_not_show(kind, is_terminal):
    watched = Watched(kind, is_terminal)
    with watched.table:
        watched.apply(Proposed(0, {"lr": 1}), Began(0, "a"))
        watched.apply(Proposed(1, {"lr": 2}), Began(1, "b"))
        watched.apply(ended(0, Status.FINISHED))
        watched.apply(Retried(1, "lost", 1.0))
        watched.apply(ended(1, Status.FAILED, error="boom\nbang"))
        watched.stopping = True
        watched.table.update()
    told = [line for line in watched.lines if line in TOLD[kind]]
    assert told == (BESIDE_THE_TABLE if is_terminal else TOLD)[kind]


def test_what_a_resumed_study_did_before_is_not_told_again():
    watched = Watched(TrainingsTable, is_terminal=False)
    watched.apply(Proposed(0, {}), Began(0, "a"), ended(0, Status.FINISHED))
    before = len(watched.lines)
    with TrainingsTable(watched.table._console, watched) as again:
        again.update()
    assert watched.lines[before:] == []
