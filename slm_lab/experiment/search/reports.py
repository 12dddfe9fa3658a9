"""What a trial tells a scheduler: how its Sessions score at frames that all have reached."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, final

import numpy as np

from slm_lab.metrics.reader import Rows, read_rows

SHARE = 0.05
"""Of a core, what reading the rows of a trial may take."""


class Report(NamedTuple):
    """A score, and the frame of the budget at which all Sessions had it."""

    frame: int
    score: float


def reports(rows: Sequence[Rows]) -> list[Report]:
    """A report for each row that every Session has written: Sessions write them after equal
    numbers of their own frames.

    The score is the mean of `recent_return`; there is none while a Session has too few episodes to
    be judged by. The frame is `total_frame`, so that trials are compared at equal shares of their
    budgets.
    """
    count = min((len(each) for each in rows), default=0)
    if not count:
        return []
    frames = np.max([each["total_frame"][:count] for each in rows], axis=0)
    scores = np.mean([each["recent_return"][:count] for each in rows], axis=0)
    known = np.isfinite(scores)
    return [Report(int(f), float(s)) for f, s in zip(frames[known], scores[known], strict=True)]


@final
class Watch:
    """Reads the rows of a trial's Sessions when there are new ones.

    It reads all of them: a Session that goes on from its last checkpoint cuts off what it had
    written since. So that this does not cost more than `SHARE` of a core, long files are read less
    often.
    """

    def __init__(self, files: Sequence[Path], after: int) -> None:
        self._files = files
        self._sizes: list[int] | None = None
        self._told = after
        self._due = 0.0

    def look(self, at_the_end: bool = False) -> list[Report]:
        """The reports that have come since the last look, of frames after those told before."""
        began = time.monotonic()
        if began < self._due and not at_the_end:
            return []
        try:
            sizes = [file.stat().st_size for file in self._files]
        except FileNotFoundError:
            return []
        if sizes == self._sizes:
            return []
        known = reports([read_rows(file) for file in self._files])
        self._sizes = sizes
        self._due = began + (time.monotonic() - began) / SHARE
        new = [report for report in known if report.frame > self._told]
        if new:
            self._told = new[-1].frame
        return new
